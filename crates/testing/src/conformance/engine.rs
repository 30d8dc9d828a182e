//! What the suite asks of an engine.

use goal::graph::Graph;

/// The bytes of one rank's user buffers.
pub type Buffers = Vec<Vec<u8>>;

/// The buffers of all ranks in one round.
pub type Round = Vec<Buffers>;

/// An operation that divided an integer by zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fault {
    /// The rank whose operation it is.
    pub rank: u32,
    /// Its place in the rank's vertex order.
    pub vertex: u32,
}

/// What one round gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundOutcome {
    /// The buffers of all ranks after the run.
    pub buffers: Round,
    /// The operations that were reported to have divided by zero: the first of every rank is
    /// enough.
    pub faults: Vec<Fault>,
}

/// Why a program could not be run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A message is not as long as its receive; the message names both.
    #[error("sizes differ: {0}")]
    SizesDiffer(String),
    /// The program does not end; what waits for what.
    #[error("the program does not end: {0}")]
    Stuck(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What an engine can do. Vectors and random programs that need more are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Receives from any source and of any tag.
    pub wildcards: bool,
    /// Joins.
    pub joins: bool,
    /// The largest number of ranks.
    pub max_ranks: u32,
    /// How many random programs to run: fewer where starting a job takes long.
    pub random_programs: u32,
}

impl Default for Capabilities {
    /// Everything, up to eight ranks, 64 random programs.
    fn default() -> Self {
        Capabilities { wildcards: true, joins: true, max_ranks: 8, random_programs: 64 }
    }
}

/// Something that runs programs.
pub trait Engine {
    /// Its name in reports.
    fn name(&self) -> &str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Compiles the graphs, one for each rank, and runs them once for each element of `inputs`:
    /// what the user buffers hold when the round starts, by rank and buffer, with the lengths that
    /// the graphs declare. Gives as many outcomes.
    ///
    /// Rounds follow each other without anything that holds the ranks together in between: a rank
    /// starts its next round when its own part of the last one is complete, as a program that calls
    /// one collective after another.
    ///
    /// # Errors
    /// Everything but division by zero, which an outcome reports. An engine that might wait for
    /// ever gives up after a time and says [`Failure::Stuck`].
    fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure>;
}
