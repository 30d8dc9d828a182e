//! A directory of results.

use super::{Part, csv};
use models::file::{self, FileError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why results cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultsError {
    /// The directory cannot be made.
    #[error("{}: cannot be made: {source}; choose another directory with --out", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Directory of the results of a run: the [file of rows](crate::rows), `NAME-FIGURE.csv` for each
/// figure, map and table that they make, and `machine.json`. Every file but that of rows is written
/// whole or not at all.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// This directory, made if it is not there.
    ///
    /// # Errors
    /// [`ResultsError::Directory`].
    pub fn create(path: &Path) -> Result<Self, ResultsError> {
        let path = path.to_owned();
        match fs::create_dir_all(&path) {
            Ok(()) => Ok(Directory { path }),
            Err(source) => Err(ResultsError::Directory { path, source }),
        }
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of `machine.json`, which may not exist yet.
    pub fn machine(&self) -> PathBuf {
        self.path.join("machine.json")
    }

    /// Writes the figures, maps and tables of a part for other programs.
    ///
    /// # Errors
    /// When a file cannot be written; those that were there before are still whole.
    pub fn write_tables(&self, part: &Part) -> Result<(), ResultsError> {
        let figures = part.figures.iter().map(csv::of_figure);
        let maps = part.maps.iter().map(csv::of_map);
        for table in figures.chain(maps).chain(part.tables.iter().cloned()) {
            let path = self.path.join(format!("{}-{}.csv", part.name, table.name));
            file::replace(&path, |file| csv::write(&table, file).map_err(io::Error::from))
                .map_err(|source| FileError::Unwritable { path, source })?;
        }
        Ok(())
    }
}
