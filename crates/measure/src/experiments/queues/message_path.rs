//! A way between two ranks, as the experiment sees all mechanisms; and the floor beneath them all.

use crate::harness::Error;
use shm::mapped::Mapped;
use std::sync::atomic::{AtomicU64, Ordering};

/// Polls of a receiver before it calls the blocking receive: about a microsecond.
pub(super) const LOOKS: u32 = 1000;

/// One end of a way to and from the other rank.
pub(super) trait MessagePath: Send {
    /// From now on messages have this size. No message may be under way.
    fn resize(&mut self, bytes: u64);

    /// Number of messages that can be sent without receives; 0 for a synchronous path.
    fn capacity(&self) -> usize;

    /// Sends a message to a thread of the other rank; waits while the path is full.
    fn send(&mut self, to: usize) -> Result<(), Error>;

    /// Waits for the next message and takes it. Returns the thread that has sent it.
    fn receive(&mut self) -> Result<usize, Error>;

    /// Returns true if the message received last was right.
    fn is_right(&self) -> bool {
        true
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
    fn resize(&mut self, _bytes: u64) {}

    fn capacity(&self) -> usize {
        0
    }

    #[inline]
    fn send(&mut self, _to: usize) -> Result<(), Error> {
        self.sent += 1;
        // Release: pairs with the Acquire of the other rank's load.
        self.out.store(self.sent, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<usize, Error> {
        loop {
            // Acquire: pairs with the Release of the other rank's store.
            let number = self.back.load(Ordering::Acquire);
            if number != self.seen {
                self.seen = number;
                return Ok(0);
            }
        }
    }
}

/// Byte `at` of every message. Never 0, which a buffer has before anything was received.
pub(in crate::experiments) fn pattern(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 + 1).collect()
}
