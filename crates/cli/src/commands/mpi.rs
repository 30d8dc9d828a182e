//! `tradewind mpi`: runs an unmodified MPI program, with those collectives on tradewind that are faster
//! there.

use crate::failure::OutputError;
use crate::format::Format;
use ::launch::environment::{COMMAND, MPI_ONLY, MPI_REPORT};
use ::launch::mpi_calls;
use anyhow::Context;
use clap::error::ErrorKind;
use service::ServiceError;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs an unmodified MPI program: those of its collectives run on tradewind that are faster there,
/// nonblocking ones in the background, by a built-in rule or by what `tradewind tune --mpi` has
/// measured.
///
/// The program may be a launcher, `tradewind mpi -- mpiexec -n 4 ./program`, or what a launcher
/// starts, `mpiexec -n 4 tradewind mpi -- ./program`; all ranks of a job need the command alike.
/// Everything but the collectives stays with the MPI library that the program was
/// linked with: MPICH, Intel MPI, Open MPI, or one with the ABI of the MPI standard.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Print the path of the library that is to be loaded before the program (LD_PRELOAD).
    #[arg(long, conflicts_with_all = ["report", "only", "program"])]
    library: bool,

    /// Print at the end which collectives ran on tradewind, for how long the program waited, and how
    /// long it takes in the MPI library, where `tradewind tune --mpi` has measured that.
    #[arg(long)]
    report: bool,

    /// Run these collectives on tradewind, at every length, and no others. `nonblocking` stands for
    /// all nonblocking and persistent ones, `all` for all of them.
    #[arg(long, value_name = "IALLREDUCE,...", value_parser = calls)]
    only: Option<String>,

    /// The program and its arguments.
    #[arg(required_unless_present = "library", trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Name of the library's file.
const LIBRARY: &str = "libtradewind_mpi.so";

/// Variable of the dynamic loader.
const PRELOAD: &str = "LD_PRELOAD";

/// Variable of the address sanitizer.
const SANITIZER: &str = "ASAN_OPTIONS";

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    if format == Format::Json {
        let error = "--format json: the report of an MPI program is text, beside the program's own output\n";
        clap::Error::raw(ErrorKind::ArgumentConflict, error).exit();
    }
    let own = std::env::current_exe()?;
    let library = library(&own)?;
    if arguments.library {
        writeln!(std::io::stdout(), "{}", library.display()).map_err(OutputError)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some((program, rest)) = arguments.program.split_first() else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut command = Command::new(program);
    command.args(rest).env(PRELOAD, preload(&library, std::env::var_os(PRELOAD).as_deref()));
    command.env(SANITIZER, in_any_order(std::env::var_os(SANITIZER).as_deref()));
    if std::env::var_os(COMMAND).is_none() {
        command.env(COMMAND, &own);
    }
    if arguments.report {
        command.env(MPI_REPORT, "1");
    }
    if let Some(only) = &arguments.only {
        command.env(MPI_ONLY, only);
    }
    // Returns only if it fails.
    let source = command.exec();
    Err(ServiceError::Spawn { program: program.clone(), rank: 0, source }.into())
}

/// Examines a list of calls, before anything is started.
fn calls(list: &str) -> Result<String, mpi_calls::UnknownCall> {
    mpi_calls::read(list).try_for_each(|call| call.map(drop))?;
    Ok(list.to_owned())
}

/// Finds the library: in the directory of this command, or in the `lib` beside its `bin`.
pub(super) fn library(own: &Path) -> anyhow::Result<PathBuf> {
    let directory = own.parent().unwrap_or(Path::new("."));
    let places = [directory.join(LIBRARY), directory.join("../lib").join(LIBRARY)];
    let found = places.into_iter().find(|place| place.is_file());
    let found = found.with_context(|| {
        format!(
            "there is no libtradewind_mpi.so beside {}, nor in the directory `lib` next to it: copy the library there; \
             `cargo build --release -p tradewind-mpi` makes it",
            own.display()
        )
    })?;
    Ok(found.canonicalize()?)
}

/// The libraries to load before a program: those that the user has set, then this one. A tool for
/// MPI among them sees every call of the program, and those that it passes on by their `PMPI_` names
/// arrive here.
fn preload(library: &Path, others: Option<&OsStr>) -> OsString {
    let mut all = others.unwrap_or_default().to_owned();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(library);
    all
}

/// Options by which the address sanitizer, with which the program may be built, accepts a library
/// that is loaded before its own. The order does not matter to it: this one replaces no function that
/// the sanitizer replaces. What the user has set counts.
fn in_any_order(set: Option<&OsStr>) -> OsString {
    let mut all = OsString::from("verify_asan_link_order=0");
    if let Some(set) = set {
        all.push(":");
        all.push(set);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_user_come_last() {
        assert_eq!(in_any_order(None), "verify_asan_link_order=0");
        let set = in_any_order(Some(OsStr::new("detect_leaks=0")));
        assert_eq!(set, "verify_asan_link_order=0:detect_leaks=0");
    }

    #[test]
    fn libraries_of_the_user_stay() {
        let library = Path::new("/lib/ours.so");
        assert_eq!(preload(library, None), "/lib/ours.so");
        assert_eq!(preload(library, Some(OsStr::new(""))), "/lib/ours.so");
        assert_eq!(preload(library, Some(OsStr::new("other.so"))), "other.so:/lib/ours.so");
    }
}
