//! Progress of a collective beside a computation.

use models::decision::CallForm;
use tradewind::EngineKind;

collectives::named_enum! {
    /// Progress of a collective beside the computation.
    pub enum Progress ("progress") {
        /// On one node, in calls: each rank executes its own operations.
        Caller = "caller",
        /// On one node, cooperative: the rank that completes an operation executes those that it
        /// enables.
        Peers = "peers",
        /// The same with the algorithm that [`Caller`](Self::Caller) has, so that the two differ in
        /// progress alone.
        PeersByMessages = "peers-by-messages",
        /// Between nodes, by the engine of nonblocking calls.
        Nonblocking = "nonblocking",
        /// Between nodes, inside calls only: the blocking call, after the computation. It is the
        /// baseline: a program without nonblocking collectives.
        InCalls = "in-calls",
    }
}

impl Progress {
    /// The usual ones on one node and between nodes, the baseline first.
    pub const fn usual(is_between_nodes: bool) -> [Progress; 2] {
        match is_between_nodes {
            false => [Progress::Caller, Progress::Peers],
            true => [Progress::InCalls, Progress::Nonblocking],
        }
    }

    /// Returns true for progress between nodes.
    pub const fn crosses_nodes(self) -> bool {
        matches!(self, Progress::Nonblocking | Progress::InCalls)
    }

    /// Form of the calls.
    pub(super) const fn form(self) -> CallForm {
        match self {
            Progress::InCalls => CallForm::Blocking,
            _ => CallForm::Nonblocking,
        }
    }

    /// Engine of the ranks of a node.
    pub(super) const fn engine(self) -> EngineKind {
        match self {
            Progress::Caller => EngineKind::Caller,
            _ => EngineKind::Peers,
        }
    }
}
