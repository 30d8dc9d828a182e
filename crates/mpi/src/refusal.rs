//! Calls that are not taken over, or have failed.

use crate::reason::Reason;

/// Why a call does not start here.
pub(crate) enum Refusal {
    /// It is left to the MPI library, on all ranks.
    Left(Reason),
    /// It has failed.
    Failed(tradewind::Error),
    /// It was only examined, and would start here.
    Accepted,
}

impl From<tradewind::Error> for Refusal {
    fn from(error: tradewind::Error) -> Self {
        Refusal::Failed(error)
    }
}
