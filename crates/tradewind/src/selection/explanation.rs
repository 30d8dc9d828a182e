//! Which algorithm, and why.

use crate::collective::for_different_sizes;
use crate::selection::algorithms::{AlltoallAlgorithm, Choice, Choosable, Levels};
use collectives::Tuning;
use collectives::{Algorithm, Collective};
use models::decision::{Origin, Query};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

/// Which algorithm runs a collective, how it is adjusted, which engine runs it, and why. Its text
/// says all of it.
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     let explanation = world.explain(tradewind::Collective::Barrier, 0);
///     assert!(explanation.to_string().starts_with("barrier of 0 bytes among 2 ranks: "));
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The collective.
    pub operation: Collective,
    /// The number of ranks.
    pub ranks: u32,
    /// Bytes as [`Collective`] counts them.
    pub bytes: u64,
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// Bytes in a segment, where the algorithm has segments.
    pub segment_bytes: Option<NonZeroU64>,
    /// The degree, where the algorithm has one.
    pub degree: Option<NonZeroU32>,
    /// In two levels: ranks on each node.
    pub ranks_per_node: Option<NonZeroU32>,
    /// The number of nodes that the ranks are on.
    pub nodes: u32,
    /// Who runs operations: `peers` or `caller` on one node, else an engine between nodes.
    pub engine: &'static str,
    /// Why.
    pub reason: Reason,
}

/// Why an algorithm was chosen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The communicator's [`Algorithms`](crate::Algorithms) say so.
    Forced,
    /// Only a fold in rank order has a meaning for this operation, and what was asked for does not
    /// keep to it.
    RankOrder,
    /// A join was asked for, which ranks on several nodes cannot have; what there is instead is
    /// chosen as if nothing had been asked for.
    SeveralNodes,
    /// The ranks are on several nodes: the built-in rules for those, whatever a decision table says
    /// of one.
    BetweenNodes,
    /// The caller engine runs what libraries ship, whatever a decision table says.
    CallerEngine,
    /// A decision table, or the built-in rules because there is none or it has a gap here.
    Decision(Origin),
}

impl Explanation {
    pub(crate) fn new<A: Choosable>(
        query: Query,
        choice: &Choice<A>,
        (engine, nodes): (&'static str, u32),
        reason: Reason,
    ) -> Self {
        let Query { operation, ranks, bytes, .. } = query;
        let algorithm = choice.algorithm.name();
        let known = algorithm.parse::<Algorithm>().ok();
        let Tuning { segment_bytes, degree } = choice.tuning;
        let segmented =
            known.is_some_and(|known| known.is_segmented() || known == Algorithm::PipelinedChain);
        let has_degree = known.is_some_and(Algorithm::has_degree);
        Explanation {
            operation,
            ranks,
            bytes,
            algorithm,
            segment_bytes: segmented
                .then_some(segment_bytes)
                .filter(|segment| segment.get() < bytes),
            degree: has_degree.then_some(degree),
            ranks_per_node: match choice.levels {
                Levels::One => None,
                Levels::Two(ranks_per_node) => Some(ranks_per_node),
            },
            nodes,
            engine,
            reason,
        }
    }

    /// What ran was a join, for the sake of the order of ranks.
    pub(crate) fn replace_by_join(&mut self) {
        let (segment_bytes, degree, ranks_per_node) = (None, None, None);
        let (algorithm, reason) = (Algorithm::Join.name(), Reason::RankOrder);
        *self = Explanation {
            algorithm,
            segment_bytes,
            degree,
            ranks_per_node,
            reason,
            ..self.clone()
        };
    }

    /// What ran was an all-to-all of blocks whose sizes differ, which not every algorithm can do.
    pub(crate) fn adapt_to_different_sizes(&mut self) {
        if let Ok(algorithm) = self.algorithm.parse::<AlltoallAlgorithm>() {
            let runs = for_different_sizes(algorithm);
            self.ranks_per_node = None;
            if runs != algorithm {
                (self.algorithm, self.segment_bytes, self.degree) = (runs.name(), None, None);
            }
        }
    }

    /// The text without the size: equal for all sizes that one decision is for.
    pub(crate) fn without_bytes(&self) -> String {
        Explanation { bytes: 0, ..self.clone() }.to_string()
    }
}

impl fmt::Display for Explanation {
    /// What was chosen, and below it why.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { operation, ranks, bytes, algorithm, engine, .. } = self;
        write!(formatter, "{operation} of {bytes} bytes among {ranks} ranks")?;
        if self.nodes > 1 {
            write!(formatter, " on {} nodes", self.nodes)?;
        }
        write!(formatter, ": ")?;
        if let Some(here) = self.ranks_per_node {
            write!(formatter, "two-level, {here} ranks a node, ")?;
        }
        write!(formatter, "{algorithm}")?;
        if let Some(segment) = self.segment_bytes {
            write!(formatter, " in segments of {segment} bytes")?;
        }
        if let Some(degree) = self.degree {
            write!(formatter, " of degree {degree}")?;
        }
        writeln!(formatter, ", {engine} engine")?;
        match &self.reason {
            Reason::Forced => write!(formatter, "  forced by the communicator's algorithms"),
            Reason::RankOrder => {
                write!(
                    formatter,
                    "  because only a fold in rank order has a meaning for the operation"
                )
            }
            Reason::SeveralNodes => {
                write!(formatter, "  built-in rules for several nodes, where a join cannot be had")
            }
            Reason::BetweenNodes => write!(formatter, "  built-in rules for several nodes"),
            Reason::CallerEngine => {
                write!(formatter, "  built-in rules, which the caller engine always goes by")
            }
            Reason::Decision(origin) => write!(formatter, "  {origin}"),
        }
    }
}
