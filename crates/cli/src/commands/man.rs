//! `tradewind man`: manual pages.

use crate::failure::Failure;
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes a manual page for the command and one for each subcommand.
///
/// `tradewind man ~/.local/share/man/man1` makes `man tradewind` and `man tradewind-run` work.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Directory of the pages; created if it does not exist.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn execute(arguments: &Arguments, command: clap::Command) -> Result<ExitCode, Failure> {
    let Arguments { directory } = arguments;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .map_err(|source| Failure::Write { path: directory.clone(), source })?;
    Ok(ExitCode::SUCCESS)
}
