//! Join: all ranks of a node meet in one vertex, through memory that they share. No messages, so no
//! pLogP: its model is fitted to measurements of the join itself.

use serde::{Deserialize, Serialize};

/// a + b × P + c × m, in microseconds: to start and to be told, to look at each rank's line, to
/// move and combine bytes. Fitted for each operation by [`fit::plane`](crate::fit::plane()).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinCosts {
    /// a.
    pub fixed: f64,
    /// b.
    pub per_rank: f64,
    /// c.
    pub per_byte: f64,
}

/// a + b × P + c × m, not less than nothing.
///
/// ```
/// use models::formulas::join::{JoinCosts, join};
/// let costs = JoinCosts { fixed: 0.1, per_rank: 0.05, per_byte: 0.001 };
/// assert!((join(costs, 4, 1000) - 1.3).abs() < 1e-12);
/// ```
pub fn join(costs: JoinCosts, ranks: u32, bytes: u64) -> f64 {
    super::among(ranks, |_| {
        (costs.fixed + costs.per_rank * f64::from(ranks) + costs.per_byte * bytes as f64).max(0.0)
    })
}
