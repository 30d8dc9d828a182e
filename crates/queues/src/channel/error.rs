//! What can go wrong with a channel.

use shm::arena::ArenaError;
use shm::process::ProcessError;
use shm::segment::{Offset, SegmentError};

/// One end of a channel, in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The one that sends.
    Sender,
    /// The one that receives.
    Receiver,
}

impl std::fmt::Display for End {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            End::Sender => "sender",
            End::Receiver => "receiver",
        })
    }
}

/// Why a channel could not be made or one of its ends not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// More values than a channel can hold, or none.
    #[error("a channel for {capacity} values cannot be made: ask for 1 to {most}")]
    Capacity {
        /// What was asked for, in values.
        capacity: u64,
        /// The most that can be.
        most: u64,
    },
    /// There is something else at that place.
    #[error(
        "there is no channel at {offset}: use the offset that `Channel::offset` gave, in the same segment"
    )]
    NoChannel {
        /// Where it was looked for.
        offset: Offset,
    },
    /// The channel carries another type.
    #[error(
        "the channel at {offset} was not made for {asked}: open it with the type that it was made for"
    )]
    OtherType {
        /// The channel.
        offset: Offset,
        /// The type asked for.
        asked: &'static str,
    },
    /// The end was opened before; a channel end can be opened once.
    #[error("the {end} of the channel at {offset} {}: make a channel for each pair", Opener(*.process))]
    AlreadyOpened {
        /// The channel.
        offset: Offset,
        /// Which end.
        end: End,
        /// The number of the process that holds it; `None` if it has been closed or withdrawn
        /// since.
        process: Option<u32>,
    },
    /// The arena has no room for it.
    #[error("no room for a channel: {0}")]
    Arena(#[from] ArenaError),
    /// The place does not lie in the segment.
    #[error("a channel cannot lie there: {0}")]
    Segment(#[from] SegmentError),
    /// This process cannot name itself to the other end.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Who opened the end before.
struct Opener(Option<u32>);

impl std::fmt::Display for Opener {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(process) => write!(formatter, "is held by process {process}"),
            None => formatter.write_str("was closed or withdrawn"),
        }
    }
}

/// Why a value was not sent. It was not sent in part either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The receiver has not made room yet.
    #[error("the channel at {channel} is full: the receiver has yet to take values out")]
    Full {
        /// The channel.
        channel: Offset,
    },
    /// The deadline passed before there was room.
    #[error("the channel at {channel} stayed full until the deadline")]
    DeadlinePassed {
        /// The channel.
        channel: Offset,
    },
    /// The receiver was closed.
    #[error("the receiver of the channel at {channel} is closed: nobody will take the value")]
    Closed {
        /// The channel.
        channel: Offset,
    },
    /// The process that received has ended.
    #[error(
        "the channel at {channel} is full for good: its receiver, process {process}, has ended"
    )]
    PeerGone {
        /// The channel.
        channel: Offset,
        /// The number that the process had.
        process: u32,
    },
    /// Somebody has written over the channel.
    #[error(
        "the receiver's position in the channel at {channel} makes no sense: its memory was overwritten"
    )]
    Broken {
        /// The channel.
        channel: Offset,
    },
}

/// Why no value was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// None has arrived.
    #[error("the channel at {channel} is empty")]
    Empty {
        /// The channel.
        channel: Offset,
    },
    /// None arrived before the deadline.
    #[error("nothing came through the channel at {channel} before the deadline")]
    DeadlinePassed {
        /// The channel.
        channel: Offset,
    },
    /// The sender was closed and everything that it sent has been received.
    #[error(
        "the sender of the channel at {channel} is closed and all of its values have been received"
    )]
    Closed {
        /// The channel.
        channel: Offset,
    },
    /// The process that sent has ended, and everything that it sent has been received.
    #[error(
        "nothing more comes through the channel at {channel}: its sender, process {process}, has ended"
    )]
    PeerGone {
        /// The channel.
        channel: Offset,
        /// The number that the process had.
        process: u32,
    },
}
