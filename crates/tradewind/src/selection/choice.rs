//! The choice of an algorithm for one collective.

use super::algorithms::{
    Algorithms, AllgatherAlgorithm, AllreduceAlgorithm, AlltoallAlgorithm, BarrierAlgorithm,
    BcastAlgorithm, ExscanAlgorithm, GatherAlgorithm, ReduceAlgorithm, ReduceScatterAlgorithm,
    ScanAlgorithm, ScatterAlgorithm,
};
use collectives::{Collective, Tuning};
use goal::arithmetic::UnknownName;
use std::num::NonZeroU32;

/// Number of levels of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Levels {
    /// One algorithm among all ranks.
    One,
    /// One algorithm inside nodes of this many consecutive ranks, and one between them.
    Two(NonZeroU32),
}

/// Reason of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChoiceReason {
    /// The caller's [`Algorithms`] set it.
    Forced,
    /// The caller leaves it open: the decision table's choice, or the built-in rules' where nothing
    /// has been measured.
    Open,
    /// The caller's [`Algorithms`] set a join, and the ranks are on several nodes.
    SeveralNodes,
    /// The operation is not associative, and the caller's algorithm does not fold in rank order.
    RankOrder,
}

/// The algorithm of a collective, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice<A> {
    pub(crate) algorithm: A,
    pub(crate) tuning: Tuning,
    pub(crate) levels: Levels,
    pub(crate) why: ChoiceReason,
}

impl<A: Choosable> Choice<A> {
    pub(crate) fn new(algorithm: A, why: ChoiceReason) -> Self {
        Choice { algorithm, tuning: Tuning::default(), levels: Levels::One, why }
    }

    /// Hash of the choice, for signatures.
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
pub(crate) trait Choosable:
    Copy + PartialEq + TryFrom<collectives::Algorithm> + Into<collectives::Algorithm>
{
    const OPERATION: Collective;
    const JOIN: Self;
    /// Replaces a join between nodes where rank order matters.
    const IN_RANK_ORDER: Self;
    /// The caller's algorithm, if it is set.
    fn forced(algorithms: &Algorithms) -> Option<Self>;
    fn force(self, algorithms: &mut Algorithms);
    fn number(self) -> u64;
    fn name(self) -> &'static str;
    /// Returns `true` if the result is a fold in rank order, from the left, or nothing is folded.
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

        impl Algorithms {
            /// Sets the algorithm of a collective, both by name.
            ///
            /// # Errors
            /// Fails if there is no such collective, or it has no such algorithm; the error lists
            /// those that there are.
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
    // With a reduction in rank order its graph contains a flat reduction.
    Allreduce, allreduce: AllreduceAlgorithm, AllreduceAlgorithm::folds_from_left, ReduceBcast;
    ReduceScatter, reduce_scatter: ReduceScatterAlgorithm, ReduceScatterAlgorithm::folds_from_left, Pairwise;
    Scan, scan: ScanAlgorithm, ScanAlgorithm::folds_from_left, Chain;
    Exscan, exscan: ExscanAlgorithm, ExscanAlgorithm::folds_from_left, Chain;
}
