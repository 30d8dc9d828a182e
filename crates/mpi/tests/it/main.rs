//! Tests of the preload library, with programs of several MPI libraries.

fn main() -> std::process::ExitCode {
    testing::run()
}
