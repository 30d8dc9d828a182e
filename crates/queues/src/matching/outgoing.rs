//! Sending end of the ring to one rank.

use super::line::{
    BLOCK_BYTES, Envelope, INLINE_BYTES, Kind, LINE_BYTES, Line, gap_lines, tail_lines, words_of,
};
use super::memory::{Mailbox, RING_LINES, Ring};
use super::slab::Key;
use crate::channel::ring::{Producer, PutError, capacity};
use shm::mapped::Mapped;
use shm::prefetch::{Purpose, demote, prefetch};
use shm::word_copy::store_lines;
use std::collections::VecDeque;

/// Longest message that is sent before it is matched: half of a ring.
pub const EAGER_BYTES: usize = (RING_LINES as usize / 2 - 1) * LINE_BYTES + INLINE_BYTES;

/// Contents for a ring that wait for space.
#[derive(Debug)]
pub(super) enum Queued {
    /// One line.
    Line(Line),
    /// The bytes of a send that its receiver has requested.
    Stream(Stream),
}

/// Bytes of a send on their way through the ring.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) send: Key,
    /// Number of the message in the receiving process.
    pub(super) message: u64,
    /// Bytes that are in the ring; `None` before the first line.
    pub(super) done: Option<u64>,
    /// Part of the bytes could not be read: what is in the ring is not the message.
    pub(super) is_lost: bool,
}

/// The memory of the ring holds a number that no receiver writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

/// Sending end of a ring.
#[derive(Debug)]
pub(super) struct Outgoing {
    ring: Ring,
    producer: Producer,
    receiver: Mapped<Mailbox>,
    /// In their order, before anything else.
    pub(super) queue: VecDeque<Queued>,
    /// Bytes of credit that eager messages have used in all.
    charged: u64,
    /// Last known number of bytes of credit that the receiver has returned in all.
    returned: u64,
    credit: u64,
}

/// Returns the number of lines of an eager message.
#[inline]
pub(super) const fn lines_of(bytes: usize) -> u64 {
    1 + bytes.saturating_sub(INLINE_BYTES).div_ceil(LINE_BYTES) as u64
}

/// Returns the credit that an eager message uses.
#[inline]
pub(super) const fn charge_of(bytes: usize) -> u64 {
    lines_of(bytes) * LINE_BYTES as u64
}

impl Outgoing {
    pub(super) fn new(ring: Ring, receiver: Mapped<Mailbox>, credit: u64) -> Self {
        Outgoing {
            ring,
            producer: Producer::new(RING_LINES),
            receiver,
            queue: VecDeque::new(),
            charged: 0,
            returned: 0,
            credit,
        }
    }

    /// Wakes the threads of the receiver that wait.
    #[inline(always)]
    pub(super) fn notify(&self) {
        self.receiver.wakeup().notify();
    }

    /// Returns true if the receiver takes no message any more.
    pub(super) fn is_closed(&self) -> bool {
        self.receiver.is_draining()
    }

    /// Puts a line into the ring, if there is space.
    #[inline(always)]
    pub(super) fn put(&mut self, line: Line) -> Result<bool, Corrupt> {
        let cells = self.producer.free_slot::<7>(self.ring.words());
        let put = self.producer.put(self.ring.words(), line.lead, line.last);
        // The receiver reads them next, this end not before the next lap.
        demote(cells.as_ptr().cast(), size_of_val(cells));
        self.outcome(put)
    }

    /// Returns true after a success. Where the ring is full, its receiver shall empty it even while
    /// it waits for something else.
    #[inline(always)]
    fn outcome(&self, put: Result<(), PutError>) -> Result<bool, Corrupt> {
        match put {
            Ok(()) => Ok(true),
            Err(PutError::Full) => {
                self.receiver.ring_doorbell();
                Ok(false)
            }
            Err(PutError::Broken) => Err(Corrupt),
        }
    }

    /// Returns true if the receiver has credit for an eager message of this length.
    #[inline]
    pub(super) fn has_credit(&mut self, bytes: usize) -> bool {
        // `returned` never exceeds `charged`, so the differences do not underflow.
        let needed = self.charged + charge_of(bytes);
        if needed - self.returned > self.credit {
            // A number that no receiver writes permits nothing more than a longer queue there.
            self.returned = self.ring.returned().min(self.charged);
        }
        needed - self.returned <= self.credit
    }

    /// Sends a whole message, if there is space and nothing is queued. The caller has checked the
    /// credit.
    #[inline]
    pub(super) fn put_message(
        &mut self,
        kind: Kind,
        envelope: Envelope,
        send: u64,
        bytes: &[u8],
    ) -> Result<bool, Corrupt> {
        // A message must not overtake lines that are queued for the same ring.
        if !self.queue.is_empty() {
            return Ok(false);
        }
        // A synchronous send has its number in the first line, and all bytes behind it.
        let (words, rest) = match kind {
            Kind::Eager => {
                let (first, rest) = bytes.split_at(bytes.len().min(INLINE_BYTES));
                (words_of(first), rest)
            }
            _ => ([send, 0, 0, 0, 0, 0], bytes),
        };
        let lines = 1 + rest.len().div_ceil(LINE_BYTES) as u64;
        let first = Line::new(kind, envelope, words);
        if lines == 1 {
            if !self.put(first)? {
                return Ok(false);
            }
        } else if !self.put_lines(first, rest, lines)? {
            return Ok(false);
        }
        self.charged += charge_of(bytes.len());
        Ok(true)
    }

    /// Puts a message of several lines into the ring, if there is space for all.
    fn put_lines(&mut self, first: Line, rest: &[u8], lines: u64) -> Result<bool, Corrupt> {
        let gap = gap_lines((INLINE_BYTES + rest.len()) as u64);
        // For all lines at once: no other line of this rank comes between them, and the receiver
        // never waits for space in the middle of a message.
        if !self.producer.has_space(self.ring.words(), lines + gap).map_err(|_| Corrupt)? {
            return self.outcome(Err(PutError::Full));
        }
        let (tail, rest) = rest.split_at(rest.len().min(BLOCK_BYTES - LINE_BYTES));
        self.put_block(first, tail)?;
        for block in rest.chunks(BLOCK_BYTES) {
            // There is space, and only this end uses it.
            self.put_bytes(block)?;
        }
        self.producer.skip(gap);
        // The next message is as long, as a rule, and its lines are in the receiver's cache. The call
        // loads the credit for them, if it lacks, while no rank waits; without credit the lines are
        // in use.
        self.producer.has_space(self.ring.words(), lines).map_err(|_| Corrupt)?;
        for next in self.producer.free_words::<7>(self.ring.words(), lines) {
            prefetch(next.as_ptr().cast(), size_of_val(next), Purpose::Write);
        }
        Ok(true)
    }

    /// Puts a block of a message into the ring, if there is space.
    pub(super) fn put_bytes(&mut self, block: &[u8]) -> Result<bool, Corrupt> {
        let (first, tail) = block.split_at(block.len().min(LINE_BYTES));
        self.put_block(Line::of_bytes(first), tail)
    }

    fn put_block(&mut self, first: Line, tail: &[u8]) -> Result<bool, Corrupt> {
        let mut rest = tail;
        let lines = tail_lines(tail.len() as u64);
        let value = (first.lead, first.last);
        let block = self.producer.free_words::<7>(self.ring.words(), lines + 1);
        let put = self.producer.put_with_tail(self.ring.words(), value, lines, |words, lasts| {
            let part;
            (part, rest) = rest.split_at(rest.len().min(size_of_val(words)));
            store_lines(part, words, lasts);
        });
        block.into_iter().for_each(|lines| demote(lines.as_ptr().cast(), size_of_val(lines)));
        self.outcome(put)
    }
}

const _: () = assert!(capacity(RING_LINES) > lines_of(EAGER_BYTES) + gap_lines(EAGER_BYTES as u64));
