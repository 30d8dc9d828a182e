//! All-to-all: rank r's block for rank s becomes rank s's block from rank r.
//!
//! # Algorithms
//!
//! - **bruck**: Blocks move by powers of two: in round k all blocks with 2^k in their remaining
//!   distance move 2^k ranks on, packed into one message. ⌈log₂ ranks⌉ messages a rank, each of
//!   about half the blocks; for small blocks.
//!
//!   Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient Algorithms for All-to-All Communications in
//!   Multiport Message-Passing Systems", IEEE Transactions on Parallel and Distributed Systems
//!   8(11), 1997: the index algorithm, with radix 2 and one port. Its first and last phases, a
//!   rotation of all blocks by the rank and the inverse, cost nothing here: scatter/gather lists
//!   name the position of each block in the input and in the output. Only blocks to be forwarded
//!   lie in the scratchpad, each time at a different position, so that all receives can be posted
//!   at once.
//! - **direct**: Every rank sends to rank 0, then to rank 1, …, all at once: `ranks` − 1 messages a
//!   rank, straight from input to output. Its weakness: all ranks send to the same rank first.
//!
//!   Barchet-Estefanel, Mounié: "Performance Characterisation of Intra-Cluster Collective
//!   Communications" (2004), section 5: direct exchange.
//! - **rotated-direct**: Direct, but step i sends to the rank i places further on and receives from
//!   the rank i places back, so that in each step every rank is the destination of exactly one
//!   other. No step waits for another: an engine takes them in vertex order as far as it can. For
//!   large blocks.
//!
//!   Barchet-Estefanel, Mounié 2004, section 5; Thakur, Rabenseifner, Gropp: "Optimization of
//!   Collective Communication Operations in MPICH", International Journal of High Performance
//!   Computing Applications 19(1), 2005: the all-to-all for medium and long messages.
//! - **pairwise**: One partner after the other: step i exchanges with rank `rank ^ i` if the number
//!   of ranks is a power of two; otherwise it is as in rotated-direct. A step waits for the one
//!   before it. `ranks` − 1 messages deep.
//!
//!   Thakur, Rabenseifner, Gropp 2005: the pairwise exchange.
//! - **multiphase**: One phase for each dimension of a grid of ranks: all ranks of a line exchange
//!   with each other what the line's members need or have to pass on. Extents are chosen by
//!   [`degree`](Tuning::degree), by the rule of [`phases`].
//!
//!   Bokhari: "Multiphase Complete Exchange on a Circuit Switched Hypercube", International
//!   Conference on Parallel Processing, 1991. On 2^d ranks, extents of 2, 4, … are the paper's
//!   subcubes of 1, 2, … dimensions; other numbers of ranks are split into their prime factors in
//!   place of dimensions. With one phase it is a direct exchange, and for a prime number of ranks
//!   nothing else is possible.
//! - **join**: One join vertex of all ranks that exchanges their blocks.

pub(crate) mod exchange;
mod store_and_forward;

use crate::blocks::Parts;
use crate::builder::GraphBuilder;
use crate::{Algorithm, Collective, CollectiveError, Sizes, Tuning};
use exchange::Order;
use goal::graph::{Access, Graph, JoinMode};

/// Builds the graph of an algorithm; `bytes` is the size of one block. Buffer 0 is the input, a
/// block for each rank; buffer 1 the output, a block from each rank.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`],
/// [`CollectiveError::TooManyBytes`].
///
/// ```
/// use collectives::{Algorithm, Tuning, alltoall};
///
/// let graph = alltoall::graph(Algorithm::Bruck, 0, 8, 16, Tuning::default())?;
/// assert_eq!(graph.vertices().len(), 7); // a copy, three sends, three receives
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn graph(
    algorithm: Algorithm,
    rank: u32,
    ranks: u32,
    bytes: u64,
    tuning: Tuning,
) -> Result<Graph, CollectiveError> {
    let mut builder = GraphBuilder::new(rank, ranks)?;
    let sizes = Sizes::equal(ranks, bytes)?;
    let input = builder.parts(Access::Input, &sizes);
    let output = builder.parts(Access::Output, &sizes);
    match algorithm {
        Algorithm::Bruck => store_and_forward::bruck(&mut builder, bytes, &input, &output)?,
        Algorithm::Direct => direct(&mut builder, &input, &output, Order::ByRank),
        Algorithm::RotatedDirect => direct(&mut builder, &input, &output, Order::Rotated),
        Algorithm::Pairwise => direct(&mut builder, &input, &output, Order::Pairwise),
        Algorithm::Multiphase => {
            let extents = phases(ranks, tuning.degree.get());
            store_and_forward::multiphase(&mut builder, &extents, bytes, &input, &output)?;
        }
        Algorithm::Join => {
            builder.join(JoinMode::Exchange, input.all(), output.all());
        }
        other => return Err(Collective::Alltoall.lacks(other).into()),
    }
    Ok(builder.finish())
}

/// As [`graph`], for blocks of any size (MPI's alltoallv): the number of bytes for
/// each rank and from each rank, in rank order. What a rank sends to another must be what that
/// one expects from it; no more is needed.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::SizesOfOtherRanks`],
/// [`CollectiveError::TooManyBytes`], [`CollectiveError::OwnSizesDiffer`]; from algorithms that
/// pass on others' blocks, [`CollectiveError::NeedsEqualBlocks`].
///
/// ```
/// use collectives::{Algorithm, alltoall};
///
/// let graph = alltoall::graph_v(Algorithm::Pairwise, 0, &[8, 100, 0], &[8, 0, 20])?;
/// assert_eq!(graph.buffers()[1].length, 28);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn graph_v(
    algorithm: Algorithm,
    rank: u32,
    sent: &[u64],
    received: &[u64],
) -> Result<Graph, CollectiveError> {
    let sent = Sizes::each(sent)?;
    let received = Sizes::each(received)?;
    let ranks = sent.ranks();
    let mut builder = GraphBuilder::new(rank, ranks)?;
    if received.ranks() != ranks {
        return Err(CollectiveError::SizesOfOtherRanks { sizes: received.ranks() as usize, ranks });
    }
    if sent.bytes(rank) != received.bytes(rank) {
        let sent = sent.bytes(rank);
        let expected = received.bytes(rank);
        return Err(CollectiveError::OwnSizesDiffer { rank, sent, expected });
    }
    Collective::Alltoall.check_algorithm(algorithm)?;
    let Some(order) = Order::of(algorithm) else {
        let algorithm = algorithm.name();
        let instead = DIRECT_ONES;
        return Err(CollectiveError::NeedsEqualBlocks { algorithm, instead });
    };
    let input = builder.parts(Access::Input, &sent);
    let output = builder.parts(Access::Output, &received);
    direct(&mut builder, &input, &output, order);
    Ok(builder.finish())
}

/// The algorithms that send each block straight to its destination.
pub(crate) const DIRECT_ONES: &str = "direct, rotated-direct or pairwise";

/// Every block straight from input to output.
fn direct(builder: &mut GraphBuilder, input: &Parts, output: &Parts, order: Order) {
    const TAG: u32 = 0;
    let rank = builder.member().rank();
    builder.copy(input.at(rank), output.at(rank));
    exchange::build(
        builder,
        (order, TAG),
        |to| Some(input.at(to).into()),
        |from| Some(output.at(from).into()),
    );
}

/// The phases of [`Algorithm::Multiphase`]: factors of the number of ranks, each as large as prime
/// factors in ascending order can make it without exceeding `degree`. A prime factor larger than
/// that is a phase of its own.
///
/// ```
/// use collectives::alltoall::phases;
///
/// assert_eq!(phases(32, 4), [4, 4, 2]); // two dimensions, two and one
/// assert_eq!(phases(32, 2), [2; 5]); // the standard exchange on a hypercube
/// assert_eq!(phases(24, 4), [4, 2, 3]);
/// assert_eq!(phases(7, 4), [7]);
/// ```
pub fn phases(ranks: u32, degree: u32) -> Vec<u32> {
    let mut rest = ranks;
    let mut prime = 2;
    let mut extents = Vec::<u32>::new();
    while rest > 1 {
        if u64::from(prime) * u64::from(prime) > u64::from(rest) {
            prime = rest;
        }
        if !rest.is_multiple_of(prime) {
            prime += 1;
            continue;
        }
        rest /= prime;
        match extents.last_mut() {
            Some(last) if last.saturating_mul(prime) <= degree => *last *= prime,
            _ => extents.push(prime),
        }
    }
    extents
}
