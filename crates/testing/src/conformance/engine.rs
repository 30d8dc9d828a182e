//! Interface between the suite and the engines.

use goal::graph::Graph;

/// Contents of one rank's user buffers.
pub type Buffers = Vec<Vec<u8>>;

/// Buffers of all ranks in one round.
pub type Round = Vec<Buffers>;

/// Operation that divided an integer by zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fault {
    /// Rank of the operation.
    pub rank: u32,
    /// Position in the rank's vertex order.
    pub vertex: u32,
}

/// Result of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundOutcome {
    /// Buffers of all ranks after the run.
    pub buffers: Round,
    /// Operations reported to have divided by zero: the first one of every rank suffices.
    pub faults: Vec<Fault>,
}

/// Reason why a program did not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The lengths of a message and of its receive differ; the text names both.
    #[error("sizes differ: {0}")]
    SizesDiffer(String),
    /// The program does not end; the text names the waiting operations.
    #[error("the program does not end: {0}")]
    Stuck(String),
    /// Another failure.
    #[error("{0}")]
    Other(String),
}

/// Capabilities of an engine. Vectors and random programs that need more are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Support for receives from any source and of any tag.
    pub wildcards: bool,
    /// Support for joins.
    pub joins: bool,
    /// Support for all data types, not only the [basic](goal::arithmetic::DataType::is_basic) ones.
    pub all_types: bool,
    /// Largest number of ranks.
    pub max_ranks: u32,
    /// Number of random programs to run: fewer where starting a job takes long.
    pub random_programs: u32,
}

impl Default for Capabilities {
    /// All capabilities, up to eight ranks, 64 random programs.
    fn default() -> Self {
        Capabilities {
            wildcards: true,
            joins: true,
            all_types: true,
            max_ranks: 8,
            random_programs: 64,
        }
    }
}

/// Engine that runs programs.
pub trait Engine {
    /// Returns its name in reports.
    fn name(&self) -> &str;

    /// Returns its capabilities.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Compiles the graphs, one for each rank, and runs them once for each element of `inputs`:
    /// the initial contents of the user buffers, by rank and buffer, with the lengths that the
    /// graphs declare. Returns one outcome for each element.
    ///
    /// Rounds follow each other without a barrier: a rank starts its next round when its own part
    /// of the last one is complete, like a program that calls one collective after another.
    ///
    /// # Errors
    /// Every failure except division by zero, which an outcome reports. An engine that might wait
    /// forever returns [`Failure::Stuck`] after a time-out.
    fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure>;
}
