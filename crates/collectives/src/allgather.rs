//! Allgather: every rank gets every rank's block, in rank order; equal blocks or (MPI's allgatherv)
//! blocks of any size.
//!
//! # Algorithms
//!
//! - **ring**: In each step a rank passes on to the next what it got in the step before. `ranks` −
//!   1 messages a rank and as many deep; for large blocks.
//!
//!   Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005: the ring.
//! - **recursive-doubling**: In round k partners 2^k apart exchange all they have. ⌊log₂ ranks⌋
//!   rounds, and two messages more on some ranks when the number of ranks is not a power of two:
//!   those hand their block to a neighbour and get everything from it.
//!
//!   Thakur, Rabenseifner, Gropp 2005: recursive doubling.
//! - **bruck**: In round k each rank sends all it has, up to what is missing there, to the rank 2^k
//!   places back. ⌈log₂ ranks⌉ messages a rank for any number of ranks.
//!
//!   Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient Algorithms for All-to-All Communications in
//!   Multiport Message-Passing Systems", IEEE Transactions on Parallel and Distributed Systems
//!   8(11), 1997: the concatenation algorithm. Its last phase, a rotation of all blocks, costs
//!   nothing here: they arrive where they belong.
//! - **gather-bcast**: Binomial [`gather`] to rank 0, then binomial
//!   [`bcast`] from there.
//! - **rotated-direct**: Every rank sends its block to every other one, the next rank first. `ranks` −
//!   1 messages a rank, one deep: no rank passes anything on.
//! - **join**: One join vertex of all ranks. For equal blocks.

use crate::blocks::{Parts, merged};
use crate::builder::GraphBuilder;
use crate::member::doublings;
use crate::power_of_two::{PowerOfTwo, Role};
use crate::{Algorithm, Collective, CollectiveError, Sizes, Tuning, bcast, gather};
use goal::graph::{Access, Block, Blocks, Graph, JoinMode};

/// Builds the graph of an algorithm. Buffer 0 is the input, the rank's own block; buffer 1 is the
/// output, the blocks of all ranks in rank order.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`],
/// [`CollectiveError::TooManyBytes`]; from a join, [`CollectiveError::NeedsEqualBlocks`].
///
/// ```
/// use collectives::{Algorithm, Sizes, allgather};
///
/// let graph = allgather::graph(Algorithm::Bruck, 0, &Sizes::equal(5, 16)?)?;
/// assert_eq!(graph.vertices().len(), 7); // a copy, three sends, three receives
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn graph(algorithm: Algorithm, rank: u32, sizes: &Sizes) -> Result<Graph, CollectiveError> {
    let mut builder = GraphBuilder::new(rank, sizes.ranks())?;
    let input = builder.buffer(Access::Input, sizes.bytes(rank));
    let output = builder.parts(Access::Output, sizes);
    build(algorithm, &mut builder, sizes, input, &output)?;
    Ok(builder.finish())
}

/// Builds it for the ranks of a group. The input may be the rank's place in the output.
pub(crate) fn build(
    algorithm: Algorithm,
    builder: &mut GraphBuilder,
    sizes: &Sizes,
    input: Block,
    output: &Parts,
) -> Result<(), CollectiveError> {
    let own = output.at(builder.member().rank());
    if input != own && !matches!(algorithm, Algorithm::GatherBcast | Algorithm::Join) {
        builder.copy(input, own);
    }
    let allgather = Allgather { input, output };
    match algorithm {
        Algorithm::Ring => allgather.ring(builder),
        Algorithm::RecursiveDoubling => allgather.recursive_doubling(builder),
        Algorithm::Bruck => allgather.bruck(builder),
        Algorithm::RotatedDirect => allgather.rotated_direct(builder),
        Algorithm::GatherBcast => {
            let tuning = Tuning::default();
            let target = output.all();
            gather::build(Algorithm::Binomial, builder, 0, sizes, input, target, tuning)?;
            bcast::build(Algorithm::Binomial, builder, 0, target, tuning)?;
        }
        Algorithm::Join => {
            sizes.must_be_equal(algorithm.name(), "bruck or ring")?;
            builder.join(JoinMode::Gather, input, output.all());
        }
        other => return Err(Collective::Allgather.lacks(other).into()),
    }
    Ok(())
}

/// The tag of messages between a folded rank and the one it folds into; rounds have the tags from
/// 1.
const FOLD: u32 = 0;

struct Allgather<'a> {
    input: Block,
    output: &'a Parts,
}

impl Allgather<'_> {
    fn ring(&self, builder: &mut GraphBuilder) {
        let member = builder.member();
        for step in 1..member.ranks() {
            builder.send(self.held(builder, member.before(step - 1), 1), member.after(1), step);
            builder.receive(self.output.at(member.before(step)), member.before(1), step);
        }
    }

    fn rotated_direct(&self, builder: &mut GraphBuilder) {
        let member = builder.member();
        for distance in 1..member.ranks() {
            builder.send(self.input, member.after(distance), FOLD);
            let other = member.before(distance);
            builder.receive(self.output.at(other), other, FOLD);
        }
    }

    fn bruck(&self, builder: &mut GraphBuilder) {
        let member = builder.member();
        for (round, distance) in member.doublings().enumerate() {
            let count = distance.min(member.ranks() - distance);
            builder.send(
                self.held(builder, member.rank(), count),
                member.before(distance),
                round as u32 + 1,
            );
            let theirs = member.after(distance);
            builder.receive(self.output.round(theirs, count), theirs, round as u32 + 1);
        }
    }

    fn recursive_doubling(&self, builder: &mut GraphBuilder) {
        let member = builder.member();
        let folding = PowerOfTwo::new(member.ranks());
        let (position, folded) = match folding.role(member.rank()) {
            Role::Folded { into } => {
                builder.send(self.input, into, FOLD);
                // Everything but the rank's own block, which is there.
                let before = member.rank();
                let after = member.rank() + 1;
                let rest = [
                    self.output.range(0, before),
                    self.output.range(after, member.ranks() - after),
                ];
                builder.receive(merged(rest), into, FOLD);
                return;
            }
            Role::Core { position, folded } => (position, folded),
        };
        if let Some(folded) = folded {
            builder.receive(self.output.at(folded), folded, FOLD);
        }
        for (round, distance) in doublings(folding.core()).enumerate() {
            let partner = position ^ distance;
            let tag = round as u32 + 1;
            let start = |position: u32| position & !(distance - 1);
            let (first, count) = folding.run(start(position), distance);
            builder.send(self.held(builder, first, count), folding.rank(partner), tag);
            let (first, count) = folding.run(start(partner), distance);
            builder.receive(self.output.range(first, count), folding.rank(partner), tag);
        }
        if let Some(folded) = folded {
            let rest = member.beyond(folded, 1);
            let count = member.ranks() - rest;
            let all = [self.held(builder, 0, folded), self.held(builder, rest, count)];
            builder.send(
                Blocks(all.into_iter().flat_map(|blocks| blocks.0).collect()),
                folded,
                FOLD,
            );
        }
    }

    /// Blocks that the rank has; its own comes from the input, so that no message waits for the
    /// copy.
    fn held(&self, builder: &GraphBuilder, first: u32, count: u32) -> Blocks {
        let member = builder.member();
        let ranks = (0..count).map(|distance| member.beyond(first, distance));
        merged(
            ranks.map(|rank| if rank == member.rank() { self.input } else { self.output.at(rank) }),
        )
    }
}
