//! One row of the table, as the command line names it: OPERATION:BYTES:COMPUTATION, where the
//! computation is 0, a number of iterations, or nanoseconds of sleep such as 1000000ns.
//!
//! Bytes follow MPI's own convention, as in `bench/c/collectives.h`: barrier has none; bcast,
//! reduce, allreduce, scan and exscan count the whole message, all others one block (the message of
//! one pair of ranks).

use crate::measure::Computation;
use crate::{Failure, grid};

/// Which operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Barrier,
    Allreduce,
    Alltoall,
    Bcast,
    Neighbor,
    Reduce,
    Scatter,
    Gather,
    Allgather,
    ReduceScatter,
    Scan,
    Exscan,
    Alltoallv,
    Allgatherv,
    Gatherv,
    Scatterv,
    NeighborGather,
    /// From rank 0 to rank 1; the name says how.
    Message,
}

const KINDS: [(Kind, &str); 26] = [
    (Kind::Barrier, "barrier"),
    (Kind::Allreduce, "allreduce"),
    (Kind::Alltoall, "alltoall"),
    (Kind::Bcast, "bcast"),
    (Kind::Neighbor, "neighbor"),
    (Kind::Reduce, "reduce"),
    (Kind::Scatter, "scatter"),
    (Kind::Gather, "gather"),
    (Kind::Allgather, "allgather"),
    (Kind::ReduceScatter, "reducescatter"),
    (Kind::Scan, "scan"),
    (Kind::Exscan, "exscan"),
    (Kind::Alltoallv, "alltoallv"),
    (Kind::Allgatherv, "allgatherv"),
    (Kind::Gatherv, "gatherv"),
    (Kind::Scatterv, "scatterv"),
    (Kind::NeighborGather, "neighborgather"),
    (Kind::Message, "latency"),
    (Kind::Message, "rate"),
    (Kind::Message, "large"),
    (Kind::Message, "threads"),
    (Kind::Message, "pingpong"),
    (Kind::Message, "written"),
    (Kind::Message, "stream"),
    (Kind::Message, "posted"),
    (Kind::Message, "pairs"),
];

impl Kind {
    /// Blocks that a rank sends and receives, the root's where there is one.
    pub fn blocks(self, ranks: usize) -> (usize, usize) {
        match self {
            Self::Alltoall | Self::Alltoallv => (ranks, ranks),
            Self::Scatter | Self::Scatterv | Self::ReduceScatter => (ranks, 1),
            Self::Gather | Self::Gatherv | Self::Allgather | Self::Allgatherv => (1, ranks),
            Self::Neighbor => (grid::NEIGHBORS, grid::NEIGHBORS),
            Self::NeighborGather => (1, grid::NEIGHBORS),
            _ => (1, 1),
        }
    }
}

/// One row.
#[derive(Clone, Copy)]
pub struct Row {
    pub kind: Kind,
    /// The name both sides use.
    pub name: &'static str,
    pub bytes: usize,
    /// That it runs under; none measures it alone only.
    pub computation: Computation,
}

impl Row {
    /// Reads one.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let mistake = || {
            format!("'{text}' is no row: give OPERATION:BYTES:COMPUTATION, such as allreduce:8:0")
        };
        let [name, bytes, computation] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(mistake().into());
        };
        let (kind, name) =
            KINDS.into_iter().find(|(_, known)| *known == name).ok_or_else(mistake)?;
        let bytes = bytes.parse().map_err(|_| mistake())?;
        let computation = Computation::read(computation).ok_or_else(mistake)?;
        Ok(Self { kind, name, bytes, computation })
    }
}
