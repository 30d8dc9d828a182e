//! Exclusive scan: rank r gets the contributions of the ranks 0, …, r − 1 combined in rank order;
//! rank 0 gets nothing.
//!
//! # Algorithms
//!
//! - **chain**: Each rank waits for what the one before it has combined. `ranks` − 1 messages, as
//!   many deep.
//!
//!   Barchet-Estefanel, Mounié: "Performance Characterisation of Intra-Cluster Collective
//!   Communications" (2004), table 1: the chain.
//! - **recursive-doubling**: In round k each rank hands the combination of 2^k ranks up to itself
//!   to the rank 2^k places further on. ⌈log₂ ranks⌉ rounds for any number of ranks. A rank
//!   combines twice in a round: with its own contribution for others, without it for itself.
//!
//!   Hillis, Steele: "Data Parallel Algorithms", Communications of the ACM 29(12), 1986.
//! - **join**: One join vertex of all ranks that delivers all contributions to each; each rank
//!   folds those it needs from the left.

use crate::builder::GraphBuilder;
use crate::{Algorithm, Collective, CollectiveError, Reduction, scan};
use goal::graph::{Access, Block, Graph};

/// Builds the graph of an algorithm; `bytes` is the size of a contribution. Buffer 0 is the input,
/// the contribution; buffer 1 the output, the result, which rank 0 leaves as it was.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`],
/// [`CollectiveError::NotWholeElements`], [`CollectiveError::NotApplicable`],
/// [`CollectiveError::TooManyBytes`]; for subtraction and division,
/// [`CollectiveError::NotAssociative`] unless the algorithm [folds from the
/// left](Collective::folds_from_left).
///
/// ```
/// use collectives::{Algorithm, Reduction, exscan};
/// use goal::arithmetic::{Arithmetic, DataType};
///
/// let sum = Reduction::new(Arithmetic::Add, DataType::I32);
/// // The last rank receives its result.
/// assert_eq!(exscan::graph(Algorithm::Chain, 2, 3, 8, sum)?.vertices().len(), 1);
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
    reduction.check_grouping(Collective::Exscan, algorithm)?;
    let input = builder.buffer(Access::Input, bytes);
    let output = builder.buffer(Access::Output, bytes);
    match algorithm {
        Algorithm::Chain => chain(&mut builder, reduction, input, output)?,
        Algorithm::RecursiveDoubling => recursive_doubling(&mut builder, reduction, input, output)?,
        Algorithm::Join => scan::join(&mut builder, reduction, (input, output), rank)?,
        other => return Err(Collective::Exscan.lacks(other).into()),
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
    let rank = member.rank();
    let is_last = member.rank() + 1 == member.ranks();
    if rank > 0 {
        builder.receive(output, rank - 1, TAG);
    }
    let passed_on = match (is_last, rank) {
        (true, _) => return Ok(()),
        (false, 0) => input,
        (false, _) => {
            let combined = builder.scratchpad(input.length)?;
            builder.combine(reduction, output, input, combined);
            combined
        }
    };
    builder.send(passed_on, rank + 1, TAG);
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
    let beyond = member.ranks() - member.rank();
    let (mut with_own, mut without): (Block, Option<Block>) = (input, None);
    for distance in member.doublings() {
        if distance < beyond {
            builder.send(with_own, rank + distance, distance);
        }
        if distance > rank {
            continue;
        }
        let is_last = distance > rank / 2;
        let theirs =
            if is_last && without.is_none() { output } else { builder.scratchpad(input.length)? };
        builder.receive(theirs, rank - distance, distance);
        if distance < beyond.div_ceil(2) {
            let combined = builder.scratchpad(input.length)?;
            builder.combine(reduction, theirs, with_own, combined);
            with_own = combined;
        }
        if let Some(before) = without {
            builder.combine(reduction, theirs, before, if is_last { output } else { theirs });
        }
        without = Some(theirs);
    }
    Ok(())
}
