//! Receiving side of the slot ring (see `ring.rs`).

use super::ring::{CLOSED, POSITION, ROUNDS, SlotMemory, SlotRing, SlotWords, is_drained};
use super::state;
use crate::consumers::{Consumers, advance};
use crate::error::RecvError;
use crate::sync::Ordering;

/// Condition under which a receiver voids an unpublished slot that blocks full ones: about a
/// microsecond of polls. A sender that is not interrupted takes some tens of nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VoidPolicy {
    /// Number of polls between two checks of the next slots (a power of two).
    pub(crate) near: u32,
    /// Number of polls between two checks of all claimed slots, which load the tail and so disturb
    /// senders (a power of two).
    pub(crate) far: u32,
    /// Number of checks that find a later slot full before the slot is voided.
    pub(crate) times: u32,
    /// Additional checks while the claimant is unknown: the sender of the next claim will identify
    /// it, unless it is slow too.
    pub(crate) unknown_times: u32,
}

impl VoidPolicy {
    /// Policy for slots of `words` words. A sender fills a cache line in less time than a check
    /// takes, but a long message in more than any constant number of checks: its slot would be
    /// voided again and again.
    pub(crate) const fn for_words(words: u32) -> Self {
        VoidPolicy { near: 16, far: 1024, times: 8 + words / 8, unknown_times: 64 }
    }
}

impl Default for VoidPolicy {
    fn default() -> Self {
        // Slots of one cache line, filled in some tens of nanoseconds.
        VoidPolicy::for_words(0)
    }
}

/// Number of slots that the near check covers.
const NEAR_SLOTS: u64 = 4;

/// State of a receiver that waits for a slot.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecvState {
    head: u64,
    polls: u32,
    /// Checks that found a later slot full.
    blocked: u32,
    pub(crate) policy: VoidPolicy,
}

impl RecvState {
    /// Creates the state of a receiver that voids slots by this policy.
    pub(crate) fn with_policy(policy: VoidPolicy) -> RecvState {
        RecvState { policy, ..RecvState::default() }
    }
}

impl<'a, M: SlotMemory<'a>> SlotRing<'a, M> {
    /// Receives the next message if there is one, which `copy` copies out of its slot. `copy` may be
    /// called several times. Reports a closed ring only once its generation word is marked closed.
    #[inline(always)]
    pub(crate) fn try_recv_with<C: Consumers, T>(
        &self,
        receiver: &mut RecvState,
        mut copy: impl FnMut(SlotWords<'a>) -> T,
    ) -> Result<Option<T>, RecvError> {
        for _ in 0..ROUNDS {
            // Acquire: pairs with the Release half of another receiver's `advance`.
            let head = self.head.load(Ordering::Acquire);
            let slot = self.slot(head);
            let full = self.full(head);
            // Acquire: pairs with the Release half of `publish`, so that the message is visible.
            let found = slot.state.load(Ordering::Acquire);
            if found == full {
                let message = copy(slot);
                // The copy is valid only if the head has not moved: a sender writes to this slot
                // again only after it has seen the head past it, so an unchanged head means that
                // the slot was not overwritten during the copy.
                if advance::<C>(self.head, head, head.wrapping_add(1)) {
                    return Ok(Some(message));
                }
                continue;
            }
            if state::is_later(found, full) {
                // Voided: skip it. This fails when another receiver has skipped it or the head that
                // was read is stale.
                advance::<C>(self.head, head, head.wrapping_add(1));
                continue;
            }
            if !self.is_blocked(head, found, receiver)? {
                return Ok(None);
            }
        }
        Err(RecvError::Corrupt)
    }

    /// Counts a poll of an unpublished slot, and voids it after many; returns whether the next slot
    /// can be polled.
    #[inline]
    fn is_blocked(
        &self,
        head: u64,
        found: u64,
        receiver: &mut RecvState,
    ) -> Result<bool, RecvError> {
        if receiver.head != head {
            *receiver = RecvState { head, polls: 0, blocked: 0, ..*receiver };
        }
        receiver.polls = receiver.polls.wrapping_add(1);
        // Relaxed: a hint; a late value only delays the detection of a closed queue.
        let is_closing = self.generation_word.load(Ordering::Relaxed) & 1 != 0;
        if !is_closing && receiver.polls & (receiver.policy.near - 1) != 0 {
            return Ok(false);
        }
        self.check_later_slots(head, found, receiver, is_closing)
    }

    #[cold]
    fn check_later_slots(
        &self,
        head: u64,
        found: u64,
        receiver: &mut RecvState,
        far: bool,
    ) -> Result<bool, RecvError> {
        let next = head.wrapping_add(1);
        if far || receiver.polls & (receiver.policy.far - 1) == 0 {
            // Acquire: pairs with the Release of the thread that advanced it.
            let tail = self.tail.load(Ordering::Acquire);
            if is_drained(tail, head) {
                return Err(RecvError::Closed);
            }
            // A closed ring must end even if no message follows.
            if tail & CLOSED == 0 && !self.is_any_full(next, claimed(tail, next)) {
                return Ok(false);
            }
        } else if !self.is_any_full(next, NEAR_SLOTS) {
            return Ok(false);
        }
        receiver.blocked += 1;
        let VoidPolicy { times, unknown_times, .. } = receiver.policy;
        if receiver.blocked < times
            || (receiver.blocked < times + unknown_times && self.claimant(head).is_none())
        {
            return Ok(false);
        }
        self.void(head, found);
        Ok(true)
    }

    /// Returns whether one of `count` positions from `from` on holds a message. Unclaimed positions
    /// hold none.
    fn is_any_full(&self, from: u64, count: u64) -> bool {
        // Limited to one lap, even if the count is corrupt.
        (0..count.min(self.count() - 1)).map(|ahead| from.wrapping_add(ahead)).any(|position| {
            self.slot(position).state.load(Ordering::Acquire) == self.full(position)
        })
    }

    /// Receives up to `into.len()` messages with one exchange; returns their number.
    pub(crate) fn try_recv_many_with<C: Consumers, T>(
        &self,
        receiver: &mut RecvState,
        into: &mut [T],
        copy: impl Fn(SlotWords<'a>) -> T,
    ) -> Result<usize, RecvError> {
        let limit = into.len().min(self.count() as usize);
        for _ in 0..ROUNDS {
            let head = self.head.load(Ordering::Acquire);
            let mut count = 0;
            while count < limit {
                let position = head.wrapping_add(count as u64);
                let slot = self.slot(position);
                // Acquire: as in `try_recv_with`.
                if slot.state.load(Ordering::Acquire) != self.full(position) {
                    break;
                }
                into[count] = copy(slot);
                count += 1;
            }
            if count == 0 {
                // The single receive also handles voided slots.
                let Some(first) = into.first_mut() else { return Ok(0) };
                let one = self.try_recv_with::<C, T>(receiver, copy)?;
                return Ok(one.map(|message| *first = message).iter().count());
            }
            // The copies are valid only if no other receiver has advanced the head meanwhile.
            if advance::<C>(self.head, head, head.wrapping_add(count as u64)) {
                return Ok(count);
            }
        }
        Err(RecvError::Corrupt)
    }

    /// Returns whether a receiver can make progress by itself: a message waits, or a slot that
    /// blocks others and that further polls will void. Called before sleeping, after a fence that
    /// follows the registration of the sleeper.
    pub(crate) fn is_ready(&self) -> bool {
        for _ in 0..ROUNDS {
            let head = self.head.load(Ordering::Acquire);
            let found = self.slot(head).state.load(Ordering::Acquire);
            let full = self.full(head);
            if found == full || state::is_later(found, full) {
                return true;
            }
            let tail = self.tail.load(Ordering::Acquire);
            let next = head.wrapping_add(1);
            let blocked = || tail & CLOSED != 0 || self.is_any_full(next, claimed(tail, next));
            if !is_drained(tail, head) && blocked() {
                return true;
            }
            // Another receiver may have taken that message, and a newer one may follow it.
            if self.head.load(Ordering::Acquire) == head {
                return false;
            }
        }
        false
    }

    /// Returns whether at least `count` slots are claimed or full.
    pub(crate) fn holds(&self, count: u64) -> bool {
        let head = self.head.load(Ordering::Acquire);
        let used = (self.tail.load(Ordering::Acquire) & POSITION).wrapping_sub(head);
        // Negative if the head has passed the tail that was read.
        used.cast_signed() >= count.cast_signed()
    }
}

/// Returns the number of positions that are claimed from `from` on: none in an empty ring, where
/// the first of these is behind the tail.
fn claimed(tail: u64, from: u64) -> u64 {
    (tail & POSITION).wrapping_sub(from).cast_signed().max(0).cast_unsigned()
}
