//! Selection of an algorithm: the caller's, the decision table's, or the built-in rules'.

use super::algorithms::{
    Algorithms, AllgatherAlgorithm, AllreduceAlgorithm, AlltoallAlgorithm, BarrierAlgorithm,
    BcastAlgorithm, ExscanAlgorithm, GatherAlgorithm, ReduceAlgorithm, ReduceScatterAlgorithm,
    ScanAlgorithm, ScatterAlgorithm,
};
use super::choice::{Choice, ChoiceReason, Choosable, Levels};
use super::explanation::Explanation;
use super::rules::SelectionRules;
use crate::placement::{NodeLayout, Placement};
use crate::reduction::FoldOrder;
use collectives::{Collective, Tuning};
use engine::node::EngineKind;
use models::decision::{Plan, Query, rules};
use std::num::{NonZeroU32, NonZeroU64};

/// Most segments of a message. Where a decision table has more, the collective is a join.
const MOST_SEGMENTS: u64 = 1024;

/// Everything that a choice depends on besides the call: the rules and the caller's algorithms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selector {
    rules: &'static SelectionRules,
    algorithms: Algorithms,
}

impl Selector {
    #[inline]
    pub(crate) fn new(rules: &'static SelectionRules, algorithms: Algorithms) -> Self {
        Selector { rules, algorithms }
    }

    /// Explains the algorithm of a collective; bytes as [`Collective`] counts them.
    pub(crate) fn explain(&self, operation: Collective, bytes: u64) -> Explanation {
        match operation {
            Collective::Barrier => self.explain_choice::<BarrierAlgorithm>(bytes),
            Collective::Bcast => self.explain_choice::<BcastAlgorithm>(bytes),
            Collective::Scatter => self.explain_choice::<ScatterAlgorithm>(bytes),
            Collective::Gather => self.explain_choice::<GatherAlgorithm>(bytes),
            Collective::Allgather => self.explain_choice::<AllgatherAlgorithm>(bytes),
            Collective::Alltoall => self.explain_choice::<AlltoallAlgorithm>(bytes),
            Collective::Reduce => self.explain_choice::<ReduceAlgorithm>(bytes),
            Collective::Allreduce => self.explain_choice::<AllreduceAlgorithm>(bytes),
            Collective::ReduceScatter => self.explain_choice::<ReduceScatterAlgorithm>(bytes),
            Collective::Scan => self.explain_choice::<ScanAlgorithm>(bytes),
            Collective::Exscan => self.explain_choice::<ExscanAlgorithm>(bytes),
        }
    }

    fn explain_choice<A: Choosable>(&self, bytes: u64) -> Explanation {
        self.rules.explain(&self.choose::<A>(bytes, FoldOrder::Any), bytes)
    }

    pub(crate) fn choose<A: Choosable>(&self, bytes: u64, order: FoldOrder) -> Choice<A> {
        if let Placement::Nodes(layout) = self.rules.placement() {
            return self.choose_between_nodes(layout, bytes, order);
        }
        match A::forced(&self.algorithms) {
            Some(algorithm) => self.choose_forced(algorithm, order),
            None if self.rules.engine() == EngineKind::Peers => self.choose_by_table(bytes, order),
            None => self.choose_classical(bytes, order),
        }
    }

    /// The decision table's choice, else a join. A table's last range has no end, so a message in it
    /// may have more segments than a graph should have.
    fn choose_by_table<A: Choosable>(&self, bytes: u64, order: FoldOrder) -> Choice<A> {
        let join = Choice::new(A::JOIN, ChoiceReason::Open);
        let Some(plan) = self.rules.plan(A::OPERATION, bytes) else { return join };
        match A::try_from(plan.algorithm) {
            Ok(algorithm) if order == FoldOrder::FromLeft && !algorithm.folds_from_left() => {
                Choice { why: ChoiceReason::RankOrder, ..join }
            }
            Ok(_) if plan.segment_bytes.is_some_and(|segment| bytes / segment > MOST_SEGMENTS) => {
                join
            }
            Ok(algorithm) => Choice { algorithm, tuning: tuning(&plan), ..join },
            Err(_) => join,
        }
    }

    fn choose_forced<A: Choosable>(&self, algorithm: A, order: FoldOrder) -> Choice<A> {
        if order == FoldOrder::FromLeft && !algorithm.folds_from_left() {
            return Choice::new(A::JOIN, ChoiceReason::RankOrder);
        }
        let Algorithms { tuning, ranks_per_node, .. } = self.algorithms;
        let levels = match ranks_per_node {
            Some(ranks) if A::OPERATION.has_two_levels(algorithm.into()) => Levels::Two(ranks),
            _ => Levels::One,
        };
        Choice { algorithm, tuning, levels, why: ChoiceReason::Forced }
    }

    /// The choice between nodes, which is never a join. If the caller leaves it open, the built-in
    /// rules choose; they have two levels where these pay and each node has as many consecutive
    /// ranks.
    fn choose_between_nodes<A: Choosable>(
        &self,
        layout: NodeLayout,
        bytes: u64,
        order: FoldOrder,
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
        if order == FoldOrder::FromLeft {
            return Choice::new(A::IN_RANK_ORDER, ChoiceReason::RankOrder);
        }
        let why = if forced.is_some() { ChoiceReason::SeveralNodes } else { ChoiceReason::Open };
        let ranks = self.rules.ranks();
        let ranks_per_node = layout.ranks_per_node.map_or(1, NonZeroU32::get);
        let plan = rules::plan(&Query { operation: A::OPERATION, ranks, ranks_per_node, bytes });
        let levels = match (plan.levels, layout.ranks_per_node) {
            (models::decision::Levels::Two, Some(ranks)) => Levels::Two(ranks),
            _ => Levels::One,
        };
        let algorithm = A::try_from(plan.algorithm).unwrap_or(A::IN_RANK_ORDER);
        Choice { algorithm, tuning: tuning(&plan), levels, why }
    }

    /// The choice of MPI libraries, as if every rank were alone on its node.
    fn choose_classical<A: Choosable>(&self, bytes: u64, order: FoldOrder) -> Choice<A> {
        let query =
            Query { operation: A::OPERATION, ranks: self.rules.ranks(), ranks_per_node: 1, bytes };
        let plan = rules::plan(&query);
        match A::try_from(plan.algorithm) {
            Ok(algorithm) if order == FoldOrder::Any || algorithm.folds_from_left() => {
                Choice::new(algorithm, ChoiceReason::Open)
            }
            Ok(_) => Choice::new(A::JOIN, ChoiceReason::RankOrder),
            Err(_) => Choice::new(A::JOIN, ChoiceReason::Open),
        }
    }
}

/// The tuning of a plan. The defaults are one segment and a degree of 2.
fn tuning(plan: &Plan) -> Tuning {
    const ONE_SEGMENT: NonZeroU64 = NonZeroU64::MAX;
    const TWO: NonZeroU32 = NonZeroU32::new(2).expect("not zero");
    Tuning {
        segment_bytes: plan.segment_bytes.unwrap_or(ONE_SEGMENT),
        degree: plan.degree.unwrap_or(TWO),
    }
}
