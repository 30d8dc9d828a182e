//! The `tradewind` command.

mod commands;
mod failure;
mod format;
mod goal_file;
mod logger;
mod moved;
mod trace;

use clap::{CommandFactory, FromArgMatches, Parser};
use std::io::Write;
use std::process::ExitCode;

/// Collectives that run in the background, among the processes of one node or several.
#[derive(Debug, Parser)]
#[command(name = "tradewind", version, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,

    /// Format of results on standard output.
    #[arg(long, global = true, value_enum, default_value_t)]
    format: format::Format,
}

const AFTER_HELP: &str = "\
`tradewind completions SHELL` writes a completion script, `tradewind completions --man DIR` manual pages.

Exit statuses:
  0          success
  1          the command failed, or found what it checks to be wrong
  2          the arguments are wrong; nothing was started
  141        the reader of standard output has closed it
  of `run`   that of the first rank that failed, or 128 plus the signal that ended it;
             124 if the time limit was exceeded, 125 if the job could not be run,
             126 if the program is not executable, 127 if there is no such program";

/// Status of a command that the signal for a closed pipe ends, as shells report it.
const CLOSED_PIPE: u8 = 128 + 13;

fn main() -> ExitCode {
    let (words, renamed) = moved::with_new_name(std::env::args_os().collect());
    let matches = with_negative_numbers(Arguments::command()).get_matches_from(words);
    let arguments = Arguments::from_arg_matches(&matches);
    let Arguments { command, format } = arguments.unwrap_or_else(|error| error.exit());
    logger::install();
    if let Some(sentence) = renamed {
        log::warn!("{sentence}");
    }
    // Ranks start the node service; their launcher has reported its variables.
    if !command.is_service() {
        launch::environment::warn_of_misspelt();
    }
    match command.execute(format, Arguments::command) {
        Ok(status) => status,
        // The reader has what it wants, as `head` has after its lines.
        Err(failure) if failure::is_closed_pipe(&failure) => ExitCode::from(CLOSED_PIPE),
        Err(failure) => {
            // Standard error may be closed, too; the status remains.
            let _ = writeln!(std::io::stderr(), "tradewind: {failure}");
            ExitCode::from(failure::status(&failure))
        }
    }
}

/// Lets options read a negative number as their value, so that the value's parser names the bounds.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command
        .mut_args(|argument| {
            let is_value = !argument.is_positional() && argument.get_action().takes_values();
            argument.allow_negative_numbers(is_value)
        })
        .mut_subcommands(with_negative_numbers)
}
