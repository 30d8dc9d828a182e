//! The choice of algorithms on a communicator.

use crate::communicator::Communicator;
use crate::reduction::FoldOrder;
use crate::selection::algorithms::NeighborAlgorithm;
use crate::selection::choice::{Choice, ChoiceReason, Choosable};
use crate::selection::explanation::Explanation;
use crate::selection::selector::Selector;
use collectives::Collective;
use engine::node::EngineKind;

/// # Algorithms
impl Communicator {
    /// Chooses the algorithm of a collective of `bytes` bytes, as [`Collective`] counts them; the
    /// same on all ranks.
    #[inline]
    pub(crate) fn choose<A: Choosable>(&self, bytes: u64, order: FoldOrder) -> Choice<A> {
        // A small join takes no longer than a few of these choices, so it is found by one
        // comparison with a threshold that the rules computed beforehand.
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

    /// Chooses the algorithm of a neighbour collective.
    pub(crate) fn choose_neighbor(&self) -> NeighborAlgorithm {
        match (self.chosen().neighbor, self.group().engine()) {
            _ if self.internode().is_some() => NeighborAlgorithm::Direct,
            (Some(forced), _) => forced,
            (None, EngineKind::Peers) => NeighborAlgorithm::Join,
            (None, EngineKind::Caller) => NeighborAlgorithm::Direct,
        }
    }

    #[cold]
    fn choose_and_log<A: Choosable>(&self, bytes: u64, order: FoldOrder) -> Choice<A> {
        let choice = self.selector().choose(bytes, order);
        if self.rank() == 0 {
            self.rules().log_decision(&choice, bytes);
        }
        choice
    }

    /// Explains which algorithm runs a collective of `bytes` bytes, as [`Collective`] counts them,
    /// and why; the same on all ranks. [`Request::explain`](crate::Request::explain) explains a
    /// collective in flight.
    ///
    /// If the variable `TRADEWIND_EXPLAIN` is 1, the first rank prints each new decision on standard
    /// error.
    pub fn explain(&self, operation: Collective, bytes: u64) -> Explanation {
        self.selector().explain(operation, bytes)
    }

    /// The selector of this communicator's algorithms.
    #[inline]
    pub(crate) fn selector(&self) -> Selector {
        Selector::new(self.rules(), *self.chosen())
    }
}
