//! The algorithms of a communicator, by collective.

use collectives::{Algorithm, Collective, Tuning, UnknownName};
use std::num::NonZeroU32;

/// Algorithms for each collective; one with blocks of different sizes uses the algorithm of the one
/// with equal blocks.
///
/// Only some ranks know the sizes in scatterv, gatherv, alltoallv and the neighbour collectives with
/// blocks of different sizes. On one node these are joins. Between nodes scatterv and gatherv are
/// flat, neighbour collectives direct, and alltoallv uses the algorithm for alltoall, or
/// rotated-direct in place of one that forwards blocks.
///
/// `None` leaves the selection to the library: the decision table or joins under the peers engine,
/// where all ranks share a node; the classical algorithms under the caller engine, which exists to
/// run what MPI libraries ship today. A collective fails if its algorithm here is not one of
/// [`Collective::algorithms`].
///
/// ```
/// use tradewind::{Algorithm, Algorithms, Collective};
///
/// let chosen = Algorithms { allreduce: Some(Algorithm::Ring), ..Algorithms::default() };
/// assert_eq!(Algorithms::default().with(Collective::Allreduce, Algorithm::Ring)?, chosen);
/// assert!(Algorithms::default().with(Collective::Allreduce, Algorithm::Bruck).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// For barrier.
    pub barrier: Option<Algorithm>,
    /// For bcast.
    pub bcast: Option<Algorithm>,
    /// For scatter.
    pub scatter: Option<Algorithm>,
    /// For gather, and for reduce with a user-defined operation.
    pub gather: Option<Algorithm>,
    /// For allgather and allgatherv, and for allreduce, scan and exscan with a user-defined
    /// operation.
    pub allgather: Option<Algorithm>,
    /// For alltoall, between nodes for alltoallv, and for reduce_scatter with a user-defined operation.
    pub alltoall: Option<Algorithm>,
    /// For reduce.
    pub reduce: Option<Algorithm>,
    /// For allreduce. Where the result depends on the order of the operands, as for sums of
    /// floating-point numbers, recursive-doubling runs instead of dissemination.
    pub allreduce: Option<Algorithm>,
    /// For reduce_scatter and reduce_scatter_block.
    pub reduce_scatter: Option<Algorithm>,
    /// For scan.
    pub scan: Option<Algorithm>,
    /// For exscan.
    pub exscan: Option<Algorithm>,
    /// For the neighbour collectives.
    pub neighbor: Option<Algorithm>,
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

impl Algorithms {
    /// Algorithms for the neighbour collectives.
    ///
    /// - [`Algorithm::Direct`]: a message along every edge, all at once
    ///   (`collectives::neighbor`); with [`ranks_per_node`](Self::ranks_per_node) and blocks of one
    ///   size, one message from node to node. Long blocks in memory of the segment are copied once,
    ///   by the last rank to arrive; private ones three times.
    /// - [`Algorithm::Join`]: a flat collective in which each rank waits only for its sources.
    ///   Blocks are copied twice: when the collective starts and when the result is fetched.
    pub const NEIGHBOR: &[Algorithm] = &[Algorithm::Direct, Algorithm::Join];

    /// Returns the algorithm set for a collective.
    #[inline]
    pub const fn get(&self, collective: Collective) -> Option<Algorithm> {
        match collective {
            Collective::Barrier => self.barrier,
            Collective::Bcast => self.bcast,
            Collective::Scatter => self.scatter,
            Collective::Gather => self.gather,
            Collective::Allgather => self.allgather,
            Collective::Alltoall => self.alltoall,
            Collective::Reduce => self.reduce,
            Collective::Allreduce => self.allreduce,
            Collective::ReduceScatter => self.reduce_scatter,
            Collective::Scan => self.scan,
            Collective::Exscan => self.exscan,
        }
    }

    /// Sets the algorithm of a collective.
    ///
    /// # Errors
    /// Fails if the collective has no such algorithm; the error lists those that it has.
    pub fn with(
        mut self,
        collective: Collective,
        algorithm: Algorithm,
    ) -> Result<Self, UnknownName> {
        let set = match collective {
            Collective::Barrier => &mut self.barrier,
            Collective::Bcast => &mut self.bcast,
            Collective::Scatter => &mut self.scatter,
            Collective::Gather => &mut self.gather,
            Collective::Allgather => &mut self.allgather,
            Collective::Alltoall => &mut self.alltoall,
            Collective::Reduce => &mut self.reduce,
            Collective::Allreduce => &mut self.allreduce,
            Collective::ReduceScatter => &mut self.reduce_scatter,
            Collective::Scan => &mut self.scan,
            Collective::Exscan => &mut self.exscan,
        };
        collective.check_algorithm(algorithm)?;
        *set = Some(algorithm);
        Ok(self)
    }
}

/// The algorithm, or the nearest one that supports blocks of different sizes.
pub(crate) fn for_different_sizes(algorithm: Algorithm) -> Algorithm {
    match algorithm {
        Algorithm::Bruck | Algorithm::Multiphase => Algorithm::RotatedDirect,
        other => other,
    }
}
