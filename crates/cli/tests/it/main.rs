//! Integration tests of the `tradewind` command.

mod command;
mod command_lines;
mod exec;
mod goal_files;
mod jobs;
mod launchers;
mod measure;
mod models;
mod name_server;
mod names;
mod nodes;
mod overlap;
mod pages;
mod plogp;
mod python;
mod report;
mod schedule;
mod suite;
mod top;
mod tune_mpi;

fn main() -> std::process::ExitCode {
    testing::run_on_threads(3)
}
