//! Allreduce: every rank gets all ranks' contributions combined, and all get the same bits.
//!
//! # Algorithms
//!
//! - **recursive-doubling**: In round k partners 2^k apart exchange what they have so far and both
//!   combine it. ⌊log₂ ranks⌋ rounds, and two messages more on some ranks when the number of ranks
//!   is not a power of two.
//!
//!   Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005: recursive
//!   doubling. For other numbers of ranks, as many pairs of the first ranks as exceed the largest
//!   power of two fold into one rank each, which returns the result to its partner.
//!
//!   A rank always holds the combination of a run of consecutive ranks, and of two such runs the
//!   lower is the left operand. Both partners therefore compute the same expression, and all ranks
//!   end with the same bits whatever the order of arrival; a floating-point result depends on the
//!   number of ranks alone.
//! - **dissemination**: In each round a rank sends what it has to the rank as many places further
//!   on, and combines what arrives with it. ⌈log₂ ranks⌉ rounds for any number of ranks, of one
//!   message a rank each. Every rank combines in an order of its own, so the algorithm takes only
//!   operations with the same result [in every order](Reduction::depends_on_order).
//!
//!   Hensgen, Finkel, Manber: "Two Algorithms for Barrier Synchronization", International Journal of
//!   Parallel Programming 17(1), 1988: the dissemination algorithm. Bruck, Ho: "Efficient Global
//!   Combine Operations in Multi-Port Message-Passing Systems", Parallel Processing Letters 3(4),
//!   1993: no contribution is counted twice, whatever the number of ranks.
//! - **ring**: Every part of the vector passes round the ring once and is combined at each rank,
//!   then once more to distribute the result. 2 · (`ranks` − 1) messages a rank and as many deep;
//!   each rank sends about twice the vector. For long vectors.
//!
//!   Patarasuk, Yuan: "Bandwidth Optimal All-Reduce Algorithms for Clusters of Workstations",
//!   Journal of Parallel and Distributed Computing 69(2), 2009. Contributions are combined in the
//!   order of the ring, which begins at another rank for each part.
//! - **rabenseifner**: Partners 2^k apart swap halves of the vector and combine them, until every
//!   rank of a power of two has a part; then the parts are gathered in the reverse order. 2 · ⌊log₂
//!   ranks⌋ rounds, in which a rank sends about twice the vector. For long vectors.
//!
//!   Rabenseifner: "Optimization of Collective Reduction Operations", International Conference on
//!   Computational Science, 2004.
//! - **reduce-bcast**: Binomial [`reduce`] to rank 0, then binomial
//!   [`bcast`] from there.
//! - **rotated-direct**: Every rank sends its contribution to every other one, the next rank first, and
//!   folds all from the left in rank order. `ranks` − 1 messages a rank, one deep: no rank passes
//!   anything on. For short vectors on few ranks.
//! - **join**: One join vertex of all ranks that folds their contributions from the left in rank
//!   order.

use crate::blocks::Parts;
use crate::builder::GraphBuilder;
use crate::fold::{fold, fold_in};
use crate::halving::Halving;
use crate::member::doublings;
use crate::power_of_two::{PowerOfTwo, Role};
use crate::{
    Algorithm, Collective, CollectiveError, Reduction, Sizes, Tuning, allgather, bcast, reduce,
    reduce_scatter,
};
use goal::graph::{Access, Block, Graph, JoinMode};

/// Builds the graph of an algorithm; `bytes` is the size of a contribution. Buffer 0 is the input,
/// the contribution; buffer 1 the output, the result.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`],
/// [`CollectiveError::NotWholeElements`], [`CollectiveError::NotApplicable`],
/// [`CollectiveError::TooManyBytes`]; for subtraction and division,
/// [`CollectiveError::NotAssociative`] unless the algorithm [folds from the
/// left](Collective::folds_from_left); [`CollectiveError::DependsOnOrder`] by dissemination.
///
/// ```
/// use collectives::{Algorithm, Reduction, allreduce};
/// use goal::arithmetic::{Arithmetic, DataType};
///
/// // Rank 0 of 3 hands its contribution to rank 1 and gets the result from there.
/// let sum = Reduction::new(Arithmetic::Add, DataType::F64);
/// assert_eq!(allreduce::graph(Algorithm::RecursiveDoubling, 0, 3, 8, sum)?.vertices().len(), 2);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn graph(
    algorithm: Algorithm,
    rank: u32,
    ranks: u32,
    bytes: u64,
    reduction: Reduction,
) -> Result<Graph, CollectiveError> {
    let mut builder = GraphBuilder::new(rank, ranks)?;
    reduction.check(bytes)?;
    let input = builder.buffer(Access::Input, bytes);
    let output = builder.buffer(Access::Output, bytes);
    build(algorithm, &mut builder, reduction, input, output)?;
    Ok(builder.finish())
}

/// Builds it for the ranks of a group.
pub(crate) fn build(
    algorithm: Algorithm,
    builder: &mut GraphBuilder,
    reduction: Reduction,
    input: Block,
    output: Block,
) -> Result<(), CollectiveError> {
    reduction.check_grouping(Collective::Allreduce, algorithm)?;
    let member = builder.member();
    match algorithm {
        Algorithm::Join => {
            let mode =
                JoinMode::Reduce { operation: reduction.operation, data_type: reduction.data_type };
            builder.join(mode, input, output);
        }
        _ if member.ranks() == 1 => {
            builder.copy(input, output);
        }
        Algorithm::RecursiveDoubling => {
            core(builder, reduction, input, output, recursive_doubling)?
        }
        Algorithm::Dissemination => dissemination(builder, reduction, input, output)?,
        Algorithm::RotatedDirect => rotated_direct(builder, reduction, input, output)?,
        Algorithm::Rabenseifner => core(builder, reduction, input, output, rabenseifner)?,
        Algorithm::Ring => {
            let sizes = Sizes::even(member.ranks(), input.length, reduction.unit());
            let input = Parts::new(input, &sizes);
            let output = Parts::new(output, &sizes);
            let own = output.at(member.rank());
            reduce_scatter::ring(builder, reduction, &input, own)?;
            allgather::build(Algorithm::Ring, builder, &sizes, own, &output)?;
        }
        Algorithm::ReduceBcast => {
            let tuning = Tuning::default();
            let target = (member.rank() == 0).then_some(output);
            reduce::build(Algorithm::Binomial, builder, 0, reduction, input, target, tuning)?;
            bcast::build(Algorithm::Binomial, builder, 0, output, tuning)?;
        }
        other => return Err(Collective::Allreduce.lacks(other).into()),
    }
    Ok(())
}

/// An allreduce for operations that are not even associative: rank 0 folds all contributions from
/// the left in rank order (flat [`reduce`]) and broadcasts the result
/// (binomial [`bcast`]). Buffers are those of [`graph`].
///
/// # Errors
/// As [`graph`], but for [`CollectiveError::NotAssociative`].
///
/// ```
/// use collectives::{Reduction, allreduce};
/// use goal::arithmetic::{Arithmetic, DataType};
///
/// // Rank 2 of 3 hands in its contribution and gets the result.
/// let difference = Reduction::new(Arithmetic::Subtract, DataType::I32);
/// assert_eq!(allreduce::fold_from_left(2, 3, 4, difference)?.vertices().len(), 2);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn fold_from_left(
    rank: u32,
    ranks: u32,
    bytes: u64,
    reduction: Reduction,
) -> Result<Graph, CollectiveError> {
    let mut builder = GraphBuilder::new(rank, ranks)?;
    reduction.check(bytes)?;
    let (input, output) =
        (builder.buffer(Access::Input, bytes), builder.buffer(Access::Output, bytes));
    let tuning = Tuning::default();
    let target = (rank == 0).then_some(output);
    reduce::build(Algorithm::Flat, &mut builder, 0, reduction, input, target, tuning)?;
    bcast::build(Algorithm::Binomial, &mut builder, 0, output, tuning)?;
    Ok(builder.finish())
}

/// The tag of messages between a folded rank and the one it folds into; rounds have their distances
/// as tags.
const FOLD: u32 = 0;

/// State of a rank of the core when the rounds begin.
struct Core {
    reduction: Reduction,
    folding: PowerOfTwo,
    position: u32,
    /// Its contribution, with that of the rank that folds into it.
    held: Block,
    output: Block,
}

/// Builds the rounds of a power of two of ranks, and the steps of the others before and after.
fn core(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    input: Block,
    output: Block,
    rounds: impl FnOnce(&mut GraphBuilder, Core) -> Result<(), CollectiveError>,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    let folding = PowerOfTwo::new(member.ranks());
    match folding.role(member.rank()) {
        Role::Folded { into } => {
            builder.send(input, into, FOLD);
            builder.receive(output, into, FOLD);
        }
        Role::Core { position, folded } => {
            let held = fold_in(builder, reduction, input, folded, FOLD)?;
            rounds(builder, Core { reduction, folding, position, held, output })?;
            if let Some(folded) = folded {
                builder.send(output, folded, FOLD);
            }
        }
    }
    Ok(())
}

fn recursive_doubling(builder: &mut GraphBuilder, core: Core) -> Result<(), CollectiveError> {
    let Core { reduction, folding, position, mut held, output } = core;
    for distance in doublings(folding.core()) {
        let partner = folding.rank(position ^ distance);
        let theirs = builder.scratchpad(output.length)?;
        builder.receive(theirs, partner, distance);
        builder.send(held, partner, distance);
        // What is not yet the result stays in the scratchpad, so that an engine needs the output
        // only at the very end.
        let destination = if distance == folding.core() / 2 { output } else { theirs };
        let (left, right) = if position & distance == 0 { (held, theirs) } else { (theirs, held) };
        builder.combine(reduction, left, right, destination);
        held = destination;
    }
    Ok(())
}

/// After a round a rank has the combination of the `count` ranks before it. The counts are the
/// leading binary digits of `ranks` − 1: where the next digit is 1, ranks send their own
/// contribution, too, and one place further.
fn dissemination(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    input: Block,
    output: Block,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    let others = member.ranks() - 1;
    let mut below: Option<Block> = None;
    let mut count = 0;
    for (round, digit) in (0..=others.ilog2()).rev().enumerate() {
        let with_own = others >> digit & 1;
        let sent = match below {
            None => input,
            Some(below) if with_own == 0 => below,
            Some(below) => {
                let both = builder.scratchpad(input.length)?;
                builder.combine(reduction, below, input, both);
                both
            }
        };
        let distance = count + with_own;
        let tag = round as u32;
        let theirs = builder.scratchpad(input.length)?;
        builder.receive(theirs, member.before(distance), tag);
        builder.send(sent, member.after(distance), tag);
        if let Some(below) = below {
            builder.combine(reduction, theirs, below, theirs);
        }
        below = Some(theirs);
        count += distance;
    }
    if let Some(below) = below {
        builder.combine(reduction, below, input, output);
    }
    Ok(())
}

fn rotated_direct(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    input: Block,
    output: Block,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    for distance in 1..member.ranks() {
        builder.send(input, member.after(distance), FOLD);
    }
    let mut operands = Vec::new();
    for rank in 0..member.ranks() {
        if rank == member.rank() {
            operands.push(input);
            continue;
        }
        let theirs = builder.scratchpad(input.length)?;
        builder.receive(theirs, rank, FOLD);
        operands.push(theirs);
    }
    fold(builder, reduction, &operands, Some(output));
    Ok(())
}

fn rabenseifner(builder: &mut GraphBuilder, core: Core) -> Result<(), CollectiveError> {
    let Core { reduction, folding, position, held, output } = core;
    let count = folding.core();
    let sizes = &Sizes::even(count, output.length, reduction.unit());
    let output = Parts::new(output, sizes);
    let mut halving = Halving { reduction, folding, position, sizes, held, first: 0, count };
    for distance in doublings(count) {
        let is_last = distance == count / 2;
        halving
            .step(builder, distance, |first, count| is_last.then(|| output.range(first, count)))?;
    }
    for distance in doublings(count).rev() {
        let partner = halving.partner(distance);
        builder.receive(output.range(halving.sibling(distance), halving.count), partner, distance);
        builder.send(output.range(halving.first, halving.count), partner, distance);
        halving.doubled(distance);
    }
    Ok(())
}
