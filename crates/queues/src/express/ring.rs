//! Ring of Express words: many senders and many receivers, no lock, one atomic operation that
//! commits a message.
//!
//! | Side | Step | Operation |
//! |---|---|---|
//! | sender | chooses `t`, the tail or the position after its own last message if that is later | |
//! | | **commits**: slot `t mod n` from empty in this lap to the message | compare-exchange |
//! | | advances the tail past it, once for several messages | maximum |
//! | | if slot `t` was written already, continues with the next position | |
//! | receiver | reads the head `h` and the message in slot `h mod n` | |
//! | | **takes**: advances the head from `h` to `h + 1` | compare-exchange |
//! | | makes the slot empty for the next lap | store |
//!
//! There is no claim before the commit: a sender that is stopped at any instruction has either sent
//! its message or not, and other senders continue. If it resumes after any number of laps, its
//! compare-exchange fails, because an empty word names its lap and occurs once in the life of a
//! slot; the tail and the head only grow. A receiver that is stopped between its two steps has its
//! message; the ring appears full when senders get to that slot again.
//!
//! Messages are received in the order of their commits, so the messages of each sender keep their
//! order.
//!
//! The mechanism is that of Ang et al. 1996, section 5.1, with a compare-exchange in place of the
//! single uncached write.

use super::slot::{self, SlotState};
use crate::consumers::{Consumers, advance};
use crate::error::{RecvError, SendError};
use crate::message::ExpressMessage;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of attempts of an operation. Contention never exceeds it; corrupt memory does.
const ROUNDS: usize = 1 << 16;

/// Number of messages (a cache line of them) after which a single sender advances the tail.
pub(super) const STRIDE: u64 = 8;

/// Bit 0 of the generation word: receivers close every slot that they release.
const CLOSING: u32 = 1;

/// Words of a ring, borrowed from any memory. Zeroed words are an empty ring of generation 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordRing<'a> {
    /// Slots; their number is a power of two, at least two.
    pub(crate) slots: &'a [AtomicU64],
    /// All positions before this one were written; the next position to write is at most a few
    /// further.
    pub(crate) tail: &'a AtomicU64,
    /// Positions before this one were free when a sender last checked. A hint in the tail's cache
    /// line that saves a load of the slot.
    pub(crate) free_until: &'a AtomicU64,
    /// Next position to receive.
    pub(crate) head: &'a AtomicU64,
    /// Generation of the ring, 31 bits, above [`CLOSING`].
    pub(crate) generation_word: &'a AtomicU32,
}

/// State of a ring, as its only receiver finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingState {
    /// No message.
    Empty,
    /// A message, or something that further polls turn into one.
    Ready,
    /// The end of the queue, or a word that no sender writes there.
    Damaged,
}

/// Reason why a sender cannot write to a slot.
enum Obstacle {
    /// All positions before this one were written.
    Written(u64),
    Refused(SendError),
}

impl<'a> WordRing<'a> {
    #[inline(always)]
    fn slot(&self, position: u64) -> &'a AtomicU64 {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    #[inline(always)]
    fn lap(&self, position: u64) -> u64 {
        position >> self.slots.len().trailing_zeros()
    }

    /// Sends to the ring of this generation and returns the position of the message. `next` is
    /// private to the sender: the position after its last message.
    #[inline]
    pub(crate) fn try_send(
        &self,
        message: ExpressMessage,
        generation: u32,
        next: &AtomicU64,
    ) -> Result<u64, SendError> {
        // Relaxed: a hint. All positions before it were written when a thread of this sender
        // stored it, and the exchange below decides.
        let mut written = next.load(Ordering::Relaxed);
        let stride = STRIDE.min(self.slots.len() as u64);
        for round in 0..ROUNDS {
            // Acquire: pairs with the Release in `advance_tail`; all positions before the tail are
            // then visible as written.
            let tail = self.tail.load(Ordering::Acquire);
            let position = tail.max(written);
            // Checked after the load of the tail: if the ring is reopened from here on, its laps
            // change and the exchange below fails.
            if self.generation_word.load(Ordering::Relaxed) >> 1 != generation {
                return Err(SendError::Closed);
            }
            let slot = self.slot(position);
            let empty = slot::empty(self.lap(position));
            let seen = match self.obstacle_word(position, slot, empty) {
                // The slot is not loaded first: that would fetch its line for reading and once more
                // for writing. SeqCst: the Release half pairs with the Acquire in `try_recv`, and
                // the exchange precedes the check for sleeping receivers. Acquire: pairs with the
                // Release in `release`.
                None => {
                    let full = slot::full(self.lap(position), message);
                    match slot.compare_exchange(empty, full, Ordering::SeqCst, Ordering::Acquire) {
                        Ok(_) => {
                            next.store(position + 1, Ordering::Relaxed);
                            // A sender that had to search for the position spares the next one the
                            // search.
                            if round != 0 || position + 1 - tail >= stride {
                                self.advance_tail(position);
                            }
                            return Ok(position);
                        }
                        Err(seen) => seen,
                    }
                }
                Some(seen) => seen,
            };
            match self.obstacle(position, seen) {
                Obstacle::Written(before) => written = before,
                Obstacle::Refused(why) => return Err(why),
            }
        }
        Err(SendError::Corrupt)
    }

    /// Returns `None` if the slot at `position` appears free, and its word otherwise.
    #[inline(always)]
    fn obstacle_word(&self, position: u64, slot: &AtomicU64, empty: u64) -> Option<u64> {
        // Relaxed: a hint; the exchange of the slot decides.
        if (self.free_until.load(Ordering::Relaxed).wrapping_sub(position)).cast_signed() > 0 {
            return None;
        }
        // Acquire: pairs with the Release in `release`.
        let seen = slot.load(Ordering::Acquire);
        if seen != empty {
            return Some(seen);
        }
        let free_to = self.head.load(Ordering::Relaxed).wrapping_add(self.slots.len() as u64);
        self.free_until.store(free_to, Ordering::Relaxed);
        None
    }

    /// Interprets the word `seen` in the slot of `position` for a sender.
    #[cold]
    fn obstacle(&self, position: u64, seen: u64) -> Obstacle {
        let lap = self.lap(position);
        match slot::read(seen) {
            _ if slot::is_full_in(seen, lap) => Obstacle::Written(position + 1),
            SlotState::Full { .. } => {
                // Acquire: pairs with the Release half of a receiver's `advance`. Until the
                // position is received, the slot can only hold the message of the previous lap,
                // which is unread or being taken.
                let head = self.head.load(Ordering::Acquire);
                if head <= position {
                    Obstacle::Refused(SendError::Full)
                } else {
                    Obstacle::Written(head)
                }
            }
            SlotState::Closed(_) if seen == slot::closed(lap) => {
                Obstacle::Refused(SendError::Closed)
            }
            // Written, received and released already.
            SlotState::Empty(next) | SlotState::Closed(next) if slot::is_later(next, lap) => {
                Obstacle::Written(position + 1)
            }
            SlotState::Empty(_) | SlotState::Closed(_) => Obstacle::Refused(SendError::Corrupt),
        }
    }

    /// Advances the tail past a position that was written, as were all before it.
    #[inline(always)]
    fn advance_tail(&self, position: u64) {
        // A maximum instead of a store: the tail of a faster sender must not move back. Release:
        // pairs with the Acquire of the tail in `try_send`.
        self.tail.fetch_max(position + 1, Ordering::Release);
    }

    /// Receives the next message if there is one.
    #[inline]
    pub(crate) fn try_recv<C: Consumers>(&self) -> Result<Option<ExpressMessage>, RecvError> {
        for _ in 0..ROUNDS {
            // Acquire: pairs with the Release half of another receiver's `advance`.
            let head = self.head.load(Ordering::Acquire);
            // Acquire: pairs with the sender's exchange, so that its earlier writes are visible.
            let seen = self.slot(head).load(Ordering::Acquire);
            if slot::is_full_in(seen, self.lap(head)) {
                if advance::<C>(self.head, head, head.wrapping_add(1)) {
                    self.release(head);
                    return Ok(Some(ExpressMessage::from_bits(seen)));
                }
                continue;
            }
            if seen == slot::empty(self.lap(head)) {
                return Ok(None);
            }
            if let Some(result) = self.interpret_missing(head, seen) {
                return result;
            }
        }
        Err(RecvError::Corrupt)
    }

    /// Interprets the word `seen` in the slot at `head`, which is neither the expected message nor
    /// the expected empty word. `None`: retry.
    #[cold]
    fn interpret_missing(
        &self,
        head: u64,
        seen: u64,
    ) -> Option<Result<Option<ExpressMessage>, RecvError>> {
        let lap = self.lap(head);
        if seen == slot::closed(lap) {
            return Some(Err(RecvError::Closed));
        }
        if self.head.load(Ordering::Acquire) != head {
            return None;
        }
        match slot::read(seen) {
            // A message of the previous lap that its receiver has not released yet.
            SlotState::Full { .. } => Some(Ok(None)),
            SlotState::Empty(_) | SlotState::Closed(_) => Some(Err(RecvError::Corrupt)),
        }
    }

    /// Receives up to `into.len()` messages with one exchange; returns their number.
    pub(crate) fn try_recv_many<C: Consumers>(
        &self,
        into: &mut [ExpressMessage],
    ) -> Result<usize, RecvError> {
        let limit = into.len().min(self.slots.len());
        for _ in 0..ROUNDS {
            let head = self.head.load(Ordering::Acquire);
            let mut count = 0;
            while count < limit {
                let position = head.wrapping_add(count as u64);
                let seen = self.slot(position).load(Ordering::Acquire);
                if !slot::is_full_in(seen, self.lap(position)) {
                    break;
                }
                into[count] = ExpressMessage::from_bits(seen);
                count += 1;
            }
            if count == 0 {
                // The single receive also distinguishes an empty ring from a closed one.
                let Some(first) = into.first_mut() else { return Ok(0) };
                return self
                    .try_recv::<C>()
                    .map(|message| message.map(|message| *first = message).iter().count());
            }
            if advance::<C>(self.head, head, head.wrapping_add(count as u64)) {
                (0..count as u64).for_each(|taken| self.release(head.wrapping_add(taken)));
                return Ok(count);
            }
        }
        Err(RecvError::Corrupt)
    }

    /// Releases the slot of a position that this receiver has taken: makes it writable in the next
    /// lap, or closes it.
    #[inline(always)]
    fn release(&self, position: u64) {
        let next = self.lap(position).wrapping_add(1);
        let closing = self.generation_word.load(Ordering::Relaxed) & CLOSING != 0;
        let word = if closing { slot::closed(next) } else { slot::empty(next) };
        // A plain store: senders write only to a slot that is empty in their lap, so nothing else
        // changes this word. Release: pairs with the Acquire of a sender's exchange.
        self.slot(position).store(word, Ordering::Release);
    }

    /// Returns whether a message waits. Called before sleeping, after a fence that follows the
    /// registration of the sleeper.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        for _ in 0..ROUNDS {
            let head = self.head.load(Ordering::Acquire);
            if slot::is_full_in(self.slot(head).load(Ordering::Acquire), self.lap(head)) {
                return true;
            }
            // Another receiver may have taken that message, and a newer one may follow it.
            if self.head.load(Ordering::Acquire) == head {
                return false;
            }
        }
        false
    }

    /// Returns the state of the next slot, for a receiver that is the only one. Such a receiver
    /// releases the slots that it has taken before it looks at the next one, so this slot holds no
    /// message of the previous lap.
    #[inline]
    pub(crate) fn state(&self) -> RingState {
        // Relaxed: only the caller changes the head.
        let head = self.head.load(Ordering::Relaxed);
        // Acquire: as in `try_recv`.
        let seen = self.slot(head).load(Ordering::Acquire);
        if seen == slot::empty(self.lap(head)) {
            RingState::Empty
        } else if slot::is_full_in(seen, self.lap(head)) {
            RingState::Ready
        } else {
            RingState::Damaged
        }
    }

    /// Returns whether at least `count` messages (at most the number of slots) wait.
    pub(crate) fn holds(&self, count: u64) -> bool {
        if count == 0 {
            return true;
        }
        let head = self.head.load(Ordering::Acquire);
        let last = head.wrapping_add(count - 1);
        // Positions are written in order, so the last one implies all others.
        slot::is_full_in(self.slot(last).load(Ordering::Acquire), self.lap(last))
    }

    /// Closes the ring to senders; returns the first position at which nothing will be sent.
    /// `None`: the ring is full, and receivers close it when they release a slot. Messages already
    /// sent can still be received.
    pub(crate) fn close(&self) -> Option<u64> {
        // SeqCst: receivers that release a slot from here on close it.
        self.generation_word.fetch_or(CLOSING, Ordering::SeqCst);
        let mut written = 0;
        for _ in 0..ROUNDS {
            let position = self.tail.load(Ordering::Acquire).max(written);
            let empty = slot::empty(self.lap(position));
            let closed = slot::closed(self.lap(position));
            match self.slot(position).compare_exchange(
                empty,
                closed,
                Ordering::SeqCst,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(position),
                Err(seen) => match self.obstacle(position, seen) {
                    Obstacle::Written(before) => written = before,
                    Obstacle::Refused(SendError::Full) => return None,
                    Obstacle::Refused(_) => return Some(position),
                },
            }
        }
        None
    }

    /// Reopens a closed and drained ring for another queue; senders of the former queue continue to
    /// find it closed. Returns the new generation, or `None` if the ring is not closed and empty or
    /// a receiver has not finished.
    ///
    /// No receiver may use the ring during the call.
    pub(crate) fn reopen(&self) -> Option<u32> {
        let head = self.head.load(Ordering::Acquire);
        if self.slot(head).load(Ordering::Acquire) != slot::closed(self.lap(head)) {
            return None;
        }
        let is_full = |slot: &AtomicU64| {
            matches!(slot::read(slot.load(Ordering::Acquire)), SlotState::Full { .. })
        };
        if self.slots.iter().any(is_full) {
            return None;
        }
        let generation =
            (self.generation_word.load(Ordering::Relaxed) >> 1).wrapping_add(1) & (u32::MAX >> 1);
        // The generation changes first: a sender that sees a slot of the new laps also sees the new
        // generation and fails. SeqCst costs nothing here.
        self.generation_word.store(generation << 1, Ordering::SeqCst);
        // Two laps on, because a slot that was closed ahead of the tail names the next lap.
        let lap = self.lap(head).wrapping_add(2);
        let start = lap << self.slots.len().trailing_zeros();
        // Release: pairs with the Acquire of a sender's exchange.
        self.slots.iter().for_each(|slot| slot.store(slot::empty(lap), Ordering::Release));
        self.head.store(start, Ordering::Release);
        self.free_until.store(start, Ordering::Relaxed);
        // Release: pairs with the Acquire of the tail in `try_send`; the slots above are then seen.
        self.tail.store(start, Ordering::Release);
        Some(generation)
    }

    /// The generation that a sender of today has to name.
    pub(crate) fn generation(&self) -> u32 {
        self.generation_word.load(Ordering::Acquire) >> 1
    }
}
