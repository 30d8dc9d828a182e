//! `tradewind exec trace`: one profile from the parts that ranks of another launcher's job wrote.

use crate::trace;
use std::path::PathBuf;
use std::process::ExitCode;

/// Merges the parts of a profile into one file for Perfetto.
///
/// If another launcher started the ranks with TRADEWIND_TRACE=DIRECTORY, each has written its part
/// there, on its own node: copy them into one directory first. `tradewind run --trace` writes the
/// merged file itself. The exit status is 1 if a part has lines that cannot be read; the profile
/// then has the others.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Directory of the parts: files rank-0.json, rank-1.json, …
    directory: PathBuf,

    /// The profile to write.
    file: PathBuf,
}

pub(crate) fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { directory, file } = arguments;
    match trace::merge(directory, trace::ranks_in(directory)?, file)? {
        0 => Ok(ExitCode::SUCCESS),
        lines => {
            let path = directory.display();
            anyhow::bail!("{path}: {lines} lines cannot be read; the profile lacks them")
        }
    }
}
