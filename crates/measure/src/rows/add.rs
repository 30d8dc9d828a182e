//! A run that goes on, in the file that it adds to.

use super::file::{FILE, Line, Measurements, Problem, RowsError, append};
use super::row::Row;
use super::run::{Run, Step};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A run that goes on, and the file that it adds to.
#[derive(Debug)]
pub struct RunFile {
    directory: PathBuf,
    path: PathBuf,
    run: Run,
    problems: Vec<Problem>,
    /// The file has the line of this run.
    is_begun: bool,
}

impl RunFile {
    /// Opens the file of a directory to add to this run: behind its steps with the same setting, or
    /// from the beginning if `again`. Nothing is written before the first step.
    ///
    /// # Errors
    /// A file that is none of rows or of another version, and [`RowsError::OtherSetting`].
    pub fn open(
        directory: &Path,
        name: &str,
        setting: BTreeMap<String, String>,
        steps: u64,
        again: bool,
    ) -> Result<Self, RowsError> {
        let path = directory.join(FILE);
        let Measurements { runs, problems, .. } = Measurements::read(directory)?;
        let there = runs.into_iter().find(|run| run.name == name && !again);
        // It gets its number with its first step: other runs of the file may begin before.
        let fresh = Run { id: 0, name: name.to_owned(), setting, steps, found: BTreeMap::new() };
        let (run, is_begun) = match there {
            None => (fresh, false),
            Some(there) if there.found.is_empty() => (fresh, false),
            Some(there) if (&there.setting, there.steps) == (&fresh.setting, fresh.steps) => {
                (there, true)
            }
            Some(there) => return Err(RowsError::other_setting(path, &there, &fresh)),
        };
        Ok(RunFile { directory: directory.to_owned(), path, run, problems, is_begun })
    }

    /// The run as far as it goes.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Lines of the file that could not be read.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a step to the run and to the file, in one write.
    ///
    /// # Errors
    /// A row that no measurement can have given, or a file that cannot be written.
    pub fn add(
        &mut self,
        number: u64,
        rows: Vec<Row>,
        notes: Vec<String>,
    ) -> Result<(), RowsError> {
        let mut lines = Vec::new();
        if !self.is_begun {
            self.run.id = Measurements::read(&self.directory)?.greatest_id + 1;
            let Run { id, name, setting, steps, .. } = self.run.clone();
            lines.push(Line::Run { id, name, setting, steps });
        }
        for row in &rows {
            row.check().map_err(RowsError::Impossible)?;
            lines.push(Line::Row(Box::new(row.clone())));
        }
        lines.push(Line::Step { run: self.run.id, number, rows: rows.len(), notes: notes.clone() });
        append(&self.path, &lines)?;
        self.is_begun = true;
        self.run.found.insert(number, Step { rows, notes, whole: true });
        Ok(())
    }
}
