//! Failures of PMIx.

use std::time::Duration;

/// A failure of the exchange with the process manager through libpmix.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library cannot be opened.
    #[error(
        "the launcher uses PMIx, and libpmix.so.2 cannot be opened: {why}; set TRADEWIND_PMIX to the path of the launcher's \
         library, or install it (Debian: libpmix2)"
    )]
    NoLibrary {
        /// Reasons of all attempts.
        why: String,
    },
    /// The library is not PMIx, or of a version with another layout.
    #[error(
        "{path} is {version:?}, versions 3 to 6 of PMIx are supported: set TRADEWIND_PMIX to the path of another libpmix.so.2"
    )]
    Version {
        /// Path of the library.
        path: String,
        /// Version that it reports.
        version: String,
    },
    /// A function is missing.
    #[error(
        "{path} has no function {function}: set TRADEWIND_PMIX to the path of another libpmix.so.2"
    )]
    NoFunction {
        /// Path of the library.
        path: String,
        /// Name of the function.
        function: String,
    },
    /// A call has failed.
    #[error("{call} of {path} has failed: {why} ({status})")]
    Call {
        /// The function, with its subject.
        call: String,
        /// Path of the library.
        path: String,
        /// The library's text.
        why: String,
        /// The library's status.
        status: i32,
    },
    /// A call has not returned.
    #[error(
        "{call} has not returned within {waited:?}: a rank of the job is not started, has ended, or is stopped"
    )]
    TimedOut {
        /// The function.
        call: &'static str,
        /// Time for which this rank has waited.
        waited: Duration,
    },
    /// The thread of the calls cannot be started, or has ended.
    #[error("cannot make calls of PMIx: {0}")]
    Thread(String),
    /// The number of ranks is missing.
    #[error("the process manager does not report the number of ranks (pmix.job.size)")]
    NoSize,
}
