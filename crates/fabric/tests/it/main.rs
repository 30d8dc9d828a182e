//! Integration tests of the crate `fabric`.

mod emulation;
mod layouts;
mod messages;

fn main() -> std::process::ExitCode {
    testing::run()
}
