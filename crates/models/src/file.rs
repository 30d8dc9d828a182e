//! The files that are kept between runs: read with every doubt, written whole or not at all.

use crate::machine::Fingerprint;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKind {
    /// The name in the file's first field.
    pub name: &'static str,
    /// The version that is written, and the newest that is read.
    pub version: u32,
    /// The oldest version that is read. Later ones have further fields, which may be absent.
    pub oldest: u32,
    /// Instruction for a new one, as the end of a sentence.
    pub remedy: &'static str,
}

impl FileKind {
    /// Measurements of a machine: [`Machine`](crate::machine_file::Machine).
    pub const MACHINE: FileKind = FileKind {
        name: "tradewind machine",
        version: 6,
        oldest: 3,
        remedy: "measure this machine with `tradewind measure plogp`",
    };
    /// Choices of algorithms: [`DecisionTable`](crate::decision::DecisionTable).
    pub const DECISION_TABLE: FileKind = FileKind {
        name: "tradewind decision table",
        version: 5,
        oldest: 3,
        remedy: "write a new one with `tradewind tune`",
    };
    /// Collectives of MPI libraries: [`MpiTable`](crate::mpi_table::MpiTable).
    pub const MPI_TABLE: FileKind = FileKind {
        name: "tradewind table of MPI calls",
        version: 3,
        oldest: 1,
        remedy: "write a new one with `mpiexec -n RANKS tradewind tune --mpi`, without which \
                 the built-in rule decides",
    };

    /// "versions 3 to 6".
    fn versions(&self) -> String {
        let FileKind { oldest, version, .. } = self;
        match oldest {
            oldest if oldest == version => format!("version {version}"),
            oldest => format!("versions {oldest} to {version}"),
        }
    }
}

/// Reason why a file cannot be used, or could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system does not give the file's bytes.
    #[error("{}: cannot be read: {source}; {}", .path.display(), .kind.remedy)]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        kind: &'static FileKind,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The bytes are not such a file, or not any more.
    #[error(
        "{}:{line}:{column}: damaged{}: {what}; put it right there, or {}",
        .path.display(), in_field(.field), .kind.remedy
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        kind: &'static FileKind,
        /// Line, from 1; 0 if it lies with the file as a whole.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The way to the field, such as `content.engines.peers`; empty if there is none.
        field: String,
        /// The problem.
        what: String,
    },
    /// The file is of another kind.
    #[error("{}: is a `{found}` file, not a `{}` file: give another path, or {}", .path.display(), .kind.name, .kind.remedy)]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        kind: &'static FileKind,
        /// The kind in the file.
        found: String,
    },
    /// The file was written by an older tradewind.
    #[error(
        "{}: has version {found}, from an older tradewind; this one reads {}: {}",
        .path.display(), .kind.versions(), .kind.remedy
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its kind.
        kind: &'static FileKind,
        /// Its version.
        found: u32,
    },
    /// The file was written by a newer tradewind.
    #[error(
        "{}: has version {found}, from a newer tradewind; this one reads {}: use the newer \
         tradewind, or {}",
        .path.display(), .kind.versions(), .kind.remedy
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its kind.
        kind: &'static FileKind,
        /// Its version.
        found: u32,
    },
    /// The file describes another machine.
    #[error("{}: was made on another machine ({}): {}", .path.display(), .differences.join(", "), .kind.remedy)]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// Its kind.
        kind: &'static FileKind,
        /// Each difference in words: "4 cores there, 8 here".
        differences: Vec<String>,
    },
    /// The file could not be written. What was there before still is.
    #[error(
        "{}: cannot be written: {source}; what was there is unchanged: free some space, or choose \
         another directory",
        .path.display()
    )]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn in_field(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!(" in field `{field}`") }
}

/// Content of a file with its header.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    format: String,
    version: u32,
    content: T,
}

/// Header that all versions share.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u32,
}

/// The content of a file.
///
/// # Errors
/// [`FileError`], which names the file, the place, and what to do.
pub fn read<T: DeserializeOwned>(path: &Path, kind: &'static FileKind) -> Result<T, FileError> {
    let bytes = fs::read(path).map_err(|source| FileError::Unreadable {
        path: path.to_owned(),
        kind,
        source,
    })?;
    parse(path, kind, &bytes)
}

/// The content of a file with these bytes; the path is for messages.
pub(crate) fn parse<T: DeserializeOwned>(
    path: &Path,
    kind: &'static FileKind,
    bytes: &[u8],
) -> Result<T, FileError> {
    let header: Header = from_json(path, kind, bytes)?;
    let path_of = || path.to_owned();
    if header.format != kind.name {
        return Err(FileError::OtherKind { path: path_of(), kind, found: header.format });
    }
    match header.version {
        found if found < kind.oldest => Err(FileError::Older { path: path_of(), kind, found }),
        found if found > kind.version => Err(FileError::Newer { path: path_of(), kind, found }),
        _ => Ok(from_json::<Envelope<T>>(path, kind, bytes)?.content),
    }
}

/// Compares the fingerprint in a file with that of this machine.
pub(crate) fn belongs(
    path: &Path,
    kind: &'static FileKind,
    file: &Fingerprint,
    here: &Fingerprint,
) -> Result<(), FileError> {
    match file.differences(here) {
        differences if differences.is_empty() => Ok(()),
        differences => Err(FileError::OtherMachine { path: path.to_owned(), kind, differences }),
    }
}

/// The bytes of a file with this content.
pub(crate) fn to_bytes<T: Serialize>(kind: &'static FileKind, content: &T) -> io::Result<Vec<u8>> {
    let envelope = Envelope { format: kind.name.to_owned(), version: kind.version, content };
    let mut bytes = serde_json::to_vec_pretty(&envelope)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Replaces a file atomically: readers see the whole old file or the whole new one.
///
/// # Errors
/// [`FileError::Unwritable`]; the old file is still there.
pub fn write<T: Serialize>(
    path: &Path,
    kind: &'static FileKind,
    content: &T,
) -> Result<(), FileError> {
    let unwritable = |source| FileError::Unwritable { path: path.to_owned(), source };
    let bytes = to_bytes(kind, content).map_err(unwritable)?;
    replace(path, |file| file.write_all(&bytes)).map_err(unwritable)
}

/// Locks a file, until the result is dropped, against others that lock it to change what it has.
///
/// # Errors
/// [`FileError::Unwritable`].
pub fn lock(path: &Path) -> Result<File, FileError> {
    let unwritable = |source| FileError::Unwritable { path: path.to_owned(), source };
    let place = |of: &Metadata| (of.dev(), of.ino());
    loop {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(unwritable)?;
        file.lock().map_err(unwritable)?;
        let held = file.metadata().map_err(unwritable)?;
        // A write replaces the file, so the lock may be that of an older one.
        if place(&held) == place(&fs::metadata(path).map_err(unwritable)?) {
            return Ok(file);
        }
    }
}

/// Writes beside the file, and takes its place when every byte is on the disk.
///
/// # Errors
/// Errors of the operating system; the old file is still there.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    // As any new file; the process's mask takes away what it does.
    const MODE: u32 = 0o666;
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let permissions = fs::Permissions::from_mode(MODE);
    let mut beside = tempfile::Builder::new()
        .prefix(".tradewind-")
        .permissions(permissions)
        .tempfile_in(directory)?;
    write(beside.as_file_mut())?;
    beside.as_file().sync_all()?;
    beside.persist(path)?;
    // The name, too, is to survive a power failure.
    File::open(directory)?.sync_all()
}

fn from_json<'a, T: Deserialize<'a>>(
    path: &Path,
    kind: &'static FileKind,
    bytes: &'a [u8],
) -> Result<T, FileError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let damaged = |field: String, error: &serde_json::Error| {
        let mut what = error.to_string();
        // The message carries its own place at the end, which stands at the front of ours.
        if let Some(end) = what.rfind(" at line ") {
            what.truncate(end);
        }
        if error.is_eof() {
            what = "the file ends here, in the middle of its content".to_owned();
        }
        let line = error.line();
        let column = error.column();
        FileError::Damaged { path: path.to_owned(), kind, line, column, field, what }
    };
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = error.path().to_string();
        damaged(if field == "." { String::new() } else { field }, error.inner())
    })?;
    reader.end().map_err(|error| damaged(String::new(), &error))?;
    Ok(value)
}
