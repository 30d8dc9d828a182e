//! A collective to be run.

use collectives::Collective;
use std::fmt;

collectives::named_enum! {
    /// Form of a call that starts or prepares a collective. The forms have different engines, so an
    /// algorithm may be the fastest in one form only.
    pub enum CallForm ("form of a call") {
        /// May wait for other ranks before it starts, and waits for the result at once.
        Blocking = "blocking",
        /// Never waits for another rank: a nonblocking start, or the preparation of a persistent
        /// collective: its starts match nonblocking ones.
        Nonblocking = "nonblocking",
    }
}

/// A collective to be run. `ranks` and `ranks_per_node` count from 1; 0 is taken for 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Query {
    /// The operation.
    pub operation: Collective,
    /// The form of the call.
    pub form: CallForm,
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

    /// Returns `true` if the ranks are on several nodes, and some of them share one.
    pub fn has_two_levels(&self) -> bool {
        self.nodes() > 1 && self.ranks_per_node.min(self.ranks) > 1
    }
}

impl fmt::Display for Query {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Query { operation, form, ranks, ranks_per_node, bytes } = self;
        write!(
            formatter,
            "{form} {operation} of {bytes} bytes among {ranks} ranks, {} a node",
            ranks_per_node.min(ranks)
        )
    }
}

/// Bytes of private buffers that the busiest rank of a collective copies: a root's input and
/// output, or those of any rank.
///
/// ```
/// use collectives::Collective;
/// assert_eq!(models::decision::private_bytes(Collective::Allgather, 4, 100), 500);
/// ```
pub fn private_bytes(operation: Collective, ranks: u32, bytes: u64) -> u64 {
    use Collective as O;
    let ranks = u64::from(ranks);
    let blocks = match operation {
        O::Barrier => 0,
        O::Bcast | O::Reduce | O::Allreduce | O::Scan | O::Exscan => 2,
        O::Scatter | O::Gather | O::Allgather | O::ReduceScatter => ranks + 1,
        O::Alltoall => 2 * ranks,
    };
    blocks.saturating_mul(bytes)
}
