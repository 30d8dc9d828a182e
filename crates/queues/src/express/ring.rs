//! The ring of Express words: many senders and many receivers, no lock, one atomic operation that
//! commits a message.
//!
//! | who | does | with |
//! |---|---|---|
//! | sender | takes for `t` the tail, or the position after its own last message if that is later | |
//! | | **commits**: slot `t mod n` from empty in this lap to the message | compare-exchange |
//! | | moves the tail behind it, once for several messages | maximum |
//! | | if slot `t` was written already, goes on with the next position | |
//! | receiver | reads the head `h` and the message in slot `h mod n` | |
//! | | **takes**: moves the head from `h` to `h + 1` | compare-exchange |
//! | | makes the slot empty for the next lap | store |
//!
//! A sender that is stopped, wherever it is, has either sent its message or not, and others go on:
//! there is no claim before the commit. Should it go on after any number of laps, its
//! compare-exchange fails, because an empty word names its lap and occurs once in a slot's life;
//! the tail and the head only grow. A receiver that is stopped between its two steps has its
//! message; the ring looks full when the senders come round to that slot.
//!
//! Messages are received in the order of their commits, so each sender's in the order in which it
//! sent them.
//!
//! The mechanism is that of Ang et al. 1996, section 5.1, with a compare-exchange in place of the
//! single uncached write.

use super::slot::{self, SlotState};
use crate::consumers::{Consumers, advance};
use crate::error::{RecvError, SendError};
use crate::message::Message;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How often an operation tries again because others were faster. A memory that others spoil ends
/// it here.
const ROUNDS: usize = 1 << 16;

/// A sender that is alone moves the tail once for this many messages, a line of them.
const STRIDE: u64 = 8;

/// Bit 0 of the gate: receivers close every slot that they give back.
const CLOSING: u32 = 1;

/// The words of a ring, wherever they lie. Zeroed words are an empty ring of generation 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordRing<'a> {
    /// A power of two of them, at least two.
    pub(crate) slots: &'a [AtomicU64],
    /// Everything before this position was written; the position to be written next is a few
    /// positions on.
    pub(crate) tail: &'a AtomicU64,
    /// Positions before this one were free when a sender looked: a hint that saves a look. Beside
    /// the tail.
    pub(crate) room: &'a AtomicU64,
    /// The position to be received next.
    pub(crate) head: &'a AtomicU64,
    /// The ring's generation, 31 bits, above [`CLOSING`].
    pub(crate) gate: &'a AtomicU32,
}

/// What a sender finds in a slot, other than room.
enum Obstacle {
    /// Everything before this position was written.
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

    /// Sends to the ring of this generation and gives the message's position. `next` is the
    /// sender's own: the position after its last message.
    #[inline]
    pub(crate) fn try_send(
        &self,
        message: Message,
        generation: u32,
        next: &AtomicU64,
    ) -> Result<u64, SendError> {
        // Relaxed: everything before it was written when this sender, or a thread that shares it,
        // stored it; the exchange decides.
        let mut written = next.load(Ordering::Relaxed);
        let stride = STRIDE.min(self.slots.len() as u64);
        for round in 0..ROUNDS {
            // Acquire: pairs with the Release of `pass`; everything before this position is then
            // seen as written.
            let tail = self.tail.load(Ordering::Acquire);
            let position = tail.max(written);
            // After the tail: a ring that changes hands from here on has other laps, and the
            // exchange below fails.
            if self.gate.load(Ordering::Relaxed) >> 1 != generation {
                return Err(SendError::Closed);
            }
            let (slot, empty) = (self.slot(position), slot::empty(self.lap(position)));
            let seen = match self.look_for_room(position, slot, empty) {
                // Not looked at before: a look would fetch the line once for reading and once more
                // for writing. SeqCst: pairs with the Acquire of `try_recv`, and comes before
                // the look whether a receiver sleeps. Acquire: pairs with the Release of
                // `give_back`.
                None => {
                    let full = slot::full(self.lap(position), message);
                    match slot.compare_exchange(empty, full, Ordering::SeqCst, Ordering::Acquire) {
                        Ok(_) => {
                            next.store(position + 1, Ordering::Relaxed);
                            // Who had to look for the position spares the next one the search.
                            if round != 0 || position + 1 - tail >= stride {
                                self.pass(position);
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
        Err(SendError::Broken)
    }

    /// `None` if the slot at `position` is free as far as is known, otherwise what stands there.
    #[inline(always)]
    fn look_for_room(&self, position: u64, slot: &AtomicU64, empty: u64) -> Option<u64> {
        // Relaxed: a hint; the exchange decides.
        if (self.room.load(Ordering::Relaxed).wrapping_sub(position)).cast_signed() > 0 {
            return None;
        }
        // Acquire: pairs with the Release of `give_back`.
        let seen = slot.load(Ordering::Acquire);
        if seen != empty {
            return Some(seen);
        }
        let free_to = self.head.load(Ordering::Relaxed).wrapping_add(self.slots.len() as u64);
        self.room.store(free_to, Ordering::Relaxed);
        None
    }

    /// Says what `seen` in the slot of `position` means for a sender.
    #[cold]
    fn obstacle(&self, position: u64, seen: u64) -> Obstacle {
        let lap = self.lap(position);
        match slot::read(seen) {
            _ if slot::is_full_in(seen, lap) => Obstacle::Written(position + 1),
            SlotState::Full { .. } => {
                // Acquire: pairs with the Release half of a receiver's `advance`. As long as the
                // position was not received, the slot can only hold the message of the lap before,
                // not received or being taken.
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
            // Written, received and given back.
            SlotState::Empty(next) | SlotState::Closed(next) if slot::is_later(next, lap) => {
                Obstacle::Written(position + 1)
            }
            SlotState::Empty(_) | SlotState::Closed(_) => Obstacle::Refused(SendError::Broken),
        }
    }

    /// Moves the tail behind a position that was written, as all before it.
    #[inline(always)]
    fn pass(&self, position: u64) {
        // Release: pairs with the Acquire of the tail in `try_send`.
        self.tail.fetch_max(position + 1, Ordering::Release);
    }

    /// Takes the next message if there is one.
    #[inline]
    pub(crate) fn try_recv<C: Consumers>(&self) -> Result<Option<Message>, RecvError> {
        for _ in 0..ROUNDS {
            // Acquire: pairs with the Release half of another receiver's `advance`.
            let head = self.head.load(Ordering::Acquire);
            // Acquire: pairs with the sender's exchange; what it wrote before it sent is visible.
            let seen = self.slot(head).load(Ordering::Acquire);
            if slot::is_full_in(seen, self.lap(head)) {
                if advance::<C>(self.head, head, head.wrapping_add(1)) {
                    self.give_back(head);
                    return Ok(Some(Message::from_bits(seen)));
                }
                continue;
            }
            if seen == slot::empty(self.lap(head)) {
                return Ok(None);
            }
            if let Some(verdict) = self.nothing(head, seen) {
                return verdict;
            }
        }
        Err(RecvError::Broken)
    }

    /// What it means that the slot at `head` holds `seen`, neither a message nor room for the next.
    /// `None`: look again.
    #[cold]
    fn nothing(&self, head: u64, seen: u64) -> Option<Result<Option<Message>, RecvError>> {
        let lap = self.lap(head);
        if seen == slot::closed(lap) {
            return Some(Err(RecvError::Closed));
        }
        if self.head.load(Ordering::Acquire) != head {
            return None;
        }
        match slot::read(seen) {
            // Of the lap before: its receiver has not given the slot back.
            SlotState::Full { .. } => Some(Ok(None)),
            SlotState::Empty(_) | SlotState::Closed(_) => Some(Err(RecvError::Broken)),
        }
    }

    /// Takes up to `into.len()` messages with one exchange; gives how many.
    pub(crate) fn try_recv_many<C: Consumers>(
        &self,
        into: &mut [Message],
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
                into[count] = Message::from_bits(seen);
                count += 1;
            }
            if count == 0 {
                // One by one, which also tells an empty ring from a closed one.
                let Some(first) = into.first_mut() else { return Ok(0) };
                return self
                    .try_recv::<C>()
                    .map(|message| message.map(|message| *first = message).iter().count());
            }
            if advance::<C>(self.head, head, head.wrapping_add(count as u64)) {
                (0..count as u64).for_each(|taken| self.give_back(head.wrapping_add(taken)));
                return Ok(count);
            }
        }
        Err(RecvError::Broken)
    }

    /// Makes the slot of a position that this receiver has taken writable for the next lap, or
    /// closes it.
    #[inline(always)]
    fn give_back(&self, position: u64) {
        let next = self.lap(position).wrapping_add(1);
        let closing = self.gate.load(Ordering::Relaxed) & CLOSING != 0;
        let word = if closing { slot::closed(next) } else { slot::empty(next) };
        // Release: pairs with the Acquire of a sender's exchange.
        self.slot(position).store(word, Ordering::Release);
    }

    /// Whether a message waits. For a look before sleeping; a fence stands between what announces
    /// the sleep and this.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        for _ in 0..ROUNDS {
            let head = self.head.load(Ordering::Acquire);
            if slot::is_full_in(self.slot(head).load(Ordering::Acquire), self.lap(head)) {
                return true;
            }
            // Another receiver may have taken what was there, and something newer may lie behind
            // it.
            if self.head.load(Ordering::Acquire) == head {
                return false;
            }
        }
        false
    }

    /// Whether at least `count` messages (at most as many as there are slots) wait to be received.
    pub(crate) fn holds(&self, count: u64) -> bool {
        if count == 0 {
            return true;
        }
        let head = self.head.load(Ordering::Acquire);
        let last = head.wrapping_add(count - 1);
        // Positions are written in order, so the last of them tells for all.
        slot::is_full_in(self.slot(last).load(Ordering::Acquire), self.lap(last))
    }

    /// Lets nobody send any more; gives the position from which on nothing will be sent. `None`:
    /// the ring is full, and receivers close it when they give back a slot. What was sent can still
    /// be received.
    pub(crate) fn close(&self) -> Option<u64> {
        // SeqCst: receivers that give back a slot from here on close it.
        self.gate.fetch_or(CLOSING, Ordering::SeqCst);
        let mut written = 0;
        for _ in 0..ROUNDS {
            let position = self.tail.load(Ordering::Acquire).max(written);
            let (empty, closed) =
                (slot::empty(self.lap(position)), slot::closed(self.lap(position)));
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

    /// Opens a closed ring from which everything was received, for another queue: senders of the
    /// former one find it closed. Gives the new generation, or `None` if the ring is not closed and
    /// empty or a receiver is still at work in it.
    ///
    /// No receiver may use the ring meanwhile.
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
        let generation = (self.gate.load(Ordering::Relaxed) >> 1).wrapping_add(1) & (u32::MAX >> 1);
        // First the generation: a sender that finds a slot of the new laps finds it too. SeqCst
        // costs nothing here.
        self.gate.store(generation << 1, Ordering::SeqCst);
        // Two laps on: a slot that was closed ahead of the tail names the next one.
        let lap = self.lap(head).wrapping_add(2);
        let start = lap << self.slots.len().trailing_zeros();
        // Release: pairs with the Acquire of a sender's exchange.
        self.slots.iter().for_each(|slot| slot.store(slot::empty(lap), Ordering::Release));
        self.head.store(start, Ordering::Release);
        self.room.store(start, Ordering::Relaxed);
        // Release: pairs with the Acquire of the tail in `try_send`; the slots above are then seen.
        self.tail.store(start, Ordering::Release);
        Some(generation)
    }

    /// The generation that a sender of today has to name.
    pub(crate) fn generation(&self) -> u32 {
        self.gate.load(Ordering::Acquire) >> 1
    }
}
