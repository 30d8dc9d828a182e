//! Integration tests of the measurements and of the page that shows them.

mod browser;
mod decision_tables;
mod examples;
mod overlap;
mod page_fixture;
mod plogp;
mod suite;

fn main() -> std::process::ExitCode {
    testing::run()
}
