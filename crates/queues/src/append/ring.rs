//! The protocol of an append buffer: many appenders, one reader, cells that are claimed, filled and
//! read in turn.
//!
//! Every cell has a stamp: a state and the position that it stands for. Positions grow for ever,
//! cell *c* of *n* stands for *c*, *c + n*, *c + 2n* … in turn, so no stamp ever comes back and an
//! appender that was stopped for however long cannot take a later use of its cell for its own.
//!
//! ```text
//! empty(p) ─appender→ claimed(p) ─the same→ full(p) ─reader→ empty(p + n)
//!                         │reader, when later records wait behind it
//!                         ▼
//!                      void(p) ─appender that meets it a lap later→ void(p + n) …
//!                         │the appender that had claimed it, when it comes back
//!                         ▼
//!                      empty(p + n)
//! ```
//!
//! The tail is only a hint where to look: whoever finds its cell already used moves it on. So an
//! appender that stops between any two instructions keeps nobody from appending, and one that has
//! claimed a cell and does not come back costs that cell: the reader declares it void and goes on.
//! Should the appender come back after all, it finds out when it publishes, gives the cell back and
//! appends its record again. It appends its next record only then, so its records keep their order.

use crate::sync::{AtomicU64, Ordering};

const EMPTY: u64 = 0;
const CLAIMED: u64 = 1;
const FULL: u64 = 2;
const VOID: u64 = 3;

/// A stamp that says: this cell waits for the record at `position`.
pub(crate) fn empty(position: u64) -> u64 {
    position << 2 | EMPTY
}

fn state(stamp: u64) -> u64 {
    stamp & 3
}

fn position(stamp: u64) -> u64 {
    stamp >> 2
}

/// The words in shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    /// `stride` words a cell: the stamp, the length of the record in bytes, the record.
    pub(crate) cells: &'a [AtomicU64],
    pub(crate) stride: usize,
    /// A position before which all cells have been claimed.
    pub(crate) tail: &'a AtomicU64,
}

/// The buffer has no empty cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IsFull;

/// What the reader found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing is there, or nothing that is finished.
    Nothing,
    /// A record was read.
    Read,
    /// The next record is being written, and finished ones wait behind it.
    Held,
}

impl Words<'_> {
    fn count(self) -> u64 {
        (self.cells.len() / self.stride) as u64
    }

    /// The stamp of the cell for a position, and the words behind it.
    fn cell(&self, position: u64) -> (&AtomicU64, &[AtomicU64]) {
        let first = (position % self.count()) as usize * self.stride;
        (&self.cells[first], &self.cells[first + 1..first + self.stride])
    }

    /// Appends a record of `length` bytes that `fill` writes into the words it is given. It may be
    /// called several times.
    pub(crate) fn append(
        self,
        length: u64,
        mut fill: impl FnMut(&[AtomicU64]),
    ) -> Result<(), IsFull> {
        loop {
            let claimed = self.claim()?;
            let (stamp, words) = self.cell(claimed);
            // Relaxed, here and in `fill`: the exchange below publishes them.
            words[0].store(length, Ordering::Relaxed);
            fill(&words[1..]);
            // Release: pairs with the Acquire in `look`. If it fails, the reader has given this
            // cell up.
            let (from, to) = (claimed << 2 | CLAIMED, claimed << 2 | FULL);
            match stamp.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => self.give_back(stamp, now),
            }
        }
    }

    /// Claims the next empty cell; gives its position.
    fn claim(self) -> Result<u64, IsFull> {
        // Every attempt that fails moves the tail or the stamps on, so that so many are made only
        // if somebody has written nonsense over the buffer.
        for _ in 0..8 * self.count() + 1000 {
            // Acquire: pairs with the Release in `move_tail`, so that the stamp below is no older
            // than the tail.
            let tail = self.tail.load(Ordering::Acquire);
            let (stamp, _) = self.cell(tail);
            let seen = stamp.load(Ordering::Acquire);
            if seen == empty(tail) {
                // Acquire: pairs with the Release that made it empty; whoever used it before is
                // done with it.
                let claimed = tail << 2 | CLAIMED;
                if stamp
                    .compare_exchange(seen, claimed, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    self.move_tail(tail);
                    return Ok(tail);
                }
            } else if position(seen) >= tail {
                // Used already: whoever did it has not moved the tail yet.
                self.move_tail(tail);
            } else if state(seen) == VOID {
                // Whoever it belongs to has not come back for a lap. Relaxed: nothing is read or
                // written in a void cell.
                let skipped = tail << 2 | VOID;
                let _ = stamp.compare_exchange(seen, skipped, Ordering::Relaxed, Ordering::Relaxed);
            } else {
                break;
            }
        }
        Err(IsFull)
    }

    fn move_tail(self, from: u64) {
        // Release: pairs with the Acquire in `claim`. A failure means that somebody else did it.
        let _ = self.tail.compare_exchange(
            from,
            from.wrapping_add(1),
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    /// Makes a cell that was declared void usable again. Only the appender that had claimed it may.
    fn give_back(self, stamp: &AtomicU64, mut seen: u64) {
        // Others move a void cell on from lap to lap, so this may take more than one attempt.
        // Anything else than void was not written by this protocol, and is left alone.
        while state(seen) == VOID {
            let next = empty(position(seen) + self.count());
            // Release: pairs with the Acquire in `claim`; this appender's writes to the cell are
            // over.
            match stamp.compare_exchange(seen, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Reads the record at `head`, or moves `head` past cells in which none will come. `read` gets
    /// the length of the record and its words. Only one reader may call this, always with the head
    /// that the last call left.
    pub(crate) fn look(self, head: &mut u64, read: impl FnOnce(u64, &[AtomicU64])) -> Look {
        // A lap of void cells is passed at most: more cannot be before something else turns up.
        for _ in 0..=self.count() {
            let (stamp, words) = self.cell(*head);
            // Acquire: pairs with the Release in `append`; the record is visible.
            let seen = stamp.load(Ordering::Acquire);
            if position(seen) > *head || seen == *head << 2 | VOID {
                *head += 1;
            } else if seen == *head << 2 | FULL {
                // Relaxed: the stamp made them visible.
                read(words[0].load(Ordering::Relaxed), &words[1..]);
                // Release: pairs with the Acquire in `claim`; the record has been read.
                stamp.store(empty(*head + self.count()), Ordering::Release);
                *head += 1;
                return Look::Read;
            } else if seen == *head << 2 | CLAIMED && self.is_anything_behind(*head) {
                return Look::Held;
            } else {
                return Look::Nothing;
            }
        }
        Look::Nothing
    }

    /// Whether a finished record waits behind the claimed cell at `head`.
    fn is_anything_behind(self, head: u64) -> bool {
        // Relaxed: nothing is read from those cells yet.
        (head + 1..head + self.count())
            .any(|later| self.cell(later).0.load(Ordering::Relaxed) == later << 2 | FULL)
    }

    /// Declares the claimed cell at `head` void, if it is still claimed.
    pub(crate) fn give_up(self, head: u64) {
        let (stamp, _) = self.cell(head);
        // Relaxed: nothing is read or written in a void cell. A failure means that the record is
        // finished.
        let _ = stamp.compare_exchange(
            head << 2 | CLAIMED,
            head << 2 | VOID,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}
