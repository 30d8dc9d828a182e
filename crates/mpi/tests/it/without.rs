//! The library in programs without MPI.

use crate::harness::{library, run};
use std::process::Command;

testing::tests![a_program_without_mpi_is_not_affected, no_symbol_of_an_mpi_library_is_missing];

fn a_program_without_mpi_is_not_affected() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo one; ls / > /dev/null && echo two"]);
    command.env("LD_PRELOAD", library()).env("TRADEWIND_MPI_REPORT", "1");
    let finished = run(command).expect_success();
    assert_eq!((&finished.output[..], &finished.errors[..]), ("one\ntwo\n", ""));
}

/// The loader resolves every symbol at once, in a process without MPI.
fn no_symbol_of_an_mpi_library_is_missing() {
    let mut command = Command::new("true");
    command.env("LD_PRELOAD", library()).env("LD_BIND_NOW", "1");
    let finished = run(command).expect_success();
    assert_eq!(finished.errors, "");
}
