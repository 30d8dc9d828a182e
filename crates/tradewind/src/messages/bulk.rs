//! Bulk connections, on one node and between nodes.

use super::with_memory::WithMemory;
use queues::bulk::{
    self, BulkError, BulkLink, CarriedReceiver, CarriedSender, DirectPath, Path, Policy, Received,
};
use shm::owned::OwnedBytes;
use std::time::{Duration, Instant};

/// The sending end of a bulk connection. Used by one thread at a time.
#[derive(Debug)]
pub struct BulkSender(Sending);

#[derive(Debug)]
enum Sending {
    Here(bulk::Sender),
    Elsewhere(CarriedSender),
}

/// The receiving end of a bulk connection. Used by one thread at a time.
#[derive(Debug)]
pub struct BulkReceiver(Receiving);

#[derive(Debug)]
enum Receiving {
    Here(WithMemory<bulk::Receiver, BulkLink>),
    Elsewhere(CarriedReceiver),
}

type Sent = std::result::Result<Path, BulkError>;
type Arrived = std::result::Result<Received, BulkError>;

impl BulkSender {
    pub(super) fn here(sender: bulk::Sender) -> Self {
        BulkSender(Sending::Here(sender))
    }

    pub(super) fn elsewhere(sender: CarriedSender) -> Self {
        BulkSender(Sending::Elsewhere(sender))
    }

    /// Sends a message. Blocks until `bytes` may be modified, and returns the path that was used.
    ///
    /// # Errors
    /// [`BulkError::Closed`], [`BulkError::ProcessExited`] or [`BulkError::RankExited`],
    /// [`BulkError::NodeServiceEnded`], [`BulkError::NoDirectPath`] if the policy allows no other,
    /// [`BulkError::Copy`], [`BulkError::Corrupt`].
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> Sent {
        match &mut self.0 {
            Sending::Here(sender) => sender.send(bytes),
            Sending::Elsewhere(sender) => sender.send(bytes, None),
        }
    }

    /// Sends a message as [`send`](Self::send) does, but fails if there was no space for it, or the
    /// receiver has not joined a direct transfer, within `timeout`. The message then counts as
    /// never sent.
    ///
    /// # Errors
    /// [`BulkError::Timeout`] and those of [`send`](Self::send).
    pub fn send_timeout(&mut self, bytes: &[u8], timeout: Duration) -> Sent {
        match &mut self.0 {
            Sending::Here(sender) => sender.send_timeout(bytes, timeout),
            Sending::Elsewhere(sender) => sender.send(bytes, Instant::now().checked_add(timeout)),
        }
    }

    /// Sends a message as [`send_timeout`](Self::send_timeout) does, until `deadline`.
    ///
    /// # Errors
    /// [`BulkError::Timeout`] and those of [`send`](Self::send).
    pub fn send_deadline(&mut self, bytes: &[u8], deadline: Instant) -> Sent {
        match &mut self.0 {
            Sending::Here(sender) => sender.send_deadline(bytes, deadline),
            Sending::Elsewhere(sender) => sender.send(bytes, Some(deadline)),
        }
    }

    /// Sends a message while `compute` runs in this thread: the receiver copies it alone (see
    /// [`bulk::Sender::send_while`]). Short messages, those that the receiver may not read from
    /// this process's memory, and those to another node are sent before the computation begins.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), beside the result of `compute`, which runs in any case.
    pub fn send_while<R>(&mut self, bytes: &[u8], compute: impl FnOnce() -> R) -> (R, Sent) {
        match &mut self.0 {
            Sending::Here(sender) => sender.send_while(bytes, compute),
            Sending::Elsewhere(sender) => {
                let sent = sender.send(bytes, None);
                (compute(), sent)
            }
        }
    }

    /// Sends bytes of the connection's segment: on one node without a copy, because the receiver
    /// reads them in place. Blocks until it has.
    ///
    /// # Errors
    /// [`BulkError::OtherSegment`] and those of [`send`](Self::send).
    pub fn send_in_place(&mut self, bytes: &OwnedBytes) -> Sent {
        match &mut self.0 {
            Sending::Here(sender) => sender.send_in_place(bytes),
            Sending::Elsewhere(sender) => sender.send(bytes.as_slice(), None),
        }
    }

    /// Sets the path for later messages from private memory. None is direct between nodes.
    pub fn set_policy(&mut self, policy: Policy) {
        match &mut self.0 {
            Sending::Here(sender) => sender.set_policy(policy),
            Sending::Elsewhere(sender) => sender.set_policy(policy),
        }
    }

    /// Returns whether there is a direct path to the receiver's memory, and if not, the reason.
    pub fn direct_path(&mut self) -> DirectPath {
        match &mut self.0 {
            Sending::Here(sender) => sender.direct_path(),
            Sending::Elsewhere(_) => DirectPath::between_nodes(),
        }
    }
}

impl BulkReceiver {
    pub(super) fn here(receiver: bulk::Receiver, memory: BulkLink) -> Self {
        BulkReceiver(Receiving::Here(WithMemory::new(receiver, memory)))
    }

    pub(super) fn elsewhere(receiver: CarriedReceiver) -> Self {
        BulkReceiver(Receiving::Elsewhere(receiver))
    }

    /// Receives the next message into `buffer`. Blocks until it has arrived.
    ///
    /// # Errors
    /// [`BulkError::TooLong`], after which the message remains available, [`BulkError::Closed`]
    /// behind the last message, [`BulkError::ProcessExited`] or [`BulkError::RankExited`],
    /// [`BulkError::NodeServiceEnded`], [`BulkError::Copy`], [`BulkError::Corrupt`].
    #[inline]
    pub fn recv(&mut self, buffer: &mut [u8]) -> Arrived {
        match &mut self.0 {
            Receiving::Here(receiver) => receiver.recv(buffer),
            Receiving::Elsewhere(receiver) => receiver.recv(buffer, None),
        }
    }

    /// Receives as [`recv`](Self::recv) does, but waits at most for `timeout` for a message to
    /// begin; from another node, to arrive as a whole. One that has begun remains available.
    ///
    /// # Errors
    /// [`BulkError::Timeout`] and those of [`recv`](Self::recv).
    pub fn recv_timeout(&mut self, buffer: &mut [u8], timeout: Duration) -> Arrived {
        match &mut self.0 {
            Receiving::Here(receiver) => receiver.recv_timeout(buffer, timeout),
            Receiving::Elsewhere(receiver) => {
                receiver.recv(buffer, Instant::now().checked_add(timeout))
            }
        }
    }

    /// Receives as [`recv`](Self::recv) does, but waits at most until `deadline` for a message to
    /// begin; from another node, to arrive as a whole. One that has begun remains available.
    ///
    /// # Errors
    /// [`BulkError::Timeout`] and those of [`recv`](Self::recv).
    pub fn recv_deadline(&mut self, buffer: &mut [u8], deadline: Instant) -> Arrived {
        match &mut self.0 {
            Receiving::Here(receiver) => receiver.recv_deadline(buffer, deadline),
            Receiving::Elsewhere(receiver) => receiver.recv(buffer, Some(deadline)),
        }
    }

    /// Receives the next message and passes it to `read`: in place if it lies in the segment,
    /// otherwise from a buffer into which it is copied.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv), but none for its length.
    pub fn recv_with<R>(
        &mut self,
        read: impl FnOnce(&[u8]) -> R,
    ) -> std::result::Result<R, BulkError> {
        match &mut self.0 {
            Receiving::Here(receiver) => receiver.recv_with(read),
            Receiving::Elsewhere(receiver) => receiver.recv_with(read),
        }
    }

    /// Returns whether there is a direct path to the sender's memory, and if not, the reason.
    pub fn direct_path(&mut self) -> DirectPath {
        match &mut self.0 {
            Receiving::Here(receiver) => receiver.direct_path(),
            Receiving::Elsewhere(_) => DirectPath::between_nodes(),
        }
    }
}
