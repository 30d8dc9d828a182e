//! The receiving side of the ring of lines (see `ring.rs`).

use super::message::{LINE_DATA, WideMessage};
use super::ring::{CLOSED, Line, Lines, ROUNDS, is_drained};
use super::stamp::{self, LineHeader, State, stamp};
use crate::form::{Form, advance};
use crate::refusal::ReceiveError;
use crate::sync::Ordering;

/// How long a receiver looks at an unpublished line with full ones behind it before it voids it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Every so many looks at a line that is not full the receiver looks behind it. A look at the tail disturbs senders.
    pub(crate) interval: u32,
    /// At the so-manieth time that it finds full lines behind, it voids.
    pub(crate) times: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { interval: 16, times: 4 }
    }
}

/// What a receiver remembers of the line that it waits for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Looks {
    head: u64,
    looks: u32,
    held_up: u32,
    pub(crate) patience: Patience,
}

impl Lines<'_> {
    /// Takes the next message if there is one. A closed ring is told from an empty one only when its gate says so.
    #[inline]
    pub(crate) fn try_receive<F: Form>(&self, looks: &mut Looks) -> Result<Option<WideMessage>, ReceiveError> {
        for _ in 0..ROUNDS {
            // Acquire: pairs with the Release half of another receiver's `advance`.
            let head = self.head.load(Ordering::Acquire);
            let (line, lap) = (self.line(head), self.lap(head));
            // Acquire: pairs with the publication.
            let found = line.stamp.load(Ordering::Acquire);
            if found == stamp(lap, State::Full) {
                let message = copy(line);
                // The copy counts only if nobody took the line before, for then nobody can have written to it: the next
                // sender has to see the head behind it first.
                if advance::<F>(self.head, head, head.wrapping_add(1)) {
                    return Ok(Some(message));
                }
                continue;
            }
            if self.is_past(found, lap) {
                // Voided. It fails when another receiver skips it, or the head that was read is an old one.
                advance::<F>(self.head, head, head.wrapping_add(1));
                continue;
            }
            if !self.is_held_up(head, found, looks)? {
                return Ok(None);
            }
        }
        Err(ReceiveError::Broken)
    }

    /// Whether a line with this stamp holds nothing for `lap` and never will.
    #[inline(always)]
    fn is_past(&self, found: u64, lap: u64) -> bool {
        // Full in this lap is no void, and of later laps any state.
        let in_lap = stamp::is_in(found, lap) && matches!(stamp::state(found), State::Void(_));
        in_lap || !stamp::is_in(found, lap) && !stamp::is_before(found, lap)
    }

    /// Counts a look at a line that was not published, and after many voids it; then there is another line to look at.
    #[inline]
    fn is_held_up(&self, head: u64, found: u64, looks: &mut Looks) -> Result<bool, ReceiveError> {
        if looks.head != head {
            *looks = Looks { head, looks: 0, held_up: 0, patience: looks.patience };
        }
        looks.looks = looks.looks.wrapping_add(1);
        let closing = self.gate.load(Ordering::Relaxed) & 1 != 0;
        if !closing && looks.looks % looks.patience.interval != 0 {
            return Ok(false);
        }
        self.look_behind(head, found, looks)
    }

    #[cold]
    fn look_behind(&self, head: u64, found: u64, looks: &mut Looks) -> Result<bool, ReceiveError> {
        // Acquire: pairs with the Release of whoever moved it.
        let tail = self.tail.load(Ordering::Acquire);
        if is_drained(tail, head) {
            return Err(ReceiveError::Closed);
        }
        // A closed ring has to end even if nothing comes behind.
        if tail & CLOSED == 0 && !self.is_any_full(head.wrapping_add(1), tail) {
            return Ok(false);
        }
        looks.held_up += 1;
        if looks.held_up < looks.patience.times {
            return Ok(false);
        }
        self.void(head, found);
        Ok(true)
    }

    /// Whether a message lies at a position from `from` to before `to`.
    fn is_any_full(&self, from: u64, to: u64) -> bool {
        // However far apart others may have written them.
        let count = to.wrapping_sub(from).min(self.count());
        (0..count)
            .map(|ahead| from.wrapping_add(ahead))
            .any(|position| self.line(position).stamp.load(Ordering::Acquire) == stamp(self.lap(position), State::Full))
    }

    /// Takes up to `into.len()` messages with one exchange; gives how many.
    pub(crate) fn try_receive_many<F: Form>(
        &self,
        looks: &mut Looks,
        into: &mut [WideMessage],
    ) -> Result<usize, ReceiveError> {
        let limit = into.len().min(self.lines.len());
        for _ in 0..ROUNDS {
            let head = self.head.load(Ordering::Acquire);
            let mut count = 0;
            while count < limit {
                let position = head.wrapping_add(count as u64);
                let line = self.line(position);
                if line.stamp.load(Ordering::Acquire) != stamp(self.lap(position), State::Full) {
                    break;
                }
                into[count] = copy(line);
                count += 1;
            }
            if count == 0 {
                // One by one, which knows about voided lines.
                let Some(first) = into.first_mut() else { return Ok(0) };
                let one = self.try_receive::<F>(looks)?;
                return Ok(one.map(|message| *first = message).iter().count());
            }
            if advance::<F>(self.head, head, head.wrapping_add(count as u64)) {
                return Ok(count);
            }
        }
        Err(ReceiveError::Broken)
    }

    /// Whether a receiver has something to do without anybody else's doing: a message waits, or a line that holds up others
    /// and will be voided. For a look before sleeping; a fence stands between what
    /// announces the sleep and this.
    pub(crate) fn is_ready(&self) -> bool {
        for _ in 0..ROUNDS {
            let head = self.head.load(Ordering::Acquire);
            let lap = self.lap(head);
            let found = self.line(head).stamp.load(Ordering::Acquire);
            if found == stamp(lap, State::Full) || self.is_past(found, lap) {
                return true;
            }
            let tail = self.tail.load(Ordering::Acquire);
            let held_up = || tail & CLOSED != 0 || self.is_any_full(head.wrapping_add(1), tail);
            if !is_drained(tail, head) && held_up() {
                return true;
            }
            // Another receiver may have taken what was there, and something newer may lie behind it.
            if self.head.load(Ordering::Acquire) == head {
                return false;
            }
        }
        false
    }

    /// Whether at least `count` lines are claimed or full.
    pub(crate) fn holds(&self, count: u64) -> bool {
        let head = self.head.load(Ordering::Acquire);
        let used = (self.tail.load(Ordering::Acquire) & !CLOSED).wrapping_sub(head);
        // A head that passed the tail that was read makes a negative number.
        used.cast_signed() >= count.cast_signed()
    }
}

/// The message in a line, or, if others write to it, anything.
#[inline(always)]
fn copy(line: &Line) -> WideMessage {
    let (header, length) = LineHeader::unpack(line.header.load(Ordering::Relaxed));
    let mut data = [0; LINE_DATA];
    for (bytes, word) in data.chunks_exact_mut(8).zip(&line.data) {
        // Relaxed: the stamp was read with Acquire before, and the head moves with Release after.
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    WideMessage::copied(header, length, data)
}
