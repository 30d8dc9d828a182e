//! Calls that are not taken over, or have failed.

use crate::abi::Abi;
use crate::communicators::Origin;
use crate::failures;
use crate::kind::Kind;
use crate::report::Reason;
use std::ffi::c_int;

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

/// Reports that a call has failed, and returns its error code.
pub(crate) fn failed(abi: &Abi, (kind, origin): (Kind, Origin), error: &tradewind::Error) -> c_int {
    failures::log(kind.name(), error);
    let code = failures::awaited_code(abi, origin, error);
    origin.report(abi, code);
    code
}
