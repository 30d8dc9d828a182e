//! Failures at the start of a job.

use crate::pmi;
use crate::pmix;
use crate::store;
use shm::process::ProcessError;
use std::ffi::OsString;

/// A reason why a process cannot find its job, or the ranks of a job each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A variable of the environment with an invalid value.
    #[error("{name} is {value:?}, it must be {expected}: change it or unset it")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: OsString,
        /// The values that it may have.
        expected: &'static str,
    },
    /// Some of the variables that belong together.
    #[error(
        "{present} is set and {missing} is not: start the program with `tradewind run`, or set TRADEWIND_RANK, \
         TRADEWIND_SIZE and TRADEWIND_JOB for each rank"
    )]
    Incomplete {
        /// The variable that is set.
        present: &'static str,
        /// The variable that is not.
        missing: &'static str,
    },
    /// The launcher has put ranks on other nodes too, and offers no way to them.
    #[error(
        "{seen}: {here} of the job's {ranks} ranks are on this node, and none of these variables leads to the others; set \
         MASTER_ADDR to the host of rank 0, MASTER_PORT to a free port there and TRADEWIND_SECRET to a secret for all ranks, or \
         start them with `tradewind run --nodes`, mpiexec of MPICH or Intel MPI, `srun --mpi=pmi2` or a launcher with PMIx"
    )]
    SeveralNodes {
        /// Variables of launchers, with their values.
        seen: String,
        /// Ranks on this node.
        here: String,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The variables of two launchers contradict each other.
    #[error(
        "{seen}: these variables make this process rank {rank} of {ranks} and rank {other_rank} of {other_ranks}; unset those of \
         the launcher that has not started this job"
    )]
    TwoLaunchers {
        /// Variables of launchers, with their values.
        seen: String,
        /// Rank of the first.
        rank: u32,
        /// Number of ranks of the first.
        ranks: u32,
        /// Rank of the second.
        other_rank: u32,
        /// Number of ranks of the second.
        other_ranks: u32,
    },
    /// Several ranks, and no host at which they could meet.
    #[error(
        "{seen}: these are the variables of one of {ranks} ranks, and {missing} is not set: set MASTER_ADDR to the host of \
         rank 0 and MASTER_PORT to a free port there for all ranks, or unset RANK and WORLD_SIZE to run a job of one rank"
    )]
    NoMaster {
        /// Variables of launchers, with their values.
        seen: String,
        /// Number of ranks.
        ranks: u32,
        /// The variable that is not set.
        missing: &'static str,
    },
    /// A rank that is not below the number of ranks.
    #[error("{seen}: there is no rank {rank} in a job of {ranks} ranks, they are counted from 0")]
    RankTooLarge {
        /// Variables of launchers, with their values.
        seen: String,
        /// The rank.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// The launcher offers PMI through a port instead of a descriptor.
    #[error("the launcher has set PMI_PORT and not PMI_FD: start the job without -pmi-port")]
    PmiPort,
    /// The process manager, which has started all ranks.
    #[error(transparent)]
    Pmi(#[from] pmi::Error),
    /// The process manager, through its library.
    #[error(transparent)]
    Pmix(#[from] pmix::Error),
    /// The exchange over TCP.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The ranks exchange their addresses by means of another runtime, which has failed.
    #[error("the ranks could not exchange their addresses by the messages of their own runtime")]
    Exchange,
    /// Another rank has failed during the exchange.
    #[error("rank {rank}: {why}")]
    OtherRank {
        /// The rank.
        rank: u32,
        /// Its error.
        why: String,
    },
    /// A value that another rank should have published is missing or wrong.
    #[error(
        "rank {rank} has published {what} through the process manager: use one version of \
         tradewind on all nodes"
    )]
    Bootstrap {
        /// The rank.
        rank: u32,
        /// The value.
        what: String,
    },
    /// No address that the other nodes could use.
    #[error(
        "{why}: set TRADEWIND_INTERFACE to the interface (or the range of addresses, like 10.1.0.0/16) that connects the nodes; this node has {here}"
    )]
    NoAddress {
        /// The addresses that are needed.
        why: String,
        /// The addresses of this node.
        here: String,
    },
    /// Another process could not be examined.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Any other refusal of the system.
    #[error("cannot {action}: {source}")]
    System {
        /// The attempt.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// For `map_err`: names the attempt.
pub(crate) fn system<E: Into<std::io::Error>>(action: &'static str) -> impl Fn(E) -> LaunchError {
    move |error| LaunchError::System { action, source: error.into() }
}
