//! Collectives in two levels: inside nodes, where messages are cheap, and between nodes, where a
//! leader represents its node.
//!
//! Nodes are runs of `ranks_per_node` consecutive ranks; the last may be smaller. A node's leader
//! is the root if that is on the node, otherwise the first rank. Contributions of a node's ranks go
//! to the leader, the leaders run the algorithm, and results return to the ranks of each node. All
//! of it is one graph: a rank waits only for the operations that produce its data, never for the
//! end of a phase. Reductions keep the order of ranks if the algorithm does. An [`alltoall`]
//! spreads the work: each rank of a node is the leader for some of the other nodes.
//!
//! Husbands, Hoe: "MPI-StarT: Delivering Network Performance to Numerical Applications",
//! Supercomputing 1998; Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan: "Exploiting Hierarchy
//! in Parallel Computer Networks to Optimize Collective Operation Performance", International
//! Parallel and Distributed Processing Symposium 2000.
//!
//! ```
//! use collectives::{Algorithm, Reduction, two_level};
//! use goal::arithmetic::{Arithmetic, DataType};
//! use std::num::NonZeroU32;
//!
//! // Rank 5 of 8 in nodes of four sends its contribution to rank 4 and receives the result.
//! let four = NonZeroU32::new(4).expect("more than nothing");
//! let sum = Reduction::new(Arithmetic::Add, DataType::F64);
//! let graph = two_level::allreduce(5, 8, four, 80, sum, Algorithm::RecursiveDoubling)?;
//! assert_eq!(graph.vertices().len(), 2);
//! # Ok::<(), collectives::CollectiveError>(())
//! ```

mod alltoall;
mod neighbor;

pub use alltoall::alltoall;
pub use neighbor::{neighbor_allgather, neighbor_alltoall};

use crate::blocks::Parts;
use crate::builder::{GraphBuilder, Group};
use crate::tree::Tree;
use crate::{Algorithm, Collective, CollectiveError, Reduction, Sizes, Tuning};
use crate::{allgather, allreduce, barrier, bcast, gather, reduce};
use goal::graph::{Access, Block, Graph};
use std::num::NonZeroU32;

/// A rank's place in both levels.
struct RankLevels {
    /// The ranks of the node.
    node: Group,
    /// The position of the leader in the node.
    leader: u32,
    /// The leaders of all nodes, if the rank is one.
    leaders: Option<Group>,
}

impl RankLevels {
    /// The levels for a rank that exists; the root, if there is one, leads its node.
    fn new(rank: u32, ranks: u32, per_node: NonZeroU32, root: u32) -> Self {
        let per_node = per_node.get();
        let number = rank / per_node;
        let first = rank / per_node * per_node;
        let count = per_node.min(ranks - first);
        let leader = if root / per_node == number { root - first } else { 0 };
        let node = Group { first, stride: 1, count, replaced: None, position: rank - first };
        let leaders = Group {
            first: 0,
            stride: per_node,
            count: ranks.div_ceil(per_node),
            replaced: Some((root / per_node, root)),
            position: number,
        };
        RankLevels { node, leader, leaders: (leader == rank - first).then_some(leaders) }
    }
}

/// Fails unless the algorithm is one of the collective's and has a form in two levels. Every rank
/// checks it, because only leaders run the algorithm.
fn check_levels(collective: Collective, algorithm: Algorithm) -> Result<(), CollectiveError> {
    collective.check_algorithm(algorithm)?;
    if collective.has_two_levels(algorithm) {
        return Ok(());
    }
    let algorithm = algorithm.name();
    Err(CollectiveError::HasNoLevels { algorithm, instead: "another algorithm" })
}

/// A barrier: up a binomial tree in each node, the algorithm between nodes, down again.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`]; for a join, [`CollectiveError::HasNoLevels`].
pub fn barrier(
    rank: u32,
    ranks: u32,
    ranks_per_node: NonZeroU32,
    algorithm: Algorithm,
) -> Result<Graph, CollectiveError> {
    check_levels(Collective::Barrier, algorithm)?;
    let mut builder = GraphBuilder::new(rank, ranks)?;
    let levels = RankLevels::new(rank, ranks, ranks_per_node, 0);
    let tree =
        builder.within(levels.node, |builder| Tree::binomial(builder.member(), levels.leader))?;
    builder.within(levels.node, |builder| barrier::collect_arrivals(builder, &tree));
    if let Some(leaders) = levels.leaders {
        builder.within(leaders, |builder| barrier::build(algorithm, builder))?;
    }
    builder.within(levels.node, |builder| barrier::release(builder, &tree));
    Ok(builder.finish())
}

/// A broadcast by the algorithm between nodes, then by the same algorithm in each node. Buffers are
/// those of [`bcast::graph`].
///
/// # Errors
/// As [`bcast::graph`]; for a join, [`CollectiveError::HasNoLevels`].
pub fn bcast(
    rank: u32,
    ranks: u32,
    ranks_per_node: NonZeroU32,
    root: u32,
    bytes: u64,
    algorithm: Algorithm,
    tuning: Tuning,
) -> Result<Graph, CollectiveError> {
    check_levels(Collective::Bcast, algorithm)?;
    let mut builder = GraphBuilder::new(rank, ranks)?;
    builder.member().behind(root)?;
    let levels = RankLevels::new(rank, ranks, ranks_per_node, root);
    let data = builder.buffer(if rank == root { Access::Input } else { Access::Output }, bytes);
    if let Some(leaders) = levels.leaders {
        let root = root / ranks_per_node.get();
        builder.within(leaders, |builder| bcast::build(algorithm, builder, root, data, tuning))?;
    }
    builder.within(levels.node, |builder| {
        bcast::build(algorithm, builder, levels.leader, data, tuning)
    })?;
    Ok(builder.finish())
}

/// A reduction by the algorithm in each node, then by the same algorithm between nodes. Buffers are
/// those of [`reduce::graph`].
///
/// # Errors
/// As [`reduce::graph`]; for a join, [`CollectiveError::HasNoLevels`]. An operation that is not
/// associative is refused for every algorithm.
pub fn reduce(
    rank: u32,
    ranks: u32,
    ranks_per_node: NonZeroU32,
    root: u32,
    bytes: u64,
    reduction: Reduction,
    (algorithm, tuning): (Algorithm, Tuning),
) -> Result<Graph, CollectiveError> {
    check_levels(Collective::Reduce, algorithm)?;
    let mut builder = GraphBuilder::new(rank, ranks)?;
    builder.member().behind(root)?;
    reduction.check(bytes)?;
    reduction.check_associative(algorithm)?;
    let levels = RankLevels::new(rank, ranks, ranks_per_node, root);
    let input = builder.buffer(Access::Input, bytes);
    let output = builder.buffer(Access::Output, if rank == root { bytes } else { 0 });
    let combined = combine_node(&mut builder, &levels, reduction, input, algorithm, tuning)?;
    if let Some(leaders) = levels.leaders {
        let target = (rank == root).then_some(output);
        let root = root / ranks_per_node.get();
        builder.within(leaders, |builder| {
            reduce::build(algorithm, builder, root, reduction, combined, target, tuning)
        })?;
    }
    Ok(builder.finish())
}

/// An allreduce: along binomial trees in each node, by the algorithm between nodes, and along the
/// trees back. Buffers are those of [`allreduce::graph`].
///
/// # Errors
/// As [`allreduce::graph`]; for a join, [`CollectiveError::HasNoLevels`]. An operation that is not
/// associative is refused for every algorithm.
pub fn allreduce(
    rank: u32,
    ranks: u32,
    ranks_per_node: NonZeroU32,
    bytes: u64,
    reduction: Reduction,
    algorithm: Algorithm,
) -> Result<Graph, CollectiveError> {
    check_levels(Collective::Allreduce, algorithm)?;
    let mut builder = GraphBuilder::new(rank, ranks)?;
    reduction.check(bytes)?;
    // The nodes' combinations are combined, whatever the order between the nodes.
    reduction.check_associative(algorithm)?;
    let levels = RankLevels::new(rank, ranks, ranks_per_node, 0);
    let tuning = Tuning::default();
    let input = builder.buffer(Access::Input, bytes);
    let output = builder.buffer(Access::Output, bytes);
    let inside = Algorithm::Binomial;
    let combined = combine_node(&mut builder, &levels, reduction, input, inside, tuning)?;
    if let Some(leaders) = levels.leaders {
        builder.within(leaders, |builder| {
            allreduce::build(algorithm, builder, reduction, combined, output)
        })?;
    }
    builder.within(levels.node, |builder| {
        bcast::build(Algorithm::Binomial, builder, levels.leader, output, tuning)
    })?;
    Ok(builder.finish())
}

/// An allgather: along binomial trees in each node, by the algorithm between nodes, and along the
/// trees back. Buffers are those of [`allgather::graph`].
///
/// # Errors
/// As [`allgather::graph`]; for a join, [`CollectiveError::HasNoLevels`].
pub fn allgather(
    rank: u32,
    ranks_per_node: NonZeroU32,
    sizes: &Sizes,
    algorithm: Algorithm,
) -> Result<Graph, CollectiveError> {
    check_levels(Collective::Allgather, algorithm)?;
    let ranks = sizes.ranks();
    let mut builder = GraphBuilder::new(rank, ranks)?;
    let levels = RankLevels::new(rank, ranks, ranks_per_node, 0);
    let tuning = Tuning::default();
    let input = builder.buffer(Access::Input, sizes.bytes(rank));
    let output = builder.parts(Access::Output, sizes);
    let Group { first, count, .. } = levels.node;
    let own = sizes.part(first, count);
    let target = output.range(first, count);
    builder.within(levels.node, |builder| {
        gather::build(Algorithm::Binomial, builder, levels.leader, &own, input, target, tuning)
    })?;
    if let Some(leaders) = levels.leaders {
        let grouped = sizes.grouped(ranks_per_node.get());
        let nodes = Parts::new(output.all(), &grouped);
        builder.within(leaders, |builder| {
            allgather::build(algorithm, builder, &grouped, target, &nodes)
        })?;
    }
    builder.within(levels.node, |builder| {
        bcast::build(Algorithm::Binomial, builder, levels.leader, output.all(), tuning)
    })?;
    Ok(builder.finish())
}

/// Combines the contributions of a node's ranks at its leader and returns the block with the
/// result there.
fn combine_node(
    builder: &mut GraphBuilder,
    levels: &RankLevels,
    reduction: Reduction,
    input: Block,
    algorithm: Algorithm,
    tuning: Tuning,
) -> Result<Block, CollectiveError> {
    if levels.node.count == 1 {
        return Ok(input);
    }
    let combined = builder.scratchpad(if levels.leaders.is_some() { input.length } else { 0 })?;
    let target = levels.leaders.map(|_| combined);
    builder.within(levels.node, |builder| {
        reduce::build(algorithm, builder, levels.leader, reduction, input, target, tuning)
    })?;
    Ok(combined)
}
