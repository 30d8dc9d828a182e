//! Running the command on files of our own.

use crate::command::tradewind_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder that goes away.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Folder(tempfile::tempdir().expect("a directory for temporary files"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file of our own");
        path
    }
}

/// `tradewind` without the variables that would change what it does.
pub(crate) fn tradewind() -> Command {
    let mut command = tradewind_of(&[]);
    for name in ["TRADEWIND_ARENA_MIB", "TRADEWIND_EAGER_BYTES", "TRADEWIND_ENGINE"] {
        command.env_remove(name);
    }
    command
}

/// `tradewind exec FILE OPTIONS`
pub(crate) fn exec(file: &Path, options: &[&str]) -> Output {
    tradewind().arg("exec").arg(file).args(options).output().expect("cargo has built the command")
}

/// The report of a run that must succeed.
pub(crate) fn report(file: &Path, options: &[&str]) -> serde_json::Value {
    let output = exec(file, &[options, &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{options:?}: {output:?}");
    assert_eq!(output.stderr, b"", "nothing to complain about");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
