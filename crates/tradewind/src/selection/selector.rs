//! Selection of an algorithm: the caller's, the decision table's, or the built-in rules'.

use super::algorithms::Algorithms;
use super::choice::{ChoiceReason, SelectedAlgorithm, in_rank_order};
use super::explanation::Explanation;
use super::rules::SelectionRules;
use crate::placement::{NodeLayout, Placement};
use crate::reduction::FoldOrder;
use collectives::{Algorithm, Choice, Collective, Levels};
use engine::node::EngineKind;
use models::decision::{CallForm, Query, Range, rules};
use std::num::NonZeroU32;

/// Longest message between two ranks that the built-in parameters never cut into segments. With
/// 64 KiB one message takes less time than segments, with 1 MiB more.
const MOST_UNSEGMENTED: u64 = 128 << 10;

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

    /// The engine of collectives on one node.
    pub(crate) fn engine(&self) -> EngineKind {
        self.rules.engine()
    }

    /// Explains the algorithm of a collective; bytes as [`Collective`] counts them.
    pub(crate) fn explain(
        &self,
        form: CallForm,
        operation: Collective,
        bytes: u64,
        order: FoldOrder,
    ) -> Explanation {
        let selected = self.select(form, operation, bytes, order);
        self.rules.explain(&selected, bytes)
    }

    /// Prints a selection that was not printed before, if selections are to be printed.
    pub(crate) fn log(&self, selected: &SelectedAlgorithm, bytes: u64) {
        self.rules.log_decision(selected, bytes);
    }

    pub(crate) fn select(
        &self,
        form: CallForm,
        collective: Collective,
        bytes: u64,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        if let Placement::Nodes(layout) = self.rules.placement() {
            return self.select_between_nodes((form, collective), layout, bytes, order);
        }
        match self.algorithms.get(collective) {
            Some(algorithm) => self.select_forced((form, collective), algorithm, order),
            None if self.rules.engine() == EngineKind::Peers => {
                self.select_by_table((form, collective), bytes, order)
            }
            None => self.select_classical((form, collective), bytes, order),
        }
    }

    /// The decision table's choice, else that of the built-in parameters, else a join.
    fn select_by_table(
        &self,
        (form, collective): (CallForm, Collective),
        bytes: u64,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        let join = SelectedAlgorithm::join(form, collective, ChoiceReason::Open);
        let by_table = self.rules.range(form, collective, bytes);
        let built_in = || self.rules.built_in_range(form, collective, bytes);
        let Some(Range { plan, .. }) = by_table.or_else(built_in) else { return join };
        let algorithm = plan.algorithm;
        if !self.rules.admits(collective, plan, bytes) {
            return join;
        }
        if order == FoldOrder::FromLeft && !collective.folds_from_left(algorithm) {
            return SelectedAlgorithm { why: ChoiceReason::RankOrder, ..join };
        }
        let selected = SelectedAlgorithm { algorithm, tuning: plan.tuning(), ..join };
        self.in_any_order(selected, order)
    }

    /// The algorithm for an operation with the same result in every order of its operands: where
    /// the number of ranks is no power of two, dissemination takes a round less than recursive
    /// doubling.
    fn in_any_order(&self, selected: SelectedAlgorithm, order: FoldOrder) -> SelectedAlgorithm {
        let here = selected.ranks_per_node.map_or(1, NonZeroU32::get);
        let members = self.rules.ranks().div_ceil(here);
        let is_replaced = selected.collective == Collective::Allreduce
            && selected.algorithm == Algorithm::RecursiveDoubling
            && !members.is_power_of_two();
        if order != FoldOrder::Any || !is_replaced {
            return selected;
        }
        let algorithm = Algorithm::Dissemination;
        SelectedAlgorithm { algorithm, why: ChoiceReason::AnyOrder, ..selected }
    }

    fn select_forced(
        &self,
        (form, collective): (CallForm, Collective),
        algorithm: Algorithm,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        // An algorithm of another collective stays the choice: its graph is refused by name.
        if order == FoldOrder::FromLeft
            && !collective.folds_from_left(algorithm)
            && collective.algorithms().contains(&algorithm)
        {
            return SelectedAlgorithm::join(form, collective, ChoiceReason::RankOrder);
        }
        let (algorithm, why) = if order == FoldOrder::Any || collective.has_common_order(algorithm)
        {
            (algorithm, ChoiceReason::Forced)
        } else {
            (Algorithm::RecursiveDoubling, ChoiceReason::CommonOrder)
        };
        let Algorithms { tuning, ranks_per_node, .. } = self.algorithms;
        // In two levels the combinations of nodes are combined.
        let has_levels = order != FoldOrder::FromLeft && collective.has_two_levels(algorithm);
        let ranks_per_node = ranks_per_node.filter(|_| has_levels);
        let forced = SelectedAlgorithm::new(form, collective, algorithm, why);
        SelectedAlgorithm { tuning, ranks_per_node, ..forced }
    }

    /// The choice between nodes, which is never a join. If the caller leaves it open, the decision
    /// table chooses, else the models with built-in parameters; both have two levels where these
    /// pay and each node has as many consecutive ranks.
    fn select_between_nodes(
        &self,
        (form, collective): (CallForm, Collective),
        layout: NodeLayout,
        bytes: u64,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        let forced = self.algorithms.get(collective);
        let in_rank_order = in_rank_order(collective);
        if let Some(algorithm) = forced.filter(|algorithm| *algorithm != Algorithm::Join) {
            let selected = self.select_forced((form, collective), algorithm, order);
            return if selected.is_join() {
                SelectedAlgorithm::new(form, collective, in_rank_order, selected.why)
            } else {
                selected
            };
        }
        if order == FoldOrder::FromLeft {
            let why = ChoiceReason::RankOrder;
            return SelectedAlgorithm::new(form, collective, in_rank_order, why);
        }
        let why = if forced.is_some() { ChoiceReason::SeveralNodes } else { ChoiceReason::Open };
        let is_possible = |range: &&Range| self.rules.admits(collective, &range.plan, bytes);
        let by_table = self.rules.range(form, collective, bytes).filter(is_possible);
        let built_in = || self.rules.built_in_range(form, collective, bytes).filter(is_possible);
        let is_measured = by_table.is_some();
        let (plan, engine) = match by_table.or_else(built_in) {
            Some(range) => {
                let plan = if is_measured {
                    range.plan
                } else {
                    self.without_short_segments(range.plan, bytes)
                };
                (plan, range.engine.filter(|_| !self.rules.demands_kernel()))
            }
            None => {
                let query = Query {
                    operation: collective,
                    form,
                    ranks: self.rules.ranks(),
                    ranks_per_node: 1,
                    bytes,
                };
                (rules::classical(&query), None)
            }
        };
        let selected = SelectedAlgorithm {
            tuning: plan.tuning(),
            ranks_per_node: layout.ranks_per_node.filter(|_| plan.levels == Levels::Two),
            engine,
            ..SelectedAlgorithm::new(form, collective, plan.algorithm, why)
        };
        self.in_any_order(selected, order)
    }

    /// The same plan without segments where these overlap nothing: between two ranks, unless the
    /// message is so long that both ends copy at the same time. The network cuts messages itself,
    /// and the built-in parameters are too coarse to compare one message with a hundred.
    fn without_short_segments(&self, plan: Choice, bytes: u64) -> Choice {
        let is_pipelined = self.rules.ranks() > 2 || bytes > MOST_UNSEGMENTED;
        if is_pipelined || !plan.algorithm.is_segmented() {
            return plan;
        }
        let algorithm = plan.algorithm.unsegmented().unwrap_or(Algorithm::Binomial);
        Choice { algorithm, segment_bytes: None, ..plan }
    }

    /// The choice of MPI libraries, as if every rank were alone on its node.
    fn select_classical(
        &self,
        (form, collective): (CallForm, Collective),
        bytes: u64,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        let ranks = self.rules.ranks();
        let query = Query { operation: collective, form, ranks, ranks_per_node: 1, bytes };
        let algorithm = rules::classical(&query).algorithm;
        if order != FoldOrder::FromLeft || collective.folds_from_left(algorithm) {
            SelectedAlgorithm::new(form, collective, algorithm, ChoiceReason::Open)
        } else {
            SelectedAlgorithm::join(form, collective, ChoiceReason::RankOrder)
        }
    }
}
