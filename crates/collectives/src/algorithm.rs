//! Collectives, their algorithms, and the choice of one with its levels, segments and degree.

use goal::arithmetic::UnknownName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

named_enum! {
    /// A collective operation.
    pub enum Collective ("operation") {
        /// No rank leaves before all have arrived; no bytes.
        Barrier = "barrier",
        /// The root's message, on all ranks; bytes: the message.
        Bcast = "bcast",
        /// Each rank gets its block from the root; bytes: one block.
        Scatter = "scatter",
        /// The root gets a block from each rank; bytes: one block.
        Gather = "gather",
        /// Each rank gets a block from each; bytes: one block.
        Allgather = "allgather",
        /// The root gets all contributions combined; bytes: one contribution.
        Reduce = "reduce",
        /// Each rank gets all contributions combined; bytes: one contribution.
        Allreduce = "allreduce",
        /// Each rank gets its block of all contributions combined; bytes: one block, so that a
        /// contribution has as many times more as there are ranks.
        ReduceScatter = "reduce_scatter",
        /// Each rank gets the combination of all ranks up to its own; bytes: one contribution.
        Scan = "scan",
        /// Each rank gets the combination of all ranks below its own; bytes: one contribution.
        Exscan = "exscan",
        /// Each rank gets its block from each; bytes: one block.
        Alltoall = "alltoall",
    }
}

named_enum! {
    /// An algorithm. [`Collective::algorithms`] lists those of a collective.
    pub enum Algorithm ("algorithm") {
        /// One rank exchanges messages with each other rank.
        Flat = "flat",
        /// As flat; a request and its answer go before each message.
        FlatRendezvous = "flat-rendezvous",
        /// As flat, each message in segments.
        SegmentedFlat = "segmented-flat",
        /// Each rank passes on to the next.
        Chain = "chain",
        /// As chain; a request and its answer go before each message.
        ChainRendezvous = "chain-rendezvous",
        /// A chain along which segments follow each other: a pipeline.
        SegmentedChain = "segmented-chain",
        /// A chain along which the ranks' blocks follow each other.
        PipelinedChain = "pipelined-chain",
        /// A tree in which each rank has two children.
        Binary = "binary",
        /// A binomial tree.
        Binomial = "binomial",
        /// As binomial; a request and its answer go before each message.
        BinomialRendezvous = "binomial-rendezvous",
        /// As binomial, each message in segments.
        SegmentedBinomial = "segmented-binomial",
        /// A tree in which each rank has d children.
        Dary = "d-ary",
        /// A binomial scatter of the message's parts, which then go round a ring.
        ScatterAllgather = "scatter-allgather",
        /// Two binary trees, each for one half of the message; the inner ranks of one are leaves of
        /// the other.
        TwoTree = "two-tree",
        /// A binomial tree up to the first rank and down again.
        Tree = "tree",
        /// A binomial gather, then a binomial broadcast.
        GatherBcast = "gather-bcast",
        /// A binomial reduction, then a binomial broadcast.
        ReduceBcast = "reduce-bcast",
        /// A binomial reduction, then a binomial scatter.
        ReduceThenScatter = "reduce-then-scatter",
        /// In round k partners 2^k apart exchange what they have.
        RecursiveDoubling = "recursive-doubling",
        /// In each round partners exchange half of what they still have to combine.
        RecursiveHalving = "recursive-halving",
        /// In round k each rank passes what it has to the rank 2^k further on.
        Dissemination = "dissemination",
        /// Blocks go round a ring.
        Ring = "ring",
        /// Recursive halving, then a gather in the reverse order.
        Rabenseifner = "rabenseifner",
        /// Each rank sends to all others, in rank order.
        Direct = "direct",
        /// Each rank sends to all others, the next rank first, and waits for nothing before.
        RotatedDirect = "rotated-direct",
        /// Blocks move by powers of two.
        Bruck = "bruck",
        /// In round k each rank exchanges with one partner.
        Pairwise = "pairwise",
        /// Blocks move by powers of d.
        Multiphase = "multiphase",
        /// One join vertex of all ranks of a node.
        Join = "join",
    }
}

impl Collective {
    /// Returns the algorithms of this collective, simple ones first.
    pub const fn algorithms(self) -> &'static [Algorithm] {
        use Algorithm::*;
        match self {
            Collective::Barrier => {
                &[Dissemination, RecursiveDoubling, Tree, Flat, RotatedDirect, Join]
            }
            Collective::Bcast => &[
                Flat,
                FlatRendezvous,
                SegmentedFlat,
                Chain,
                ChainRendezvous,
                SegmentedChain,
                Binary,
                Binomial,
                BinomialRendezvous,
                SegmentedBinomial,
                Dary,
                ScatterAllgather,
                TwoTree,
                Join,
            ],
            Collective::Scatter => &[Flat, Chain, PipelinedChain, Binomial, Join],
            Collective::Gather => &[Flat, Chain, PipelinedChain, Binomial, Join],
            Collective::Allgather => {
                &[Ring, RecursiveDoubling, Bruck, GatherBcast, RotatedDirect, Join]
            }
            Collective::Reduce => {
                &[Flat, Chain, SegmentedChain, Binomial, Dary, Rabenseifner, Join]
            }
            Collective::Allreduce => &[
                RecursiveDoubling,
                Dissemination,
                Ring,
                Rabenseifner,
                ReduceBcast,
                RotatedDirect,
                Join,
            ],
            Collective::ReduceScatter => {
                &[Ring, Pairwise, RecursiveHalving, ReduceThenScatter, Join]
            }
            Collective::Scan | Collective::Exscan => &[Chain, RecursiveDoubling, Join],
            Collective::Alltoall => &[RotatedDirect, Direct, Bruck, Pairwise, Multiphase, Join],
        }
    }

    /// Returns this collective's algorithm of that name.
    ///
    /// # Errors
    /// [`UnknownName`], which lists the algorithms of this collective.
    pub fn algorithm(self, name: &str) -> Result<Algorithm, UnknownName> {
        let mut algorithms = self.algorithms().iter().copied();
        algorithms.find(|one| one.name() == name).ok_or_else(|| self.no_algorithm(name))
    }

    /// Fails if the algorithm is not one of this collective.
    ///
    /// # Errors
    /// [`UnknownName`], which lists the algorithms of this collective.
    pub fn check_algorithm(self, algorithm: Algorithm) -> Result<(), UnknownName> {
        if self.algorithms().contains(&algorithm) {
            return Ok(());
        }
        Err(self.lacks(algorithm))
    }

    /// The error of a builder for a collective without this algorithm.
    pub(crate) fn lacks(self, algorithm: Algorithm) -> UnknownName {
        self.no_algorithm(algorithm.name())
    }

    fn no_algorithm(self, name: &str) -> UnknownName {
        let known = self.algorithms().iter().map(|one| one.name()).collect();
        UnknownName { kind: self.algorithm_kind(), name: name.to_owned(), known }
    }

    /// Returns `true` if the algorithm's result is ((contribution 0 ∘ contribution 1) ∘
    /// contribution 2) ∘ …, the only order defined for operations that are not associative, or if
    /// the collective combines nothing.
    pub const fn folds_from_left(self, algorithm: Algorithm) -> bool {
        use Algorithm::*;
        match self {
            Collective::Reduce => matches!(algorithm, Flat | Join),
            Collective::Allreduce => matches!(algorithm, RotatedDirect | Join),
            Collective::ReduceScatter => matches!(algorithm, Pairwise | Join),
            Collective::Scan | Collective::Exscan => matches!(algorithm, Chain | Join),
            _ => true,
        }
    }

    /// Returns `true` if the algorithm combines contributions in rank order, as operations require
    /// that are associative but not commutative, or if the collective combines nothing.
    pub const fn keeps_rank_order(self, algorithm: Algorithm) -> bool {
        use Algorithm::*;
        match self {
            Collective::Allreduce => !matches!(algorithm, Ring | Dissemination),
            Collective::ReduceScatter => !matches!(algorithm, Ring | RecursiveHalving),
            _ => true,
        }
    }

    /// Returns `true` if all ranks combine the contributions of an element in one order, and so get
    /// the same bits whatever the operation, or if the collective combines nothing.
    pub const fn has_common_order(self, algorithm: Algorithm) -> bool {
        !matches!((self, algorithm), (Collective::Allreduce, Algorithm::Dissemination))
    }

    /// Returns `true` if every rank sends all its messages when it starts, however late the others
    /// start: between more than two ranks the algorithms of one step, between two more.
    pub const fn sends_at_start(self, algorithm: Algorithm, ranks: u32) -> bool {
        use Algorithm::*;
        let in_any_number = match self {
            Collective::Bcast => matches!(algorithm, Flat | SegmentedFlat),
            Collective::Scatter | Collective::Gather | Collective::Reduce => {
                matches!(algorithm, Flat)
            }
            Collective::Barrier | Collective::Allgather | Collective::Allreduce => {
                matches!(algorithm, RotatedDirect)
            }
            Collective::Alltoall => matches!(algorithm, Direct | RotatedDirect),
            Collective::ReduceScatter | Collective::Scan | Collective::Exscan => false,
        };
        let between_two = match self {
            Collective::Barrier | Collective::Allreduce => {
                matches!(algorithm, Dissemination | RecursiveDoubling)
            }
            Collective::Bcast => matches!(
                algorithm,
                Chain
                    | SegmentedChain
                    | Binary
                    | Binomial
                    | SegmentedBinomial
                    | Dary
                    | ScatterAllgather
                    | TwoTree
            ),
            Collective::Scatter | Collective::Gather => {
                matches!(algorithm, Chain | PipelinedChain | Binomial)
            }
            Collective::Allgather => matches!(algorithm, Ring | RecursiveDoubling | Bruck),
            Collective::Reduce => matches!(algorithm, Chain | SegmentedChain | Binomial | Dary),
            Collective::ReduceScatter => matches!(algorithm, Ring | Pairwise | RecursiveHalving),
            Collective::Scan | Collective::Exscan => matches!(algorithm, Chain | RecursiveDoubling),
            Collective::Alltoall => matches!(algorithm, Bruck | Pairwise | Multiphase),
        };
        in_any_number || ranks <= 2 && between_two
    }

    const fn algorithm_kind(self) -> &'static str {
        match self {
            Collective::Barrier => "barrier algorithm",
            Collective::Bcast => "bcast algorithm",
            Collective::Scatter => "scatter algorithm",
            Collective::Gather => "gather algorithm",
            Collective::Allgather => "allgather algorithm",
            Collective::Reduce => "reduce algorithm",
            Collective::Allreduce => "allreduce algorithm",
            Collective::ReduceScatter => "reduce_scatter algorithm",
            Collective::Scan => "scan algorithm",
            Collective::Exscan => "exscan algorithm",
            Collective::Alltoall => "alltoall algorithm",
        }
    }

    /// Returns `true` if contributions are combined.
    pub const fn is_reduction(self) -> bool {
        use Collective::*;
        matches!(self, Reduce | Allreduce | ReduceScatter | Scan | Exscan)
    }

    /// Returns `true` if one rank, the root, has a part of its own.
    pub const fn has_root(self) -> bool {
        use Collective::*;
        matches!(self, Bcast | Scatter | Gather | Reduce)
    }

    /// Returns `true` if the collective can be composed of one inside each node and one by this
    /// algorithm between nodes.
    pub const fn has_two_levels(self, algorithm: Algorithm) -> bool {
        use Collective::*;
        match self {
            Barrier | Bcast | Reduce | Allreduce | Allgather => {
                !matches!(algorithm, Algorithm::Join)
            }
            Alltoall => matches!(
                algorithm,
                Algorithm::Direct | Algorithm::RotatedDirect | Algorithm::Pairwise
            ),
            Scatter | Gather | ReduceScatter | Scan | Exscan => false,
        }
    }
}

impl Algorithm {
    /// Returns `true` if messages are cut into segments of a size to be chosen.
    pub const fn is_segmented(self) -> bool {
        use Algorithm::*;
        matches!(self, SegmentedFlat | SegmentedChain | SegmentedBinomial | TwoTree)
    }

    /// Returns the algorithm that it becomes if the whole message is one segment.
    pub const fn unsegmented(self) -> Option<Algorithm> {
        match self {
            Algorithm::SegmentedFlat => Some(Algorithm::Flat),
            Algorithm::SegmentedChain => Some(Algorithm::Chain),
            Algorithm::SegmentedBinomial => Some(Algorithm::Binomial),
            _ => None,
        }
    }

    /// Returns `true` if the algorithm has a degree to be chosen.
    pub const fn has_degree(self) -> bool {
        matches!(self, Algorithm::Dary | Algorithm::Multiphase)
    }
}

named_enum! {
    /// In how many levels a collective is run.
    pub enum Levels ("number of levels") {
        /// One algorithm among all ranks, wherever they are.
        One = "one-level",
        /// Inside each node, and between one rank of each node.
        Two = "two-level",
    }
}

/// Choice for a collective: an algorithm, in one level or two, with its segment size or degree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// In how many levels.
    pub levels: Levels,
    /// By which algorithm; of a two-level collective, the one between nodes.
    pub algorithm: Algorithm,
    /// Bytes in each segment, if the algorithm has segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<NonZeroU64>,
    /// The degree, if the algorithm has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degree: Option<NonZeroU32>,
}

impl Choice {
    /// The algorithm among all ranks, without segments or degree.
    pub const fn of(algorithm: Algorithm) -> Self {
        Choice { levels: Levels::One, algorithm, segment_bytes: None, degree: None }
    }

    /// Segment size and degree; one segment and degree 2 where the choice leaves them open.
    pub fn tuning(&self) -> Tuning {
        const TWO: NonZeroU32 = NonZeroU32::new(2).expect("not zero");
        Tuning {
            segment_bytes: self.segment_bytes.unwrap_or(NonZeroU64::MAX),
            degree: self.degree.unwrap_or(TWO),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.levels == Levels::Two {
            write!(formatter, "{} ", self.levels)?;
        }
        write!(formatter, "{}", self.algorithm)?;
        match (self.segment_bytes, self.degree) {
            (Some(bytes), _) => write!(formatter, " in segments of {bytes} bytes"),
            (None, Some(degree)) => write!(formatter, " of degree {degree}"),
            (None, None) => Ok(()),
        }
    }
}

/// Text that names no [`Choice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no plan: name an algorithm, as `chain`, with its levels, segments or degree, as \
     `two-level segmented-chain in segments of 4096 bytes` or `dary of degree 3`"
)]
pub struct UnknownChoice {
    text: String,
}

/// The inverse of the text that a choice is shown as.
impl FromStr for Choice {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        let (levels, one_level) = match text.strip_prefix("two-level ") {
            Some(rest) => (Levels::Two, rest),
            None => (Levels::One, text),
        };
        let (name, tuning) = one_level.split_once(' ').unwrap_or((one_level, ""));
        let between = |before, after| tuning.strip_prefix(before)?.strip_suffix(after);
        let segment_bytes = between("in segments of ", " bytes").and_then(|text| text.parse().ok());
        let degree = between("of degree ", "").and_then(|text| text.parse().ok());
        let choice = name.parse().ok().map(|algorithm| Choice {
            levels,
            segment_bytes,
            degree,
            ..Choice::of(algorithm)
        });
        // What was left out is not shown again.
        choice
            .filter(|choice| choice.to_string() == text)
            .ok_or_else(|| UnknownChoice { text: text.to_owned() })
    }
}

/// Segment size and degree of the algorithms that have them; the others ignore it. All ranks pass
/// the same.
///
/// ```
/// use collectives::{Algorithm, Tuning, bcast};
/// use std::num::NonZeroU64;
///
/// let segment_bytes = NonZeroU64::new(1000).expect("more than nothing");
/// let tuning = Tuning { segment_bytes, ..Tuning::default() };
/// let graph = bcast::graph(Algorithm::SegmentedChain, 1, 3, 0, 2500, tuning)?;
/// assert_eq!(graph.vertices().len(), 6); // three segments come and go
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Bytes in each segment of a segmented algorithm; the last segment may be shorter. Reductions
    /// round it down to whole elements, but not below one.
    pub segment_bytes: NonZeroU64,
    /// Number of children of a rank in a tree of any degree, and of ranks that exchange with each
    /// other in a phase of the multiphase all-to-all.
    pub degree: NonZeroU32,
}

impl Default for Tuning {
    /// Segments of 8 KiB, trees of degree 4.
    fn default() -> Self {
        const SEGMENT_BYTES: NonZeroU64 = NonZeroU64::new(8192).expect("more than nothing");
        const DEGREE: NonZeroU32 = NonZeroU32::new(4).expect("more than nothing");
        Tuning { segment_bytes: SEGMENT_BYTES, degree: DEGREE }
    }
}
