//! Input of the page.

use crate::experiments::parts;
use crate::results::{Directory, Part};
use crate::rows::{FILE, Measurements};
use models::machine_file::Machine;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Input of a page.
#[derive(Clone, Debug)]
pub struct Input {
    /// Results that the page shows.
    pub results: Results,
    /// Results that they are compared with.
    pub other: Option<Results>,
}

/// Everything that is known of one run of measurements.
#[derive(Clone, Debug)]
pub struct Results {
    /// Label of the results: the name of their directory.
    pub label: String,
    /// Measured parts, in any order.
    pub parts: Vec<Part>,
    /// The machine's parameters.
    pub machine: Option<Machine>,
    /// When the last part was measured.
    pub measured: Option<SystemTime>,
    /// Files that could not be read, each in a sentence.
    pub problems: Vec<String>,
}

impl Results {
    /// Results of this name, still empty.
    pub fn named(label: &str) -> Self {
        Results {
            label: label.to_owned(),
            parts: Vec::new(),
            machine: None,
            measured: None,
            problems: Vec::new(),
        }
    }

    /// Reads a directory. A file that cannot be read becomes a sentence in
    /// [`problems`](Self::problems): the other is still worth a page.
    pub fn of(directory: &Directory) -> Self {
        let mut results = Results::named(&name_of(directory.path()));
        match Measurements::read(directory.path()) {
            Ok(measured) => {
                results.parts = parts(&measured);
                results.measured = changed(&directory.path().join(FILE));
                results.problems = measured.problems.iter().map(ToString::to_string).collect();
            }
            Err(error) => results.problems.push(error.to_string()),
        }
        if directory.machine().exists() {
            results.add_machine(&directory.machine());
        }
        results
    }

    /// Reads the directory or the single `machine.json` of this path.
    ///
    /// # Errors
    /// When there is nothing of that name, or it may not be looked into.
    pub fn read(path: &Path) -> io::Result<Self> {
        if fs::metadata(path)?.is_dir() {
            let directory = Directory::create(path).map_err(io::Error::other)?;
            return Ok(Results::of(&directory));
        }
        let mut results = Results::named(&name_of(path));
        results.add_machine(path);
        Ok(results)
    }

    fn add_machine(&mut self, path: &Path) {
        match Machine::read(path) {
            Ok(machine) => {
                self.machine = Some(machine);
                self.measured = self.measured.max(changed(path));
            }
            Err(error) => self.problems.push(error.to_string()),
        }
    }
}

/// When a file was written, if its date is one that can be written in four digits.
fn changed(path: &Path) -> Option<SystemTime> {
    const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);
    let time = fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    time.duration_since(UNIX_EPOCH).is_ok_and(|age| age < YEAR_10000).then_some(time)
}

/// The last name of a path, also of `.` and `..`.
fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}
