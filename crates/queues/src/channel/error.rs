//! Errors of channels.

use shm::arena::ArenaError;
use shm::process::ProcessError;
use shm::segment::{Offset, SegmentError};

use shm::process_table::{End, TakenBy};

/// Reason why a channel could not be created, or an end not be connected to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The capacity is 0 or too large.
    #[error("a channel for {capacity} values cannot be created: request 1 to {most}")]
    Capacity {
        /// Requested capacity, in values.
        capacity: u64,
        /// Largest capacity.
        most: u64,
    },
    /// The offset is not that of a channel.
    #[error(
        "there is no channel at {offset}: use the offset that `Channel::offset` returned, in the \
         same segment"
    )]
    NoChannel {
        /// Offset of the search.
        offset: Offset,
    },
    /// The channel carries another type.
    #[error(
        "the channel at {offset} was not created for {asked}: connect with the type of its creation"
    )]
    OtherType {
        /// Offset of the channel.
        offset: Offset,
        /// Requested type.
        asked: &'static str,
    },
    /// The end was connected to before; that is possible once.
    #[error("the {end} of the channel at {offset} {}: create a channel for each pair", TakenBy(*.process))]
    AlreadyOpened {
        /// Offset of the channel.
        offset: Offset,
        /// The end.
        end: End,
        /// Number of the process that holds it; `None` if it has been closed or withdrawn since.
        process: Option<u32>,
    },
    /// The arena has no memory for the channel.
    #[error("no memory for a channel: {0}")]
    Arena(#[from] ArenaError),
    /// The offset does not lie in the segment.
    #[error("a channel cannot lie there: {0}")]
    Segment(#[from] SegmentError),
    /// The identity of this process is unavailable.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Reason why a value was not sent, not even in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The receiver has not freed a slot yet.
    #[error("the channel at {channel} is full: the receiver has yet to take values out")]
    Full {
        /// Offset of the channel.
        channel: Offset,
    },
    /// The channel stayed full until the deadline.
    #[error("the channel at {channel} stayed full until the deadline")]
    DeadlinePassed {
        /// Offset of the channel.
        channel: Offset,
    },
    /// The receiver was closed.
    #[error("the receiver of the channel at {channel} is closed")]
    Closed {
        /// Offset of the channel.
        channel: Offset,
    },
    /// The process that received has ended.
    #[error(
        "the channel at {channel} is full for good: its receiver, process {process}, has ended"
    )]
    PeerGone {
        /// Offset of the channel.
        channel: Offset,
        /// Number that the process had.
        process: u32,
    },
    /// The memory of the channel holds values that its ends never write.
    #[error(
        "the receiver's position in the channel at {channel} is impossible: its memory was \
         overwritten"
    )]
    Broken {
        /// Offset of the channel.
        channel: Offset,
    },
}

/// Reason why no value was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// No value has arrived.
    #[error("the channel at {channel} is empty")]
    Empty {
        /// Offset of the channel.
        channel: Offset,
    },
    /// No value arrived before the deadline.
    #[error("no value came through the channel at {channel} before the deadline")]
    DeadlinePassed {
        /// Offset of the channel.
        channel: Offset,
    },
    /// The sender was closed and everything that it sent has been received.
    #[error(
        "the sender of the channel at {channel} is closed and all of its values have been received"
    )]
    Closed {
        /// Offset of the channel.
        channel: Offset,
    },
    /// The process that sent has ended, and everything that it sent has been received.
    #[error(
        "the channel at {channel} has no more values: its sender, process {process}, has ended"
    )]
    PeerGone {
        /// Offset of the channel.
        channel: Offset,
        /// Number that the process had.
        process: u32,
    },
}
