//! Protocol of an append buffer: many senders, one receiver, and cells that are claimed, filled and
//! read in turn.
//!
//! Every cell has a state word: a state and the position it belongs to. Positions only grow; cell
//! *c* of *n* belongs to *c*, *c + n*, *c + 2n* … in turn. No state word recurs, so a sender that
//! was stopped for any time cannot mistake a later use of its cell for its own.
//!
//! ```text
//! empty(p) ── sender ──→ claimed(p) ── same sender ──→ full(p) ── receiver ──→ empty(p + n)
//!                            │ receiver, when later records wait behind the cell
//!                            ▼
//!                         void(p) ── sender that reaches it a lap later ──→ void(p + n) …
//!                            │ the sender that claimed it, when it resumes
//!                            ▼
//!                         empty(p + n)
//! ```
//!
//! The tail is a hint where to search: a sender that finds its cell already used advances it. A
//! sender stopped at any instruction therefore does not keep others from appending. One that has
//! claimed a cell and does not resume costs that cell: the receiver voids it and continues. If the
//! sender does resume, its publication fails; it releases the cell and appends its record again. It
//! appends its next record only afterwards, so its records keep their order.

use crate::sync::{AtomicU64, Ordering};

const EMPTY: u64 = 0;
const CLAIMED: u64 = 1;
const FULL: u64 = 2;
const VOID: u64 = 3;

/// Encodes the state of a cell that waits for the record at `position`.
pub(crate) fn empty(position: u64) -> u64 {
    position << 2 | EMPTY
}

fn state(word: u64) -> u64 {
    word & 3
}

fn position(word: u64) -> u64 {
    word >> 2
}

/// RecordRing of a buffer, borrowed from shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordRing<'a> {
    /// `stride` words per cell: the state, the length of the record in bytes, the record.
    pub(crate) cells: &'a [AtomicU64],
    pub(crate) stride: usize,
    /// Position before which all cells have been claimed.
    pub(crate) tail: &'a AtomicU64,
}

/// The buffer has no empty cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IsFull;

/// Result of polling the cell at the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polled {
    /// No finished record is available.
    Nothing,
    /// A record was read.
    Read,
    /// The next record is unfinished, and finished ones wait behind it.
    Blocked,
}

impl RecordRing<'_> {
    fn count(self) -> u64 {
        (self.cells.len() / self.stride) as u64
    }

    /// Returns the state word of the cell for a position, and the words after it.
    fn cell(&self, position: u64) -> (&AtomicU64, &[AtomicU64]) {
        let first = (position % self.count()) as usize * self.stride;
        (&self.cells[first], &self.cells[first + 1..first + self.stride])
    }

    /// Appends a record of `length` bytes, which `fill` writes to the words it receives. `fill` may
    /// be called several times.
    pub(crate) fn append(
        self,
        length: u64,
        mut fill: impl FnMut(&[AtomicU64]),
    ) -> Result<(), IsFull> {
        loop {
            let claimed = self.claim()?;
            let (state_word, words) = self.cell(claimed);
            // Relaxed, here and in `fill`: the exchange below publishes them.
            words[0].store(length, Ordering::Relaxed);
            fill(&words[1..]);
            // Release: pairs with the Acquire in `poll`. It fails exactly if the receiver has
            // voided the cell: no other thread changes a claimed one.
            let from = claimed << 2 | CLAIMED;
            let to = claimed << 2 | FULL;
            match state_word.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => self.release(state_word, now),
            }
        }
    }

    /// Claims the next empty cell; returns its position.
    fn claim(self) -> Result<u64, IsFull> {
        // Every failed attempt advances the tail or a state, so this limit is reached only if the
        // buffer is corrupt.
        for _ in 0..8 * self.count() + 1000 {
            // Acquire: pairs with the Release in `advance_tail`, so that the state below is no
            // older than the tail.
            let tail = self.tail.load(Ordering::Acquire);
            let (state_word, _) = self.cell(tail);
            let seen = state_word.load(Ordering::Acquire);
            if seen == empty(tail) {
                // Acquire: pairs with the Release that made the cell empty, so that its former
                // user has finished with it.
                let claimed = tail << 2 | CLAIMED;
                if state_word
                    .compare_exchange(seen, claimed, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    self.advance_tail(tail);
                    return Ok(tail);
                }
            } else if position(seen) >= tail {
                // Used already, by a sender that has not advanced the tail yet.
                self.advance_tail(tail);
            } else if state(seen) == VOID {
                // Its sender has been stopped for a lap. Relaxed: a void cell is neither read nor
                // written.
                let skipped = tail << 2 | VOID;
                let _ = state_word.compare_exchange(
                    seen,
                    skipped,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            } else {
                break;
            }
        }
        Err(IsFull)
    }

    fn advance_tail(self, from: u64) {
        // Release: pairs with the Acquire in `claim`. A failure means that another sender did it.
        let _ = self.tail.compare_exchange(
            from,
            from.wrapping_add(1),
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    /// Makes a voided cell usable again. Called only by the sender that claimed it.
    fn release(self, state_word: &AtomicU64, mut seen: u64) {
        // Other senders move a void cell on from lap to lap, so this may take several attempts.
        // Any other state is corrupt and left unchanged.
        while state(seen) == VOID {
            let next = empty(position(seen) + self.count());
            // Release: pairs with the Acquire in `claim`, so that this sender's writes to the cell
            // precede those of the next one.
            match state_word.compare_exchange(seen, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Reads the record at `head`, or advances `head` past voided cells. `read` receives the length
    /// of the record and its words. Only one receiver may call this, with the head that the
    /// previous call left.
    pub(crate) fn poll(self, head: &mut u64, read: impl FnOnce(u64, &[AtomicU64])) -> Polled {
        // At most one lap of void cells can precede another state.
        for _ in 0..=self.count() {
            let (state_word, words) = self.cell(*head);
            // Acquire: pairs with the Release in `append`, so that the record is visible.
            let seen = state_word.load(Ordering::Acquire);
            if position(seen) > *head || seen == *head << 2 | VOID {
                *head += 1;
            } else if seen == *head << 2 | FULL {
                // Relaxed: the load of the state made them visible.
                read(words[0].load(Ordering::Relaxed), &words[1..]);
                // A plain store: the receiver alone changes a full cell. Release: pairs with the
                // Acquire in `claim`, after which the record may be overwritten.
                state_word.store(empty(*head + self.count()), Ordering::Release);
                *head += 1;
                return Polled::Read;
            } else if seen == *head << 2 | CLAIMED && self.is_record_behind(*head) {
                return Polled::Blocked;
            } else {
                return Polled::Nothing;
            }
        }
        Polled::Nothing
    }

    /// Returns whether a finished record follows the claimed cell at `head`.
    fn is_record_behind(self, head: u64) -> bool {
        // Relaxed: those records are not read yet.
        (head + 1..head + self.count())
            .any(|later| self.cell(later).0.load(Ordering::Relaxed) == later << 2 | FULL)
    }

    /// Voids the cell at `head` if it is still claimed.
    pub(crate) fn void(self, head: u64) {
        let (state_word, _) = self.cell(head);
        // Relaxed: a void cell is neither read nor written by the receiver. A failure means that
        // the record is finished.
        let _ = state_word.compare_exchange(
            head << 2 | CLAIMED,
            head << 2 | VOID,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}
