//! Integration tests of the measurements and of the page that shows them.

mod decision_tables;
mod examples;
mod networks;
mod overlap;
mod page;
mod page_fixture;
mod plogp;
mod recorded;
mod rows;
mod suite;

use measure::harness::{Error, Experiment};
use measure::results::Part;
use measure::rows::Run;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn main() -> ExitCode {
    testing::run_on_threads(2)
}

/// Lets one test at a time have ranks: they spin, bound to the same cores, and two jobs beside each
/// other take three times as long as one after the other.
fn cores() -> MutexGuard<'static, ()> {
    static CORES: Mutex<()> = Mutex::new(());
    CORES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an experiment on threads while no other test has ranks.
fn run_on_threads(experiment: &Experiment) -> Result<Run, Error> {
    let _cores = cores();
    measure::harness::run_on_threads(experiment)
}

/// The figures and tables that it comes to.
fn part_on_threads(experiment: &Experiment) -> Result<Part, Error> {
    let run = run_on_threads(experiment)?;
    Ok(measure::experiments::part(&run).expect("its experiment is known"))
}
