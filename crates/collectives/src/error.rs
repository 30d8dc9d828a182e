//! Errors in the arguments of a collective.

use crate::algorithm::Collective;
use goal::arithmetic::UnknownName;
use goal::arithmetic::{Arithmetic, DataType};

/// Error in the arguments of a collective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// The rank is not one of the ranks.
    #[error(
        "rank {rank} does not exist among {ranks} ranks: ranks count from 0, give one below {ranks}"
    )]
    RankOutOfRange {
        /// The rank.
        rank: u32,
        /// The number of ranks.
        ranks: u32,
    },
    /// The root is not one of the ranks.
    #[error(
        "root {root} does not exist among {ranks} ranks: ranks count from 0, give one below {ranks}"
    )]
    RootOutOfRange {
        /// The root.
        root: u32,
        /// The number of ranks.
        ranks: u32,
    },
    /// A buffer, or the temporary memory, would be larger than 64 bits can count.
    #[error(
        "{what}: {count} blocks of {bytes} bytes are more than 64 bits can count: use smaller blocks"
    )]
    TooManyBytes {
        /// The memory that would be too large.
        what: &'static str,
        /// Number of blocks in it.
        count: u64,
        /// Bytes in each, or in the largest.
        bytes: u64,
    },
    /// The data end in the middle of an element.
    #[error(
        "{bytes} bytes are not a whole number of {data_type} elements: give a multiple of {} bytes",
        .data_type.bytes()
    )]
    NotWholeElements {
        /// Bytes contributed.
        bytes: u64,
        /// Data type of the contribution.
        data_type: DataType,
    },
    /// The operation is not defined on the data type.
    #[error(
        "{operation} is not defined on {data_type}: use one of {}",
        Arithmetic::names_for(*.data_type)
    )]
    NotApplicable {
        /// The operation.
        operation: Arithmetic,
        /// The data type.
        data_type: DataType,
    },
    /// A message would be cut into so many segments that the graph is larger than what it is for.
    #[error(
        "{message} bytes in segments of {bytes} are {segments} messages, more than a graph should have: \
         give segments of {enough} bytes or more"
    )]
    TooManySegments {
        /// The number of segments.
        segments: u64,
        /// Bytes in each.
        bytes: u64,
        /// Bytes in all.
        message: u64,
        /// A number of bytes that is not too small.
        enough: u64,
    },
    /// The sizes are not those of all ranks.
    #[error("{sizes} sizes were given for {ranks} ranks: give one for each")]
    SizesOfOtherRanks {
        /// Number of sizes.
        sizes: usize,
        /// Number of ranks.
        ranks: u32,
    },
    /// The block that a rank sends to itself differs in size from the one it expects.
    #[error(
        "rank {rank} sends itself {sent} bytes but expects {expected} from itself: give both the same size"
    )]
    OwnSizesDiffer {
        /// The rank.
        rank: u32,
        /// Bytes sent.
        sent: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// The algorithm needs blocks of one size.
    #[error("{algorithm} needs blocks of one size: use {instead} for blocks of different sizes")]
    NeedsEqualBlocks {
        /// The algorithm.
        algorithm: &'static str,
        /// Algorithms without this limit.
        instead: &'static str,
    },
    /// The algorithm has no two-level form: it is one join of all ranks, or ranks pass on each
    /// other's blocks.
    #[error("{algorithm} has no form in two levels: use {instead} there")]
    HasNoLevels {
        /// The algorithm.
        algorithm: &'static str,
        /// Algorithms that have one.
        instead: &'static str,
    },
    /// The collective has no such algorithm.
    #[error(transparent)]
    Algorithm(#[from] UnknownName),
    /// The collective has no two-level form.
    #[error("{collective} has no form in two levels: run it in one level")]
    OneLevelOnly {
        /// The collective.
        collective: Collective,
    },
    /// The result of the operation depends on the order of its operands, which differs between the
    /// ranks.
    #[error(
        "the result of {operation} on {data_type} depends on the order of its operands, which is another \
         one on every rank in {algorithm}: use an algorithm with one order, such as recursive-doubling"
    )]
    DependsOnOrder {
        /// The operation.
        operation: Arithmetic,
        /// The data type.
        data_type: DataType,
        /// The algorithm.
        algorithm: &'static str,
    },
    /// The operation depends on the grouping of operands, which the algorithm does not keep.
    #[error(
        "{operation} depends on how operands are grouped, which {algorithm} does in its own way: \
         use an algorithm that folds from the left in rank order, such as join, flat or, for scans, chain"
    )]
    NotAssociative {
        /// The operation.
        operation: Arithmetic,
        /// The algorithm.
        algorithm: &'static str,
    },
    /// A neighbour is not one of the ranks.
    #[error(
        "{list} {position} is rank {neighbor}, which does not exist among {ranks} ranks: give one below {ranks}"
    )]
    NeighborOutOfRange {
        /// "source" or "destination".
        list: &'static str,
        /// Position in that list, from 0.
        position: usize,
        /// The neighbour.
        neighbor: u32,
        /// The number of ranks.
        ranks: u32,
    },
    /// Edges from a rank to itself have two ends, and both are listed on the same rank.
    #[error(
        "rank {rank} lists itself {destinations} times as a destination but {sources} times as a source: \
         list each edge from a rank to itself in both"
    )]
    SelfLoopsDiffer {
        /// The rank.
        rank: u32,
        /// Number of times it is its own destination.
        destinations: usize,
        /// Number of times it is its own source.
        sources: usize,
    },
    /// Both ranks of an edge list it, and as often.
    #[error(
        "rank {from} lists rank {to} {destinations} times as a destination, which lists it {sources} times as a source: \
         list each edge on both ranks"
    )]
    EdgesDiffer {
        /// The rank it comes from.
        from: u32,
        /// The rank it leads to.
        to: u32,
        /// Number of times `from` lists it.
        destinations: usize,
        /// Number of times `to` lists it.
        sources: usize,
    },
    /// The ends of an edge from a rank to itself have different sizes.
    #[error(
        "rank {rank} sends itself {sent} bytes as destination {destination} but expects {expected} as source {source_position}: \
         give both the same size"
    )]
    SelfLoopSizesDiffer {
        /// The rank.
        rank: u32,
        /// Position among the destinations, from 0.
        destination: usize,
        /// Bytes sent.
        sent: u64,
        /// Position among the sources, from 0.
        source_position: usize,
        /// Bytes expected.
        expected: u64,
    },
    /// A list of sizes does not have one entry for each neighbour.
    #[error("{sizes} sizes were given for {neighbors} {list}s: give one for each")]
    SizesDoNotFit {
        /// "source" or "destination".
        list: &'static str,
        /// Number of sizes.
        sizes: usize,
        /// Number of neighbours.
        neighbors: usize,
    },
    /// The list of periodic flags has another length than that of dimensions.
    #[error(
        "a grid of {dimensions} dimensions was given {periodic} periodic flags: give one for each dimension"
    )]
    PeriodicFlagsDoNotFit {
        /// Number of dimensions.
        dimensions: usize,
        /// Number of flags.
        periodic: usize,
    },
    /// A grid with more places than ranks can be numbered, or with none.
    #[error("a grid of {} holds {places}: all extents must be positive and their product below 2^32", extents(.dimensions))]
    GridSize {
        /// The extents.
        dimensions: Vec<u32>,
        /// Number of places it would have, in words.
        places: &'static str,
    },
    /// No grid of so many dimensions has so many places.
    #[error(
        "{ranks} ranks cannot fill a grid of {dimensions} dimensions: give at least one rank and one dimension"
    )]
    NoGrid {
        /// The number of ranks.
        ranks: u32,
        /// The number of dimensions.
        dimensions: usize,
    },
}

fn extents(dimensions: &[u32]) -> String {
    dimensions.iter().map(u32::to_string).collect::<Vec<_>>().join(" × ")
}
