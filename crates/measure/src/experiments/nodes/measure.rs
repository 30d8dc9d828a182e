//! Quantities that are measured of every candidate.

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
    AllRanks,
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
