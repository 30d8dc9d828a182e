//! The conformance suite, the relay and the runner of tests.

mod programs;
mod reference;
mod relay;
mod runner;

fn main() -> std::process::ExitCode {
    testing::run()
}
