//! Errors of operations on processes and cores.

use crate::refusal::way_out;

/// Error of an operation on a process or a core.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// No process has this number (any more).
    #[error("there is no process {pid}: it has ended, or it lives in another process namespace")]
    NoSuchProcess {
        /// Process number.
        pid: u32,
    },
    /// The system refuses to watch or signal the process.
    #[error("cannot watch process {pid}: {source}{}", way_out(source))]
    Watch {
        /// Process number.
        pid: u32,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// /proc cannot be read, or has an unexpected format.
    #[error(
        "cannot read the state of process {pid} from /proc: {source}; mount /proc (`mount -t proc proc \
         /proc`)"
    )]
    Read {
        /// Process number.
        pid: u32,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The thread is not allowed to run on this core.
    #[error("cannot bind this thread to core {core}: {source}; the cores allowed are {allowed:?}")]
    Bind {
        /// Requested core.
        core: usize,
        /// Cores that the process may use.
        allowed: Vec<usize>,
        /// Error of the system call.
        source: std::io::Error,
    },
}
