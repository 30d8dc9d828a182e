//! A vector that partners halve between them again and again, each combining its half.

use crate::builder::GraphBuilder;
use crate::power_of_two::PowerOfTwo;
use crate::{CollectiveError, Reduction, Sizes};
use goal::graph::Block;

/// Parts that a rank of the core holds of a vector with one part for each position of the core.
///
/// Rabenseifner: "Optimization of Collective Reduction Operations", International Conference on
/// Computational Science, 2004: vector halving. Positions that differ in one bit are partners: the
/// one where it is clear keeps the lower half. If distances grow, what a rank holds always combines
/// a run of consecutive positions, in rank order; if they shrink, a position ends with the part of
/// its own number.
pub(crate) struct Halving<'a> {
    pub(crate) reduction: Reduction,
    pub(crate) folding: PowerOfTwo,
    pub(crate) position: u32,
    /// The sizes of all parts.
    pub(crate) sizes: &'a Sizes,
    /// The parts from `first` on, combined so far.
    pub(crate) held: Block,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Halving<'_> {
    /// Swaps halves with the partner at a distance. The result goes to the block that `target`
    /// returns for its parts, and to the scratchpad if it returns none.
    pub(crate) fn step(
        &mut self,
        builder: &mut GraphBuilder,
        distance: u32,
        target: impl FnOnce(u32, u32) -> Option<Block>,
    ) -> Result<(), CollectiveError> {
        let partner = self.partner(distance);
        let tag = distance;
        let half = self.count / 2;
        let lower = self.range(self.first, half);
        let upper = self.range(self.first + half, half);
        let keeps_upper = self.position & distance != 0;
        let (kept, given) = if keeps_upper { (upper, lower) } else { (lower, upper) };
        let theirs = builder.scratchpad(kept.length)?;
        builder.receive(theirs, partner, tag);
        builder.send(given, partner, tag);
        self.first += if keeps_upper { half } else { 0 };
        self.count = half;
        self.held = target(self.first, half).unwrap_or(theirs);
        // Partners stand for runs of positions: that where the bit is clear comes first.
        let (left, right) = if keeps_upper { (theirs, kept) } else { (kept, theirs) };
        builder.combine(self.reduction, left, right, self.held);
        Ok(())
    }

    /// The rank at the position that differs in this bit.
    pub(crate) fn partner(&self, distance: u32) -> u32 {
        self.folding.rank(self.position ^ distance)
    }

    /// The parts that the partner of the last step kept: the first of them; they are as many as
    /// this rank's.
    pub(crate) fn sibling(&self, distance: u32) -> u32 {
        if self.position & distance == 0 {
            self.first + self.count
        } else {
            self.first - self.count
        }
    }

    /// Notes that this rank has its sibling's parts, too.
    pub(crate) fn doubled(&mut self, distance: u32) {
        self.first = self.first.min(self.sibling(distance));
        self.count *= 2;
    }

    fn range(&self, first: u32, count: u32) -> Block {
        let offset = |part: u32| self.sizes.offset(part);
        self.held.part(offset(first) - offset(self.first), offset(first + count) - offset(first))
    }
}
