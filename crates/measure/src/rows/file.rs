//! The file of rows: reading its whole steps, and appending.

use super::row::Row;
use super::run::{Run, Step};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Name of the file in a directory of results.
pub const FILE: &str = "measurements.jsonl";
const NAME: &str = "tradewind measurements";
const VERSION: u32 = 1;

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Line {
    Format {
        name: String,
        version: u32,
    },
    Run {
        /// Number of the run in this file.
        id: u64,
        name: String,
        setting: BTreeMap<String, String>,
        steps: u64,
    },
    Row(Box<Row>),
    Step {
        /// The run that the step belongs to.
        run: u64,
        number: u64,
        /// Number of its rows, which stand directly above.
        rows: usize,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
}

/// Reason why rows cannot be read or kept, or a run cannot be continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error(
        "{}: cannot be written: {source}; the rows that were there are unchanged: free some space, \
         or choose another directory with --out",
        .path.display()
    )]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The first line does not say that this is a file of rows.
    #[error(
        "{}:1: is no file of measurements: {what}; remove it, or choose another directory with \
         --out",
        .path.display()
    )]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// Description of the line.
        what: String,
    },
    /// The file has another version.
    #[error(
        "{}:1: has version {found} of the format, and this tradewind reads version {VERSION}: use \
         the other tradewind, or choose another directory with --out",
        .path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The rows of the run were measured with another setting.
    #[error(
        "{}: {name} was measured with another setting ({differences}): measure it anew with --again, or \
         choose another directory with --out",
        .path.display()
    )]
    OtherSetting {
        /// The file.
        path: PathBuf,
        /// The run.
        name: String,
        /// Each difference in words.
        differences: String,
    },
    /// A measurement gave a row that cannot be.
    #[error("a row cannot be: {0}; please report this")]
    Impossible(String),
}

impl RowsError {
    pub(super) fn other_setting(path: PathBuf, there: &Run, asked: &Run) -> Self {
        let value = |of: &Run, name: &String| {
            of.setting.get(name).cloned().unwrap_or_else(|| "none".to_owned())
        };
        let names: BTreeSet<&String> = there.setting.keys().chain(asked.setting.keys()).collect();
        let differs = |name: &&String| there.setting.get(*name) != asked.setting.get(*name);
        let words =
            |name| format!("{name} {} there, {} now", value(there, name), value(asked, name));
        let mut differences: Vec<String> = names.into_iter().filter(differs).map(words).collect();
        if there.steps != asked.steps {
            differences.push(format!("{} steps there, {} now", there.steps, asked.steps));
        }
        let differences = differences.join("; ");
        RowsError::OtherSetting { path, name: asked.name.clone(), differences }
    }
}

/// A line that is left out, or the end of a file that is cut off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {what}; the other {kept} rows of the file are kept", .path.display())]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Number of the line, from 1.
    pub line: usize,
    /// Fault of the line.
    pub what: String,
    /// Rows of the file that are whole.
    pub kept: usize,
}

/// Everything that was measured in a directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// The latest run of each name that has a row, in the order in which they began.
    pub runs: Vec<Run>,
    /// Lines that could not be read.
    pub problems: Vec<Problem>,
    /// Greatest number of a run in the file, also where its line is damaged.
    pub(super) greatest_id: u64,
}

impl Measurements {
    /// Reads the rows of a directory; none if it has no file. Lines that are damaged or impossible
    /// become [`problems`](Self::problems), each of which costs the step that it belongs to.
    ///
    /// # Errors
    /// A file that cannot be read, is none of rows, or has another version.
    pub fn read(directory: &Path) -> Result<Self, RowsError> {
        let path = directory.join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => Self::of_bytes(&path, &bytes),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(RowsError::Unreadable { path, source }),
        }
    }

    /// The rows of a file with these bytes. The path is for messages.
    ///
    /// ```
    /// use measure::rows::Measurements;
    /// use std::path::Path;
    ///
    /// let path = Path::new("measurements.jsonl");
    /// let file = concat!(
    ///     r#"{"format":{"name":"tradewind measurements","version":1}}"#, "\n",
    ///     r#"{"run":{"id":1,"name":"overlap","setting":{},"steps":2}}"#, "\n",
    ///     r#"{"step":{"run":1,"number":0,"rows":0}}"#, "\n",
    ///     r#"{"row":{"exper"#,
    /// );
    /// let there = Measurements::of_bytes(path, file.as_bytes()).expect("the first line is right");
    /// assert_eq!(there.run("overlap").map(|run| run.done()), Some(1));
    /// assert!(there.problems[0].to_string().starts_with("measurements.jsonl:4: is cut off"));
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_bytes(path: &Path, bytes: &[u8]) -> Result<Self, RowsError> {
        let mut reader = Reader::default();
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
        let Some((_, first)) = lines.next() else { return Ok(Self::default()) };
        check_format(path, first)?;
        for (index, line) in lines {
            reader.take(index + 1, line);
        }
        Ok(reader.end(path))
    }

    /// The latest run of this name.
    pub fn run(&self, name: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.name == name)
    }
}

fn check_format(path: &Path, line: &[u8]) -> Result<(), RowsError> {
    let other = |what: String| RowsError::OtherKind { path: path.to_owned(), what };
    match serde_json::from_slice(line) {
        Ok(Line::Format { name, version: VERSION }) if name == NAME => Ok(()),
        Ok(Line::Format { name, version }) if name == NAME => {
            Err(RowsError::Version { path: path.to_owned(), found: version })
        }
        Ok(Line::Format { name, .. }) => Err(other(format!("it is a {name:?} file"))),
        Ok(_) => Err(other("the first line has no `format`".to_owned())),
        Err(error) => Err(other(error.to_string())),
    }
}

/// Runs as far as lines have been read.
#[derive(Default)]
struct Reader {
    runs: Vec<Run>,
    greatest_id: u64,
    /// The run of the last line that names one.
    current: Option<usize>,
    /// Lines behind the last step: rows, and lines that could not be read.
    open: Vec<Option<Row>>,
    /// Numbers and faults of lines that could not be read.
    faults: Vec<(usize, String)>,
}

impl Reader {
    fn take(&mut self, number: usize, line: &[u8]) {
        let parsed = match line.strip_suffix(b"\n") {
            None => Err("is cut off".to_owned()),
            Some(line) => {
                serde_json::from_slice(line).map_err(|error| format!("is damaged: {error}"))
            }
        };
        if let Err(what) = parsed.and_then(|line| self.add(line)) {
            self.open.push(None);
            self.faults.push((number, what));
        }
    }

    fn add(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Format { .. } => return Err("is a second first line".to_owned()),
            Line::Run { id, name, setting, steps } => {
                self.close();
                self.greatest_id = self.greatest_id.max(id);
                self.current = None;
                if self.runs.iter().any(|run| run.id == id) {
                    return Err(format!("is a second run {id}"));
                }
                self.current = Some(self.runs.len());
                self.runs.push(Run { id, name, setting, steps, found: BTreeMap::new() });
            }
            Line::Row(row) => {
                row.check().map_err(|what| format!("cannot be: {what}"))?;
                self.open.push(Some(*row));
            }
            Line::Step { run: id, number, rows: count, notes } => {
                let of_step = self.open.split_off(self.open.len().saturating_sub(count));
                self.close();
                let rows: Vec<Row> = of_step.into_iter().flatten().collect();
                let whole = rows.len() == count;
                self.greatest_id = self.greatest_id.max(id);
                self.current = self.runs.iter().position(|run| run.id == id);
                let Some(run) = self.current.and_then(|at| self.runs.get_mut(at)) else {
                    return Err("is a step of no run".to_owned());
                };
                if number >= run.steps {
                    return Err(format!("is step {number} of {}, which count from 0", run.steps));
                }
                run.found.insert(number, Step { rows, notes, whole });
            }
        }
        Ok(())
    }

    /// Rows of a step that is not complete: they are kept as those of the first step that is
    /// missing, until it is measured again.
    fn close(&mut self) {
        let rows: Vec<Row> = std::mem::take(&mut self.open).into_iter().flatten().collect();
        let Some(run) = self.current.and_then(|at| self.runs.get_mut(at)) else { return };
        if let (Some(number), false) = (run.first_missing(), rows.is_empty()) {
            run.found.entry(number).or_default().rows.extend(rows);
        }
    }

    fn end(mut self, path: &Path) -> Measurements {
        self.close();
        let kept = self.runs.iter().flat_map(Run::rows).count();
        // Of each name the latest run that has a whole step, else the first.
        let mut runs: Vec<Run> = Vec::new();
        for run in self.runs {
            match runs.iter_mut().find(|known| known.name == run.name) {
                Some(known) if run.done() > 0 => *known = run,
                Some(_) => {}
                None => runs.push(run),
            }
        }
        let problem = |(line, what)| Problem { path: path.to_owned(), line, what, kept };
        let problems = self.faults.into_iter().map(problem).collect();
        Measurements { runs, problems, greatest_id: self.greatest_id }
    }
}

/// Appends lines in one write; begins the file if there is none, and cuts off an incomplete last
/// line.
pub(super) fn append(path: &Path, lines: &[Line]) -> Result<(), RowsError> {
    let unwritable = |source| RowsError::Unwritable { path: path.to_owned(), source };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(unwritable)?;
    let end = end_of_lines(&mut file).map_err(unwritable)?;
    let mut text = String::new();
    let format = Line::Format { name: NAME.to_owned(), version: VERSION };
    for line in (end == 0).then_some(&format).into_iter().chain(lines) {
        let line = serde_json::to_string(line).map_err(io::Error::from).map_err(unwritable)?;
        text.push_str(&line);
        text.push('\n');
    }
    file.set_len(end).map_err(unwritable)?;
    file.seek(SeekFrom::Start(end)).map_err(unwritable)?;
    file.write_all(text.as_bytes()).map_err(unwritable)
}

/// The length of the file up to the end of its last whole line.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    const BLOCK: u64 = 1 << 16;
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let begin = end.saturating_sub(BLOCK);
        let mut block = vec![0; (end - begin) as usize];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}
