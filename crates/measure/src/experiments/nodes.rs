//! Costs of collectives between nodes, by engine: the figures of the offload paper on this
//! machine.
//!
//! Schneider, Eckelmann, Hoefler, Rehm: "Kernel-Based Offload of Collective Operations", 2011,
//! figures 4 to 7. An [`Candidate`] is an engine with ranks on each node, one as a rule; every
//! measure is a [`Measure`] that is taken of all candidates in turns, [`ROUNDS`] times or more, so
//! that a machine that drifts drifts for all of them.
//!
//! The ranks are threads of one process, bound to a core each as far as there are cores. So the
//! processor time of the process is that of ranks, engines and, where a packet is received in its
//! sender's call, of the network, too.
//!
//! ```
//! use measure::experiments::nodes::{Candidate, SameNode, Measure, Setting, compare};
//! use network::backend::Backend;
//! use std::sync::Arc;
//!
//! // Two nodes that are threads: no network at all.
//! let clients = network::local::connect(&network::node_map::NodeMap::new(["a", "b"]))?;
//! let carriers = clients.into_iter().map(|client| Arc::new(client) as Arc<dyn Backend>);
//! let candidates = [Candidate::new("agent", carriers.collect())];
//! let setting = Setting { rounds: 1, ..Setting::quick() };
//! let rows = compare(&candidates, &[Measure::Barrier], &setting, &SameNode)?;
//! assert!(rows[0].median > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cost;
mod floor;
mod lap;
mod part;
mod programs;
mod row;
mod session;

pub use floor::sockets;
pub use part::part;
pub use row::{Row, Target, Unit, targets};
pub use session::{Candidate, RankLocation, SameNode};

use crate::harness::Error;
use crate::harness::computation::ComputeRate;
use session::Session;

/// Every measure is taken so often of each candidate, in turns.
pub const ROUNDS: u32 = 7;
/// Rounds of the exchange that is overlapped: what one depends on came with the one before.
pub const EXCHANGE_ROUNDS: u32 = 8;

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Half a round trip of messages of so many bytes (figure 4a).
    PingPong {
        /// Bytes of each message.
        bytes: u64,
    },
    /// A barrier of all ranks, started and waited for (figure 5).
    Barrier,
    /// An exchange of [`EXCHANGE_ROUNDS`] rounds under a computation (figures 6 and 7).
    Overlap {
        /// Bytes of each message.
        bytes: u64,
    },
    /// A look at a run that is complete.
    Test,
    /// Waiting for a run that was complete when the computation ended.
    LateWait,
    /// Starting a schedule with one send.
    Start,
    /// One of many operations that depend on each other, executed in one go.
    Operation,
    /// The greater of two vectors of 32-bit floats of so many bytes (figure 4b).
    Reduction {
        /// Bytes of each vector.
        bytes: u64,
    },
    /// An all-to-all, of all ranks or of neighbours. Where ranks share cores, what they take to
    /// wait for each other hides what their messages cost: so it is also started and waited for by
    /// one thread for all of them.
    Exchange {
        /// The pairs of ranks that exchange blocks.
        pattern: ExchangePattern,
        /// Bytes of each block.
        bytes: u64,
        /// The scheme of levels.
        form: LevelScheme,
    },
}

/// The pairs of ranks that exchange blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangePattern {
    /// Each rank with all ranks.
    Everybody,
    /// Each rank with its four neighbours on a torus of two dimensions.
    Torus,
}

/// Levels and rounds of an all-to-all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelScheme {
    /// In one level, in the fewest rounds. Not among neighbours.
    Bruck,
    /// In one level, straight to where blocks belong.
    Direct,
    /// In two levels: one message from each node to each other.
    TwoLevels,
}

impl LevelScheme {
    /// All of them.
    pub const ALL: [LevelScheme; 3] =
        [LevelScheme::Bruck, LevelScheme::Direct, LevelScheme::TwoLevels];

    /// Its name in a row, behind that of the engine.
    pub const fn name(self) -> &'static str {
        match self {
            LevelScheme::Bruck => "bruck",
            LevelScheme::Direct => "direct",
            LevelScheme::TwoLevels => "two-level",
        }
    }
}

/// Amount of measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Number of rounds in which each measure is taken of each candidate.
    pub rounds: u32,
    /// Calls of one round.
    pub calls: u32,
    /// The computation over the exchange, in microseconds.
    pub computation_us: f64,
}

impl Setting {
    /// Enough for figures to be quoted.
    pub fn full() -> Self {
        Setting { rounds: ROUNDS, calls: 500, computation_us: 250.0 }
    }

    /// Enough to see that everything works.
    pub fn quick() -> Self {
        Setting { rounds: 2, calls: 20, computation_us: 250.0 }
    }
}

/// Takes every measure of every candidate, in turns, with the ranks' threads where `place` says.
///
/// # Errors
/// The error of an engine, with its name.
pub fn compare(
    candidates: &[Candidate],
    measures: &[Measure],
    setting: &Setting,
    place: &dyn RankLocation,
) -> Result<Vec<Row>, Error> {
    let pace = ComputeRate::calibrate();
    let mut rows = Vec::new();
    for measure in measures {
        let mut columns = Vec::new();
        for candidate in candidates {
            columns.push(Session::prepare(candidate, *measure)?);
        }
        for _ in 0..setting.rounds {
            for session in columns.iter_mut().flatten() {
                session.take(setting, pace, place)?;
            }
        }
        for session in columns.into_iter().flatten() {
            rows.extend(session.finish());
        }
    }
    Ok(rows)
}
