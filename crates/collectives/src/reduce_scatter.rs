//! Reduce-scatter: the ranks' contributions are combined and every rank gets its block of the
//! result; equal blocks (MPI's reduce_scatter_block) or blocks of any size.
//!
//! # Algorithms
//!
//! - **ring**: Every block is passed along the ring to the rank it is for and is combined with each
//!   rank's on the way. `ranks` − 1 messages a rank and as many deep.
//!
//!   Patarasuk, Yuan: "Bandwidth Optimal All-Reduce Algorithms for Clusters of Workstations",
//!   Journal of Parallel and Distributed Computing 69(2), 2009: the first half. Contributions are
//!   combined in the order of the ring, which begins behind the rank that gets the block.
//! - **pairwise**: One partner after the other gets what is for it. Each rank folds what it has got
//!   from the left in rank order. `ranks` − 1 messages deep.
//!
//!   Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005: the pairwise
//!   exchange for long vectors.
//! - **recursive-halving**: Partners swap halves of what they have, the farthest first, and combine
//!   them. ⌊log₂ ranks⌋ rounds, and two messages more on some ranks when the number of ranks is not
//!   a power of two. Contributions are combined in an order of its own.
//!
//!   Thakur, Rabenseifner, Gropp 2005: recursive halving.
//! - **reduce-then-scatter**: Binomial [`reduce`] to rank 0, then binomial
//!   [`scatter`] from there.
//! - **join**: One join vertex of all ranks that folds their contributions from the left in rank
//!   order; each keeps its own block.

use crate::blocks::Parts;
use crate::builder::GraphBuilder;
use crate::fold::{fold, fold_in};
use crate::halving::Halving;
use crate::member::doublings;
use crate::power_of_two::{PowerOfTwo, Role};
use crate::{Algorithm, Collective, CollectiveError, Reduction, Sizes, Tuning, reduce, scatter};
use goal::graph::{Access, Block, Graph, JoinMode};

/// Builds the graph of an algorithm. Buffer 0 is the input, the rank's contribution to the blocks
/// of all ranks in rank order; buffer 1 the output, the rank's own block of the result.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`],
/// [`CollectiveError::NotWholeElements`], [`CollectiveError::NotApplicable`],
/// [`CollectiveError::TooManyBytes`]; for subtraction and division,
/// [`CollectiveError::NotAssociative`] unless the algorithm [folds from the
/// left](Collective::folds_from_left).
///
/// ```
/// use collectives::{Algorithm, Reduction, Sizes, reduce_scatter};
/// use goal::arithmetic::{Arithmetic, DataType};
///
/// let sum = Reduction::new(Arithmetic::Add, DataType::F64);
/// let graph = reduce_scatter::graph(Algorithm::Ring, 0, &Sizes::each(&[16, 0, 8])?, sum)?;
/// assert_eq!((graph.buffers()[0].length, graph.buffers()[1].length), (24, 16));
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn graph(
    algorithm: Algorithm,
    rank: u32,
    sizes: &Sizes,
    reduction: Reduction,
) -> Result<Graph, CollectiveError> {
    let mut builder = GraphBuilder::new(rank, sizes.ranks())?;
    for rank in 0..sizes.ranks() {
        reduction.check(sizes.bytes(rank))?;
    }
    reduction.check_grouping(Collective::ReduceScatter, algorithm)?;
    let input = builder.parts(Access::Input, sizes);
    let output = builder.buffer(Access::Output, sizes.bytes(rank));
    match algorithm {
        Algorithm::Ring => ring(&mut builder, reduction, &input, output)?,
        Algorithm::Pairwise => pairwise(&mut builder, reduction, &input, output)?,
        Algorithm::RecursiveHalving => {
            recursive_halving(&mut builder, reduction, sizes, &input, output)?
        }
        Algorithm::ReduceThenScatter => {
            reduce_then_scatter(&mut builder, reduction, sizes, &input, output)?
        }
        Algorithm::Join => join(&mut builder, reduction, sizes, &input, output)?,
        other => return Err(Collective::ReduceScatter.lacks(other).into()),
    }
    Ok(builder.finish())
}

const TAG: u32 = 0;

/// The block for this rank goes to the output.
pub(crate) fn ring(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    input: &Parts,
    output: Block,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    if member.ranks() == 1 {
        builder.copy(input.all(), output);
        return Ok(());
    }
    let mut held = input.at(member.before(1));
    for step in 1..member.ranks() {
        let own = input.at(member.before(step + 1));
        let theirs = builder.scratchpad(own.length)?;
        builder.send(held, member.after(1), step);
        builder.receive(theirs, member.before(1), step);
        held = fold(
            builder,
            reduction,
            &[theirs, own],
            (step + 1 == member.ranks()).then_some(output),
        );
    }
    Ok(())
}

fn pairwise(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    input: &Parts,
    output: Block,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    let rank = member.rank();
    let ranks = member.ranks();
    let mut operands = vec![(rank, input.at(rank))];
    let mut previous = None;
    for step in 1..ranks {
        let (destination, source) = if ranks.is_power_of_two() {
            (rank ^ step, rank ^ step)
        } else {
            (member.after(step), member.before(step))
        };
        let theirs = builder.scratchpad(output.length)?;
        let receive = builder.receive(theirs, source, TAG);
        let send = builder.send(input.at(destination), destination, TAG);
        if let Some((earlier_send, earlier_receive)) = previous.replace((send, receive)) {
            builder.requires(send, earlier_send);
            builder.requires(send, earlier_receive);
        }
        operands.push((source, theirs));
    }
    operands.sort_by_key(|(rank, _)| *rank);
    let in_order: Vec<Block> = operands.into_iter().map(|(_, block)| block).collect();
    fold(builder, reduction, &in_order, Some(output));
    Ok(())
}

fn recursive_halving(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    sizes: &Sizes,
    input: &Parts,
    output: Block,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    if member.ranks() == 1 {
        builder.copy(input.all(), output);
        return Ok(());
    }
    let folding = PowerOfTwo::new(member.ranks());
    let (position, folded) = match folding.role(member.rank()) {
        Role::Folded { into } => {
            builder.send(input.all(), into, TAG);
            builder.receive(output, into, TAG);
            return Ok(());
        }
        Role::Core { position, folded } => (position, folded),
    };
    let count = folding.core();
    let part = |position: u32| folding.run(position, 1);
    let parts: Vec<u64> =
        (0..count).map(|position| sizes.run(part(position).0, part(position).1)).collect();
    let parts = &Sizes::each(&parts)?;
    let held = fold_in(builder, reduction, input.all(), folded, TAG)?;
    let mut halving = Halving { reduction, folding, position, sizes: parts, held, first: 0, count };
    for distance in doublings(count).rev() {
        halving.step(builder, distance, |_, count| {
            (count == 1 && folded.is_none()).then_some(output)
        })?;
    }
    if let Some(folded) = folded {
        let mine = Parts::new(halving.held, &sizes.part(part(position).0, 2));
        builder.send(mine.at(folded % 2), folded, TAG);
        builder.copy(mine.at(member.rank() % 2), output);
    }
    Ok(())
}

fn reduce_then_scatter(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    sizes: &Sizes,
    input: &Parts,
    output: Block,
) -> Result<(), CollectiveError> {
    let is_root = builder.member().rank() == 0;
    let combined = builder.scratchpad(if is_root { sizes.total() } else { 0 })?;
    let tuning = Tuning::default();
    let target = is_root.then_some(combined);
    reduce::build(Algorithm::Binomial, builder, 0, reduction, input.all(), target, tuning)?;
    scatter::build(Algorithm::Binomial, builder, 0, sizes, combined, output, tuning)
}

fn join(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    sizes: &Sizes,
    input: &Parts,
    output: Block,
) -> Result<(), CollectiveError> {
    let combined = builder.scratchpad(sizes.total())?;
    let mode = JoinMode::Reduce { operation: reduction.operation, data_type: reduction.data_type };
    builder.join(mode, input.all(), combined);
    builder.copy(Parts::new(combined, sizes).at(builder.member().rank()), output);
    Ok(())
}
