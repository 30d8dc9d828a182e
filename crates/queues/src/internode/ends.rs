//! The two ends of a queue between nodes, as the node service uses them.

use crate::error::{RecvError, SendError};
use std::fmt::Debug;

/// The end of an outgoing queue, of which the node service is the only receiver.
pub trait OutgoingQueue: Send + Debug {
    /// Appends the next messages as bytes: a multiple of 8, at most `limit`. Appends nothing if
    /// there is none, or if `limit` is less than the longest message ([`longest`](Self::longest)).
    ///
    /// # Errors
    /// [`RecvError::Closed`], [`RecvError::Corrupt`].
    fn take(&mut self, limit: usize, into: &mut Vec<u8>) -> Result<(), RecvError>;

    /// Returns true if [`take`](Self::take) has something to report: a message, damage, or after
    /// some polls a message behind the slot of a sender that was killed.
    fn is_ready(&self) -> bool;

    /// Returns the length of the longest encoding of a message: at most [`MAX_MESSAGE`].
    fn longest(&self) -> usize;

    /// Closes the queue: senders get [`SendError::Closed`], and its messages are lost.
    fn close(&mut self);
}

/// The queue of a receiver, to which the node service sends what has arrived.
pub trait IncomingQueue: Send + Debug {
    /// Sends messages, as far as the queue has space. Returns the number of bytes that they had;
    /// the rest is to be sent later.
    ///
    /// # Errors
    /// [`IncomingError`]; the rest can never be sent.
    fn put(&mut self, bytes: &[u8]) -> Result<usize, IncomingError>;

    /// Requests a notification of the [event](crate::queue::Receiver::with_remote_senders) of the receivers when
    /// half of the queue is free, or was received. The caller then passes a heavy fence
    /// ([`shm::fence::heavy`]), one for any number of queues, and tries once more to send the rest:
    /// receivers that did not see the request have released their slots before.
    fn request_space(&self);

    /// Notes that no message follows. A queue of many senders is not concerned.
    fn end(&mut self) {}
}

/// Reason why bytes cannot be sent to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IncomingError {
    /// They are not whole messages.
    #[error("the bytes are no messages of this kind of queue")]
    Invalid,
    /// The queue takes no message any more.
    #[error(transparent)]
    Refused(#[from] SendError),
}

/// Longest encoding of a message in bytes.
pub const MAX_MESSAGE: usize = 32 << 10;

/// Largest number of lines of a Basic ring that is carried: its messages have at most
/// [`MAX_MESSAGE`] bytes with their header words.
pub const MAX_BASIC_LINES: u64 = 4 * (MAX_MESSAGE / 64) as u64;

/// Longest record of an append buffer that is carried: with its length it has [`MAX_MESSAGE`]
/// bytes.
pub const MAX_RECORD_BYTES: u64 = MAX_MESSAGE as u64 - 8;
