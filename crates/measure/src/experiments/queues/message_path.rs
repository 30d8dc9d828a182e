//! A way between two ranks, as the experiment sees all mechanisms; and the floor beneath them all.

use crate::harness::Error;
use shm::mapped::Mapped;
use std::sync::atomic::{AtomicU64, Ordering};

/// Polls of a receiver before it calls the blocking receive: about a microsecond.
pub(super) const LOOKS: u32 = 1000;

/// Takes what comes: looks for it a while, and then sleeps until it is there.
#[inline]
pub(super) fn look_then_wait<R, T, E: Into<Error>>(
    receiver: &mut R,
    mut look: impl FnMut(&mut R) -> Result<Option<T>, E>,
    wait: impl FnOnce(&mut R) -> Result<T, E>,
) -> Result<T, Error> {
    for _ in 0..LOOKS {
        if let Some(found) = look(receiver).map_err(Into::into)? {
            return Ok(found);
        }
    }
    wait(receiver).map_err(Into::into)
}

/// One end of a way to and from the other rank.
pub(super) trait MessagePath: Send {
    /// The message of this size that is sent.
    fn message(&self, bytes: u64) -> Vec<u8> {
        pattern(bytes)
    }

    /// Prepares for messages of this size. It is called once, before the first message.
    fn resize(&mut self, _bytes: u64) {}

    /// Number of messages of this length that can be sent without receives; 0 for a synchronous path.
    fn capacity(&self, length: usize) -> usize;

    /// Sends a message to a thread of the other rank; waits while the path is full.
    fn send(&mut self, to: usize, message: &[u8]) -> Result<(), Error>;

    /// Waits for the next message and takes it into memory of its length. Returns the thread that has
    /// sent it.
    fn receive(&mut self, received: &mut Vec<u8>) -> Result<usize, Error>;

    /// Returns true if the sender completes a stream, and the receiver takes none of it.
    fn is_flushed(&self) -> bool {
        false
    }

    /// Completes all that was sent.
    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Counts messages of a stream as received.
    fn skip(&mut self, _count: u64) {}

    /// Returns true if the message received last is right. [`receive`](Self::receive) has filled
    /// `received`.
    fn is_right(&self, received: &[u8], message: &[u8]) -> bool {
        received == message
    }
}

/// An end with the message that it sends, and memory for what it receives.
#[derive(Debug)]
pub(super) struct End<P> {
    pub(super) path: P,
    message: Vec<u8>,
    received: Vec<u8>,
}

impl<P: MessagePath> End<P> {
    /// Ends for messages of this size.
    pub(super) fn all(paths: Vec<P>, bytes: u64) -> Vec<Self> {
        let end = |mut path: P| {
            path.resize(bytes);
            let message = path.message(bytes);
            End { received: vec![0; message.len()], message, path }
        };
        paths.into_iter().map(end).collect()
    }

    pub(super) fn capacity(&self) -> usize {
        self.path.capacity(self.message.len())
    }

    #[inline]
    pub(super) fn send(&mut self, to: usize) -> Result<(), Error> {
        self.path.send(to, &self.message)
    }

    #[inline]
    pub(super) fn receive(&mut self) -> Result<usize, Error> {
        self.path.receive(&mut self.received)
    }

    pub(super) fn is_right(&self) -> bool {
        self.path.is_right(&self.received, &self.message)
    }
}

/// The floor: a bare word in a cache line of its own for each direction, which one side stores and
/// the other loads.
#[derive(Debug)]
pub(super) struct Floor {
    /// This rank stores here.
    pub(super) out: Mapped<AtomicU64>,
    /// This rank loads here.
    pub(super) back: Mapped<AtomicU64>,
    pub(super) sent: u64,
    pub(super) seen: u64,
}

impl MessagePath for Floor {
    fn capacity(&self, _length: usize) -> usize {
        0
    }

    #[inline]
    fn send(&mut self, _to: usize, _message: &[u8]) -> Result<(), Error> {
        self.sent += 1;
        // Release: pairs with the Acquire of the other rank's load.
        self.out.store(self.sent, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn receive(&mut self, _received: &mut Vec<u8>) -> Result<usize, Error> {
        loop {
            // Acquire: pairs with the Release of the other rank's store.
            let number = self.back.load(Ordering::Acquire);
            if number != self.seen {
                self.seen = number;
                return Ok(0);
            }
        }
    }

    fn is_right(&self, _received: &[u8], _message: &[u8]) -> bool {
        true
    }
}

/// Byte `at` of every message. Never 0, which a buffer has before anything was received.
pub(in crate::experiments) fn pattern(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 + 1).collect()
}
