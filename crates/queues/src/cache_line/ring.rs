//! The ring of cache lines: wide Express messages and the shared form of Basic. One line travels
//! for a message.
//!
//! | who | does | with |
//! |---|---|---|
//! | sender | finds room before the head, reads the stamp of line `t mod n` | |
//! | | claims: moves the tail from `t` to `t + 1` | compare-exchange |
//! | | composes in the line | stores |
//! | | **publishes**: the stamp from what it was to full in this lap | compare-exchange |
//! | receiver | finds line `h mod n` full and copies it out | |
//! | | **takes**: moves the head from `h` to `h + 1` | compare-exchange |
//!
//! A receiver never writes to a line: the head alone says which lines are free. It copies before it
//! takes and throws the copy away if another was faster, so it never holds a line either, and one
//! that stops or dies anywhere blocks nobody.
//!
//! A sender that is stopped between claim and publication would block everybody behind it. So a
//! receiver that looks at an unpublished line for a while, and finds later lines full, voids it: it
//! exchanges the stamp for `Void`, naming the lap, and goes on with the next. From then on the line
//! is *away*, in the hands of its slow sender: senders that come round to it move the void on to
//! their lap and go past, receivers skip it. The publication of the slow sender fails; it sends its
//! message again through another line, and only then gives the first one back: empty in the lap
//! after the last void. Its line was nobody else's meanwhile, so composing in it harmed nobody.
//!
//! A sender that is killed while it composes leaves its line to the others. For that the claim
//! itself says whose it is: the tail names the process that claimed last, in the same exchange that
//! moves it. Whoever claims next writes into its header, beside its own, the name that it found
//! there. So the claimant of a line is known from the tail until somebody claims the next line,
//! then from the line's own header, and if it never came to write that, from the next one's. A void
//! carries the name, and senders that come round to it look now and then whether the process still
//! lives; of a dead one they take the line over ([`SlotRing::recover`]). Only if two that claimed one
//! after the other are both killed within the few instructions between claim and header, the first
//! one's line stays away.
//!
//! Every change of a stamp makes it larger: full in one lap, empty, void, full in the next. No
//! value returns, so no exchange can mistake an old state for a new one, however late it comes.

use super::message::{CacheLineMessage, LINE_DATA, WORDS};
use super::senders::Senders;
use super::state::{self, CacheLineHeader, SenderId, State, encode};
use crate::error::SendError;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How often an operation tries again because others were faster. A memory that others spoil ends
/// it here.
pub(super) const ROUNDS: usize = 1 << 16;

/// Bit of the tail: nothing may be claimed any more.
pub(super) const CLOSED: u64 = 1 << 63;

/// Where the tail names who claimed last.
const SENDER_SHIFT: u32 = 57;

/// The bits of the tail that are a position: enough for decades.
pub(crate) const POSITION: u64 = (1 << SENDER_SHIFT) - 1;

/// Senders that come round to a line that is away look once in so many laps whether its holder
/// lives: that takes the kernel's time.
const LAPS_BETWEEN_LOOKS: u64 = 16;

/// One line of a ring. Zeroed memory is an empty line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Line {
    pub(super) stamp: AtomicU64,
    pub(super) header: AtomicU64,
    pub(super) data: [AtomicU64; WORDS],
}

impl Line {
    /// A line of words of some maker, which all are 0.
    #[allow(
        dead_code,
        reason = "for the models under loom; in a segment lines are found, not made"
    )]
    pub(crate) fn of(word: impl Fn() -> AtomicU64) -> Line {
        Line { stamp: word(), header: word(), data: std::array::from_fn(|_| word()) }
    }

    /// Makes it as it is in a new ring. Relaxed: whoever makes the ring publishes it.
    pub(crate) fn reset(&self) {
        self.stamp.store(0, Ordering::Relaxed);
        self.header.store(0, Ordering::Relaxed);
    }
}

/// A line that a sender has claimed and not yet published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// Its position.
    pub(crate) position: u64,
    /// Its stamp when it was claimed, which only a void or the publication changes.
    stamp: u64,
    /// Who claimed before.
    before: SenderId,
}

/// The line was voided while it was composed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Voided;

/// The words of a ring, wherever they lie. Zeroed words are an empty ring of generation 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotRing<'a> {
    /// A power of two of them, at least two.
    pub(crate) lines: &'a [Line],
    /// The position to be claimed next, who claimed the one before, and [`CLOSED`].
    pub(crate) tail: &'a AtomicU64,
    /// Where the head was when a sender looked last. Beside the tail.
    pub(crate) seen: &'a AtomicU64,
    /// The position to be received next.
    pub(crate) head: &'a AtomicU64,
    /// The ring's generation in the upper 31 bits; bit 0: closed.
    pub(crate) gate: &'a AtomicU32,
    /// Who sends.
    pub(crate) senders: Senders<'a>,
    /// This process's number among them.
    pub(crate) own: SenderId,
}

/// What a sender finds before it claims.
enum Obstacle {
    /// Look again.
    Stale,
    Refused(SendError),
}

impl<'a> SlotRing<'a> {
    #[inline(always)]
    pub(super) fn line(&self, position: u64) -> &'a Line {
        &self.lines[position as usize & (self.lines.len() - 1)]
    }

    #[inline(always)]
    pub(super) fn lap(&self, position: u64) -> u64 {
        position >> self.lines.len().trailing_zeros()
    }

    /// The stamp of a line when it holds the message of this position.
    #[inline(always)]
    pub(super) fn full(&self, position: u64) -> u64 {
        encode(self.lap(position), State::Full)
    }

    pub(super) fn count(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Claims the next line in the ring of this generation. Its header is to be written next.
    #[inline]
    pub(crate) fn claim(&self, generation: u32) -> Result<Claimed, SendError> {
        let mut passed = 0;
        for _ in 0..ROUNDS {
            // Acquire: pairs with the Release of whoever moved it.
            let tail = self.tail.load(Ordering::Acquire);
            // After the tail: a ring that changes hands from here on has another tail, and the
            // exchange below fails.
            if tail & CLOSED != 0 || self.gate.load(Ordering::Relaxed) >> 1 != generation {
                return Err(SendError::Closed);
            }
            let position = tail & POSITION;
            // Acquire: pairs with the Release in `find_room`: what receivers read from the line,
            // they have read.
            if position.wrapping_sub(self.seen.load(Ordering::Acquire)) >= self.count() {
                match self.find_room(tail) {
                    Ok(()) => {}
                    Err(Obstacle::Stale) => continue,
                    Err(Obstacle::Refused(why)) => return Err(why),
                }
            }
            // Acquire: pairs with the Release of `give_back` and of the void that others moved on.
            let found = self.line(position).stamp.load(Ordering::Acquire);
            if !state::is_free(found, self.full(position)) {
                passed += u64::from(self.pass_by(tail, found));
                if passed > 2 * self.count() {
                    // All lines are away.
                    if self.recover() == 0 {
                        return Err(SendError::Full);
                    }
                    passed = 0;
                }
            } else if self.move_tail(tail, self.own) {
                return Ok(Claimed { position, stamp: found, before: claimant_of(tail) });
            }
        }
        Err(SendError::Broken)
    }

    /// RecvState at the head, because the line at `tail` was not free when somebody looked last.
    #[cold]
    fn find_room(&self, tail: u64) -> Result<(), Obstacle> {
        // Acquire: pairs with the Release half of `advance`, before which the receiver has read its
        // lines.
        let head = self.head.load(Ordering::Acquire);
        let used = (tail & POSITION).wrapping_sub(head);
        // Negative when a receiver skipped a void line at the very tail, which then has to be
        // passed by.
        if used < self.count() || used.cast_signed() < 0 {
            // Release: passes on what the Acquire above has seen, to every sender that relies on
            // this word.
            self.seen.store(head, Ordering::Release);
            return Ok(());
        }
        if self.tail.load(Ordering::Relaxed) != tail {
            return Err(Obstacle::Stale);
        }
        Err(Obstacle::Refused(if used == self.count() {
            SendError::Full
        } else {
            SendError::Broken
        }))
    }

    /// Moves the tail past a line that is away; gives whether it did. If it did not, the tail that
    /// was read is an old one.
    #[cold]
    fn pass_by(&self, tail: u64, found: u64) -> bool {
        let position = tail & POSITION;
        if state::is_voided(found, self.full(position)) {
            let lap = self.lap(position);
            if lap.is_multiple_of(LAPS_BETWEEN_LOOKS) && self.is_of_the_dead(found) {
                self.take_over(self.line(position), found);
            } else {
                let void = encode(lap, state::decode(found));
                // AcqRel: keeps the chain from the void to `give_back` whole. If it fails, its
                // sender has just given it back or another sender has moved the void on.
                if self
                    .line(position)
                    .stamp
                    .compare_exchange(found, void, Ordering::AcqRel, Ordering::Relaxed)
                    .is_err()
                {
                    return false;
                }
            }
        }
        // Nobody claims the line.
        self.move_tail(tail, SenderId::NONE)
    }

    #[inline(always)]
    fn move_tail(&self, tail: u64, claimant: SenderId) -> bool {
        let next =
            (tail & POSITION).wrapping_add(1) & POSITION | claimant.number() << SENDER_SHIFT;
        // Release: pairs with the Acquire of the tail; a void that was moved on is seen by who sees
        // the tail past it.
        self.tail.compare_exchange(tail, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Writes a whole message into a claimed line.
    #[inline(always)]
    pub(crate) fn write(&self, claimed: Claimed, message: &CacheLineMessage) {
        self.put_header(claimed, message.header_word());
        for index in 0..message.length().div_ceil(8) {
            self.put(claimed, index, message.word(index));
        }
    }

    /// Writes the header of a claimed line, first of all: it says whose the line is.
    #[inline(always)]
    pub(crate) fn put_header(&self, claimed: Claimed, header: u64) {
        // Relaxed: the publication orders it, and whoever voids the line makes nothing of an older
        // header.
        let word =
            CacheLineHeader::in_lap(header, self.lap(claimed.position), self.own, claimed.before);
        self.line(claimed.position).header.store(word, Ordering::Relaxed);
    }

    /// Writes one word of a claimed line.
    #[inline]
    pub(crate) fn put(&self, claimed: Claimed, index: usize, word: u64) {
        // Relaxed: the publication orders it.
        self.line(claimed.position).data[index].store(word, Ordering::Relaxed);
    }

    /// Reads one word of a claimed line.
    #[inline]
    pub(crate) fn get(&self, claimed: Claimed, index: usize) -> u64 {
        self.line(claimed.position).data[index].load(Ordering::Relaxed)
    }

    /// What was composed in a claimed line.
    #[cold]
    pub(crate) fn composed(&self, claimed: Claimed) -> CacheLineMessage {
        copy(self.line(claimed.position))
    }

    /// Makes a claimed line visible to receivers, unless one of them has voided it.
    #[inline]
    pub(crate) fn publish(&self, claimed: Claimed) -> Result<(), Voided> {
        let full = self.full(claimed.position);
        let line = self.line(claimed.position);
        // SeqCst: Release pairs with the Acquire in `try_recv`, and it comes before the look
        // whether a receiver sleeps.
        let published =
            line.stamp.compare_exchange(claimed.stamp, full, Ordering::SeqCst, Ordering::Relaxed);
        published.map(|_| ()).map_err(|_| Voided)
    }

    /// Gives back a voided line. Its sender does not touch it any more.
    #[cold]
    pub(crate) fn give_back(&self, claimed: Claimed) {
        self.clear(self.line(claimed.position));
    }

    /// Gives back a line that is away and in nobody else's hands.
    fn clear(&self, line: &Line) {
        // A lap that starts over must not take it for its own.
        line.header.store(0, Ordering::Relaxed);
        for _ in 0..ROUNDS {
            let found = line.stamp.load(Ordering::Relaxed);
            let State::Void(_) = state::decode(found) else { return };
            let empty = encode(state::lap_of(found).wrapping_add(1), State::Empty);
            // Release: pairs with the Acquire in `claim`: this sender's last stores come before
            // those of the next. It fails when a sender that comes round moves the void on to its
            // lap.
            if line
                .stamp
                .compare_exchange(found, empty, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }

    /// Who claimed a position that is not published yet; `None` if that is not known, for now or
    /// for ever.
    pub(super) fn claimant(&self, position: u64) -> Option<SenderId> {
        let claims = |position| {
            // Relaxed: a header that is not seen yet makes the claimant unknown.
            CacheLineHeader::claims(
                self.line(position).header.load(Ordering::Relaxed),
                self.lap(position),
            )
        };
        let own = claims(position).map(|(own, _)| own);
        own.or_else(|| {
            let next = position.wrapping_add(1);
            // Acquire: as in `claim`.
            let tail = self.tail.load(Ordering::Acquire);
            if tail & POSITION == next {
                Some(claimant_of(tail))
            } else {
                claims(next).map(|(_, before)| before)
            }
        })
    }

    /// Takes the line at a claimed position from its sender.
    pub(super) fn void(&self, position: u64, found: u64) {
        let (line, lap) = (self.line(position), self.lap(position));
        let claimant = self.claimant(position).unwrap_or_default();
        // AcqRel: as in `pass_by`. If it fails, the message was published after all, or another
        // voided it.
        let void = encode(lap, State::Void(claimant));
        let _ = line.stamp.compare_exchange(found, void, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Gives up a claimed line without a message in it.
    #[cold]
    pub(crate) fn abandon(&self, claimed: Claimed) {
        let void = encode(self.lap(claimed.position), State::Void(self.own));
        // AcqRel: as in `pass_by`. If it fails, a receiver has voided the line.
        let line = self.line(claimed.position);
        let _ =
            line.stamp.compare_exchange(claimed.stamp, void, Ordering::AcqRel, Ordering::Relaxed);
        self.give_back(claimed);
    }

    /// Sends a message and gives its position. A line that is voided meanwhile is given back and
    /// another one taken.
    #[inline]
    pub(crate) fn try_send(
        &self,
        message: &CacheLineMessage,
        generation: u32,
    ) -> Result<u64, SendError> {
        for _ in 0..ROUNDS {
            let claimed = self.claim(generation)?;
            self.write(claimed, message);
            if self.publish(claimed).is_ok() {
                return Ok(claimed.position);
            }
            self.give_back(claimed);
        }
        Err(SendError::Broken)
    }

    /// Lets nobody send any more; gives the position from which on nothing will be written. What
    /// was claimed before can still be published, what was published still be received.
    pub(crate) fn close(&self) -> u64 {
        // AcqRel: as in `move_tail`.
        let end = self.tail.fetch_or(CLOSED, Ordering::AcqRel) & POSITION;
        // Release: pairs with the Acquire of nobody in particular; receivers only learn from it
        // that the tail is worth a look.
        self.gate.fetch_or(1, Ordering::SeqCst);
        end
    }

    /// Opens a closed ring from which everything was received, for another queue: senders of the
    /// former one find it closed. Gives the new generation, or `None` if the ring is not closed and
    /// empty.
    ///
    /// No receiver may use the ring meanwhile.
    pub(crate) fn reopen(&self) -> Option<u32> {
        let head = self.head.load(Ordering::Acquire);
        if !is_drained(self.tail.load(Ordering::Acquire), head) {
            return None;
        }
        let generation = (self.gate.load(Ordering::Relaxed) >> 1).wrapping_add(1) & (u32::MAX >> 1);
        // First the generation: a sender that reads the new tail finds it too.
        self.gate.store(generation << 1, Ordering::SeqCst);
        // A lap on. SlotRing that are away stay so; senders that come round move the void on.
        let start = self.lap(head).wrapping_add(1) << self.lines.len().trailing_zeros();
        self.head.store(start, Ordering::Release);
        self.seen.store(start, Ordering::Release);
        // Release: pairs with the Acquire of the tail in `claim`.
        self.tail.store(start, Ordering::Release);
        Some(generation)
    }

    /// The generation that a sender of today has to name.
    pub(crate) fn generation(&self) -> u32 {
        self.gate.load(Ordering::Acquire) >> 1
    }

    /// Whether there is no message where the next one is to be received. In a full ring that is
    /// rare.
    #[cold]
    pub(crate) fn is_stuck(&self) -> bool {
        let head = self.head.load(Ordering::Acquire);
        self.line(head).stamp.load(Ordering::Acquire) != self.full(head)
    }

    /// Gets back the lines of senders that have died; gives how many.
    #[cold]
    pub(crate) fn recover(&self) -> usize {
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Acquire) & POSITION;
        // What they claimed and nobody has waited for yet.
        for ahead in 0..tail.wrapping_sub(head).min(self.count()) {
            let position = head.wrapping_add(ahead);
            let found = self.line(position).stamp.load(Ordering::Acquire);
            if state::is_free(found, self.full(position))
                && self.claimant(position).is_some_and(|claimant| self.senders.is_dead(claimant))
            {
                self.void(position, found);
            }
        }
        let take = |line: &&Line| {
            let found = line.stamp.load(Ordering::Acquire);
            self.is_of_the_dead(found) && self.take_over(line, found)
        };
        self.lines.iter().filter(take).count()
    }

    fn is_of_the_dead(&self, found: u64) -> bool {
        matches!(state::decode(found), State::Void(claimant) if self.senders.is_dead(claimant))
    }

    /// Gives back a line in its dead holder's place; gives whether this process was the one to do
    /// it.
    fn take_over(&self, line: &Line, found: u64) -> bool {
        // In the lap after the void, as if it had come round: from here on the line is this
        // process's, as one of its own that was voided, and nobody else's. AcqRel: as in `pass_by`;
        // if it fails, the void was moved on or somebody was faster.
        let void = encode(state::lap_of(found).wrapping_add(1), State::Void(self.own));
        let taken =
            line.stamp.compare_exchange(found, void, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if taken {
            self.clear(line);
        }
        taken
    }
}

/// Who claimed the position before the tail.
#[inline(always)]
fn claimant_of(tail: u64) -> SenderId {
    SenderId::from_bits(tail >> SENDER_SHIFT)
}

/// Whether nothing will be claimed any more and everything that was has been received or skipped.
pub(super) fn is_drained(tail: u64, head: u64) -> bool {
    // The head passes the tail when it skips a void line that nobody has passed by yet.
    tail & CLOSED != 0 && head.wrapping_sub(tail & POSITION).cast_signed() >= 0
}

/// The message in a line, or, if others write to it, anything.
#[inline(always)]
pub(super) fn copy(line: &Line) -> CacheLineMessage {
    let header = line.header.load(Ordering::Relaxed);
    let mut data = [0; LINE_DATA];
    for (bytes, word) in data.chunks_exact_mut(8).zip(&line.data) {
        // Relaxed: a receiver read the stamp with Acquire before, and moves the head with Release
        // after.
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    CacheLineMessage::copied(header, data)
}
