//! Blocks of all ranks on their way from the root or to it: scatter, and gather as its mirror image.

use crate::binomial_tree::BinomialTree;
use crate::blocks::{Parts, Segments};
use crate::builder::GraphBuilder;
use crate::{CollectiveError, Sizes, Tuning};
use goal::graph::{Block, Blocks};

const TAG: u32 = 0;

/// Direction of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the root: scatter.
    Down,
    /// To the root: gather.
    Up,
}

/// Neighbour of a rank on the way.
enum Side {
    /// Nearer to the root.
    Near,
    /// Further from it.
    Far,
}

/// Arguments of one scatter or gather.
pub(crate) struct RootedBlocks<'a> {
    pub(crate) direction: Direction,
    pub(crate) root: u32,
    pub(crate) sizes: &'a Sizes,
    /// The blocks of all ranks, only at the root.
    pub(crate) all: Parts,
    /// This rank's block.
    pub(crate) own: Block,
}

impl RootedBlocks<'_> {
    /// Adds the message with these blocks between this rank and one further from the root.
    fn far(&self, builder: &mut GraphBuilder, blocks: impl Into<Blocks>, peer: u32) {
        match self.direction {
            Direction::Down => builder.send(blocks, peer, TAG),
            Direction::Up => builder.receive(blocks, peer, TAG),
        };
    }

    /// Adds the message with these blocks between this rank and one nearer to the root.
    fn near(&self, builder: &mut GraphBuilder, blocks: impl Into<Blocks>, peer: u32) {
        match self.direction {
            Direction::Down => builder.receive(blocks, peer, TAG),
            Direction::Up => builder.send(blocks, peer, TAG),
        };
    }

    /// Both neighbours of a rank, first the one from which the blocks come.
    fn sides(&self) -> [Side; 2] {
        match self.direction {
            Direction::Down => [Side::Near, Side::Far],
            Direction::Up => [Side::Far, Side::Near],
        }
    }

    /// The items from near to far, in the order in which their blocks move: downwards those that
    /// go far move first, upwards those from near.
    fn in_order<T>(&self, items: impl DoubleEndedIterator<Item = T>) -> Vec<T> {
        match self.direction {
            Direction::Down => items.rev().collect(),
            Direction::Up => items.collect(),
        }
    }

    /// A message between the root and each rank.
    pub(crate) fn flat(&self, builder: &mut GraphBuilder) {
        let member = builder.member();
        if member.rank() != self.root {
            return self.near(builder, self.own, self.root);
        }
        for peer in (1..member.ranks()).map(|distance| member.after(distance)) {
            self.far(builder, self.all.at(peer), peer);
        }
    }

    /// A message between each rank and the next, with the blocks of all ranks further on.
    pub(crate) fn chain(&self, builder: &mut GraphBuilder) -> Result<(), CollectiveError> {
        let member = builder.member();
        let number = member.behind(self.root)?;
        let next = member.after(1);
        let further = member.ranks() - number - 1;
        if number == 0 {
            if further > 0 {
                self.far(builder, self.all.round(next, further), next);
            }
            return Ok(());
        }
        let rest = builder.scratchpad(self.sizes.run(next, further))?;
        for side in self.sides() {
            match side {
                Side::Near => self.near(builder, [self.own, rest], member.before(1)),
                Side::Far if further > 0 => self.far(builder, rest, next),
                Side::Far => {}
            }
        }
        Ok(())
    }

    /// As the chain, with a message for each segment of each block.
    pub(crate) fn pipelined_chain(
        &self,
        builder: &mut GraphBuilder,
        tuning: Tuning,
    ) -> Result<(), CollectiveError> {
        let member = builder.member();
        let number = member.behind(self.root)?;
        for distance in self.in_order(number.max(1)..member.ranks()) {
            let owner = member.beyond(self.root, distance);
            let bytes = self.sizes.bytes(owner);
            let block = match (number, distance == number) {
                (0, _) => self.all.at(owner),
                (_, true) => self.own,
                (_, false) => builder.scratchpad(bytes)?,
            };
            for segment in Segments::new(tuning.segment_bytes, 1, bytes)?.of(block) {
                for side in self.sides() {
                    match side {
                        Side::Near if number > 0 => self.near(builder, segment, member.before(1)),
                        Side::Far if distance > number => {
                            self.far(builder, segment, member.after(1));
                        }
                        Side::Near | Side::Far => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// A message along each edge of a binomial tree, with the blocks of a subtree.
    pub(crate) fn binomial(&self, builder: &mut GraphBuilder) -> Result<(), CollectiveError> {
        let member = builder.member();
        let tree = BinomialTree::new(member, self.root)?;
        // Subtrees of 1, 2, 4, … ranks follow each other behind this rank's own block.
        let next = member.after(1);
        let Some(parent) = tree.parent else {
            for child in self.in_order(tree.children.iter()) {
                self.far(builder, self.all.round(child.rank, child.size), child.rank);
            }
            return Ok(());
        };
        let rest = builder.scratchpad(self.sizes.run(next, tree.descendants()))?;
        for side in self.sides() {
            match side {
                Side::Near => self.near(builder, [self.own, rest], parent),
                Side::Far => {
                    for child in self.in_order(tree.children.iter()) {
                        let start = self.sizes.run(next, child.distance - 1);
                        let part = rest.part(start, self.sizes.run(child.rank, child.size));
                        self.far(builder, part, child.rank);
                    }
                }
            }
        }
        Ok(())
    }
}
