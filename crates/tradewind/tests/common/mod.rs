//! The kinds of jobs that what holds for every job is tried on.

use std::fmt;
use tradewind::{Communicator, EngineKind, Result, local_hosts, local_with};

/// A kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All ranks on one host.
    OneHost(EngineKind),
    /// Two ranks on each host, so that collectives have two levels.
    Pairs,
    /// One rank on the first host and the others on the second.
    Uneven,
}

/// All of them.
pub(crate) const KINDS: [Kind; 4] = [
    Kind::OneHost(EngineKind::Peers),
    Kind::OneHost(EngineKind::Caller),
    Kind::Pairs,
    Kind::Uneven,
];

impl Kind {
    /// Runs a job.
    pub(crate) fn run(
        self,
        ranks: u32,
        body: impl Fn(Communicator) -> Result<()> + Sync,
    ) -> Result<()> {
        let hosts = match self {
            Kind::OneHost(engine) => return local_with(ranks, engine, body),
            Kind::Pairs => (0..ranks).step_by(2).map(|first| (ranks - first).min(2)).collect(),
            Kind::Uneven if ranks > 1 => vec![1, ranks - 1],
            Kind::Uneven => vec![1],
        };
        local_hosts(&hosts, body)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::OneHost(engine) => write!(formatter, "{engine}"),
            Kind::Pairs => formatter.write_str("pairs of ranks on hosts"),
            Kind::Uneven => formatter.write_str("one rank on one host, the others on another"),
        }
    }
}
