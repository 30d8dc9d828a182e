//! `tradewind completions`: completion scripts for shells, and manual pages.

use crate::failure::{OutputError, cannot_write};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes the completion script for a shell to standard output, or manual pages to a directory.
///
/// For bash: `tradewind completions bash > ~/.local/share/bash-completion/completions/tradewind`.
/// `tradewind completions --man ~/.local/share/man/man1` makes `man tradewind` and `man
/// tradewind-run` work.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The shell.
    #[arg(value_enum, required_unless_present = "man", conflicts_with = "man")]
    shell: Option<Shell>,

    /// Writes a manual page for the command and one for each subcommand to this directory, which is
    /// created if it does not exist.
    #[arg(long, value_name = "DIR")]
    man: Option<PathBuf>,
}

pub(crate) fn execute(
    arguments: &Arguments,
    mut command: clap::Command,
) -> anyhow::Result<ExitCode> {
    if let Some(directory) = &arguments.man {
        std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(command, directory))
            .map_err(cannot_write(directory))?;
    } else if let Some(shell) = arguments.shell {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, "tradewind", &mut script);
        std::io::Write::write_all(&mut std::io::stdout(), &script).map_err(OutputError)?;
    }
    Ok(ExitCode::SUCCESS)
}
