//! Collectives in two levels: inside a node, where messages are cheap, and between nodes, where one
//! rank speaks for all.
//!
//! Nodes are runs of `ranks_per_node` consecutive ranks; the last may be smaller. A node's leader
//! is its first rank, or the root if that is there. What the ranks of a node have to say comes to
//! the leader, the leaders run the algorithm among themselves, and what they have then goes to the
//! others of their nodes. All of it is one graph: no rank waits for a phase to be over where it
//! does not need what the phase brings. Reductions keep the order of ranks if the algorithm does.
//! Only in an [`alltoall`] no leader speaks for all: what a node has for each other node comes to
//! another of its ranks.
//!
//! Husbands, Hoe: "MPI-StarT: Delivering Network Performance to Numerical Applications",
//! Supercomputing 1998; Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan: "Exploiting Hierarchy
//! in Parallel Computer Networks to Optimize Collective Collective Performance", International
//! Parallel and Distributed Processing Symposium 2000.
//!
//! ```
//! use collectives::{Reduction, allreduce::Algorithm, two_level};
//! use goal::arithmetic::{Arithmetic, DataType};
//! use std::num::NonZeroU32;
//!
//! // Rank 5 of 8 in nodes of four hands its contribution to rank 4 and gets the result from there.
//! let (four, sum) = (NonZeroU32::new(4).expect("more than nothing"), Reduction::new(Arithmetic::Add, DataType::F64));
//! let graph = two_level::allreduce(5, 8, four, 80, sum, Algorithm::RecursiveDoubling)?;
//! assert_eq!(graph.vertices().len(), 2);
//! # Ok::<(), collectives::CollectiveError>(())
//! ```

mod alltoall;
mod neighbor;

pub use alltoall::alltoall;
pub use neighbor::{neighbor_allgather, neighbor_alltoall};

use crate::blocks::Parts;
use crate::drawing::{Drawing, Group};
use crate::tree::Tree;
use crate::{CollectiveError, Reduction, Sizes, Tuning};
use crate::{allgather, allreduce, barrier, bcast, gather, reduce};
use goal::graph::{Access, Block, Graph};
use std::num::NonZeroU32;

/// A rank's place in both levels.
struct Levels {
    /// The ranks of the node.
    node: Group,
    /// The position of the leader in the node.
    leader: u32,
    /// The leaders of all nodes, if the rank is one.
    leaders: Option<Group>,
}

impl Levels {
    /// The levels for a rank that exists; the root, if there is one, leads its node.
    fn new(rank: u32, ranks: u32, per_node: NonZeroU32, root: u32) -> Self {
        let per_node = per_node.get();
        let (number, first) = (rank / per_node, rank / per_node * per_node);
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
        Levels { node, leader, leaders: (leader == rank - first).then_some(leaders) }
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
    let mut drawing = Drawing::new(rank, ranks)?;
    let levels = Levels::new(rank, ranks, ranks_per_node, 0);
    let tree =
        drawing.within(levels.node, |drawing| Tree::binomial(drawing.member(), levels.leader))?;
    drawing.within(levels.node, |drawing| barrier::come_together(drawing, &tree));
    if let Some(leaders) = levels.leaders {
        drawing.within(leaders, |drawing| algorithm.draw(drawing))?;
    }
    drawing.within(levels.node, |drawing| barrier::set_free(drawing, &tree));
    Ok(drawing.finish())
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
    let mut drawing = Drawing::new(rank, ranks)?;
    drawing.member().behind(root)?;
    let levels = Levels::new(rank, ranks, ranks_per_node, root);
    let data = drawing.buffer(if rank == root { Access::Input } else { Access::Output }, bytes);
    if let Some(leaders) = levels.leaders {
        let root = root / ranks_per_node.get();
        drawing.within(leaders, |drawing| algorithm.draw(drawing, root, data, tuning))?;
    }
    drawing.within(levels.node, |drawing| algorithm.draw(drawing, levels.leader, data, tuning))?;
    Ok(drawing.finish())
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
    let mut drawing = Drawing::new(rank, ranks)?;
    drawing.member().behind(root)?;
    reduction.check(bytes)?;
    reduction.check_grouping(algorithm.name(), false)?;
    let levels = Levels::new(rank, ranks, ranks_per_node, root);
    let input = drawing.buffer(Access::Input, bytes);
    let output = drawing.buffer(Access::Output, if rank == root { bytes } else { 0 });
    let combined = combine_node(&mut drawing, &levels, reduction, input, algorithm, tuning)?;
    if let Some(leaders) = levels.leaders {
        let (root, target) = (root / ranks_per_node.get(), (rank == root).then_some(output));
        drawing.within(leaders, |drawing| {
            algorithm.draw(drawing, root, reduction, combined, target, tuning)
        })?;
    }
    Ok(drawing.finish())
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
    let mut drawing = Drawing::new(rank, ranks)?;
    reduction.check(bytes)?;
    let (levels, tuning) = (Levels::new(rank, ranks, ranks_per_node, 0), Tuning::default());
    let input = drawing.buffer(Access::Input, bytes);
    let output = drawing.buffer(Access::Output, bytes);
    let inside = reduce::Algorithm::Binomial;
    let combined = combine_node(&mut drawing, &levels, reduction, input, inside, tuning)?;
    if let Some(leaders) = levels.leaders {
        drawing.within(leaders, |drawing| algorithm.draw(drawing, reduction, combined, output))?;
    }
    let back = bcast::Algorithm::Binomial;
    drawing.within(levels.node, |drawing| back.draw(drawing, levels.leader, output, tuning))?;
    Ok(drawing.finish())
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
    let mut drawing = Drawing::new(rank, ranks)?;
    let (levels, tuning) = (Levels::new(rank, ranks, ranks_per_node, 0), Tuning::default());
    let input = drawing.buffer(Access::Input, sizes.bytes(rank));
    let output = drawing.parts(Access::Output, sizes);
    let Group { first, count, .. } = levels.node;
    let (own, target) = (sizes.part(first, count), output.range(first, count));
    let up = gather::Algorithm::Binomial;
    drawing.within(levels.node, |drawing| {
        up.draw(drawing, levels.leader, &own, input, target, tuning)
    })?;
    if let Some(leaders) = levels.leaders {
        let grouped = sizes.grouped(ranks_per_node.get());
        let nodes = Parts::new(output.all(), &grouped);
        drawing.within(leaders, |drawing| algorithm.draw(drawing, &grouped, target, &nodes))?;
    }
    let back = bcast::Algorithm::Binomial;
    drawing
        .within(levels.node, |drawing| back.draw(drawing, levels.leader, output.all(), tuning))?;
    Ok(drawing.finish())
}

/// Combines the contributions of a node's ranks at its leader and gives the leader what came out.
fn combine_node(
    drawing: &mut Drawing,
    levels: &Levels,
    reduction: Reduction,
    input: Block,
    algorithm: reduce::Algorithm,
    tuning: Tuning,
) -> Result<Block, CollectiveError> {
    if levels.node.count == 1 {
        return Ok(input);
    }
    let combined = drawing.scratchpad(if levels.leaders.is_some() { input.length } else { 0 })?;
    let target = levels.leaders.map(|_| combined);
    drawing.within(levels.node, |drawing| {
        algorithm.draw(drawing, levels.leader, reduction, input, target, tuning)
    })?;
    Ok(combined)
}
