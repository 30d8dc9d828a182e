//! Gather: the root gets every rank's block, in rank order; equal blocks or (MPI's gatherv) blocks
//! of any size.
//!
//! # Algorithms
//!
//! - **flat**: Every rank sends its block to the root. `ranks` − 1 messages, one deep. No rank but
//!   the root needs other sizes than its own.
//!
//!   Barchet-Estefanel, Mounié: "Performance Characterisation of Intra-Cluster Collective
//!   Communications" (2004), table 2 read backwards: the flat tree.
//! - **chain**: Each rank hands its own block and all it has got to the rank before it. `ranks` − 1
//!   messages, as many deep, each a block longer.
//!
//!   Barchet-Estefanel, Mounié 2004, table 2 read backwards: the chain.
//! - **pipelined-chain**: Chain, but every block is a message of its own, or several if it is
//!   longer than a segment; blocks from near come first.
//!
//!   Barchet-Estefanel, Mounié 2004, table 2 read backwards: the pipelined chain.
//! - **binomial**: Along a binomial tree: each rank collects its subtree's blocks in the scratchpad
//!   and passes them on as one message. ⌊log₂ ranks⌋ messages deep, `ranks` − 1 messages in all.
//!
//!   The collecting ranks need temporary memory that belongs to the run, not to the caller: this is
//!   the example with which Schneider et al. 2011, section 2.2, motivate scratchpads.
//! - **join**: One join vertex of all ranks; only the root takes its result. For equal blocks.

use crate::blocks::Parts;
use crate::builder::GraphBuilder;
use crate::rooted_blocks::{Direction, RootedBlocks};
use crate::{Algorithm, Collective, CollectiveError, Sizes, Tuning};
use goal::graph::{Access, Block, Blocks, Graph, JoinMode};

/// Builds the graph of an algorithm. Buffer 0 is the input, the rank's own block; buffer 1 is the
/// output, at the root the blocks of all ranks in rank order, elsewhere empty.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`],
/// [`CollectiveError::RootOutOfRange`], [`CollectiveError::TooManyBytes`]; in segments,
/// [`CollectiveError::TooManySegments`]; from a join, [`CollectiveError::NeedsEqualBlocks`].
///
/// ```
/// use collectives::{Algorithm, Sizes, Tuning, gather};
///
/// // Rank 4 of 8 collects for 5, 6 and 7 and hands four blocks to the root.
/// let graph = gather::graph(Algorithm::Binomial, 4, 0, &Sizes::equal(8, 16)?, Tuning::default())?;
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
    let input = builder.buffer(Access::Input, sizes.bytes(rank));
    let output = builder.buffer(Access::Output, if rank == root { sizes.total() } else { 0 });
    build(algorithm, &mut builder, root, sizes, input, output, tuning)?;
    Ok(builder.finish())
}

/// Builds it for the ranks of a group; the output is the root's.
pub(crate) fn build(
    algorithm: Algorithm,
    builder: &mut GraphBuilder,
    root: u32,
    sizes: &Sizes,
    input: Block,
    output: Block,
    tuning: Tuning,
) -> Result<(), CollectiveError> {
    let all = Parts::new(output, sizes);
    let blocks = RootedBlocks { direction: Direction::Up, root, sizes, all, own: input };
    let is_root = builder.member().rank() == root;
    if is_root && algorithm != Algorithm::Join && input != blocks.all.at(root) {
        builder.copy(input, blocks.all.at(root));
    }
    match algorithm {
        Algorithm::Flat => blocks.flat(builder),
        Algorithm::Chain => blocks.chain(builder)?,
        Algorithm::PipelinedChain => blocks.pipelined_chain(builder, tuning)?,
        Algorithm::Binomial => blocks.binomial(builder)?,
        Algorithm::Join => {
            sizes.must_be_equal(algorithm.name(), "binomial")?;
            builder.join(
                JoinMode::Gather,
                input,
                if is_root { output.into() } else { Blocks::none() },
            );
        }
        other => return Err(Collective::Gather.lacks(other).into()),
    }
    Ok(())
}

/// Builds the graph of [`Algorithm::Binomial`] for equal blocks of `bytes` bytes.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::RootOutOfRange`],
/// [`CollectiveError::TooManyBytes`].
pub fn tree_gather(rank: u32, ranks: u32, root: u32, bytes: u64) -> Result<Graph, CollectiveError> {
    graph(Algorithm::Binomial, rank, root, &Sizes::equal(ranks, bytes)?, Tuning::default())
}
