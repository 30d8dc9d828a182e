//! The experiments, and the registry of those that `tradewind measure` runs by name.
//!
//! The registry depends on every experiment; nothing below it depends on the registry.

pub mod algorithms;
pub mod barrier;
pub mod contention;
pub mod decisions;
pub mod hypercube;
pub mod matchings;
pub mod memory;
pub mod models;
pub mod networks;
pub mod overlap;
pub mod pingpong;
pub mod placement;
pub mod plogp;
pub mod queues;
mod sharing;

use crate::harness::{Experiment, Nodes, Setting};
use crate::results::Part;
use crate::rows::Run;
use decisions::nodes::Purpose;
use std::num::NonZeroU32;

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
    ("decisions", decisions::experiment),
    ("regret", decisions::regret),
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
/// is one of [`BETWEEN_NODES`], or `regret`, which needs a decision table. The experiment fills a
/// part of its own for each engine that the job may have been started for.
pub fn between_nodes(name: &str, setting: &Setting, nodes: &Nodes) -> Option<Experiment> {
    if name == "regret" {
        let per_node = nodes.ranks.first().copied().and_then(NonZeroU32::new)?;
        let shape = (nodes.size(), per_node);
        let engine = nodes.engine.as_deref();
        return Some(decisions::nodes::experiment(Purpose::Check, setting, shape, engine));
    }
    let build = find(name).filter(|_| BETWEEN_NODES.contains(&name))?;
    let setting = Setting { nodes: Some(nodes.clone()), ..setting.clone() };
    Some(build(&setting).between(nodes))
}

/// Makes figures and tables of a run.
type MakePart = fn(&Run) -> Part;

/// The experiments that consist of rows, with what shows them.
const OF_ROWS: &[(&str, MakePart)] = &[
    ("plogp", plogp::part),
    ("progress", plogp::progress_part),
    ("queues", queues::part),
    ("overlap", overlap::part),
];

/// Figures and tables of a run; `None` if it is of no experiment that this version has.
pub fn part(run: &Run) -> Option<Part> {
    let (experiment, between) = match run.name.split_once("-nodes") {
        Some((experiment, _)) => (experiment, " between nodes"),
        None => (run.name.as_str(), ""),
    };
    let (_, make) = OF_ROWS.iter().find(|(known, _)| *known == experiment)?;
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
