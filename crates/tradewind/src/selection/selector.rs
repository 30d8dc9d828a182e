//! Selection of an algorithm: the caller's, the decision table's, or the built-in rules'.

use super::algorithms::Algorithms;
use super::choice::{ChoiceReason, SelectedAlgorithm, in_rank_order};
use super::explanation::Explanation;
use super::rules::SelectionRules;
use crate::placement::{NodeLayout, Placement};
use crate::reduction::FoldOrder;
use collectives::{Algorithm, Collective, Levels};
use engine::node::EngineKind;
use models::decision::{Query, rules};
use std::num::NonZeroU32;

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
        self.rules.explain(&self.select(operation, bytes, FoldOrder::Any), bytes)
    }

    pub(crate) fn select(
        &self,
        collective: Collective,
        bytes: u64,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        if let Placement::Nodes(layout) = self.rules.placement() {
            return self.select_between_nodes(collective, layout, bytes, order);
        }
        match self.algorithms.get(collective) {
            Some(algorithm) => self.select_forced(collective, algorithm, order),
            None if self.rules.engine() == EngineKind::Peers => {
                self.select_by_table(collective, bytes, order)
            }
            None => self.select_classical(collective, bytes, order),
        }
    }

    /// The decision table's choice, else a join. A table's last range has no end, so a message in it
    /// may have more segments than a graph should have.
    fn select_by_table(
        &self,
        collective: Collective,
        bytes: u64,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        let join = SelectedAlgorithm::join(collective, ChoiceReason::Open);
        let Some(plan) = self.rules.plan(collective, bytes) else { return join };
        let algorithm = plan.algorithm;
        if !collective.algorithms().contains(&algorithm) {
            return join;
        }
        if order == FoldOrder::FromLeft && !collective.folds_from_left(algorithm) {
            return SelectedAlgorithm { why: ChoiceReason::RankOrder, ..join };
        }
        if plan.segment_bytes.is_some_and(|segment| bytes / segment > MOST_SEGMENTS) {
            return join;
        }
        SelectedAlgorithm { algorithm, tuning: plan.tuning(), ..join }
    }

    fn select_forced(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        // An algorithm of another collective stays the choice: its graph is refused by name.
        if order == FoldOrder::FromLeft
            && !collective.folds_from_left(algorithm)
            && collective.algorithms().contains(&algorithm)
        {
            return SelectedAlgorithm::join(collective, ChoiceReason::RankOrder);
        }
        let Algorithms { tuning, ranks_per_node, .. } = self.algorithms;
        let ranks_per_node = ranks_per_node.filter(|_| collective.has_two_levels(algorithm));
        let why = ChoiceReason::Forced;
        SelectedAlgorithm { collective, algorithm, tuning, ranks_per_node, why }
    }

    /// The choice between nodes, which is never a join. If the caller leaves it open, the built-in
    /// rules choose; they have two levels where these pay and each node has as many consecutive
    /// ranks.
    fn select_between_nodes(
        &self,
        collective: Collective,
        layout: NodeLayout,
        bytes: u64,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        let forced = self.algorithms.get(collective);
        let in_rank_order = in_rank_order(collective);
        if let Some(algorithm) = forced.filter(|algorithm| *algorithm != Algorithm::Join) {
            let selected = self.select_forced(collective, algorithm, order);
            return if selected.is_join() {
                SelectedAlgorithm::new(collective, in_rank_order, selected.why)
            } else {
                selected
            };
        }
        if order == FoldOrder::FromLeft {
            return SelectedAlgorithm::new(collective, in_rank_order, ChoiceReason::RankOrder);
        }
        let why = if forced.is_some() { ChoiceReason::SeveralNodes } else { ChoiceReason::Open };
        let ranks = self.rules.ranks();
        let ranks_per_node = layout.ranks_per_node.map_or(1, NonZeroU32::get);
        let plan = rules::plan(&Query { operation: collective, ranks, ranks_per_node, bytes });
        SelectedAlgorithm {
            collective,
            algorithm: plan.algorithm,
            tuning: plan.tuning(),
            ranks_per_node: layout.ranks_per_node.filter(|_| plan.levels == Levels::Two),
            why,
        }
    }

    /// The choice of MPI libraries, as if every rank were alone on its node.
    fn select_classical(
        &self,
        collective: Collective,
        bytes: u64,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        let ranks = self.rules.ranks();
        let query = Query { operation: collective, ranks, ranks_per_node: 1, bytes };
        let algorithm = rules::plan(&query).algorithm;
        if order == FoldOrder::Any || collective.folds_from_left(algorithm) {
            SelectedAlgorithm::new(collective, algorithm, ChoiceReason::Open)
        } else {
            SelectedAlgorithm::join(collective, ChoiceReason::RankOrder)
        }
    }
}
