//! The conformance suite, the relay, the runner of tests, and the structure of the workspace.

mod left_memory;
mod programs;
mod reference;
mod relay;
mod runner;
mod structure;

fn main() -> std::process::ExitCode {
    testing::run()
}
