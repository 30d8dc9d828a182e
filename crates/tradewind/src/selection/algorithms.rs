//! Which algorithm a communicator uses for each collective: what the caller forces, or what is
//! chosen here.
//!
//! Every collective asks [`Communicator::choose`], and nobody else, what to run.

use crate::communicator::Communicator;
use crate::placement::{NodeLayout, Placement};
use crate::selection::explanation::Explanation;
use crate::selection::rules::SelectionRules;
use collectives::{Collective, Tuning};
use engine::node::EngineKind;
use goal::arithmetic::UnknownName;
use models::decision::{Plan, Query, rules};
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

pub use collectives::allgather::Algorithm as AllgatherAlgorithm;
pub use collectives::allreduce::Algorithm as AllreduceAlgorithm;
pub use collectives::alltoall::Algorithm as AlltoallAlgorithm;
pub use collectives::barrier::Algorithm as BarrierAlgorithm;
pub use collectives::bcast::Algorithm as BcastAlgorithm;
pub use collectives::exscan::Algorithm as ExscanAlgorithm;
pub use collectives::gather::Algorithm as GatherAlgorithm;
pub use collectives::reduce::Algorithm as ReduceAlgorithm;
pub use collectives::reduce_scatter::Algorithm as ReduceScatterAlgorithm;
pub use collectives::scan::Algorithm as ScanAlgorithm;
pub use collectives::scatter::Algorithm as ScatterAlgorithm;

/// The choice for each collective; those with blocks of different sizes go with those of equal
/// ones. `None` leaves it to the library: joins under the peers engine, where all ranks share a
/// node; the classical algorithms under the caller engine, whose point is to be what libraries ship
/// today.
///
/// ```
/// use tradewind::{Algorithms, AllreduceAlgorithm};
///
/// let chosen = Algorithms { allreduce: Some(AllreduceAlgorithm::Ring), ..Algorithms::default() };
/// assert_eq!(Algorithms::default().with("allreduce", "ring")?, chosen);
/// assert!(Algorithms::default().with("allreduce", "bruck").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// For barrier.
    pub barrier: Option<BarrierAlgorithm>,
    /// For bcast.
    pub bcast: Option<BcastAlgorithm>,
    /// For scatter and scatterv.
    pub scatter: Option<ScatterAlgorithm>,
    /// For gather and gatherv, and for reduce with an operation of the caller's own.
    pub gather: Option<GatherAlgorithm>,
    /// For allgather and allgatherv, and for allreduce, scan and exscan with an operation of the
    /// caller's own.
    pub allgather: Option<AllgatherAlgorithm>,
    /// For alltoall and alltoallv, and for reduce_scatter with an operation of the caller's own.
    pub alltoall: Option<AlltoallAlgorithm>,
    /// For reduce.
    pub reduce: Option<ReduceAlgorithm>,
    /// For allreduce.
    pub allreduce: Option<AllreduceAlgorithm>,
    /// For reduce_scatter and reduce_scatter_block.
    pub reduce_scatter: Option<ReduceScatterAlgorithm>,
    /// For scan.
    pub scan: Option<ScanAlgorithm>,
    /// For exscan.
    pub exscan: Option<ExscanAlgorithm>,
    /// For the neighbour collectives.
    pub neighbor: Option<NeighborAlgorithm>,
    /// Segments and degrees of the algorithms above that have them.
    pub tuning: Tuning,
    /// The algorithms above for barrier, bcast, reduce, allreduce, allgather, alltoall and, with
    /// blocks of one size, the neighbour collectives are run in two levels: inside nodes of so many
    /// consecutive ranks, and between them. Joins have one level, and so have the algorithms for
    /// alltoall that pass on others' blocks, bruck and multiphase, and every alltoallv: its sizes
    /// are known only to those who send and receive.
    ///
    /// Left open, with the algorithm, ranks on several nodes run them in two levels by themselves
    /// where each node has as many consecutive ranks: all-to-alls while a rank has 1 KiB at most
    /// for each other node, and nodes are few beside their ranks; neighbour collectives while a
    /// block has 512 bytes at most, wherever ranks share nodes.
    pub ranks_per_node: Option<NonZeroU32>,
}

/// The algorithms for the neighbour collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NeighborAlgorithm {
    /// A message along every edge, all at once (`collectives::neighbor`); with
    /// [`Algorithms::ranks_per_node`] one from node to node, where blocks are of one size. Long
    /// blocks in memory of the segment are copied once, by whoever comes last; private ones three
    /// times.
    Direct,
    /// All ranks meet; each waits for its sources only. Blocks are copied twice, when the
    /// collective starts and when the result is fetched.
    Join,
}

impl NeighborAlgorithm {
    /// All of them.
    pub const ALL: &[Self] = &[NeighborAlgorithm::Direct, NeighborAlgorithm::Join];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            NeighborAlgorithm::Direct => "direct",
            NeighborAlgorithm::Join => "join",
        }
    }
}

impl std::fmt::Display for NeighborAlgorithm {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for NeighborAlgorithm {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            UnknownName {
                kind: "neighbor algorithm",
                name: name.to_owned(),
                known: Self::ALL.iter().map(|algorithm| algorithm.name()).collect(),
            }
        })
    }
}

/// In how many levels a collective runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Levels {
    /// One algorithm among all ranks.
    One,
    /// One inside nodes of so many consecutive ranks, and between them.
    Two(NonZeroU32),
}

/// Why something was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChoiceReason {
    /// The caller's [`Algorithms`] say so.
    Forced,
    /// Nobody forces anything: the decision table says so, or the rules that hold where nothing has
    /// been measured.
    Open,
    /// The caller's [`Algorithms`] say a join, and the ranks are on several nodes.
    SeveralNodes,
    /// What the caller's [`Algorithms`] say has no meaning for an operation that is not
    /// associative.
    RankOrder,
}

/// How a collective is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice<A> {
    pub(crate) algorithm: A,
    pub(crate) tuning: Tuning,
    pub(crate) levels: Levels,
    pub(crate) why: ChoiceReason,
}

impl<A: Choosable> Choice<A> {
    fn new(algorithm: A, why: ChoiceReason) -> Self {
        Choice { algorithm, tuning: Tuning::default(), levels: Levels::One, why }
    }

    /// A number that differs, as a rule, where the choice does.
    #[inline]
    pub(crate) fn digest(&self) -> u64 {
        let number = self.algorithm.number();
        if self.algorithm == A::JOIN {
            return number;
        }
        let levels = match self.levels {
            Levels::One => 0,
            Levels::Two(ranks_per_node) => u64::from(ranks_per_node.get()),
        };
        let Tuning { segment_bytes, degree } = self.tuning;
        number
            ^ segment_bytes.get().rotate_left(20)
            ^ u64::from(degree.get()).rotate_left(44)
            ^ levels.rotate_left(8)
    }
}

/// The algorithms of one collective.
pub(crate) trait Choosable: Copy + PartialEq + FromStr<Err = UnknownName> {
    const OPERATION: Collective;
    const JOIN: Self;
    /// What takes a join's place between nodes where rank order matters.
    const IN_RANK_ORDER: Self;
    /// Where [`Algorithms`] keep the caller's choice.
    fn forced(algorithms: &Algorithms) -> Option<Self>;
    fn force(self, algorithms: &mut Algorithms);
    fn number(self) -> u64;
    fn name(self) -> &'static str;
    /// Whether the result is a fold in rank order, from the left. True where nothing is folded.
    fn folds_from_left(self) -> bool;
}

macro_rules! choosable {
    ($($operation:ident, $field:ident: $algorithm:ident, $folds_from_left:expr, $in_rank_order:ident;)+) => {
        $(
            impl Choosable for $algorithm {
                const OPERATION: Collective = Collective::$operation;
                const JOIN: Self = $algorithm::Join;
                const IN_RANK_ORDER: Self = $algorithm::$in_rank_order;

                #[inline]
                fn forced(algorithms: &Algorithms) -> Option<Self> {
                    algorithms.$field
                }

                fn force(self, algorithms: &mut Algorithms) {
                    algorithms.$field = Some(self);
                }

                #[inline]
                fn number(self) -> u64 {
                    self as u64
                }

                fn name(self) -> &'static str {
                    $algorithm::name(self)
                }

                fn folds_from_left(self) -> bool {
                    $folds_from_left(self)
                }
            }
        )+

        impl Selector {
            /// Which algorithm a collective is run by, and why; bytes as [`Collective`] counts them.
            pub(crate) fn explain(&self, operation: Collective, bytes: u64) -> Explanation {
                match operation {
                    $(Collective::$operation => {
                        self.rules.explain(&self.choose::<$algorithm>(bytes, Order::Any), bytes)
                    })+
                }
            }
        }

        impl Algorithms {
            /// These algorithms with another one for an operation, both by name.
            ///
            /// # Errors
            /// When there is no such operation, or it has no such algorithm; the error says which
            /// there are.
            pub fn with(mut self, operation: &str, algorithm: &str) -> Result<Self, UnknownName> {
                match operation {
                    $(name if name == Collective::$operation.name() => {
                        algorithm.parse::<$algorithm>()?.force(&mut self);
                    })+
                    "neighbor" => self.neighbor = Some(algorithm.parse()?),
                    _ => {
                        let known = vec![$(Collective::$operation.name(),)+ "neighbor"];
                        return Err(UnknownName { kind: "operation", name: operation.into(), known });
                    }
                }
                Ok(self)
            }
        }
    };
}

choosable! {
    Barrier, barrier: BarrierAlgorithm, |_| true, Dissemination;
    Bcast, bcast: BcastAlgorithm, |_| true, Binomial;
    Scatter, scatter: ScatterAlgorithm, |_| true, Binomial;
    Gather, gather: GatherAlgorithm, |_| true, Binomial;
    Allgather, allgather: AllgatherAlgorithm, |_| true, Ring;
    Alltoall, alltoall: AlltoallAlgorithm, |_| true, Pairwise;
    Reduce, reduce: ReduceAlgorithm, ReduceAlgorithm::folds_from_left, Flat;
    // Whose graph is then drawn with a flat reduction.
    Allreduce, allreduce: AllreduceAlgorithm, AllreduceAlgorithm::folds_from_left, ReduceBcast;
    ReduceScatter, reduce_scatter: ReduceScatterAlgorithm, ReduceScatterAlgorithm::folds_from_left, Pairwise;
    Scan, scan: ScanAlgorithm, ScanAlgorithm::folds_from_left, Chain;
    Exscan, exscan: ExscanAlgorithm, ExscanAlgorithm::folds_from_left, Chain;
}

/// What an algorithm may do with the order of contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Whatever it does, the result is what was asked for.
    Any,
    /// Only a fold in rank order, from the left, has a meaning.
    FromLeft,
}

impl Communicator {
    /// How to run a collective of `bytes` bytes, as [`Collective`] counts them. All ranks come to
    /// the same answer. An immediate branch where nothing is forced and it is a join: a small one
    /// takes no longer than a few of them.
    #[inline]
    pub(crate) fn choose<A: Choosable>(&self, bytes: u64, order: Order) -> Choice<A> {
        match A::forced(self.chosen()) {
            None if bytes < self.rules().joins_below(A::OPERATION) => {
                Choice::new(A::JOIN, ChoiceReason::Open)
            }
            Some(algorithm) if algorithm == A::JOIN && self.rules().joins_directly() => {
                Choice::new(A::JOIN, ChoiceReason::Forced)
            }
            _ => self.choose_and_log(bytes, order),
        }
    }

    /// How to run a neighbour collective.
    pub(crate) fn choose_neighbor(&self) -> NeighborAlgorithm {
        match (self.chosen().neighbor, self.group().engine()) {
            _ if self.internode().is_some() => NeighborAlgorithm::Direct,
            (Some(forced), _) => forced,
            (None, EngineKind::Peers) => NeighborAlgorithm::Join,
            (None, EngineKind::Caller) => NeighborAlgorithm::Direct,
        }
    }

    #[cold]
    fn choose_and_log<A: Choosable>(&self, bytes: u64, order: Order) -> Choice<A> {
        let choice = self.selector().choose(bytes, order);
        if self.rank() == 0 {
            self.rules().log_decision(&choice, bytes);
        }
        choice
    }

    /// Which algorithm a collective of this communicator is run by, and why; bytes as [`Collective`]
    /// counts them. Every rank gives the same answer. [`Request::explain`](crate::Request::explain)
    /// says it of a collective under way.
    ///
    /// With the variable `TRADEWIND_EXPLAIN` set to 1, the first rank says each new decision on
    /// standard error.
    pub fn explain(&self, operation: Collective, bytes: u64) -> Explanation {
        self.selector().explain(operation, bytes)
    }

    /// All that a choice depends on.
    #[inline]
    pub(crate) fn selector(&self) -> Selector {
        Selector { rules: self.rules(), algorithms: *self.chosen() }
    }
}

/// A message that the decision table would have cut into more segments is a join instead.
const MOST_SEGMENTS: u64 = 1024;

/// All that a choice depends on besides the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selector {
    rules: &'static SelectionRules,
    algorithms: Algorithms,
}

impl Selector {
    fn choose<A: Choosable>(&self, bytes: u64, order: Order) -> Choice<A> {
        if let Placement::Nodes(layout) = self.rules.placement() {
            return self.choose_between_nodes(layout, bytes, order);
        }
        match A::forced(&self.algorithms) {
            Some(algorithm) => self.choose_forced(algorithm, order),
            None if self.rules.engine() == EngineKind::Peers => self.choose_by_table(bytes, order),
            None => self.choose_classical(bytes, order),
        }
    }

    /// What the decision table says, else a join. Where a table's last range goes on without end,
    /// its segments may become more than are worth drawing, or can be.
    fn choose_by_table<A: Choosable>(&self, bytes: u64, order: Order) -> Choice<A> {
        let join = Choice::new(A::JOIN, ChoiceReason::Open);
        let Some(plan) = self.rules.plan(A::OPERATION, bytes) else { return join };
        match plan.algorithm.name().parse::<A>() {
            Ok(algorithm) if order == Order::FromLeft && !algorithm.folds_from_left() => {
                Choice { why: ChoiceReason::RankOrder, ..join }
            }
            Ok(_) if plan.segment_bytes.is_some_and(|segment| bytes / segment > MOST_SEGMENTS) => {
                join
            }
            Ok(algorithm) => Choice { algorithm, tuning: tuning(&plan), ..join },
            Err(_) => join,
        }
    }

    fn choose_forced<A: Choosable>(&self, algorithm: A, order: Order) -> Choice<A> {
        if order == Order::FromLeft && !algorithm.folds_from_left() {
            return Choice::new(A::JOIN, ChoiceReason::RankOrder);
        }
        let Algorithms { tuning, ranks_per_node, .. } = self.algorithms;
        let has_levels =
            |name: &str| name.parse().is_ok_and(|known| A::OPERATION.has_two_levels(known));
        let levels = match ranks_per_node {
            Some(ranks) if has_levels(algorithm.name()) => Levels::Two(ranks),
            _ => Levels::One,
        };
        Choice { algorithm, tuning, levels, why: ChoiceReason::Forced }
    }

    /// Never a join. Left open: the built-in rules, which say two levels where they pay and each
    /// node has so many consecutive ranks.
    fn choose_between_nodes<A: Choosable>(
        &self,
        layout: NodeLayout,
        bytes: u64,
        order: Order,
    ) -> Choice<A> {
        let forced = A::forced(&self.algorithms);
        if let Some(algorithm) = forced.filter(|algorithm| *algorithm != A::JOIN) {
            let choice = self.choose_forced(algorithm, order);
            return if choice.algorithm == A::JOIN {
                Choice::new(A::IN_RANK_ORDER, choice.why)
            } else {
                choice
            };
        }
        if order == Order::FromLeft {
            return Choice::new(A::IN_RANK_ORDER, ChoiceReason::RankOrder);
        }
        let why = if forced.is_some() { ChoiceReason::SeveralNodes } else { ChoiceReason::Open };
        let (ranks, ranks_per_node) =
            (self.rules.ranks(), layout.ranks_per_node.map_or(1, NonZeroU32::get));
        let plan = rules::plan(&Query { operation: A::OPERATION, ranks, ranks_per_node, bytes });
        let levels = match (plan.levels, layout.ranks_per_node) {
            (models::decision::Levels::Two, Some(ranks)) => Levels::Two(ranks),
            _ => Levels::One,
        };
        let algorithm = plan.algorithm.name().parse().unwrap_or(A::IN_RANK_ORDER);
        Choice { algorithm, tuning: tuning(&plan), levels, why }
    }

    /// What libraries ship, as if every rank were alone on its node.
    fn choose_classical<A: Choosable>(&self, bytes: u64, order: Order) -> Choice<A> {
        let query =
            Query { operation: A::OPERATION, ranks: self.rules.ranks(), ranks_per_node: 1, bytes };
        let plan = rules::plan(&query);
        match plan.algorithm.name().parse::<A>() {
            Ok(algorithm) if order == Order::Any || algorithm.folds_from_left() => {
                Choice::new(algorithm, ChoiceReason::Open)
            }
            Ok(_) => Choice::new(A::JOIN, ChoiceReason::RankOrder),
            Err(_) => Choice::new(A::JOIN, ChoiceReason::Open),
        }
    }
}

/// In the words of the algorithms. A plan that says nothing means one segment, or a degree of 2.
fn tuning(plan: &Plan) -> Tuning {
    const ONE_SEGMENT: NonZeroU64 = NonZeroU64::MAX;
    const TWO: NonZeroU32 = NonZeroU32::new(2).expect("not zero");
    Tuning {
        segment_bytes: plan.segment_bytes.unwrap_or(ONE_SEGMENT),
        degree: plan.degree.unwrap_or(TWO),
    }
}
