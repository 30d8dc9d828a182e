//! Integration tests of the crate `service`.

#[path = "../../../queues/tests/it/child.rs"]
#[allow(dead_code, reason = "the tests here use a part of it")]
mod child;
#[allow(dead_code, reason = "the example's main and its launcher are not called")]
#[path = "../../examples/key_value.rs"]
mod key_value;
mod launch;
mod names;
mod nodes;

fn main() -> std::process::ExitCode {
    testing::run()
}
