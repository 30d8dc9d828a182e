//! A collective to be run.

use collectives::Collective;
use std::fmt;

/// A collective to be run. `ranks` and `ranks_per_node` count from 1; 0 is taken for 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// The operation.
    pub operation: Collective,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of them on each node; the last node may have fewer.
    pub ranks_per_node: u32,
    /// Bytes as [`Collective`] counts them.
    pub bytes: u64,
}

impl Query {
    /// The number of nodes.
    pub fn nodes(&self) -> u32 {
        self.ranks.max(1).div_ceil(self.ranks_per_node.max(1))
    }
}

impl fmt::Display for Query {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Query { operation, ranks, ranks_per_node, bytes } = self;
        write!(
            formatter,
            "{operation} of {bytes} bytes among {ranks} ranks, {} a node",
            ranks_per_node.min(ranks)
        )
    }
}
