//! The two ends of a flow between nodes, as the node service uses them.

use crate::error::RecvError;
use crate::request::Requested;
use shm::segment::Offset;
use std::fmt::Debug;

/// Credit that a queue grants each sending node: the bytes that may be on their way to it, or wait for
/// space in it.
pub const QUEUE_CREDIT: u64 = 64 << 10;

/// The end of a flow in the memory of the ranks that send. The node service takes bytes out of it.
pub trait Source: Send + Debug {
    /// Returns the number of bytes that may be on their way to the other node. Its
    /// [`Sink`] grants as many: that of a queue [`QUEUE_CREDIT`].
    fn credit(&self) -> u64 {
        QUEUE_CREDIT
    }

    /// Returns the length of the longest encoding of a message: at most [`MAX_MESSAGE`].
    fn longest(&self) -> usize;

    /// Appends the next messages as bytes: a multiple of 8, at most `limit`. Appends nothing if
    /// there is none, or if `limit` is less than the longest message ([`longest`](Self::longest)).
    ///
    /// # Errors
    /// [`RecvError::Closed`] if nothing follows, [`RecvError::Corrupt`].
    fn take(&mut self, limit: usize, into: &mut Vec<u8>) -> Result<(), RecvError>;

    /// Returns true if [`take`](Self::take) has something to report: a message, an end, damage, or
    /// after some polls a message behind the slot of a sender that was killed.
    fn is_ready(&self) -> bool;

    /// Notes that the other node takes nothing any more: senders find the end closed, and its
    /// messages are lost.
    fn close(&mut self);

    /// Requests a notification of the node service's event with the next message. The caller then
    /// checks whether the end [is ready](Self::is_ready). A member of a poll set is announced there
    /// instead.
    fn request(&mut self) -> Requested {
        Requested::Before
    }

    /// Returns true if a notification is requested and there was none.
    fn is_requested(&mut self) -> bool {
        false
    }

    /// Withdraws the request.
    fn withdraw(&mut self) {}

    /// Returns the way in which the node service learns of messages.
    fn announcement(&self) -> Announcement {
        Announcement::ByEvent
    }
}

/// The end of a flow in the memory of the rank that receives. The node service puts bytes into it.
pub trait Sink: Send + Debug {
    /// Returns the number of bytes that one node may send before any of them are released: to a
    /// queue [`QUEUE_CREDIT`].
    fn credit(&self) -> u64 {
        QUEUE_CREDIT
    }

    /// Puts messages, as far as there is space. Returns the number of bytes that they had; the rest
    /// is to be put later. What a receiver that takes nothing any more would have got is lost.
    ///
    /// # Errors
    /// [`SinkError`]; the rest can never be put.
    fn put(&mut self, bytes: &[u8]) -> Result<usize, SinkError>;

    /// Returns the number of bytes of which the space is free again, of so many that were put for
    /// one node.
    ///
    /// # Errors
    /// [`SinkError::Closed`].
    fn released(&mut self, put: u64) -> Result<u64, SinkError> {
        Ok(put)
    }

    /// Requests a notification of the event of the node service when there is space again. The
    /// caller then tries once more.
    fn request(&mut self) -> Requested;

    /// Notes a violation of the protocol by the sending node: nothing more of it is executed.
    fn fail(&mut self) {}

    /// Notes that no message follows. A queue of many senders is not concerned.
    fn end(&mut self) {}

    /// Returns the way in which the node service learns of space, while no messages wait for it.
    fn announcement(&self) -> Announcement {
        Announcement::ByEvent
    }
}

/// The way in which the node service learns that an end is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// By the event that makes the end ready: a bit of a poll set, or a record that arrives.
    ByEvent,
    /// By a mark: a rank that finds a request
    /// [marks](crate::remote_waits::RemoteWaits::mark) the object at this offset. Without a request
    /// the end is polled in every turn.
    ByMark(Offset),
    /// By a poll in every turn.
    ByPolling,
}

/// Reason why bytes cannot be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// They are not whole messages, or more than the receiver has granted.
    #[error("the bytes are no messages for this end of a flow")]
    Invalid,
    /// The receiver has closed its end, or has damaged it.
    #[error("the end of the flow is closed or damaged")]
    Closed,
}

/// Longest encoding of a message in bytes.
pub const MAX_MESSAGE: usize = 32 << 10;

// A queue that has returned no credit yet may be sent one message.
const _: () = assert!(MAX_MESSAGE as u64 <= QUEUE_CREDIT - QUEUE_CREDIT / 4);

/// Largest number of lines of a Basic ring that is carried: its messages have at most
/// [`MAX_MESSAGE`] bytes with their header words.
pub const MAX_BASIC_LINES: u64 = 4 * (MAX_MESSAGE / 64) as u64;

/// Longest record of an append buffer that is carried: with its length it has [`MAX_MESSAGE`]
/// bytes.
pub const MAX_RECORD_BYTES: u64 = MAX_MESSAGE as u64 - 8;
