//! Which algorithm to use: candidates by the models, a decision table made from them, and a decision for a query.
//!
//! [`Levels`] prices whatever there is a model of. [`DecisionTable::build`] does that over a [`Grid`] and keeps the winners
//! by ranges of sizes. [`decide`] looks a [`Query`] up, and falls back to the [built-in rules](built_in) where there is
//! no table or the table has a gap; the [`Decision`] says in words what was chosen, and why.

mod build;
pub mod built_in;
mod candidates;
mod decision;
mod lookup;
mod table;

pub use build::Grid;
pub use candidates::{Candidate, Levels};
pub use decision::{Decision, Origin, Reason, decide};
pub use lookup::Found;
pub use table::{DecisionTable, Gap, Range, Row, RunnerUp, TableError};

use crate::costs::Tuning;
use crate::operation::{Algorithm, Operation};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

/// A collective to be run. `ranks` and `ranks_per_node` count from 1; 0 is taken for 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// The operation.
    pub operation: Operation,
    /// The number of ranks.
    pub ranks: u32,
    /// How many of them are on each node; the last node may have fewer.
    pub ranks_per_node: u32,
    /// Bytes as [`Operation`] counts them.
    pub bytes: u64,
}

impl Query {
    /// The number of nodes.
    pub fn nodes(&self) -> u32 {
        self.ranks.max(1).div_ceil(self.ranks_per_node.max(1))
    }
}

impl fmt::Display for Query {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Query { operation, ranks, ranks_per_node, bytes } = self;
        write!(formatter, "{operation} of {bytes} bytes among {ranks} ranks, {} a node", ranks_per_node.min(ranks))
    }
}

names! {
    /// Which ranks take part in a step.
    pub enum Level ("level") {
        /// All of them, wherever they are.
        Whole = "whole",
        /// Those of each node.
        Inside = "inside",
        /// One of each node.
        Between = "between",
    }
}

/// A part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Who takes part.
    pub level: Level,
    /// What they do.
    pub operation: Operation,
    /// And how.
    pub algorithm: Algorithm,
    /// Bytes in each segment, if the algorithm has segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<NonZeroU64>,
    /// The degree, if the algorithm has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degree: Option<NonZeroU32>,
}

impl Step {
    /// The step without segments or degree.
    pub const fn new(level: Level, operation: Operation, algorithm: Algorithm) -> Self {
        Step { level, operation, algorithm, segment_bytes: None, degree: None }
    }

    /// What the algorithm is adjusted by.
    pub const fn tuning(&self) -> Tuning {
        Tuning { segment_bytes: self.segment_bytes, degree: self.degree }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Level::Whole => write!(formatter, "{}", self.algorithm)?,
            level => write!(formatter, "{} {} {level} nodes", self.algorithm, self.operation)?,
        }
        match (self.segment_bytes, self.degree) {
            (Some(bytes), _) => write!(formatter, " in segments of {bytes} bytes"),
            (None, Some(degree)) => write!(formatter, " of degree {degree}"),
            (None, None) => Ok(()),
        }
    }
}

/// How to run a collective: one step among all ranks, or one after the other inside nodes and between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plan {
    /// The steps, in order; at least one.
    pub steps: Vec<Step>,
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", then " };
            write!(formatter, "{comma}{step}")?;
        }
        Ok(())
    }
}
