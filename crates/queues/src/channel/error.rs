//! Errors of channels.

use shm::segment::Offset;

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
