//! Integration tests of the crate `shm`.

mod arena;
mod broker;
mod child_process;
mod connecting;
mod detached;
mod processes;
mod segment;

fn main() -> std::process::ExitCode {
    testing::run()
}
