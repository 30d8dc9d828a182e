//! `tradewind completions`: completion scripts for shells.

use crate::failure::Failure;
use clap_complete::Shell;
use std::process::ExitCode;

/// Writes the completion script for a shell to standard output.
///
/// For bash: `tradewind completions bash > ~/.local/share/bash-completion/completions/tradewind`
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn execute(
    arguments: &Arguments,
    mut command: clap::Command,
) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "tradewind", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(ExitCode::SUCCESS)
}
