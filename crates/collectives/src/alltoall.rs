//! All-to-all: rank r's block for rank s becomes rank s's block from rank r.

mod algorithm;
pub(crate) mod exchange;
mod store_and_forward;

use crate::blocks::Parts;
use crate::builder::GraphBuilder;
use crate::{CollectiveError, Sizes, Tuning};
pub use algorithm::Algorithm;
use exchange::Order;
use goal::graph::{Access, Graph, JoinMode};

impl Algorithm {
    /// Builds the graph of this algorithm; `bytes` is the size of one block. Buffer 0 is the
    /// input, a block for each rank; buffer 1 the output, a block from each rank.
    ///
    /// # Errors
    /// [`CollectiveError::RankOutOfRange`], [`CollectiveError::TooManyBytes`].
    ///
    /// ```
    /// use collectives::{Tuning, alltoall::Algorithm};
    ///
    /// let graph = Algorithm::Bruck.graph(0, 8, 16, Tuning::default())?;
    /// assert_eq!(graph.vertices().len(), 7); // a copy, three sends, three receives
    /// # Ok::<(), collectives::CollectiveError>(())
    /// ```
    pub fn graph(
        self,
        rank: u32,
        ranks: u32,
        bytes: u64,
        tuning: Tuning,
    ) -> Result<Graph, CollectiveError> {
        let mut builder = GraphBuilder::new(rank, ranks)?;
        let sizes = Sizes::equal(ranks, bytes)?;
        let input = builder.parts(Access::Input, &sizes);
        let output = builder.parts(Access::Output, &sizes);
        match self {
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
        }
        Ok(builder.finish())
    }

    /// As [`graph`](Self::graph), for blocks of any size (MPI's alltoallv): the number of bytes for
    /// each rank and from each rank, in rank order. What a rank sends to another must be what that
    /// one expects from it; no more is needed.
    ///
    /// # Errors
    /// [`CollectiveError::RankOutOfRange`], [`CollectiveError::SizesOfOtherRanks`],
    /// [`CollectiveError::TooManyBytes`], [`CollectiveError::OwnSizesDiffer`]; from algorithms that
    /// pass on others' blocks, [`CollectiveError::NeedsEqualBlocks`].
    ///
    /// ```
    /// use collectives::alltoall::Algorithm;
    ///
    /// let graph = Algorithm::Pairwise.graph_v(0, &[8, 100, 0], &[8, 0, 20])?;
    /// assert_eq!(graph.buffers()[1].length, 28);
    /// # Ok::<(), collectives::CollectiveError>(())
    /// ```
    pub fn graph_v(
        self,
        rank: u32,
        sent: &[u64],
        received: &[u64],
    ) -> Result<Graph, CollectiveError> {
        let sent = Sizes::each(sent)?;
        let received = Sizes::each(received)?;
        let ranks = sent.ranks();
        let mut builder = GraphBuilder::new(rank, ranks)?;
        if received.ranks() != ranks {
            return Err(CollectiveError::SizesOfOtherRanks {
                sizes: received.ranks() as usize,
                ranks,
            });
        }
        if sent.bytes(rank) != received.bytes(rank) {
            let sent = sent.bytes(rank);
            let expected = received.bytes(rank);
            return Err(CollectiveError::OwnSizesDiffer { rank, sent, expected });
        }
        let Some(order) = Order::of(self) else {
            let algorithm = self.name();
            let instead = DIRECT_ONES;
            return Err(CollectiveError::NeedsEqualBlocks { algorithm, instead });
        };
        let input = builder.parts(Access::Input, &sent);
        let output = builder.parts(Access::Output, &received);
        direct(&mut builder, &input, &output, order);
        Ok(builder.finish())
    }
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
