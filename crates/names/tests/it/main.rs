//! Integration tests of the crate `names`.

#[path = "../../../queues/tests/it/child.rs"]
#[allow(dead_code, reason = "the tests here use a part of it")]
mod child;
mod ends;
mod harness;
mod hostile;
mod model;
mod moves;
mod rights;
mod server_process;

fn main() -> std::process::ExitCode {
    testing::run()
}
