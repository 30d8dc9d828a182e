//! Failures at the start of a job.

use crate::pmi;
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
    /// The launcher has put ranks on other nodes too.
    #[error(
        "the launcher has put {here} of the job's {ranks} ranks on this node, and does not speak PMI: start ranks on several \
         nodes with mpiexec of MPICH or Intel MPI, or with `srun --mpi=pmi2`"
    )]
    SeveralNodes {
        /// Ranks on this node.
        here: String,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The launcher speaks PMI through a port instead of a descriptor.
    #[error("the launcher has set PMI_PORT and not PMI_FD: start the job without -pmi-port")]
    PmiPort,
    /// The process manager, which knows all ranks.
    #[error(transparent)]
    Pmi(#[from] pmi::Error),
    /// A value that another rank should have published is missing or wrong.
    #[error(
        "rank {rank} has told the process manager {what}: use one version of tradewind on all nodes"
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
