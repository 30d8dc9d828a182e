//! The kinds of jobs that what holds for every job is tried on.

use std::fmt;
use tradewind::{Communicator, EngineKind, Result, local_nodes, local_with};

/// A kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All ranks on one node.
    OneNode(EngineKind),
    /// Two ranks on each node, so that collectives have two levels.
    Pairs,
    /// One rank on the first node and the others on the second.
    Uneven,
    /// Each rank on a node of its own, so that ranks run short collectives themselves.
    Apart,
}

/// All of them.
pub(crate) const KINDS: [Kind; 5] = [
    Kind::OneNode(EngineKind::Peers),
    Kind::OneNode(EngineKind::Caller),
    Kind::Pairs,
    Kind::Uneven,
    Kind::Apart,
];

impl Kind {
    /// Runs a job.
    pub(crate) fn run(
        self,
        ranks: u32,
        body: impl Fn(Communicator) -> Result<()> + Sync,
    ) -> Result<()> {
        let nodes = match self {
            Kind::OneNode(engine) => return local_with(ranks, engine, body),
            Kind::Pairs => (0..ranks).step_by(2).map(|first| (ranks - first).min(2)).collect(),
            Kind::Uneven if ranks > 1 => vec![1, ranks - 1],
            Kind::Uneven => vec![1],
            Kind::Apart => vec![1; ranks as usize],
        };
        local_nodes(&nodes, body)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::OneNode(engine) => write!(formatter, "{engine}"),
            Kind::Pairs => formatter.write_str("pairs of ranks on nodes"),
            Kind::Apart => formatter.write_str("ranks on nodes of their own"),
            Kind::Uneven => formatter.write_str("one rank on one node, the others on another"),
        }
    }
}
