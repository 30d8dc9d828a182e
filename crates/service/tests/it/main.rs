//! Integration tests of the crate `service`.

mod launch;
mod nodes;

fn main() -> std::process::ExitCode {
    testing::run()
}
