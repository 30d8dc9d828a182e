//! The graph of any collective by any of its algorithms.

use crate::{
    Choice, Collective, CollectiveError, Levels, Reduction, Sizes, allgather, allreduce, alltoall,
    barrier, bcast, exscan, gather, reduce, reduce_scatter, scan, scatter, two_level,
};
use goal::graph::Graph;
use std::num::NonZeroU32;

/// Specification of one rank's graph of a collective with blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphSpec {
    /// The collective.
    pub collective: Collective,
    /// The rank of the graph.
    pub rank: u32,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of consecutive ranks on each node; used by two-level algorithms only.
    pub ranks_per_node: NonZeroU32,
    /// The root; ignored by collectives without one.
    pub root: u32,
    /// Bytes as [`Collective`] counts them.
    pub bytes: u64,
    /// The reduction; ignored by collectives that combine nothing.
    pub reduction: Reduction,
}

/// Builds one rank's graph of a collective.
///
/// # Errors
/// [`CollectiveError::Algorithm`] if the collective has no such algorithm,
/// [`CollectiveError::OneLevelOnly`] if it has no two-level form, and the errors of the algorithm
/// itself.
///
/// ```
/// use collectives::{Algorithm, Choice, Collective, GraphSpec, Reduction, build};
/// use goal::arithmetic::{Arithmetic, DataType};
/// use std::num::NonZeroU32;
///
/// let spec = GraphSpec {
///     collective: Collective::Bcast,
///     rank: 3,
///     ranks: 8,
///     ranks_per_node: NonZeroU32::MIN,
///     root: 3,
///     bytes: 1024,
///     reduction: Reduction::new(Arithmetic::Add, DataType::F64),
/// };
/// let graph = build(&spec, &Choice::of(Algorithm::Binomial))?;
/// assert_eq!(graph.vertices().len(), 3); // sends to the ranks 7, 5 and 4
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn build(spec: &GraphSpec, choice: &Choice) -> Result<Graph, CollectiveError> {
    build_parts(spec, choice, || Sizes::equal(spec.ranks, spec.bytes))
}

/// As [`build`], with a block of its own size for each rank. Only scatter, gather, allgather and
/// reduce_scatter use the sizes; other collectives use the bytes of `spec`.
///
/// # Errors
/// The errors of [`build`], and [`CollectiveError::SizesOfOtherRanks`].
///
/// ```
/// # use collectives::{Algorithm, Choice, Collective, GraphSpec, Reduction, Sizes};
/// # use goal::arithmetic::{Arithmetic, DataType};
/// # use std::num::NonZeroU32;
/// let spec = GraphSpec {
///     collective: Collective::Gather,
///     rank: 1,
///     ranks: 3,
///     ranks_per_node: NonZeroU32::MIN,
///     root: 0,
///     bytes: 0,
///     reduction: Reduction::new(Arithmetic::Add, DataType::U8),
/// };
/// let sizes = Sizes::each(&[8, 16, 24])?;
/// let graph = collectives::build_with_sizes(&spec, &sizes, &Choice::of(Algorithm::Flat))?;
/// assert_eq!(graph.buffers()[0].length, 16);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn build_with_sizes(
    spec: &GraphSpec,
    sizes: &Sizes,
    choice: &Choice,
) -> Result<Graph, CollectiveError> {
    if sizes.ranks() != spec.ranks {
        let sizes = sizes.ranks() as usize;
        return Err(CollectiveError::SizesOfOtherRanks { sizes, ranks: spec.ranks });
    }
    build_parts(spec, choice, || Ok(sizes.clone()))
}

fn build_parts(
    spec: &GraphSpec,
    choice: &Choice,
    sizes: impl Fn() -> Result<Sizes, CollectiveError>,
) -> Result<Graph, CollectiveError> {
    match choice.levels {
        Levels::One => one_level(spec, choice, sizes),
        Levels::Two => two_levels(spec, choice, sizes),
    }
}

fn one_level(
    spec: &GraphSpec,
    choice: &Choice,
    sizes: impl Fn() -> Result<Sizes, CollectiveError>,
) -> Result<Graph, CollectiveError> {
    let GraphSpec { rank, ranks, root, bytes, reduction, .. } = *spec;
    let tuning = choice.tuning();
    let algorithm = choice.algorithm;
    match spec.collective {
        Collective::Barrier => barrier::graph(algorithm, rank, ranks),
        Collective::Bcast => bcast::graph(algorithm, rank, ranks, root, bytes, tuning),
        Collective::Scatter => scatter::graph(algorithm, rank, root, &sizes()?, tuning),
        Collective::Gather => gather::graph(algorithm, rank, root, &sizes()?, tuning),
        Collective::Allgather => allgather::graph(algorithm, rank, &sizes()?),
        Collective::Reduce => reduce::graph(algorithm, rank, ranks, root, bytes, reduction, tuning),
        Collective::Allreduce => allreduce::graph(algorithm, rank, ranks, bytes, reduction),
        Collective::ReduceScatter => reduce_scatter::graph(algorithm, rank, &sizes()?, reduction),
        Collective::Scan => scan::graph(algorithm, rank, ranks, bytes, reduction),
        Collective::Exscan => exscan::graph(algorithm, rank, ranks, bytes, reduction),
        Collective::Alltoall => alltoall::graph(algorithm, rank, ranks, bytes, tuning),
    }
}

fn two_levels(
    spec: &GraphSpec,
    choice: &Choice,
    sizes: impl Fn() -> Result<Sizes, CollectiveError>,
) -> Result<Graph, CollectiveError> {
    let GraphSpec { collective, rank, ranks, ranks_per_node: per_node, root, bytes, .. } = *spec;
    let tuning = choice.tuning();
    let algorithm = choice.algorithm;
    match collective {
        Collective::Barrier => two_level::barrier(rank, ranks, per_node, algorithm),
        Collective::Bcast => {
            two_level::bcast(rank, ranks, per_node, root, bytes, algorithm, tuning)
        }
        Collective::Reduce => {
            let how = (algorithm, tuning);
            two_level::reduce(rank, ranks, per_node, root, bytes, spec.reduction, how)
        }
        Collective::Allreduce => {
            two_level::allreduce(rank, ranks, per_node, bytes, spec.reduction, algorithm)
        }
        Collective::Allgather => two_level::allgather(rank, per_node, &sizes()?, algorithm),
        Collective::Alltoall => two_level::alltoall(rank, ranks, per_node, bytes, algorithm),
        Collective::Scatter
        | Collective::Gather
        | Collective::ReduceScatter
        | Collective::Scan
        | Collective::Exscan => Err(CollectiveError::OneLevelOnly { collective }),
    }
}
