//! The experiments, and the registry of those that `tradewind measure` runs by name.
//!
//! The registry depends on every experiment; nothing below it depends on the registry.

pub mod algorithms;
pub mod barrier;
pub mod contention;
mod curves;
pub mod decisions;
mod entry;
pub mod hypercube;
pub mod matchings;
pub mod memory;
pub mod models;
pub mod networks;
pub mod overlap;
mod pairs;
pub mod pingpong;
pub mod placement;
mod plans;
pub mod plogp;
pub mod queues;
mod sharing;
pub mod summary;

pub use entry::SuiteEntry;

use crate::harness::{Experiment, Nodes, Setting};
use crate::results::Part;
use crate::rows::{Measurements, Run};

/// All experiments, in the order in which `tradewind measure all` makes them.
pub const EXPERIMENTS: &[SuiteEntry] = &[
    plogp::PLOGP,
    plogp::PROGRESS,
    memory::ENTRY,
    pingpong::ENTRY,
    barrier::ENTRY,
    hypercube::ENTRY,
    matchings::ENTRY,
    contention::ENTRY,
    placement::ENTRY,
    queues::ENTRY,
    overlap::ENTRY,
    models::ENTRY,
    decisions::DECISIONS,
    decisions::REGRET,
];

/// The experiments that also run between nodes, in the order in which `tradewind measure all` runs
/// them there.
pub const BETWEEN_NODES: &[&str] = &[
    "plogp",
    "memory",
    "pingpong",
    "barrier",
    "hypercube",
    "matchings",
    "contention",
    "queues",
    "overlap",
];

/// Returns the experiment of this name in a job on these nodes. All ranks make its steps. The name
/// is one of [`BETWEEN_NODES`], or that of a [`Purpose`](decisions::Purpose). Each engine that a job
/// can be started for has a run of its own.
pub fn between_nodes(name: &str, setting: &Setting, nodes: &Nodes) -> Option<Experiment> {
    let setting = Setting { nodes: Some(nodes.clone()), ..setting.clone() };
    let experiment = match name.parse() {
        Ok(purpose) => decisions::experiment(purpose, &setting),
        Err(_) => find(name).filter(|_| BETWEEN_NODES.contains(&name))?.experiment(&setting),
    };
    Some(experiment.between(nodes))
}

/// Figures and tables of everything that was measured: of each run, and of several together.
pub fn parts(measured: &Measurements) -> Vec<Part> {
    let summary = (!measured.runs.is_empty()).then(|| summary::of(measured));
    let parts = measured.runs.iter().filter_map(part);
    parts.chain(summary).chain(decisions::losses_between_nodes(measured)).collect()
}

/// Figures and tables of a run; `None` if it is of no experiment that this version has.
pub fn part(run: &Run) -> Option<Part> {
    let (name, between) = match run.name.split_once("-nodes") {
        Some((name, _)) => (name, " between nodes"),
        None => (run.name.as_str(), ""),
    };
    let mut known = EXPERIMENTS.iter().chain([&decisions::CALIBRATION]);
    let mut part = known.find(|entry| entry.name == name)?.part(run);
    part.title.push_str(between);
    Some(part)
}

/// Returns the experiment of this name.
pub fn find(name: &str) -> Option<&'static SuiteEntry> {
    EXPERIMENTS.iter().find(|entry| entry.name == name)
}
