//! Integration tests of the crate `fabric`.

mod emulation;
mod layouts;
mod messages;
mod reads;

fn main() -> std::process::ExitCode {
    testing::run()
}
