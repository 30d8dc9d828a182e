//! The experiments, and the registry of those that `tradewind measure` runs by name.
//!
//! The registry depends on every experiment; nothing below it depends on the registry.

pub mod algorithms;
pub mod barrier;
pub mod contention;
mod curves;
pub mod decisions;
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

use crate::harness::{Experiment, Nodes, Setting};
use crate::results::Part;
use crate::rows::{Measurements, Run};
use decisions::Purpose;

/// Builds an experiment for a setting.
pub type BuildExperiment = fn(&Setting) -> Experiment;

/// All experiments by name, in the order in which `tradewind measure all` runs them.
pub const EXPERIMENTS: &[(&str, BuildExperiment)] = &[
    ("plogp", plogp::experiment),
    ("progress", plogp::progress),
    ("memory", memory::experiment),
    ("pingpong", pingpong::experiment),
    ("barrier", barrier::experiment),
    ("hypercube", hypercube::experiment),
    ("matchings", matchings::experiment),
    ("contention", contention::experiment),
    ("placement", placement::experiment),
    ("queues", queues::experiment),
    ("overlap", overlap::experiment),
    ("models", models::experiment),
    ("decisions", |setting| decisions::experiment(Purpose::Decision, setting)),
    ("regret", |setting| decisions::experiment(Purpose::Check, setting)),
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
/// is one of [`BETWEEN_NODES`], or that of a [`Purpose`]. The experiment has a run of its own for each
/// engine that the job may have been started for.
pub fn between_nodes(name: &str, setting: &Setting, nodes: &Nodes) -> Option<Experiment> {
    let setting = Setting { nodes: Some(nodes.clone()), ..setting.clone() };
    let experiment = match name.parse() {
        Ok(purpose) => decisions::experiment(purpose, &setting),
        Err(_) => find(name).filter(|_| BETWEEN_NODES.contains(&name))?(&setting),
    };
    Some(experiment.between(nodes))
}

/// Makes figures and tables of a run.
type MakePart = fn(&Run) -> Part;

/// The functions that show the rows of each experiment.
const PARTS: &[(&str, MakePart)] = &[
    ("plogp", plogp::part),
    ("progress", plogp::progress_part),
    ("memory", memory::part),
    ("pingpong", pingpong::part),
    ("barrier", barrier::part),
    ("hypercube", hypercube::part),
    ("matchings", matchings::part),
    ("contention", contention::part),
    ("placement", placement::part),
    ("queues", queues::part),
    ("overlap", overlap::part),
    ("models", models::part),
    ("calibration", |run| decisions::part(Purpose::Calibration, run)),
    ("decisions", |run| decisions::part(Purpose::Decision, run)),
    ("regret", |run| decisions::part(Purpose::Check, run)),
];

/// Figures and tables of everything that was measured: of each run, and of several together.
pub fn parts(measured: &Measurements) -> Vec<Part> {
    let summary = (!measured.runs.is_empty()).then(|| summary::of(measured));
    let parts = measured.runs.iter().filter_map(part);
    parts.chain(summary).chain(decisions::losses_between_nodes(measured)).collect()
}

/// Figures and tables of a run; `None` if it is of no experiment that this version has.
pub fn part(run: &Run) -> Option<Part> {
    let (experiment, between) = match run.name.split_once("-nodes") {
        Some((experiment, _)) => (experiment, " between nodes"),
        None => (run.name.as_str(), ""),
    };
    let (_, make) = PARTS.iter().find(|(known, _)| *known == experiment)?;
    let mut part = make(run);
    part.name.clone_from(&run.name);
    part.title.push_str(between);
    part.figures.retain(|figure| !figure.series.is_empty());
    part.complete = run.is_complete();
    part.steps_done = run.done();
    part.setting.clone_from(&run.setting);
    part.notes.extend(run.notes());
    Some(part)
}

/// Returns the experiment of this name.
pub fn find(name: &str) -> Option<BuildExperiment> {
    EXPERIMENTS.iter().find(|(known, _)| *known == name).map(|(_, build)| *build)
}
