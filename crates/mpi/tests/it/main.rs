//! Tests of the preload library, with programs of several MPI libraries.

mod benchmarks;
mod blocking;
mod deaths;
mod decisions;
mod faults;
mod harness;
mod node_service;
mod nodes;
mod presence;
mod programs;
mod rule;
mod settings;
mod starts;
mod survivors;
mod tools;
mod without;

fn main() -> std::process::ExitCode {
    if let Some(status) = node_service::run_if_named() {
        return status;
    }
    // A test waits for the start of processes and for time limits most of its time.
    testing::run_on_threads(2)
}
