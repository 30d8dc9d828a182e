//! Why a schedule cannot be shown.

use collectives::CollectiveError;
use goal::arithmetic::UnknownName;

/// Why a schedule cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScheduleError {
    /// There is no such algorithm.
    #[error(transparent)]
    Algorithm(#[from] UnknownName),
    /// An option of an algorithm without an algorithm.
    #[error("{option} shows one algorithm: name it with --algorithm; {collective} has {}", .names.join(", "))]
    NoAlgorithm { option: &'static str, collective: String, names: Vec<String> },
    /// The algorithm does not support these parameters.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// More operations than fit.
    #[error(
        "all ranks together have more than {most} operations: use fewer ranks or longer segments"
    )]
    TooManyOperations { most: usize },
    /// Two levels of a collective that has one.
    #[error(
        "{collective} has no form in two levels: leave out --ranks-per-node, or use barrier, bcast, reduce, allreduce, \
         allgather or alltoall"
    )]
    OneLevel { collective: String },
    /// GOAL files hold messages only.
    #[error(
        "in a join all ranks meet without messages, which a GOAL file cannot hold: use another algorithm"
    )]
    Join,
}
