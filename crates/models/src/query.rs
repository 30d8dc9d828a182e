//! A collective to be run, and how it is run.

use crate::costs::Tuning;
use collectives::{Algorithm, Collective};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

/// A collective to be run. `ranks` and `ranks_per_node` count from 1; 0 is taken for 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// The operation.
    pub operation: Collective,
    /// The number of ranks.
    pub ranks: u32,
    /// How many of them are on each node; the last node may have fewer.
    pub ranks_per_node: u32,
    /// Bytes as [`Collective`] counts them.
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
        write!(
            formatter,
            "{operation} of {bytes} bytes among {ranks} ranks, {} a node",
            ranks_per_node.min(ranks)
        )
    }
}

collectives::named_enum! {
    /// In how many levels a collective is run.
    pub enum Levels ("number of levels") {
        /// One algorithm among all ranks, wherever they are.
        One = "one-level",
        /// Inside each node, and between one rank of each node.
        Two = "two-level",
    }
}

/// How to run a collective. What a two-level collective is composed of, [`CostModel::price`](crate::costs::CostModel::price) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// In how many levels.
    pub levels: Levels,
    /// By which algorithm; of a two-level collective, the one between nodes.
    pub algorithm: Algorithm,
    /// Bytes in each segment, if the algorithm has segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<NonZeroU64>,
    /// The degree, if the algorithm has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degree: Option<NonZeroU32>,
}

impl Plan {
    /// The algorithm among all ranks, without segments or degree.
    pub const fn of(algorithm: Algorithm) -> Self {
        Plan { levels: Levels::One, algorithm, segment_bytes: None, degree: None }
    }

    /// What the algorithm is adjusted by.
    pub const fn tuning(&self) -> Tuning {
        Tuning { segment_bytes: self.segment_bytes, degree: self.degree }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.levels == Levels::Two {
            write!(formatter, "{} ", self.levels)?;
        }
        write!(formatter, "{}", self.algorithm)?;
        match (self.segment_bytes, self.degree) {
            (Some(bytes), _) => write!(formatter, " in segments of {bytes} bytes"),
            (None, Some(degree)) => write!(formatter, " of degree {degree}"),
            (None, None) => Ok(()),
        }
    }
}
