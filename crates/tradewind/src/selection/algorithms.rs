//! The algorithms of a communicator, by collective.

use collectives::Tuning;
use goal::arithmetic::UnknownName;
use std::num::NonZeroU32;
use std::str::FromStr;

pub use collectives::allgather::Algorithm as AllgatherAlgorithm;
pub use collectives::allreduce::Algorithm as AllreduceAlgorithm;
pub use collectives::alltoall::Algorithm as AlltoallAlgorithm;
pub use collectives::barrier::Algorithm as BarrierAlgorithm;
pub use collectives::bcast::Algorithm as BcastAlgorithm;
pub use collectives::exscan::Algorithm as ExscanAlgorithm;
pub use collectives::gather::Algorithm as GatherAlgorithm;
pub use collectives::reduce::Algorithm as ReduceAlgorithm;
pub use collectives::reduce_scatter::Algorithm as ReduceScatterAlgorithm;
pub use collectives::scan::Algorithm as ScanAlgorithm;
pub use collectives::scatter::Algorithm as ScatterAlgorithm;

/// Algorithms for each collective; one with blocks of different sizes uses the algorithm of the one
/// with equal blocks.
///
/// `None` leaves the selection to the library: the decision table or joins under the peers engine,
/// where all ranks share a node; the classical algorithms under the caller engine, which exists to
/// run what MPI libraries ship today.
///
/// ```
/// use tradewind::{Algorithms, AllreduceAlgorithm};
///
/// let chosen = Algorithms { allreduce: Some(AllreduceAlgorithm::Ring), ..Algorithms::default() };
/// assert_eq!(Algorithms::default().with("allreduce", "ring")?, chosen);
/// assert!(Algorithms::default().with("allreduce", "bruck").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// For barrier.
    pub barrier: Option<BarrierAlgorithm>,
    /// For bcast.
    pub bcast: Option<BcastAlgorithm>,
    /// For scatter and scatterv.
    pub scatter: Option<ScatterAlgorithm>,
    /// For gather and gatherv, and for reduce with a user-defined operation.
    pub gather: Option<GatherAlgorithm>,
    /// For allgather and allgatherv, and for allreduce, scan and exscan with a user-defined
    /// operation.
    pub allgather: Option<AllgatherAlgorithm>,
    /// For alltoall and alltoallv, and for reduce_scatter with a user-defined operation.
    pub alltoall: Option<AlltoallAlgorithm>,
    /// For reduce.
    pub reduce: Option<ReduceAlgorithm>,
    /// For allreduce.
    pub allreduce: Option<AllreduceAlgorithm>,
    /// For reduce_scatter and reduce_scatter_block.
    pub reduce_scatter: Option<ReduceScatterAlgorithm>,
    /// For scan.
    pub scan: Option<ScanAlgorithm>,
    /// For exscan.
    pub exscan: Option<ExscanAlgorithm>,
    /// For the neighbour collectives.
    pub neighbor: Option<NeighborAlgorithm>,
    /// Segment sizes and degrees of the algorithms above that have them.
    pub tuning: Tuning,
    /// Number of consecutive ranks on a node, for algorithms in two levels: inside the nodes, and
    /// between them. Applies to the algorithms above for barrier, bcast, reduce, allreduce,
    /// allgather, alltoall and, with blocks of one size, the neighbour collectives. Joins have one
    /// level. So have the algorithms for alltoall that forward the blocks of others, bruck and
    /// multiphase, and every alltoallv: only sender and receiver know its sizes.
    ///
    /// If both this and the algorithm are `None`, ranks on several nodes use two levels by default
    /// where each node has as many consecutive ranks: all-to-alls while a rank has at most 1 KiB
    /// for each other node, and nodes are few beside their ranks; neighbour collectives while a
    /// block has at most 512 bytes, wherever ranks share nodes.
    pub ranks_per_node: Option<NonZeroU32>,
}

/// Algorithms for the neighbour collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NeighborAlgorithm {
    /// A message along every edge, all at once (`collectives::neighbor`); with
    /// [`Algorithms::ranks_per_node`] and blocks of one size, one message from node to node. Long
    /// blocks in memory of the segment are copied once, by the last rank to arrive; private ones
    /// three times.
    Direct,
    /// A flat collective in which each rank waits only for its sources. Blocks are copied twice:
    /// when the collective starts and when the result is fetched.
    Join,
}

impl NeighborAlgorithm {
    /// All algorithms.
    pub const ALL: &[Self] = &[NeighborAlgorithm::Direct, NeighborAlgorithm::Join];

    /// Name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            NeighborAlgorithm::Direct => "direct",
            NeighborAlgorithm::Join => "join",
        }
    }
}

impl std::fmt::Display for NeighborAlgorithm {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for NeighborAlgorithm {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            UnknownName {
                kind: "neighbor algorithm",
                name: name.to_owned(),
                known: Self::ALL.iter().map(|algorithm| algorithm.name()).collect(),
            }
        })
    }
}

/// The algorithm, or the nearest one that supports blocks of different sizes.
pub(crate) fn for_different_sizes(algorithm: AlltoallAlgorithm) -> AlltoallAlgorithm {
    match algorithm {
        AlltoallAlgorithm::Bruck | AlltoallAlgorithm::Multiphase => {
            AlltoallAlgorithm::RotatedDirect
        }
        other => other,
    }
}
