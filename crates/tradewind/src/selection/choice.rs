//! The algorithm selected for one call of a collective, and the reason.

use crate::link_key::LinkKey;
use collectives::{Algorithm, Collective, Levels, Tuning};
use engine::signature::Signature;
use models::decision::CallForm;
use models::machine_file::Engine;
use std::num::NonZeroU32;

/// Reason of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChoiceReason {
    /// The caller's [`Algorithms`](crate::Algorithms) set it.
    Forced,
    /// The caller leaves it open: the decision table's choice, or the built-in rules' where nothing
    /// has been measured.
    Open,
    /// The caller's [`Algorithms`](crate::Algorithms) set a join, and the ranks are on several
    /// nodes.
    SeveralNodes,
    /// The operation is not associative, and the caller's algorithm does not fold in rank order.
    RankOrder,
    /// The result of the operation depends on the order of its operands, and the caller's algorithm
    /// has another one on each rank.
    CommonOrder,
    /// As `Open`, in place of the algorithm for any operation: the result does not depend on the
    /// order of the operands.
    AnyOrder,
}

/// The algorithm of a collective, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelectedAlgorithm {
    pub(crate) form: CallForm,
    pub(crate) collective: Collective,
    pub(crate) algorithm: Algorithm,
    pub(crate) tuning: Tuning,
    /// Number of consecutive ranks on each node, for an algorithm in two levels.
    pub(crate) ranks_per_node: Option<NonZeroU32>,
    /// The engine between nodes; `None` for the preferred one that accepts the graph.
    pub(crate) engine: Option<Engine>,
    pub(crate) why: ChoiceReason,
}

impl SelectedAlgorithm {
    /// An algorithm among all ranks with the default tuning.
    #[inline]
    pub(crate) fn new(
        form: CallForm,
        collective: Collective,
        algorithm: Algorithm,
        why: ChoiceReason,
    ) -> Self {
        let tuning = Tuning::default();
        let ranks_per_node = None;
        let engine = None;
        SelectedAlgorithm { form, collective, algorithm, tuning, ranks_per_node, engine, why }
    }

    /// A join.
    #[inline]
    pub(crate) fn join(form: CallForm, collective: Collective, why: ChoiceReason) -> Self {
        SelectedAlgorithm::new(form, collective, Algorithm::Join, why)
    }

    /// Returns `true` if the collective is one join of all ranks.
    #[inline]
    pub(crate) fn is_join(&self) -> bool {
        self.algorithm == Algorithm::Join
    }

    /// The choice from which [`collectives::build`] builds the graph.
    pub(crate) fn graph_choice(&self) -> collectives::Choice {
        collectives::Choice {
            levels: if self.ranks_per_node.is_some() { Levels::Two } else { Levels::One },
            algorithm: self.algorithm,
            segment_bytes: Some(self.tuning.segment_bytes),
            degree: Some(self.tuning.degree),
        }
    }

    /// The key of a cached schedule of this selection.
    pub(crate) fn link_key(&self, call: Signature, arguments: u64, sizes: Vec<u64>) -> LinkKey {
        LinkKey {
            call,
            algorithm: self.algorithm.name(),
            tuning: self.tuning,
            ranks_per_node: self.ranks_per_node,
            engine: self.engine,
            arguments,
            sizes,
        }
    }

    /// Hash of the selection, for signatures.
    #[inline]
    pub(crate) fn digest(&self) -> u64 {
        let number = self.algorithm as u64;
        if self.is_join() {
            return number;
        }
        let Tuning { segment_bytes, degree } = self.tuning;
        number
            ^ segment_bytes.get().rotate_left(20)
            ^ u64::from(degree.get()).rotate_left(44)
            ^ u64::from(self.ranks_per_node.map_or(0, NonZeroU32::get)).rotate_left(8)
            ^ self.engine.map_or(0, |engine| engine as u64 + 1).rotate_left(36)
    }
}

/// The algorithm that folds from the left in rank order on several nodes, where a join cannot run;
/// for collectives that fold nothing, a usual one.
pub(crate) fn in_rank_order(collective: Collective) -> Algorithm {
    match collective {
        Collective::Barrier => Algorithm::Dissemination,
        Collective::Bcast | Collective::Scatter | Collective::Gather => Algorithm::Binomial,
        Collective::Allgather => Algorithm::Ring,
        Collective::Alltoall | Collective::ReduceScatter => Algorithm::Pairwise,
        Collective::Reduce => Algorithm::Flat,
        // With a reduction in rank order its graph contains a flat reduction.
        Collective::Allreduce => Algorithm::ReduceBcast,
        Collective::Scan | Collective::Exscan => Algorithm::Chain,
    }
}
