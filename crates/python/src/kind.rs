//! The kinds of collectives, and the facts that follow from a kind alone.

use crate::errors::ArgumentError;
use pyo3::prelude::*;
use std::fmt;

/// Calls a macro with all collectives that have an input and an output: kind, object with its methods, the
/// three methods, and the arguments before the output, behind it, and in front of them in the persistent
/// form.
macro_rules! with_collectives {
    ($use:ident) => {
        $use! {
            Gather communicator gather igather gather_init [] [root] [block];
            Gatherv communicator gatherv igatherv gatherv_init [] [counts root] [block];
            Scatter communicator scatter iscatter scatter_init [] [root] [block];
            Scatterv communicator scatterv iscatterv scatterv_init [counts] [root] [block];
            Allgather communicator allgather iallgather allgather_init [] [] [block];
            Allgatherv communicator allgatherv iallgatherv allgatherv_init [] [counts] [];
            Alltoall communicator alltoall ialltoall alltoall_init [] [] [block];
            Alltoallv communicator alltoallv ialltoallv alltoallv_init [counts] [received] [];
            Reduce communicator reduce ireduce reduce_init [] [op root] [block];
            Allreduce communicator allreduce iallreduce allreduce_init [] [op] [block];
            ReduceScatter communicator reduce_scatter ireduce_scatter reduce_scatter_init
                [] [counts op] [];
            ReduceScatterBlock communicator reduce_scatter_block ireduce_scatter_block
                reduce_scatter_block_init [] [op] [block];
            Scan communicator scan iscan scan_init [] [op] [block];
            Exscan communicator exscan iexscan exscan_init [] [op] [block];
            NeighborAlltoall neighbors neighbor_alltoall ineighbor_alltoall neighbor_alltoall_init
                [] [] [block];
            NeighborAlltoallv neighbors neighbor_alltoallv ineighbor_alltoallv neighbor_alltoallv_init
                [counts] [received] [];
            NeighborAllgather neighbors neighbor_allgather ineighbor_allgather neighbor_allgather_init
                [] [] [block];
            NeighborAllgatherv neighbors neighbor_allgatherv ineighbor_allgatherv
                neighbor_allgatherv_init [] [received] [block];
        }
    };
}

pub(crate) use with_collectives;

/// Declares the kinds.
macro_rules! declare {
    ($($Kind:ident $on:ident $run:ident $start:ident $prepare:ident
        [$($before:ident)*] [$($behind:ident)*] [$($block:ident)?];)*) => {
        /// Kind of a collective.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            Barrier,
            Bcast,
            $($Kind,)*
        }

        impl fmt::Display for Kind {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(match self {
                    Kind::Barrier => "barrier",
                    Kind::Bcast => "bcast",
                    $(Kind::$Kind => stringify!($run),)*
                })
            }
        }
    };
}

with_collectives!(declare);

/// Numbers on which the shapes of arrays depend.
pub(crate) struct Numbers<'a> {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) sources: usize,
    pub(crate) destinations: usize,
    /// Elements of blocks that are sent, or of the blocks of all ranks.
    pub(crate) counts: &'a [usize],
    /// Elements of blocks that are received, if they are others.
    pub(crate) received: &'a [usize],
}

impl Kind {
    /// Returns whether this rank has an input of its own.
    pub(crate) fn reads_input(self, is_root: bool) -> bool {
        match self {
            Kind::Barrier | Kind::Bcast => false,
            Kind::Scatter | Kind::Scatterv => is_root,
            _ => true,
        }
    }

    /// Returns whether this rank has an output.
    pub(crate) fn writes_output(self, is_root: bool) -> bool {
        match self {
            Kind::Barrier => false,
            Kind::Gather | Kind::Gatherv | Kind::Reduce => is_root,
            _ => true,
        }
    }

    /// Returns whether a call with one array as input and output has its input in place.
    pub(crate) fn allows_same_array(self) -> bool {
        use Kind::{Allreduce, Alltoall, Alltoallv, Exscan, Reduce, Scan};
        matches!(self, Allreduce | Reduce | Scan | Exscan | Alltoall | Alltoallv)
    }

    /// Lengths of the output's dimensions for an input with these.
    pub(crate) fn shape_of_output(
        self,
        numbers: &Numbers<'_>,
        shape: &[usize],
    ) -> PyResult<Vec<usize>> {
        let Numbers { rank, ranks: size, sources, destinations, counts, received } = *numbers;
        let first = |expected: usize, what: &str| match shape {
            [length, rest @ ..] if *length == expected => Ok(rest),
            _ => {
                let text = format!(
                    "the input of {self} has the shape {shape:?}: its first dimension must be the {expected} \
                     {what}, or pass out="
                );
                Err(ArgumentError::new_err(text))
            }
        };
        let total = |counts: &[usize]| {
            let total = counts.iter().try_fold(0, |sum: usize, count| sum.checked_add(*count));
            let total = total.filter(|total| isize::try_from(*total).is_ok());
            total.map(|total| vec![total]).ok_or_else(|| {
                ArgumentError::new_err("the sum of the numbers of elements is impossible")
            })
        };
        Ok(match self {
            Kind::Gather | Kind::Allgather => [&[size], shape].concat(),
            Kind::Gatherv | Kind::Allgatherv => total(counts)?,
            Kind::Scatter => first(size, "ranks")?.to_vec(),
            Kind::Scatterv | Kind::ReduceScatter => {
                let own = counts.get(rank).copied().unwrap_or(0);
                vec![own]
            }
            Kind::Alltoallv | Kind::NeighborAlltoallv | Kind::NeighborAllgatherv => {
                total(received)?
            }
            Kind::ReduceScatterBlock => match shape {
                [length, rest @ ..] if length.is_multiple_of(size) => {
                    [&[length / size], rest].concat()
                }
                _ => first(size, "ranks")?.to_vec(),
            },
            Kind::NeighborAlltoall => [&[sources], first(destinations, "destinations")?].concat(),
            Kind::NeighborAllgather => [&[sources], shape].concat(),
            _ => shape.to_vec(),
        })
    }
}
