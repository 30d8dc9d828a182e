//! Amount of measurement.

/// Every measure is taken so often of each candidate, in turns.
pub const ROUNDS: u32 = 7;
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
