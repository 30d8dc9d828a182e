//! The operations and algorithms that there are models for, by the names that the collectives give
//! them.

named_enum! {
    /// A collective operation.
    pub enum Collective ("operation") {
        /// Nobody leaves before everybody has come. Has no bytes.
        Barrier = "barrier",
        /// The root's message reaches all; bytes: the message.
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
    /// An algorithm. Which ones an operation has, [`Collective::algorithms`] says.
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
        /// Recursive halving, then the way back.
        Rabenseifner = "rabenseifner",
        /// Everybody sends to everybody, in rank order.
        Direct = "direct",
        /// Everybody sends to everybody, beginning with the next rank.
        RotatedDirect = "rotated-direct",
        /// Blocks travel by powers of two.
        Bruck = "bruck",
        /// In round k each rank exchanges with one partner.
        Pairwise = "pairwise",
        /// Blocks travel by powers of d.
        Multiphase = "multiphase",
        /// All ranks of a node meet in one vertex.
        Join = "join",
    }
}

impl Collective {
    /// The algorithms that there is a model of for this operation, simple ones first.
    pub const fn algorithms(self) -> &'static [Algorithm] {
        use Algorithm::*;
        match self {
            Collective::Barrier => &[Dissemination, RecursiveDoubling, Tree, Flat, Join],
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
            Collective::Allgather => &[Ring, RecursiveDoubling, Bruck, GatherBcast, Join],
            Collective::Reduce => {
                &[Flat, Chain, SegmentedChain, Binomial, Dary, Rabenseifner, Join]
            }
            Collective::Allreduce => &[RecursiveDoubling, Ring, Rabenseifner, ReduceBcast, Join],
            Collective::ReduceScatter => {
                &[Ring, Pairwise, RecursiveHalving, ReduceThenScatter, Join]
            }
            Collective::Scan | Collective::Exscan => &[Chain, RecursiveDoubling, Join],
            Collective::Alltoall => &[RotatedDirect, Direct, Bruck, Pairwise, Multiphase, Join],
        }
    }

    /// Whether it can be composed of one inside nodes and one by this algorithm between them.
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
    /// Whether its messages go in segments, whose size is to be chosen.
    pub const fn is_segmented(self) -> bool {
        use Algorithm::*;
        matches!(self, SegmentedFlat | SegmentedChain | SegmentedBinomial | TwoTree)
    }

    /// The algorithm that it is if the whole message is one segment.
    pub const fn unsegmented(self) -> Option<Algorithm> {
        match self {
            Algorithm::SegmentedFlat => Some(Algorithm::Flat),
            Algorithm::SegmentedChain => Some(Algorithm::Chain),
            Algorithm::SegmentedBinomial => Some(Algorithm::Binomial),
            _ => None,
        }
    }

    /// Whether it has a degree, which is to be chosen.
    pub const fn has_degree(self) -> bool {
        matches!(self, Algorithm::Dary | Algorithm::Multiphase)
    }
}
