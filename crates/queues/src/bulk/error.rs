//! Errors of bulk transfers.

use shm::process_memory::AccessFailure;
use shm::segment::Offset;

/// Reason why a process cannot access the private memory of the process at the other end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectAccessError {
    /// The kernel or a filter forbids it.
    #[error(
        "process {process}'s memory may not be accessed: {reason}. Both processes must run as the \
         same user, kernel.yama.ptrace_scope must be 0, and a container's seccomp filter must \
         allow process_vm_readv"
    )]
    Forbidden {
        /// Number of the process at the other end.
        process: u32,
        /// Reason of the system.
        reason: String,
    },
    /// The number of the process at the other end means another process here, or none.
    #[error(
        "process {process} is not the process at the other end: the two are in different process \
         namespaces"
    )]
    OtherNamespace {
        /// Number of the process.
        process: u32,
    },
    /// The other end is on another node.
    #[error("the other end is on another node")]
    OtherNode,
    /// The other end is not connected yet, so there was no probe.
    #[error("the other end is not connected yet, so that access to its memory is not yet probed")]
    Unknown,
}

/// Reason why a message was not transferred.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The message is longer than the receive buffer. It remains available.
    #[error(
        "a message of {bytes} bytes came through the link at {link}, but the buffer has \
         {capacity}: receive it with a larger one"
    )]
    TooLong {
        /// Offset of the link.
        link: Offset,
        /// Length of the message.
        bytes: u64,
        /// Length of the buffer.
        capacity: u64,
    },
    /// The bytes to be sent in place lie in another segment.
    #[error(
        "the bytes do not lie in the segment of the link at {link}: allocate them in an arena of \
         the same mapping"
    )]
    OtherSegment {
        /// Offset of the link.
        link: Offset,
    },
    /// The requested path is unavailable.
    #[error("the link at {link} has no direct path: {reason}")]
    NoDirectPath {
        /// Offset of the link.
        link: Offset,
        /// Reason.
        reason: DirectAccessError,
    },
    /// The other end was not ready before the deadline. Nothing was transferred.
    #[error("the other end of the link at {link} was not ready before the deadline")]
    Timeout {
        /// Offset of the link.
        link: Offset,
    },
    /// The other end was closed.
    #[error("the other end of the link at {link} is closed")]
    Closed {
        /// Offset of the link.
        link: Offset,
    },
    /// The process at the other end has ended.
    #[error("process {pid}, at the other end of the link at {link}, has ended")]
    ProcessExited {
        /// Offset of the link.
        link: Offset,
        /// Number that the process had.
        pid: u32,
    },
    /// The rank at the other end has left or failed. Reported by links between nodes.
    #[error("rank {rank}, at the other end of the link at {link}, has left or failed")]
    RankExited {
        /// Offset of the link.
        link: Offset,
        /// Its rank.
        rank: u32,
    },
    /// The node service of this node, which carries the messages of the link, has ended.
    #[error(
        "the node service, which carries the messages of the link at {link} between nodes, has \
         ended: start the job again"
    )]
    NodeServiceEnded {
        /// Offset of the link.
        link: Offset,
    },
    /// The kernel could not copy all bytes, because one process had unmapped them.
    #[error(
        "copying between this process and {process} over the link at {link} failed after {moved} \
         of {bytes} bytes: {reason}"
    )]
    Copy {
        /// Offset of the link.
        link: Offset,
        /// Number of the process at the other end.
        process: u32,
        /// Bytes of the part that were copied.
        moved: u64,
        /// Bytes of the part.
        bytes: u64,
        /// Reason.
        reason: String,
    },
    /// The memory of the link holds values that its ends never write.
    #[error("the link at {link} is corrupt: its memory was overwritten; close it")]
    Corrupt {
        /// Offset of the link.
        link: Offset,
    },
}

impl BulkError {
    /// Returns the error for a part of `bytes` bytes that could not be copied.
    pub(super) fn of_access(
        link: Offset,
        process: u32,
        bytes: u64,
        failure: AccessFailure,
    ) -> BulkError {
        let failed =
            |moved: u64, reason: String| BulkError::Copy { link, process, moved, bytes, reason };
        match failure {
            AccessFailure::NoProcess => BulkError::ProcessExited { link, pid: process },
            AccessFailure::NotMapped { after } => {
                failed(after as u64, "one of them has not mapped the memory there".to_owned())
            }
            AccessFailure::Forbidden(error) | AccessFailure::Failed(error) => {
                failed(0, error.to_string())
            }
        }
    }
}
