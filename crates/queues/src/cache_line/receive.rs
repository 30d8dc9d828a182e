//! The receiving side of the ring of lines (see `ring.rs`).

use super::message::CacheLineMessage;
use super::ring::{CLOSED, POSITION, ROUNDS, SlotRing, copy, is_drained};
use super::state;
use crate::consumers::{Consumers, advance};
use crate::error::RecvError;
use crate::sync::Ordering;

/// How long a receiver looks at an unpublished line with full ones behind it before it voids it:
/// about a microsecond of looks. A sender that nothing interrupts takes some tens of nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VoidPolicy {
    /// So often a receiver that waits looks at the next lines (a power of two of its looks at the
    /// first).
    pub(crate) near: u32,
    /// So often at all that were claimed, for which it has to know the tail; that disturbs senders
    /// (a power of two of looks).
    pub(crate) far: u32,
    /// At the so-manieth time that it finds a full line behind, it voids.
    pub(crate) times: u32,
    /// So many times more if it does not know whose the line is: whoever claimed the next line will
    /// say that, if it is only slow.
    pub(crate) nameless_times: u32,
}

impl Default for VoidPolicy {
    fn default() -> Self {
        VoidPolicy { near: 16, far: 1024, times: 8, nameless_times: 64 }
    }
}

/// How many lines the near look covers.
const NEXT: u64 = 4;

/// What a receiver remembers of the line that it waits for.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecvState {
    head: u64,
    looks: u32,
    held_up: u32,
    pub(crate) patience: VoidPolicy,
}

impl SlotRing<'_> {
    /// Takes the next message if there is one. A closed ring is told from an empty one only when
    /// its gate says so.
    #[inline]
    pub(crate) fn try_recv<C: Consumers>(
        &self,
        looks: &mut RecvState,
    ) -> Result<Option<CacheLineMessage>, RecvError> {
        for _ in 0..ROUNDS {
            // Acquire: pairs with the Release half of another receiver's `advance`.
            let head = self.head.load(Ordering::Acquire);
            let (line, full) = (self.line(head), self.full(head));
            // Acquire: pairs with the publication.
            let found = line.stamp.load(Ordering::Acquire);
            if found == full {
                let message = copy(line);
                // The copy counts only if nobody took the line before, for then nobody can have
                // written to it: the next sender has to see the head behind it first.
                if advance::<C>(self.head, head, head.wrapping_add(1)) {
                    return Ok(Some(message));
                }
                continue;
            }
            if state::is_later(found, full) {
                // Voided. It fails when another receiver skips it, or the head that was read is an
                // old one.
                advance::<C>(self.head, head, head.wrapping_add(1));
                continue;
            }
            if !self.is_held_up(head, found, looks)? {
                return Ok(None);
            }
        }
        Err(RecvError::Broken)
    }

    /// Counts a look at a line that was not published, and after many voids it; then there is
    /// another line to look at.
    #[inline]
    fn is_held_up(&self, head: u64, found: u64, looks: &mut RecvState) -> Result<bool, RecvError> {
        if looks.head != head {
            *looks = RecvState { head, looks: 0, held_up: 0, ..*looks };
        }
        looks.looks = looks.looks.wrapping_add(1);
        // Relaxed: a receiver learns a little sooner or later that the queue was closed.
        let is_closing = self.gate.load(Ordering::Relaxed) & 1 != 0;
        if !is_closing && looks.looks & (looks.patience.near - 1) != 0 {
            return Ok(false);
        }
        self.look_behind(head, found, looks, is_closing)
    }

    #[cold]
    fn look_behind(
        &self,
        head: u64,
        found: u64,
        looks: &mut RecvState,
        far: bool,
    ) -> Result<bool, RecvError> {
        let next = head.wrapping_add(1);
        if far || looks.looks & (looks.patience.far - 1) == 0 {
            // Acquire: pairs with the Release of whoever moved it.
            let tail = self.tail.load(Ordering::Acquire);
            if is_drained(tail, head) {
                return Err(RecvError::Closed);
            }
            // A closed ring has to end even if nothing comes behind.
            if tail & CLOSED == 0 && !self.is_any_full(next, (tail & POSITION).wrapping_sub(next)) {
                return Ok(false);
            }
        } else if !self.is_any_full(next, NEXT) {
            return Ok(false);
        }
        looks.held_up += 1;
        let VoidPolicy { times, nameless_times, .. } = looks.patience;
        if looks.held_up < times
            || (looks.held_up < times + nameless_times && self.claimant(head).is_none())
        {
            return Ok(false);
        }
        self.void(head, found);
        Ok(true)
    }

    /// Whether a message lies at one of `count` positions from `from` on. There is none where
    /// nothing was claimed.
    fn is_any_full(&self, from: u64, count: u64) -> bool {
        // However many others may have made of it.
        (0..count.min(self.count() - 1)).map(|ahead| from.wrapping_add(ahead)).any(|position| {
            self.line(position).stamp.load(Ordering::Acquire) == self.full(position)
        })
    }

    /// Takes up to `into.len()` messages with one exchange; gives how many.
    pub(crate) fn try_recv_many<C: Consumers>(
        &self,
        looks: &mut RecvState,
        into: &mut [CacheLineMessage],
    ) -> Result<usize, RecvError> {
        let limit = into.len().min(self.lines.len());
        for _ in 0..ROUNDS {
            let head = self.head.load(Ordering::Acquire);
            let mut count = 0;
            while count < limit {
                let position = head.wrapping_add(count as u64);
                let line = self.line(position);
                if line.stamp.load(Ordering::Acquire) != self.full(position) {
                    break;
                }
                into[count] = copy(line);
                count += 1;
            }
            if count == 0 {
                // One by one, which knows about voided lines.
                let Some(first) = into.first_mut() else { return Ok(0) };
                let one = self.try_recv::<C>(looks)?;
                return Ok(one.map(|message| *first = message).iter().count());
            }
            if advance::<C>(self.head, head, head.wrapping_add(count as u64)) {
                return Ok(count);
            }
        }
        Err(RecvError::Broken)
    }

    /// Whether a receiver has something to do without anybody else's doing: a message waits, or a
    /// line that holds up others and will be voided. For a look before sleeping; a fence stands
    /// between what announces the sleep and this.
    pub(crate) fn is_ready(&self) -> bool {
        for _ in 0..ROUNDS {
            let head = self.head.load(Ordering::Acquire);
            let (found, full) = (self.line(head).stamp.load(Ordering::Acquire), self.full(head));
            if found == full || state::is_later(found, full) {
                return true;
            }
            let tail = self.tail.load(Ordering::Acquire);
            let next = head.wrapping_add(1);
            let held_up = || {
                tail & CLOSED != 0 || self.is_any_full(next, (tail & POSITION).wrapping_sub(next))
            };
            if !is_drained(tail, head) && held_up() {
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

    /// Whether at least `count` lines are claimed or full.
    pub(crate) fn holds(&self, count: u64) -> bool {
        let head = self.head.load(Ordering::Acquire);
        let used = (self.tail.load(Ordering::Acquire) & POSITION).wrapping_sub(head);
        // A head that passed the tail that was read makes a negative number.
        used.cast_signed() >= count.cast_signed()
    }
}
