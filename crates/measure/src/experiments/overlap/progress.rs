//! Progress of a collective beside a computation.

use models::decision::CallForm;
use tradewind::EngineKind;

/// Progress of a collective beside the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// On one node, by this engine.
    OnNode(EngineKind),
    /// Between nodes, by the engine of nonblocking calls.
    Nonblocking,
    /// Between nodes, inside calls only: the blocking call, after the computation. It is the baseline:
    /// a program without nonblocking collectives.
    InCalls,
}

impl Progress {
    /// Form of the calls.
    pub(super) const fn form(self) -> CallForm {
        match self {
            Progress::OnNode(_) | Progress::Nonblocking => CallForm::Nonblocking,
            Progress::InCalls => CallForm::Blocking,
        }
    }
}
