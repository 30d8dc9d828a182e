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
//! use collectives::{Reduction, allreduce::Algorithm, two_level};
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
use crate::{CollectiveError, Reduction, Sizes, Tuning};
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

fn has_levels(algorithm: &'static str) -> Result<(), CollectiveError> {
    let instead = "another algorithm";
    if algorithm == "join" {
        Err(CollectiveError::HasNoLevels { algorithm, instead })
    } else {
        Ok(())
    }
}

/// A barrier: up a binomial tree in each node, the algorithm between nodes, down again.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`]; for a join, [`CollectiveError::HasNoLevels`].
pub fn barrier(
    rank: u32,
    ranks: u32,
    ranks_per_node: NonZeroU32,
    algorithm: barrier::Algorithm,
) -> Result<Graph, CollectiveError> {
    has_levels(algorithm.name())?;
    let mut builder = GraphBuilder::new(rank, ranks)?;
    let levels = RankLevels::new(rank, ranks, ranks_per_node, 0);
    let tree =
        builder.within(levels.node, |builder| Tree::binomial(builder.member(), levels.leader))?;
    builder.within(levels.node, |builder| barrier::collect_arrivals(builder, &tree));
    if let Some(leaders) = levels.leaders {
        builder.within(leaders, |builder| algorithm.build(builder))?;
    }
    builder.within(levels.node, |builder| barrier::release(builder, &tree));
    Ok(builder.finish())
}

/// A broadcast by the algorithm between nodes, then by the same algorithm in each node. Buffers are
/// those of [`bcast::Algorithm::graph`].
///
/// # Errors
/// As [`bcast::Algorithm::graph`]; for a join, [`CollectiveError::HasNoLevels`].
pub fn bcast(
    rank: u32,
    ranks: u32,
    ranks_per_node: NonZeroU32,
    root: u32,
    bytes: u64,
    algorithm: bcast::Algorithm,
    tuning: Tuning,
) -> Result<Graph, CollectiveError> {
    has_levels(algorithm.name())?;
    let mut builder = GraphBuilder::new(rank, ranks)?;
    builder.member().behind(root)?;
    let levels = RankLevels::new(rank, ranks, ranks_per_node, root);
    let data = builder.buffer(if rank == root { Access::Input } else { Access::Output }, bytes);
    if let Some(leaders) = levels.leaders {
        let root = root / ranks_per_node.get();
        builder.within(leaders, |builder| algorithm.build(builder, root, data, tuning))?;
    }
    builder.within(levels.node, |builder| algorithm.build(builder, levels.leader, data, tuning))?;
    Ok(builder.finish())
}

/// A reduction by the algorithm in each node, then by the same algorithm between nodes. Buffers are
/// those of [`reduce::Algorithm::graph`].
///
/// # Errors
/// As [`reduce::Algorithm::graph`]; for a join, [`CollectiveError::HasNoLevels`]. An operation that
/// is not associative is refused for every algorithm.
pub fn reduce(
    rank: u32,
    ranks: u32,
    ranks_per_node: NonZeroU32,
    root: u32,
    bytes: u64,
    reduction: Reduction,
    (algorithm, tuning): (reduce::Algorithm, Tuning),
) -> Result<Graph, CollectiveError> {
    has_levels(algorithm.name())?;
    let mut builder = GraphBuilder::new(rank, ranks)?;
    builder.member().behind(root)?;
    reduction.check(bytes)?;
    reduction.check_grouping(algorithm.name(), false)?;
    let levels = RankLevels::new(rank, ranks, ranks_per_node, root);
    let input = builder.buffer(Access::Input, bytes);
    let output = builder.buffer(Access::Output, if rank == root { bytes } else { 0 });
    let combined = combine_node(&mut builder, &levels, reduction, input, algorithm, tuning)?;
    if let Some(leaders) = levels.leaders {
        let target = (rank == root).then_some(output);
        let root = root / ranks_per_node.get();
        builder.within(leaders, |builder| {
            algorithm.build(builder, root, reduction, combined, target, tuning)
        })?;
    }
    Ok(builder.finish())
}

/// An allreduce: along binomial trees in each node, by the algorithm between nodes, and along the
/// trees back. Buffers are those of [`allreduce::Algorithm::graph`].
///
/// # Errors
/// As [`allreduce::Algorithm::graph`]; for a join, [`CollectiveError::HasNoLevels`].
pub fn allreduce(
    rank: u32,
    ranks: u32,
    ranks_per_node: NonZeroU32,
    bytes: u64,
    reduction: Reduction,
    algorithm: allreduce::Algorithm,
) -> Result<Graph, CollectiveError> {
    has_levels(algorithm.name())?;
    let mut builder = GraphBuilder::new(rank, ranks)?;
    reduction.check(bytes)?;
    let levels = RankLevels::new(rank, ranks, ranks_per_node, 0);
    let tuning = Tuning::default();
    let input = builder.buffer(Access::Input, bytes);
    let output = builder.buffer(Access::Output, bytes);
    let inside = reduce::Algorithm::Binomial;
    let combined = combine_node(&mut builder, &levels, reduction, input, inside, tuning)?;
    if let Some(leaders) = levels.leaders {
        builder.within(leaders, |builder| algorithm.build(builder, reduction, combined, output))?;
    }
    let back = bcast::Algorithm::Binomial;
    builder.within(levels.node, |builder| back.build(builder, levels.leader, output, tuning))?;
    Ok(builder.finish())
}

/// An allgather: along binomial trees in each node, by the algorithm between nodes, and along the
/// trees back. Buffers are those of [`allgather::Algorithm::graph`].
///
/// # Errors
/// As [`allgather::Algorithm::graph`]; for a join, [`CollectiveError::HasNoLevels`].
pub fn allgather(
    rank: u32,
    ranks_per_node: NonZeroU32,
    sizes: &Sizes,
    algorithm: allgather::Algorithm,
) -> Result<Graph, CollectiveError> {
    has_levels(algorithm.name())?;
    let ranks = sizes.ranks();
    let mut builder = GraphBuilder::new(rank, ranks)?;
    let levels = RankLevels::new(rank, ranks, ranks_per_node, 0);
    let tuning = Tuning::default();
    let input = builder.buffer(Access::Input, sizes.bytes(rank));
    let output = builder.parts(Access::Output, sizes);
    let Group { first, count, .. } = levels.node;
    let own = sizes.part(first, count);
    let target = output.range(first, count);
    let up = gather::Algorithm::Binomial;
    builder.within(levels.node, |builder| {
        up.build(builder, levels.leader, &own, input, target, tuning)
    })?;
    if let Some(leaders) = levels.leaders {
        let grouped = sizes.grouped(ranks_per_node.get());
        let nodes = Parts::new(output.all(), &grouped);
        builder.within(leaders, |builder| algorithm.build(builder, &grouped, target, &nodes))?;
    }
    let back = bcast::Algorithm::Binomial;
    builder
        .within(levels.node, |builder| back.build(builder, levels.leader, output.all(), tuning))?;
    Ok(builder.finish())
}

/// Combines the contributions of a node's ranks at its leader and returns the block with the
/// result there.
fn combine_node(
    builder: &mut GraphBuilder,
    levels: &RankLevels,
    reduction: Reduction,
    input: Block,
    algorithm: reduce::Algorithm,
    tuning: Tuning,
) -> Result<Block, CollectiveError> {
    if levels.node.count == 1 {
        return Ok(input);
    }
    let combined = builder.scratchpad(if levels.leaders.is_some() { input.length } else { 0 })?;
    let target = levels.leaders.map(|_| combined);
    builder.within(levels.node, |builder| {
        algorithm.build(builder, levels.leader, reduction, input, target, tuning)
    })?;
    Ok(combined)
}
