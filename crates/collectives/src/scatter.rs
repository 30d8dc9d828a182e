//! Scatter: every rank gets its block of the root's bytes, equal blocks or (MPI's scatterv) blocks
//! of any size.

use crate::binomial_tree::BinomialTree;
use crate::blocks::{Parts, Segments};
use crate::drawing::Drawing;
use crate::{CollectiveError, Sizes, Tuning};
use goal::graph::{Access, Block, Blocks, Graph, JoinMode};

algorithms! {
    "scatter",
    /// The root sends every rank its block. `ranks` − 1 messages, one deep. No rank but the root
    /// needs other sizes than its own.
    ///
    /// Barchet-Estefanel, Mounié: "Performance Characterisation of Intra-Cluster Collective
    /// Communications" (2004), table 2: the flat tree.
    Flat = "flat",
    /// Each rank hands what is not its own to the next. `ranks` − 1 messages, as many deep, each a
    /// block shorter.
    ///
    /// Barchet-Estefanel, Mounié 2004, table 2: the chain.
    Chain = "chain",
    /// [`Chain`](Self::Chain), but every block is a message of its own, or several if it is longer
    /// than a segment; blocks that go far go first.
    ///
    /// Barchet-Estefanel, Mounié 2004, table 2: the pipelined chain.
    PipelinedChain = "pipelined-chain",
    /// Along a binomial tree: a rank gets its subtree's blocks as one message, keeps its own and
    /// hands each child its part, the largest first. `ranks` − 1 messages, ⌊log₂ ranks⌋ deep.
    ///
    /// Barchet-Estefanel, Mounié 2004, table 2: the binomial tree.
    Binomial = "binomial",
    /// All ranks meet in one join vertex that gives everybody the root's bytes; each keeps its own
    /// block.
    Join = "join",
}

impl Algorithm {
    /// The graph that this algorithm draws. Buffer 0 is the input, at the root the blocks of all
    /// ranks in rank order, elsewhere empty; buffer 1 is the output, the rank's own block.
    ///
    /// # Errors
    /// [`CollectiveError::RankOutOfRange`], [`CollectiveError::RootOutOfRange`],
    /// [`CollectiveError::TooManyBytes`]; in segments, [`CollectiveError::TooManySegments`].
    ///
    /// ```
    /// use collectives::{Sizes, Tuning, scatter::Algorithm};
    ///
    /// // Rank 4 of 8 gets its own block and those of 5, 6 and 7.
    /// let graph = Algorithm::Binomial.graph(4, 0, &Sizes::equal(8, 16)?, Tuning::default())?;
    /// assert_eq!(graph.scratchpad_bytes(), 3 * 16);
    /// # Ok::<(), collectives::CollectiveError>(())
    /// ```
    pub fn graph(
        self,
        rank: u32,
        root: u32,
        sizes: &Sizes,
        tuning: Tuning,
    ) -> Result<Graph, CollectiveError> {
        let mut drawing = Drawing::new(rank, sizes.ranks())?;
        drawing.member().behind(root)?;
        let input = drawing.buffer(Access::Input, if rank == root { sizes.total() } else { 0 });
        let output = drawing.buffer(Access::Output, sizes.bytes(rank));
        self.draw(&mut drawing, root, sizes, input, output, tuning)?;
        Ok(drawing.finish())
    }

    /// Draws it for the ranks of a group; the input is the root's.
    pub(crate) fn draw(
        self,
        drawing: &mut Drawing,
        root: u32,
        sizes: &Sizes,
        input: Block,
        output: Block,
        tuning: Tuning,
    ) -> Result<(), CollectiveError> {
        let scatter = Scatter { root, sizes, input: Parts::new(input, sizes), output };
        if drawing.member().rank() == root {
            drawing.copy(scatter.input.at(root), output);
        }
        match self {
            Algorithm::Flat => scatter.flat(drawing),
            Algorithm::Chain => scatter.chain(drawing)?,
            Algorithm::PipelinedChain => scatter.pipelined_chain(drawing, tuning)?,
            Algorithm::Binomial => scatter.binomial(drawing)?,
            Algorithm::Join => scatter.join(drawing)?,
        }
        Ok(())
    }
}

const TAG: u32 = 0;

/// What is scattered.
struct Scatter<'a> {
    root: u32,
    sizes: &'a Sizes,
    /// Only at the root.
    input: Parts,
    output: Block,
}

impl Scatter<'_> {
    fn flat(&self, drawing: &mut Drawing) {
        let member = drawing.member();
        if member.rank() != self.root {
            drawing.receive(self.output, self.root, TAG);
            return;
        }
        for destination in (1..member.ranks()).map(|distance| member.after(distance)) {
            drawing.send(self.input.at(destination), destination, TAG);
        }
    }

    fn chain(&self, drawing: &mut Drawing) -> Result<(), CollectiveError> {
        let member = drawing.member();
        let number = member.behind(self.root)?;
        let (next, further) = (member.after(1), member.ranks() - number - 1);
        if number == 0 {
            if further > 0 {
                drawing.send(self.input.round(next, further), next, TAG);
            }
            return Ok(());
        }
        let rest = drawing.scratchpad(self.sizes.run(next, further))?;
        drawing.receive([self.output, rest], member.before(1), TAG);
        if further > 0 {
            drawing.send(rest, next, TAG);
        }
        Ok(())
    }

    fn pipelined_chain(
        &self,
        drawing: &mut Drawing,
        tuning: Tuning,
    ) -> Result<(), CollectiveError> {
        let member = drawing.member();
        let number = member.behind(self.root)?;
        for distance in (number.max(1)..member.ranks()).rev() {
            let owner = member.beyond(self.root, distance);
            let bytes = self.sizes.bytes(owner);
            let block = match (number, distance == number) {
                (0, _) => self.input.at(owner),
                (_, true) => self.output,
                (_, false) => drawing.scratchpad(bytes)?,
            };
            for segment in Segments::new(tuning.segment_bytes, 1, bytes)?.of(block) {
                if number > 0 {
                    drawing.receive(segment, member.before(1), TAG);
                }
                if distance > number {
                    drawing.send(segment, member.after(1), TAG);
                }
            }
        }
        Ok(())
    }

    fn join(&self, drawing: &mut Drawing) -> Result<(), CollectiveError> {
        let (rank, mode) = (drawing.member().rank(), JoinMode::Broadcast { root: self.root });
        if rank == self.root {
            drawing.join(mode, self.input.all(), Blocks::none());
            return Ok(());
        }
        let all = drawing.scratchpad(self.sizes.total())?;
        drawing.join(mode, Blocks::none(), all);
        drawing.copy(Parts::new(all, self.sizes).at(rank), self.output);
        Ok(())
    }

    fn binomial(&self, drawing: &mut Drawing) -> Result<(), CollectiveError> {
        let member = drawing.member();
        let tree = BinomialTree::new(member, self.root)?;
        let Some(parent) = tree.parent else {
            for child in tree.children.iter().rev() {
                drawing.send(self.input.round(child.rank, child.size), child.rank, TAG);
            }
            return Ok(());
        };
        // Subtrees of 1, 2, 4, … ranks follow each other behind this rank's own block.
        let next = member.after(1);
        let rest = drawing.scratchpad(self.sizes.run(next, tree.descendants()))?;
        drawing.receive([self.output, rest], parent, TAG);
        for child in tree.children.iter().rev() {
            let start = self.sizes.run(next, child.distance - 1);
            drawing.send(rest.part(start, self.sizes.run(child.rank, child.size)), child.rank, TAG);
        }
        Ok(())
    }
}
