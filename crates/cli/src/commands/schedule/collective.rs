//! The collectives that can be shown, and the construction of their graphs.

use super::ScheduleError;
use clap::ValueEnum;
use collectives::{Reduction, Sizes, Tuning, two_level};
use collectives::{
    allgather, allreduce, alltoall, barrier, bcast, exscan, gather, reduce, reduce_scatter, scan,
    scatter,
};
use goal::graph::Graph;
use std::num::NonZeroU32;

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Collective {
    Barrier,
    Bcast,
    Scatter,
    Gather,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    #[value(alias = "reduce_scatter")]
    ReduceScatter,
    Scan,
    Exscan,
}

/// Parameters of a collective.
pub(super) struct Shape {
    pub(super) ranks: u32,
    pub(super) root: u32,
    pub(super) bytes: u64,
    pub(super) reduction: Reduction,
    pub(super) tuning: Tuning,
    pub(super) ranks_per_node: Option<NonZeroU32>,
}

impl Collective {
    /// Name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(super) fn has_root(self) -> bool {
        matches!(
            self,
            Collective::Bcast | Collective::Scatter | Collective::Gather | Collective::Reduce
        )
    }

    /// The names of its algorithms.
    pub(super) fn algorithms(self) -> Vec<&'static str> {
        fn names<A: Copy>(all: &[A], name: impl Fn(A) -> &'static str) -> Vec<&'static str> {
            all.iter().map(|algorithm| name(*algorithm)).collect()
        }
        match self {
            Collective::Barrier => names(barrier::Algorithm::ALL, barrier::Algorithm::name),
            Collective::Bcast => names(bcast::Algorithm::ALL, bcast::Algorithm::name),
            Collective::Scatter => names(scatter::Algorithm::ALL, scatter::Algorithm::name),
            Collective::Gather => names(gather::Algorithm::ALL, gather::Algorithm::name),
            Collective::Allgather => names(allgather::Algorithm::ALL, allgather::Algorithm::name),
            Collective::Alltoall => names(alltoall::Algorithm::ALL, alltoall::Algorithm::name),
            Collective::Reduce => names(reduce::Algorithm::ALL, reduce::Algorithm::name),
            Collective::Allreduce => names(allreduce::Algorithm::ALL, allreduce::Algorithm::name),
            Collective::ReduceScatter => {
                names(reduce_scatter::Algorithm::ALL, reduce_scatter::Algorithm::name)
            }
            Collective::Scan => names(scan::Algorithm::ALL, scan::Algorithm::name),
            Collective::Exscan => names(exscan::Algorithm::ALL, exscan::Algorithm::name),
        }
    }

    /// The graph of an algorithm for a rank.
    pub(super) fn graph(
        self,
        algorithm: &str,
        rank: u32,
        shape: &Shape,
    ) -> Result<Graph, ScheduleError> {
        if let Some(ranks_per_node) = shape.ranks_per_node {
            return self.two_level(algorithm, rank, shape, ranks_per_node);
        }
        let Shape { ranks, root, bytes, reduction, tuning, .. } = *shape;
        let sizes = || Sizes::equal(ranks, bytes);
        Ok(match self {
            Collective::Barrier => algorithm.parse::<barrier::Algorithm>()?.graph(rank, ranks)?,
            Collective::Bcast => {
                algorithm.parse::<bcast::Algorithm>()?.graph(rank, ranks, root, bytes, tuning)?
            }
            Collective::Scatter => {
                algorithm.parse::<scatter::Algorithm>()?.graph(rank, root, &sizes()?, tuning)?
            }
            Collective::Gather => {
                algorithm.parse::<gather::Algorithm>()?.graph(rank, root, &sizes()?, tuning)?
            }
            Collective::Allgather => {
                algorithm.parse::<allgather::Algorithm>()?.graph(rank, &sizes()?)?
            }
            Collective::Alltoall => {
                algorithm.parse::<alltoall::Algorithm>()?.graph(rank, ranks, bytes, tuning)?
            }
            Collective::Reduce => algorithm
                .parse::<reduce::Algorithm>()?
                .graph(rank, ranks, root, bytes, reduction, tuning)?,
            Collective::Allreduce => {
                algorithm.parse::<allreduce::Algorithm>()?.graph(rank, ranks, bytes, reduction)?
            }
            Collective::ReduceScatter => {
                algorithm.parse::<reduce_scatter::Algorithm>()?.graph(rank, &sizes()?, reduction)?
            }
            Collective::Scan => {
                algorithm.parse::<scan::Algorithm>()?.graph(rank, ranks, bytes, reduction)?
            }
            Collective::Exscan => {
                algorithm.parse::<exscan::Algorithm>()?.graph(rank, ranks, bytes, reduction)?
            }
        })
    }

    fn two_level(
        self,
        algorithm: &str,
        rank: u32,
        shape: &Shape,
        ranks_per_node: NonZeroU32,
    ) -> Result<Graph, ScheduleError> {
        let Shape { ranks, root, bytes, reduction, tuning, .. } = *shape;
        Ok(match self {
            Collective::Barrier => {
                two_level::barrier(rank, ranks, ranks_per_node, algorithm.parse()?)?
            }
            Collective::Bcast => two_level::bcast(
                rank,
                ranks,
                ranks_per_node,
                root,
                bytes,
                algorithm.parse()?,
                tuning,
            )?,
            Collective::Reduce => {
                let algorithm = (algorithm.parse()?, tuning);
                two_level::reduce(rank, ranks, ranks_per_node, root, bytes, reduction, algorithm)?
            }
            Collective::Allreduce => two_level::allreduce(
                rank,
                ranks,
                ranks_per_node,
                bytes,
                reduction,
                algorithm.parse()?,
            )?,
            Collective::Allgather => {
                let sizes = Sizes::equal(ranks, bytes)?;
                two_level::allgather(rank, ranks_per_node, &sizes, algorithm.parse()?)?
            }
            Collective::Alltoall => {
                two_level::alltoall(rank, ranks, ranks_per_node, bytes, algorithm.parse()?)?
            }
            _ => return Err(ScheduleError::OneLevel { collective: self.name() }),
        })
    }
}
