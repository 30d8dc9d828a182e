//! A directory of results.

use super::{Part, csv};
use models::file::{self, FileError, FileKind};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const PART: FileKind = FileKind {
    name: "tradewind measurement",
    version: 2,
    oldest: 2,
    remedy: "remove it and measure again with `tradewind measure`",
};

/// Reason why results cannot be kept or read.
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
    /// The directory cannot be looked into.
    #[error("{}: cannot be looked into: {source}", .path.display())]
    Unlistable {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file cannot be written or read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ResultsError {
    /// Returns true if the file is a whole one of another kind, such as a decision table: no part,
    /// and no damage either.
    pub fn is_other_kind(&self) -> bool {
        matches!(self, ResultsError::File(FileError::OtherKind { .. }))
    }
}

/// Directory of the results of a run: `NAME.json` for each part, `NAME-FIGURE.csv` for each of its
/// figures, maps and tables, and `machine.json`. Every file is written whole or not at all.
///
/// ```
/// use measure::results::{Directory, Part};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let place = tempfile::tempdir()?;
/// let directory = Directory::create(place.path())?;
/// assert_eq!(directory.read("barrier")?, None);
/// let part = Part { complete: true, ..Part::new("barrier", "Barrier") };
/// directory.write(&part)?;
/// assert_eq!(directory.read("barrier")?, Some(part));
/// # Ok(())
/// # }
/// ```
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

    /// The names and paths of the files that may hold parts, in the order of their names.
    ///
    /// # Errors
    /// [`ResultsError::Unlistable`].
    pub fn files(&self) -> Result<Vec<(String, PathBuf)>, ResultsError> {
        let unlistable = |source| ResultsError::Unlistable { path: self.path.clone(), source };
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(unlistable)? {
            let path = entry.map_err(unlistable)?.path();
            let is_json = path.extension().is_some_and(|extension| extension == "json");
            match path.file_stem().and_then(|name| name.to_str()) {
                Some(name) if is_json && path != self.machine() => {
                    files.push((name.to_owned(), path))
                }
                _ => {}
            }
        }
        files.sort();
        Ok(files)
    }

    /// The part of this name; `None` if it has not been measured.
    ///
    /// # Errors
    /// When its file is damaged or of another version.
    pub fn read(&self, name: &str) -> Result<Option<Part>, ResultsError> {
        let path = self.path.join(format!("{name}.json"));
        match file::read(&path, &PART) {
            Ok(part) => Ok(Some(part)),
            Err(FileError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps a part, in the place of the part of that name that may be there.
    ///
    /// # Errors
    /// When a file cannot be written; those that were there before are still whole.
    pub fn write(&self, part: &Part) -> Result<(), ResultsError> {
        self.write_tables(part)?;
        // Last: the tables of a part exist before the part.
        Ok(file::write(&self.path.join(format!("{}.json", part.name)), &PART, part)?)
    }

    /// Writes the figures, maps and tables of a part for other programs.
    ///
    /// # Errors
    /// When a file cannot be written; those that were there before are still whole.
    pub fn write_tables(&self, part: &Part) -> Result<(), ResultsError> {
        let name = &part.name;
        for figure in &part.figures {
            self.put(&format!("{name}-{}.csv", figure.name), |file| csv::figure(figure, file))?;
        }
        for map in &part.maps {
            self.put(&format!("{name}-{}.csv", map.name), |file| csv::map(map, file))?;
        }
        for table in &part.tables {
            self.put(&format!("{name}-{}.csv", table.name), |file| csv::table(table, file))?;
        }
        Ok(())
    }

    fn put(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> ::csv::Result<()>,
    ) -> Result<(), ResultsError> {
        let path = self.path.join(name);
        file::replace(&path, |file| write(file).map_err(io::Error::from))
            .map_err(|source| ResultsError::File(FileError::Unwritable { path, source }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Axis, Figure, Point, Role, Series};

    #[test]
    fn a_value_that_is_no_number_is_read_as_none_again() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = Directory::create(place.path()).expect("it is there");
        let mut figure = Figure::new("f", "F", Axis::number("x"), Axis::number("y"));
        figure.series.push(Series {
            name: "a".into(),
            role: Role::Measured,
            points: vec![Point::of(1.0, &[])],
        });
        directory
            .write(&Part { figures: vec![figure], ..Part::new("p", "P") })
            .expect("it can be written");
        let part = directory.read("p").expect("it can be read").expect("it is there");
        assert!(part.figures[0].series[0].points[0].median.is_nan());
    }

    #[test]
    fn files_are_listed_but_for_the_machine_and_tables() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = Directory::create(place.path()).expect("it is there");
        for name in ["memory.json", "barrier.json", "machine.json", "barrier-f.csv"] {
            fs::write(place.path().join(name), "{}").expect("it can be written");
        }
        let files = directory.files().expect("it can be listed");
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["barrier", "memory"]);
    }
}
