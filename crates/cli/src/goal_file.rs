//! GOAL files: their format is detected from the contents; they are written whole or not at all.

use crate::failure::{OutputError, cannot_read, cannot_write};
use goal::graph::Graph;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The two formats of GOAL files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileFormat {
    /// Text.
    Text,
    /// Binary, version 1.
    Binary,
}

/// First bytes of a binary file (see [`goal::binary`]).
const BINARY_MAGIC: [u8; 8] = 4223u64.to_le_bytes();

/// A file that does not follow its format.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", .path.display())]
pub(crate) struct Malformed {
    path: PathBuf,
    pub(crate) problem: String,
}

/// Graphs as they were read.
#[derive(Debug)]
pub(crate) struct GoalFile {
    pub(crate) format: FileFormat,
    pub(crate) graphs: Vec<Graph>,
}

impl GoalFile {
    /// Reads a file, `-` from standard input.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let failed = cannot_read(path);
        let mut bytes = Vec::new();
        if path == Path::new("-") {
            std::io::stdin().lock().read_to_end(&mut bytes).map_err(&failed)?;
        } else {
            bytes = std::fs::read(path).map_err(&failed)?;
        }
        GoalFile::parse(&bytes)
            .map_err(|problem| Malformed { path: path.to_owned(), problem }.into())
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.starts_with(&BINARY_MAGIC) {
            let graphs = goal::binary::read(bytes).map_err(|error| error.to_string())?;
            return Ok(GoalFile { format: FileFormat::Binary, graphs });
        }
        let graphs = goal::text::read_bytes(bytes).map_err(|error| error.to_string())?;
        Ok(GoalFile { format: FileFormat::Text, graphs })
    }

    /// Number of operations of all ranks.
    pub(crate) fn operations(&self) -> usize {
        self.graphs.iter().map(|graph| graph.vertices().len()).sum()
    }
}

/// The bytes of a file that holds these graphs.
pub(crate) fn encode(graphs: &[Graph], format: FileFormat) -> Result<Vec<u8>, String> {
    match format {
        FileFormat::Text => {
            goal::text::write(graphs).map(String::into_bytes).map_err(|error| error.to_string())
        }
        FileFormat::Binary => goal::binary::write(graphs).map_err(|error| error.to_string()),
    }
}

/// Returns whether both paths lead to one file. Standard input is not standard output.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| {
        let about = std::fs::metadata(path).ok()?;
        (path != Path::new("-") && about.is_file()).then(|| (about.dev(), about.ino()))
    };
    file(one).is_some_and(|one| file(other) == Some(one))
}

/// Checks, before a long run, that a file can be written.
pub(crate) fn check_writable(path: &Path) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    if path.exists() && !path.is_file() {
        return std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .map(drop)
            .map_err(cannot_write(path));
    }
    // A file is replaced by a new one, so the right to create files in its directory decides.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    place_beside(&target).map(drop).map_err(cannot_write(path))
}

/// A temporary file in the directory of `path`.
fn place_beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    // As an ordinary new file, less what the umask takes.
    let permissions = std::fs::metadata(path)
        .map_or_else(|_| PermissionsExt::from_mode(0o666), |about| about.permissions());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    tempfile::Builder::new()
        .prefix(".tradewind-")
        .permissions(permissions)
        .tempfile_in(directory.unwrap_or(Path::new(".")))
}

/// Puts bytes into a file: all of them, or the file stays as it was. `-` is standard output.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return Ok(std::io::stdout().lock().write_all(bytes).map_err(OutputError)?);
    }
    write_file(path, bytes).map_err(cannot_write(path))
}

fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // Where a link leads, so that the link itself stays.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&path).is_ok_and(|about| !about.is_file()) {
        // A device or pipe cannot be replaced. (A directory is an error when it is opened.)
        return std::fs::OpenOptions::new().write(true).open(&path)?.write_all(bytes);
    }
    let mut file = place_beside(&path)?;
    file.write_all(bytes)?;
    // Some file systems only report now that they are full.
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}
