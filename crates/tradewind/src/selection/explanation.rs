//! Explanations of the selection of an algorithm.

use super::algorithms::for_different_sizes;
use super::choice::SelectedAlgorithm;
use collectives::{Algorithm, Collective, Tuning};
use models::decision::{CallForm, Origin, Query};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

/// The algorithm of a collective, its tuning, the engine that runs it, and the reason. `Display`
/// prints all of it.
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
    /// The form of the call.
    pub form: CallForm,
    /// The collective.
    pub operation: Collective,
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes as [`Collective`] counts them.
    pub bytes: u64,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Bytes of a segment, for algorithms with segments.
    pub segment_bytes: Option<NonZeroU64>,
    /// The degree, for algorithms with one.
    pub degree: Option<NonZeroU32>,
    /// Ranks on each node, for algorithms in two levels.
    pub ranks_per_node: Option<NonZeroU32>,
    /// Number of nodes that the ranks are on.
    pub nodes: u32,
    /// The engine: `peers` or `caller` on one node, else a backend between nodes.
    pub engine: &'static str,
    /// The reason.
    pub reason: Reason,
    /// File of the decision table that the reason refers to.
    pub table: Option<PathBuf>,
}

/// Reason for the selection of an algorithm.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The communicator's [`Algorithms`](crate::Algorithms) set it.
    Forced,
    /// The operation has a meaning only as a fold in rank order, which the caller's algorithm is
    /// not.
    RankOrder,
    /// The result of the operation depends on the order of its operands, and the caller's algorithm
    /// has another one on each rank.
    CommonOrder,
    /// The result of the operation does not depend on the order of its operands, so it takes a round
    /// less than by recursive doubling, the choice for other operations.
    AnyOrder,
    /// The selected algorithm needs the sizes of other ranks' blocks, and a call waits for none of
    /// them.
    UnknownSizes,
    /// The caller set a join, which ranks on several nodes cannot run; the built-in rules chose as
    /// if nothing had been set.
    SeveralNodes,
    /// The caller engine uses the algorithms that MPI libraries ship, whatever a decision table
    /// has.
    CallerEngine,
    /// There is a decision table that cannot be used, for this reason; the built-in rules chose.
    UnusableTable(String),
    /// A decision table, or built-in parameters or rules because there is none or it has a gap
    /// here.
    Decision(Origin),
}

impl Explanation {
    pub(crate) fn new(
        query: Query,
        selected: &SelectedAlgorithm,
        (engine, nodes): (&'static str, u32),
        reason: Reason,
    ) -> Self {
        let Query { operation, form, ranks, bytes, .. } = query;
        let algorithm = selected.algorithm;
        let Tuning { segment_bytes, degree } = selected.tuning;
        let segmented = algorithm.is_segmented() || algorithm == Algorithm::PipelinedChain;
        Explanation {
            form,
            operation,
            ranks,
            bytes,
            algorithm,
            segment_bytes: segmented
                .then_some(segment_bytes)
                .filter(|segment| segment.get() < bytes),
            degree: algorithm.has_degree().then_some(degree),
            ranks_per_node: selected.ranks_per_node,
            nodes,
            engine,
            reason,
            table: None,
        }
    }

    /// Adapts the explanation to an algorithm that ran for this reason instead of the selected one.
    pub(crate) fn replace(&mut self, algorithm: Algorithm, reason: Reason) {
        if self.algorithm == algorithm {
            return;
        }
        self.algorithm = algorithm;
        self.segment_bytes = None;
        self.degree = None;
        self.ranks_per_node = None;
        self.reason = reason;
        self.table = None;
    }

    /// Adapts the explanation to an all-to-all of blocks of different sizes, which not every
    /// algorithm supports.
    pub(crate) fn adapt_to_different_sizes(&mut self) {
        let algorithm = for_different_sizes(self.algorithm);
        self.ranks_per_node = None;
        if algorithm != self.algorithm {
            self.algorithm = algorithm;
            self.segment_bytes = None;
            self.degree = None;
        }
    }

    /// The text without the size: equal for all sizes with the same decision.
    pub(crate) fn without_bytes(&self) -> String {
        Explanation { bytes: 0, ..self.clone() }.to_string()
    }
}

impl fmt::Display for Explanation {
    /// The choice, and the reason on a line of its own.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { operation, ranks, bytes, algorithm, engine, .. } = self;
        if self.form == CallForm::Nonblocking {
            write!(formatter, "{} ", self.form)?;
        }
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
            Reason::CommonOrder => write!(
                formatter,
                "  because the result depends on the order of the operands, which must be the same on \
                 all ranks"
            ),
            Reason::AnyOrder => write!(
                formatter,
                "  instead of recursive-doubling, because the result does not depend on the order of \
                 the operands"
            ),
            Reason::UnknownSizes => write!(
                formatter,
                "  because no rank waits for the sizes that only other ranks know"
            ),
            Reason::SeveralNodes => {
                write!(
                    formatter,
                    "  built-in parameters for several nodes, where a join cannot be had"
                )
            }
            Reason::CallerEngine => {
                write!(formatter, "  built-in rules, which the caller engine always goes by")
            }
            Reason::UnusableTable(why) => write!(formatter, "  {why}"),
            Reason::Decision(origin) => write!(formatter, "  {origin}"),
        }?;
        match &self.table {
            Some(path) => write!(formatter, " (table: {})", path.display()),
            None => Ok(()),
        }
    }
}
