//! The command under test.

use std::process::{Command, Output, Stdio};

/// The command with these words as its arguments, and nothing on its standard input.
pub(crate) fn tradewind_of(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the command with the words of a line.
pub(crate) fn tradewind(line: &str) -> Output {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    tradewind_of(&arguments).output().expect("the command can be started")
}

/// What a process has written.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
