//! Virtual nodes.

mod bridge;

fn main() -> std::process::ExitCode {
    testing::run()
}
