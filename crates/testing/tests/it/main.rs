//! The conformance suite, the relay, the runner of tests, the structure of the workspace, its pages.

mod left_memory;
mod methods;
mod pages;
mod programs;
mod reference;
mod relay;
mod runner;
mod structure;

fn main() -> std::process::ExitCode {
    testing::run()
}
