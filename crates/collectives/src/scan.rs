//! Scan: rank r gets the contributions of the ranks 0, …, r combined in rank order.
//!
//! # Algorithms
//!
//! - **chain**: Each rank waits for the result of the one before it. `ranks` − 1 messages, as many
//!   deep.
//!
//!   Barchet-Estefanel, Mounié: "Performance Characterisation of Intra-Cluster Collective
//!   Communications" (2004), table 1: the chain.
//! - **recursive-doubling**: In round k each rank hands what it has, the combination of 2^k ranks
//!   up to itself, to the rank 2^k places further on. ⌈log₂ ranks⌉ rounds for any number of ranks.
//!
//!   Hillis, Steele: "Data Parallel Algorithms", Communications of the ACM 29(12), 1986.
//! - **join**: One join vertex of all ranks that delivers all contributions to each; each rank
//!   folds those it needs from the left.

use crate::blocks::Parts;
use crate::builder::GraphBuilder;
use crate::fold::fold;
use crate::{Algorithm, Collective, CollectiveError, Reduction, Sizes};
use goal::graph::{Access, Block, Graph, JoinMode};

/// Builds the graph of an algorithm; `bytes` is the size of a contribution. Buffer 0 is the input,
/// the contribution; buffer 1 the output, the result.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`],
/// [`CollectiveError::NotWholeElements`], [`CollectiveError::NotApplicable`],
/// [`CollectiveError::TooManyBytes`]; for subtraction and division,
/// [`CollectiveError::NotAssociative`] unless the algorithm [folds from the
/// left](Collective::folds_from_left).
///
/// ```
/// use collectives::{Algorithm, Reduction, scan};
/// use goal::arithmetic::{Arithmetic, DataType};
///
/// let sum = Reduction::new(Arithmetic::Add, DataType::I32);
/// // A middle rank receives, adds and sends.
/// assert_eq!(scan::graph(Algorithm::Chain, 1, 3, 8, sum)?.vertices().len(), 3);
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
    reduction.check_grouping(Collective::Scan, algorithm)?;
    let input = builder.buffer(Access::Input, bytes);
    let output = builder.buffer(Access::Output, bytes);
    if rank == 0 && algorithm != Algorithm::Join {
        builder.copy(input, output);
    }
    match algorithm {
        Algorithm::Chain => chain(&mut builder, reduction, input, output)?,
        Algorithm::RecursiveDoubling => recursive_doubling(&mut builder, reduction, input, output)?,
        Algorithm::Join => join(&mut builder, reduction, (input, output), rank + 1)?,
        other => return Err(Collective::Scan.lacks(other).into()),
    }
    Ok(builder.finish())
}

fn chain(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    input: Block,
    output: Block,
) -> Result<(), CollectiveError> {
    const TAG: u32 = 0;
    let member = builder.member();
    let mut held = input;
    if member.rank() > 0 {
        let theirs = builder.scratchpad(input.length)?;
        builder.receive(theirs, member.rank() - 1, TAG);
        builder.combine(reduction, theirs, input, output);
        held = output;
    }
    if member.rank() + 1 < member.ranks() {
        builder.send(held, member.rank() + 1, TAG);
    }
    Ok(())
}

fn recursive_doubling(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    input: Block,
    output: Block,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    let rank = member.rank();
    let mut held = input;
    for distance in member.doublings() {
        if distance < member.ranks() - rank {
            builder.send(held, rank + distance, distance);
        }
        if distance <= rank {
            let theirs = builder.scratchpad(input.length)?;
            builder.receive(theirs, rank - distance, distance);
            let is_last = distance > rank / 2;
            let destination = if is_last { output } else { theirs };
            builder.combine(reduction, theirs, held, destination);
            held = destination;
        }
    }
    Ok(())
}

/// Delivers all contributions to each rank and folds the first `count` into the output.
pub(crate) fn join(
    builder: &mut GraphBuilder,
    reduction: Reduction,
    (input, output): (Block, Block),
    count: u32,
) -> Result<(), CollectiveError> {
    let sizes = Sizes::equal(builder.member().ranks(), input.length)?;
    let all = Parts::new(builder.scratchpad(sizes.total())?, &sizes);
    builder.join(JoinMode::Gather, input, all.all());
    if count > 0 {
        let wanted: Vec<Block> = (0..count).map(|rank| all.at(rank)).collect();
        fold(builder, reduction, &wanted, Some(output));
    }
    Ok(())
}
