//! The choice of algorithms on a communicator.

use crate::call::{Blocks, Call};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::internode::unattended;
use crate::reduction::FoldOrder;
use crate::selection::algorithms::{Algorithms, for_different_sizes};
use crate::selection::choice::{ChoiceReason, SelectedAlgorithm};
use crate::selection::explanation::Explanation;
use crate::selection::selector::Selector;
use collectives::{Algorithm, Collective, CollectiveError, UnknownName};
use engine::node::EngineKind;
use models::decision::CallForm;
use models::machine_file::Engine;

/// # Algorithms
impl Communicator {
    /// Chooses the algorithm of a call; the same on all ranks.
    #[inline(always)]
    pub(crate) fn choose(&self, call: &Call<'_>) -> SelectedAlgorithm {
        let collective = call.collective;
        let form = call.form;
        if call.has_unknown_sizes() && self.internode().is_none() {
            return SelectedAlgorithm::join(form, collective, ChoiceReason::Open);
        }
        // The only algorithm in which a rank needs no size of a block between two others.
        if let Blocks::Own { .. } = call.blocks {
            return SelectedAlgorithm::new(form, collective, Algorithm::Flat, ChoiceReason::Open);
        }
        let choice = self.choose_among(form, collective, call.model_bytes(), call.order());
        if !call.exchanges_different_sizes() {
            return choice;
        }
        // One level, because a leader does not know the sizes of the other ranks' blocks. The general
        // engine, because the ranks do not agree on another one.
        let algorithm = for_different_sizes(choice.algorithm);
        let engine = choice.engine.filter(|_| !call.has_unknown_sizes());
        SelectedAlgorithm { algorithm, engine, ranks_per_node: None, ..choice }
    }

    #[inline]
    fn choose_among(
        &self,
        form: CallForm,
        collective: Collective,
        bytes: u64,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        // A small join takes no longer than a few of these choices, so it is found by one
        // comparison with a threshold that the rules computed beforehand.
        match self.chosen().get(collective) {
            None if bytes < self.rules().joins_below(form, collective) => {
                SelectedAlgorithm::join(form, collective, ChoiceReason::Open)
            }
            Some(Algorithm::Join) if self.rules().joins_directly() => {
                SelectedAlgorithm::join(form, collective, ChoiceReason::Forced)
            }
            _ => self.choose_and_log(form, collective, bytes, order),
        }
    }

    /// Checks the algorithm that is set for a collective, where another one may run.
    #[inline]
    pub(crate) fn check_algorithm(&self, collective: Collective) -> Result<()> {
        match self.chosen().get(collective) {
            None => Ok(()),
            Some(set) => Ok(collective.check_algorithm(set).map_err(CollectiveError::from)?),
        }
    }

    /// Chooses the algorithm of a neighbour collective: direct or join.
    pub(crate) fn choose_neighbor(&self) -> Result<Algorithm> {
        let forced = self.chosen().neighbor;
        if let Some(other) = forced
            && !Algorithms::NEIGHBOR.contains(&other)
        {
            let known = Algorithms::NEIGHBOR.iter().map(|one| one.name()).collect();
            let name = other.name().to_owned();
            let unknown = UnknownName { kind: "neighbor algorithm", name, known };
            return Err(CollectiveError::from(unknown).into());
        }
        Ok(match (forced, self.group().engine()) {
            _ if self.internode().is_some() => Algorithm::Direct,
            (Some(forced), _) => forced,
            (None, EngineKind::Peers) => Algorithm::Join,
            (None, EngineKind::Caller) => Algorithm::Direct,
        })
    }

    #[cold]
    fn choose_and_log(
        &self,
        form: CallForm,
        collective: Collective,
        bytes: u64,
        order: FoldOrder,
    ) -> SelectedAlgorithm {
        let selector = self.selector();
        let selected = selector.select(form, collective, bytes, order);
        if self.rank() == 0 {
            selector.log(&selected, bytes);
        }
        selected
    }

    /// Explains which algorithm runs a blocking collective of `bytes` bytes, as [`Collective`]
    /// counts them, and why; the same on all ranks. [`Request::explain`](crate::Request::explain)
    /// explains a started collective, and [`explain_form`](Self::explain_form) any form.
    ///
    /// If the variable `TRADEWIND_EXPLAIN` is 1, the first rank prints each new decision on
    /// standard error.
    pub fn explain(&self, operation: Collective, bytes: u64) -> Explanation {
        self.explain_form(CallForm::Blocking, operation, bytes)
    }

    /// As [`explain`](Self::explain), for calls of this form. A reduction is one of floating-point
    /// numbers: for others the selected algorithm may combine in orders that differ between the
    /// ranks. The root is rank 0, and the blocks of all ranks have one size.
    pub fn explain_form(&self, form: CallForm, operation: Collective, bytes: u64) -> Explanation {
        let selector = self.selector();
        let selected = selector.select(form, operation, bytes, FoldOrder::Common);
        let mut explanation = selector.explain(form, operation, bytes, FoldOrder::Common);
        if explanation.engine == Engine::Agent.name() && self.is_unattended(&selected, bytes) {
            explanation.engine = Engine::Direct.name();
        }
        explanation
    }

    /// Returns whether the ranks run a nonblocking collective between nodes themselves because it
    /// [needs no thread](unattended).
    fn is_unattended(&self, selected: &SelectedAlgorithm, bytes: u64) -> bool {
        let SelectedAlgorithm { form, collective, .. } = *selected;
        let call = self.describe(collective, form, None, Blocks::Equal(bytes));
        let Some((internode, call)) = self.internode().zip(call.ok()) else { return false };
        let build = |rank| Ok(call.graph(selected, rank, &[])?);
        form == CallForm::Nonblocking
            && unattended::is_unattended(internode, &build).unwrap_or(false)
    }

    /// The selector of this communicator's algorithms.
    #[inline]
    pub(crate) fn selector(&self) -> Selector {
        Selector::new(self.rules(), *self.chosen())
    }
}
