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

use crate::binomial_tree::BinomialTree;
use crate::blocks::{Parts, Segments};
use crate::builder::GraphBuilder;
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
    let scatter = Scatter { root, sizes, input: Parts::new(input, sizes), output };
    if builder.member().rank() == root {
        builder.copy(scatter.input.at(root), output);
    }
    match algorithm {
        Algorithm::Flat => scatter.flat(builder),
        Algorithm::Chain => scatter.chain(builder)?,
        Algorithm::PipelinedChain => scatter.pipelined_chain(builder, tuning)?,
        Algorithm::Binomial => scatter.binomial(builder)?,
        Algorithm::Join => scatter.join(builder)?,
        other => return Err(Collective::Scatter.lacks(other).into()),
    }
    Ok(())
}

const TAG: u32 = 0;

/// Arguments of one scatter.
struct Scatter<'a> {
    root: u32,
    sizes: &'a Sizes,
    /// Only at the root.
    input: Parts,
    output: Block,
}

impl Scatter<'_> {
    fn flat(&self, builder: &mut GraphBuilder) {
        let member = builder.member();
        if member.rank() != self.root {
            builder.receive(self.output, self.root, TAG);
            return;
        }
        for destination in (1..member.ranks()).map(|distance| member.after(distance)) {
            builder.send(self.input.at(destination), destination, TAG);
        }
    }

    fn chain(&self, builder: &mut GraphBuilder) -> Result<(), CollectiveError> {
        let member = builder.member();
        let number = member.behind(self.root)?;
        let next = member.after(1);
        let further = member.ranks() - number - 1;
        if number == 0 {
            if further > 0 {
                builder.send(self.input.round(next, further), next, TAG);
            }
            return Ok(());
        }
        let rest = builder.scratchpad(self.sizes.run(next, further))?;
        builder.receive([self.output, rest], member.before(1), TAG);
        if further > 0 {
            builder.send(rest, next, TAG);
        }
        Ok(())
    }

    fn pipelined_chain(
        &self,
        builder: &mut GraphBuilder,
        tuning: Tuning,
    ) -> Result<(), CollectiveError> {
        let member = builder.member();
        let number = member.behind(self.root)?;
        for distance in (number.max(1)..member.ranks()).rev() {
            let owner = member.beyond(self.root, distance);
            let bytes = self.sizes.bytes(owner);
            let block = match (number, distance == number) {
                (0, _) => self.input.at(owner),
                (_, true) => self.output,
                (_, false) => builder.scratchpad(bytes)?,
            };
            for segment in Segments::new(tuning.segment_bytes, 1, bytes)?.of(block) {
                if number > 0 {
                    builder.receive(segment, member.before(1), TAG);
                }
                if distance > number {
                    builder.send(segment, member.after(1), TAG);
                }
            }
        }
        Ok(())
    }

    fn join(&self, builder: &mut GraphBuilder) -> Result<(), CollectiveError> {
        let rank = builder.member().rank();
        let mode = JoinMode::Broadcast { root: self.root };
        if rank == self.root {
            builder.join(mode, self.input.all(), Blocks::none());
            return Ok(());
        }
        let all = builder.scratchpad(self.sizes.total())?;
        builder.join(mode, Blocks::none(), all);
        builder.copy(Parts::new(all, self.sizes).at(rank), self.output);
        Ok(())
    }

    fn binomial(&self, builder: &mut GraphBuilder) -> Result<(), CollectiveError> {
        let member = builder.member();
        let tree = BinomialTree::new(member, self.root)?;
        let Some(parent) = tree.parent else {
            for child in tree.children.iter().rev() {
                builder.send(self.input.round(child.rank, child.size), child.rank, TAG);
            }
            return Ok(());
        };
        // Subtrees of 1, 2, 4, … ranks follow each other behind this rank's own block.
        let next = member.after(1);
        let rest = builder.scratchpad(self.sizes.run(next, tree.descendants()))?;
        builder.receive([self.output, rest], parent, TAG);
        for child in tree.children.iter().rev() {
            let start = self.sizes.run(next, child.distance - 1);
            builder.send(rest.part(start, self.sizes.run(child.rank, child.size)), child.rank, TAG);
        }
        Ok(())
    }
}
