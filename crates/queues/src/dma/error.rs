//! What can go wrong with a bulk transfer.

use shm::arena::ArenaError;
use shm::process::ProcessError;
use shm::segment::{Offset, SegmentError};

use crate::channel::End;

/// Why a link could not be made or one of its ends not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A staging area too small for two pieces, or too large.
    #[error(
        "a staging area of {bytes} bytes cannot be made: ask for {} to {} bytes",
        super::LEAST_STAGING,
        super::MOST_STAGING
    )]
    Staging {
        /// What was asked for.
        bytes: u64,
    },
    /// There is something else at that place.
    #[error(
        "there is no link at {offset}: use the offset that `Link::offset` gave, in the same segment"
    )]
    NoLink {
        /// Where it was looked for.
        offset: Offset,
    },
    /// The end was opened before; an end can be opened once.
    #[error("the {end} of the link at {offset} {}: make a link for each pair", .process.map_or("was closed or withdrawn".to_owned(), |process| format!("is held by process {process}")))]
    AlreadyOpened {
        /// The link.
        offset: Offset,
        /// Which end.
        end: End,
        /// The number of the process that holds it; `None` if it has been closed or withdrawn
        /// since.
        process: Option<u32>,
    },
    /// The arena has no room for it.
    #[error("no room for a link: {0}")]
    Arena(#[from] ArenaError),
    /// The place does not lie in the segment.
    #[error("a link cannot lie there: {0}")]
    Segment(#[from] SegmentError),
    /// This process cannot name itself to the other end.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Why a process cannot reach into the private memory of the one at the other end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoDirectPath {
    /// The kernel or a filter forbids it.
    #[error(
        "process {process}'s memory may not be touched: {reason}. Both processes must run as the same user, \
         kernel.yama.ptrace_scope must be 0, and a container's seccomp filter must allow process_vm_readv"
    )]
    Forbidden {
        /// The process at the other end.
        process: u32,
        /// The system's reason.
        reason: String,
    },
    /// The other end's process number means another process here, or none.
    #[error(
        "process {process} is not the process at the other end: the two live in different process namespaces"
    )]
    OtherNamespace {
        /// The number.
        process: u32,
    },
    /// The other end has not been opened yet, so nothing was tried.
    #[error(
        "nobody has opened the other end yet, so that it is not known whether its memory may be touched"
    )]
    Unknown,
}

/// Why bytes were not transferred.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DmaError {
    /// The message is longer than the buffer to receive it. It is still there.
    #[error(
        "a message of {bytes} bytes came through the link at {link}, but the buffer has {room}: receive it with a larger one"
    )]
    TooLong {
        /// The link.
        link: Offset,
        /// The length of the message.
        bytes: u64,
        /// The length of the buffer.
        room: u64,
    },
    /// The bytes to be sent in place lie in another segment.
    #[error(
        "the bytes do not lie in the segment of the link at {link}: allocate them in an arena of the same mapping"
    )]
    OtherSegment {
        /// The link.
        link: Offset,
    },
    /// The path that was asked for cannot be gone.
    #[error("the link at {link} has no direct path: {reason}")]
    NoDirectPath {
        /// The link.
        link: Offset,
        /// Why.
        reason: NoDirectPath,
    },
    /// The other side had not come by the deadline. Nothing was transferred.
    #[error("nobody came to the other end of the link at {link} before the deadline")]
    DeadlinePassed {
        /// The link.
        link: Offset,
    },
    /// The other end was closed.
    #[error("the other end of the link at {link} is closed")]
    Closed {
        /// The link.
        link: Offset,
    },
    /// The process at the other end has ended.
    #[error("process {process}, at the other end of the link at {link}, has ended")]
    PeerGone {
        /// The link.
        link: Offset,
        /// The number that it had.
        process: u32,
    },
    /// The kernel could not move all bytes, because one side had unmapped them.
    #[error(
        "moving bytes between this process and {process} over the link at {link} failed after {moved} of {bytes} bytes: {reason}"
    )]
    Moving {
        /// The link.
        link: Offset,
        /// The process at the other end.
        process: u32,
        /// How many bytes of the piece were moved.
        moved: u64,
        /// How many were to be.
        bytes: u64,
        /// Why it stopped.
        reason: String,
    },
    /// The other end, or whoever else has the segment, has written nonsense over the link.
    #[error(
        "what stands in the link at {link} makes no sense: its memory was overwritten; close it"
    )]
    Broken {
        /// The link.
        link: Offset,
    },
}
