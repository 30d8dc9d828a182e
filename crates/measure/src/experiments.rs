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
pub mod nodes;
pub mod overlap;
pub mod pingpong;
pub mod placement;
pub mod plogp;
pub mod queues;
mod sharing;

use crate::harness::{Experiment, Setting};

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

/// Returns the experiment of this name.
pub fn find(name: &str) -> Option<BuildExperiment> {
    EXPERIMENTS.iter().find(|(known, _)| *known == name).map(|(_, build)| *build)
}
