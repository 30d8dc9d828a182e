//! Scatter: every rank gets its block of the root's bytes, equal blocks or (MPI's scatterv) blocks
//! of any size.
//!
//! # Algorithms
//!
//! - **flat**: The root sends every rank its block. `ranks` − 1 messages, one deep. No rank but the
//!   root needs other sizes than its own.
//!
//!   Barchet-Estefanel, Mounié: "Performance Characterisation of Intra-Cluster Collective
//!   Communications" (2004), table 2: the flat tree.
//! - **chain**: Each rank hands what is not its own to the next. `ranks` − 1 messages, as many
//!   deep, each a block shorter.
//!
//!   Barchet-Estefanel, Mounié 2004, table 2: the chain.
//! - **pipelined-chain**: Chain, but every block is a message of its own, or several if it is
//!   longer than a segment; blocks that go far go first.
//!
//!   Barchet-Estefanel, Mounié 2004, table 2: the pipelined chain.
//! - **binomial**: Along a binomial tree: a rank gets its subtree's blocks as one message, keeps
//!   its own and hands each child its part, the largest first. `ranks` − 1 messages, ⌊log₂ ranks⌋
//!   deep.
//!
//!   Barchet-Estefanel, Mounié 2004, table 2: the binomial tree.
//! - **join**: One join vertex of all ranks that delivers the root's bytes to each; each keeps its
//!   own block.

use crate::blocks::Parts;
use crate::builder::GraphBuilder;
use crate::rooted_blocks::{Direction, RootedBlocks};
use crate::{Algorithm, Collective, CollectiveError, Sizes, Tuning};
use goal::graph::{Access, Block, Blocks, Graph, JoinMode};

/// Builds the graph of an algorithm. Buffer 0 is the input, at the root the blocks of all ranks in
/// rank order, elsewhere empty; buffer 1 is the output, the rank's own block.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`],
/// [`CollectiveError::RootOutOfRange`], [`CollectiveError::TooManyBytes`]; in segments,
/// [`CollectiveError::TooManySegments`].
///
/// ```
/// use collectives::{Algorithm, Sizes, Tuning, scatter};
///
/// // Rank 4 of 8 gets its own block and those of 5, 6 and 7.
/// let graph = scatter::graph(Algorithm::Binomial, 4, 0, &Sizes::equal(8, 16)?, Tuning::default())?;
/// assert_eq!(graph.scratchpad_bytes(), 3 * 16);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn graph(
    algorithm: Algorithm,
    rank: u32,
    root: u32,
    sizes: &Sizes,
    tuning: Tuning,
) -> Result<Graph, CollectiveError> {
    let mut builder = GraphBuilder::new(rank, sizes.ranks())?;
    builder.member().behind(root)?;
    let input = builder.buffer(Access::Input, if rank == root { sizes.total() } else { 0 });
    let output = builder.buffer(Access::Output, sizes.bytes(rank));
    build(algorithm, &mut builder, root, sizes, input, output, tuning)?;
    Ok(builder.finish())
}

/// Builds it for the ranks of a group; the input is the root's.
pub(crate) fn build(
    algorithm: Algorithm,
    builder: &mut GraphBuilder,
    root: u32,
    sizes: &Sizes,
    input: Block,
    output: Block,
    tuning: Tuning,
) -> Result<(), CollectiveError> {
    let all = Parts::new(input, sizes);
    let blocks = RootedBlocks { direction: Direction::Down, root, sizes, all, own: output };
    if builder.member().rank() == root {
        builder.copy(blocks.all.at(root), output);
    }
    match algorithm {
        Algorithm::Flat => blocks.flat(builder),
        Algorithm::Chain => blocks.chain(builder)?,
        Algorithm::PipelinedChain => blocks.pipelined_chain(builder, tuning)?,
        Algorithm::Binomial => blocks.binomial(builder)?,
        Algorithm::Join => join(builder, &blocks)?,
        other => return Err(Collective::Scatter.lacks(other).into()),
    }
    Ok(())
}

fn join(builder: &mut GraphBuilder, blocks: &RootedBlocks<'_>) -> Result<(), CollectiveError> {
    let rank = builder.member().rank();
    let mode = JoinMode::Broadcast { root: blocks.root };
    if rank == blocks.root {
        builder.join(mode, blocks.all.all(), Blocks::none());
        return Ok(());
    }
    let all = builder.scratchpad(blocks.sizes.total())?;
    builder.join(mode, Blocks::none(), all);
    builder.copy(Parts::new(all, blocks.sizes).at(rank), blocks.own);
    Ok(())
}
