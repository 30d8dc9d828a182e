//! Integration tests of the crate `shm`.

mod arena;
mod broker;
mod child_process;
mod connecting;
mod processes;
mod segment;

fn main() -> std::process::ExitCode {
    testing::run()
}
