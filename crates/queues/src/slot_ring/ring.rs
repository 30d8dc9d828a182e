//! Protocol of a ring of slots: many senders, many receivers, slots of any size.
//!
//! | Side | Step | Operation |
//! |---|---|---|
//! | sender | finds free space before the head, reads the state of slot `t mod n` | |
//! | | claims: advances the tail from `t` to `t + 1` | compare-exchange |
//! | | composes in the slot | stores |
//! | | **publishes**: the state from its old value to full in this lap | compare-exchange |
//! | receiver | finds slot `h mod n` full and copies it out | |
//! | | **takes**: advances the head from `h` to `h + 1` | compare-exchange |
//!
//! A receiver never writes to a full slot: the head alone determines which slots are free. It
//! copies before it takes and discards the copy if another receiver was faster. It therefore never
//! occupies a slot, and a receiver that is stopped or killed at any instruction blocks no other
//! thread.
//!
//! A sender that is stopped between claim and publication would block all later messages. A
//! receiver that polls an unpublished slot for a while, and finds later slots full, therefore voids
//! it: it exchanges the state for `Void`, which names the lap, and continues with the next slot.
//! From then on the slot is *voided*, but still in use by its slow sender: senders that find it in
//! later laps move the void on to their lap and skip it, as do receivers. The publication of the
//! slow sender fails; it sends its message again through another slot and only then releases the
//! first one as empty in the lap after the last void. Until then no other thread writes to the
//! slot, so composing in it was harmless.
//!
//! The slot of a sender killed while it composes must be recovered by others. To that end the claim
//! itself identifies its process: the tail names the process of the last claim, in the same
//! exchange that advances it. The next sender to claim writes into its header, besides its own
//! number, the number it found there. The claimant of a slot is thus known from the tail until the
//! next slot is claimed, then from the header of the slot, or, if it was never written, from the
//! header of the next slot. A void carries the number, and senders that find it check now and then
//! whether the process is alive; they take over the slots of ended processes
//! ([`SlotRing::recover`]). A slot stays voided only if the senders of two consecutive claims are
//! both killed within the few instructions between claim and header.
//!
//! Every change of a state word makes it larger: full in one lap, empty, void, full in the next. No
//! value recurs, so no exchange can mistake an old state for a new one, however late it executes.

use super::state::{self, SenderId, State, claim_header, claimants, encode};
use crate::error::SendError;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of attempts of an operation. Contention never exceeds it; corrupt memory does.
pub(super) const ROUNDS: usize = 1 << 16;

/// Bit of the tail: no more claims.
pub(super) const CLOSED: u64 = 1 << 63;

/// Position of the last claimant in the tail.
const SENDER_SHIFT: u32 = 57;

/// Position bits of the tail: enough for decades.
pub(crate) const POSITION: u64 = (1 << SENDER_SHIFT) - 1;

/// Laps between two liveness checks of the sender of a voided slot, each of which makes system
/// calls.
const LAPS_BETWEEN_CHECKS: u64 = 16;

/// Words of a slot, borrowed from any memory. Zeroed words are an empty slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotWords<'a> {
    /// State in a lap.
    pub(crate) state: &'a AtomicU64,
    /// Header: bits of the message, and the claim.
    pub(crate) header: &'a AtomicU64,
    /// The message.
    pub(crate) data: &'a [AtomicU64],
}

/// Slots of a ring and the processes that send to it. Its methods are constants of the kind where
/// all slots have the same size, so the ring costs such a kind no more than an array.
pub(crate) trait SlotMemory<'a>: Copy {
    /// Returns the number of slots, a power of two of at least two.
    fn count(self) -> u64;

    /// Returns the number of messages that the ring holds at most, up to the number of slots.
    #[inline(always)]
    fn capacity(self) -> u64 {
        self.count()
    }

    /// Returns the slot with this index, which is below the count.
    fn slot(self, index: usize) -> SlotWords<'a>;

    /// Returns true if the process of this number has ended; false for no process.
    fn is_dead(self, sender: SenderId) -> bool;
}

/// Slot that a sender has claimed and not yet published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// Position of the claim.
    pub(crate) position: u64,
    /// State word at the time of the claim. Only a void or the publication changes it.
    state: u64,
    /// Sender of the previous claim.
    before: SenderId,
}

/// The slot was voided before its publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Voided;

/// Words of a ring, borrowed from any memory. Zeroed words are an empty ring of generation 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotRing<'a, M> {
    /// Slots and sending processes.
    pub(crate) memory: M,
    /// Next position to claim, the sender of the last claim, and [`CLOSED`].
    pub(crate) tail: &'a AtomicU64,
    /// Value of the head that a sender last read. In the cache line of the tail.
    pub(crate) seen: &'a AtomicU64,
    /// Next position to receive.
    pub(crate) head: &'a AtomicU64,
    /// Generation of the ring in the upper 31 bits; bit 0: closed.
    pub(crate) generation_word: &'a AtomicU32,
    /// Number of this process among the sending ones.
    pub(crate) own: SenderId,
}

/// Reason why a sender cannot claim.
enum Obstacle {
    /// The tail has advanced: retry.
    Stale,
    Refused(SendError),
}

impl<'a, M: SlotMemory<'a>> SlotRing<'a, M> {
    #[inline(always)]
    pub(crate) fn slot(&self, position: u64) -> SlotWords<'a> {
        self.memory.slot((position & (self.count() - 1)) as usize)
    }

    #[inline(always)]
    pub(super) fn lap(&self, position: u64) -> u64 {
        position >> self.count().trailing_zeros()
    }

    /// Returns the state word of a slot that holds the message of this position.
    #[inline(always)]
    pub(super) fn full(&self, position: u64) -> u64 {
        encode(self.lap(position), State::Full)
    }

    #[inline(always)]
    pub(super) fn count(&self) -> u64 {
        self.memory.count()
    }

    /// Claims the next slot in the ring of this generation. The caller writes its header next.
    #[inline]
    pub(crate) fn claim(&self, generation: u32) -> Result<Claimed, SendError> {
        let mut skipped = 0;
        for _ in 0..ROUNDS {
            // Acquire: pairs with the Release of the thread that advanced it.
            let tail = self.tail.load(Ordering::Acquire);
            // Checked after the load of the tail: if the ring is reopened from here on, its tail
            // changes and the exchange below fails.
            if tail & CLOSED != 0 || self.generation_word.load(Ordering::Relaxed) >> 1 != generation
            {
                return Err(SendError::Closed);
            }
            let position = tail & POSITION;
            // Acquire: pairs with the Release in `find_space`, so that the receivers' reads of the
            // slot precede the writes below.
            if position.wrapping_sub(self.seen.load(Ordering::Acquire)) >= self.memory.capacity() {
                match self.find_space(tail) {
                    Ok(()) => {}
                    Err(Obstacle::Stale) => continue,
                    Err(Obstacle::Refused(why)) => return Err(why),
                }
            }
            // Acquire: pairs with the Release in `release` and in the exchange that moves a void
            // on.
            let found = self.slot(position).state.load(Ordering::Acquire);
            if !state::is_free(found, self.full(position)) {
                skipped += u64::from(self.skip(tail, found));
                if skipped > 2 * self.count() {
                    // Two laps of voided slots: no slot is usable until one is recovered.
                    if self.recover() == 0 {
                        return Err(SendError::Full);
                    }
                    skipped = 0;
                }
            } else if self.advance_tail(tail, self.own) {
                return Ok(Claimed { position, state: found, before: claimant_of(tail) });
            }
        }
        Err(SendError::Corrupt)
    }

    /// Reads the head, because the slot at `tail` was not free when it was last read.
    #[cold]
    fn find_space(&self, tail: u64) -> Result<(), Obstacle> {
        // Acquire: pairs with the Release half of `advance`, which follows the receiver's reads of
        // its slots.
        let head = self.head.load(Ordering::Acquire);
        let used = (tail & POSITION).wrapping_sub(head);
        // Negative when a receiver skipped a voided slot at the tail itself, which senders then
        // have to skip as well.
        if used < self.memory.capacity() || used.cast_signed() < 0 {
            // Release: passes on what the Acquire above saw to senders that rely on this word.
            self.seen.store(head, Ordering::Release);
            return Ok(());
        }
        if self.tail.load(Ordering::Relaxed) != tail {
            return Err(Obstacle::Stale);
        }
        Err(Obstacle::Refused(if used == self.memory.capacity() {
            SendError::Full
        } else {
            SendError::Corrupt
        }))
    }

    /// Advances the tail past a voided slot; returns whether it did. If not, the tail that was read
    /// is stale.
    #[cold]
    fn skip(&self, tail: u64, found: u64) -> bool {
        let position = tail & POSITION;
        if state::is_voided(found, self.full(position)) {
            let lap = self.lap(position);
            let slot = self.slot(position);
            let void = encode(lap, state::decode(found));
            // The void moves to this lap, so receivers of this lap skip the slot too: without that
            // they would wait for a message in it. AcqRel: continues the release sequence from the
            // void to `release`. If it fails, the slow sender has released the slot or another
            // sender has moved the void on, and the slot may be free.
            if slot
                .state
                .compare_exchange(found, void, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                return false;
            }
            // From the void of this lap on the slot becomes empty in a later lap only.
            if lap.is_multiple_of(LAPS_BETWEEN_CHECKS) && self.is_orphaned(void) {
                self.take_over(slot, void);
            }
        }
        // The tail names no claimant for a skipped slot.
        self.advance_tail(tail, SenderId::NONE)
    }

    #[inline(always)]
    fn advance_tail(&self, tail: u64, claimant: SenderId) -> bool {
        let next = (tail & POSITION).wrapping_add(1) & POSITION | claimant.number() << SENDER_SHIFT;
        // Release: pairs with the Acquire loads of the tail, so that a thread that sees the tail
        // past a voided slot also sees the void of this lap.
        self.tail.compare_exchange(tail, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Writes the header of a claimed slot. Precedes all other writes, since it identifies the
    /// claimant for recovery.
    #[inline(always)]
    pub(crate) fn put_header(&self, claimed: Claimed, header: u64) {
        // Relaxed: the publication orders it. A thread that voids the slot recognises an older
        // header by its lap.
        let word = claim_header(header, self.lap(claimed.position), self.own, claimed.before);
        self.slot(claimed.position).header.store(word, Ordering::Relaxed);
    }

    /// Makes a claimed slot visible to receivers, unless one of them has voided it.
    #[inline]
    pub(crate) fn publish(&self, claimed: Claimed) -> Result<(), Voided> {
        let full = self.full(claimed.position);
        let slot = self.slot(claimed.position);
        // The exchange fails exactly if a receiver has voided the slot: only a void and this
        // publication change the state after a claim. SeqCst: Release pairs with the Acquire in
        // `try_recv`, and the exchange precedes the check for sleeping receivers.
        let published =
            slot.state.compare_exchange(claimed.state, full, Ordering::SeqCst, Ordering::Relaxed);
        published.map(|_| ()).map_err(|_| Voided)
    }

    /// Releases a voided slot, which its sender no longer accesses.
    #[cold]
    pub(crate) fn release(&self, claimed: Claimed) {
        self.clear(self.slot(claimed.position));
    }

    /// Makes a voided slot empty. The caller is its only user.
    fn clear(&self, slot: SlotWords<'_>) {
        // Lap bits wrap: a header left behind must not match a later lap.
        slot.header.store(0, Ordering::Relaxed);
        for _ in 0..ROUNDS {
            let found = slot.state.load(Ordering::Relaxed);
            let State::Void(_) = state::decode(found) else { return };
            let empty = encode(state::lap_of(found).wrapping_add(1), State::Empty);
            // Release: pairs with the Acquire in `claim`, so that this sender's last stores precede
            // those of the next one. It fails when another sender moves the void on to its lap.
            if slot
                .state
                .compare_exchange(found, empty, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }

    /// Returns the claimant of an unpublished position; `None` if it is not known (yet).
    pub(super) fn claimant(&self, position: u64) -> Option<SenderId> {
        let claims = |position| {
            // Relaxed: a header that is not visible yet leaves the claimant unknown.
            claimants(self.slot(position).header.load(Ordering::Relaxed), self.lap(position))
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

    /// Voids the slot of a claimed position.
    pub(super) fn void(&self, position: u64, found: u64) {
        let slot = self.slot(position);
        let lap = self.lap(position);
        let claimant = self.claimant(position).unwrap_or_default();
        // AcqRel: as in `skip`. If it fails, the message has been published or another receiver has
        // voided the slot: either way this receiver continues.
        let void = encode(lap, State::Void(claimant));
        let _ = slot.state.compare_exchange(found, void, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Abandons a claimed slot without a message.
    #[cold]
    pub(crate) fn abandon(&self, claimed: Claimed) {
        let void = encode(self.lap(claimed.position), State::Void(self.own));
        // AcqRel: as in `skip`. If it fails, a receiver has voided the slot.
        let slot = self.slot(claimed.position);
        let _ =
            slot.state.compare_exchange(claimed.state, void, Ordering::AcqRel, Ordering::Relaxed);
        self.release(claimed);
    }

    /// Sends a message, which `write` writes into the claimed slot, beginning with its header;
    /// returns its position. If a receiver voids the slot meanwhile, the message goes through
    /// another one, so `write` may be called several times.
    #[inline(always)]
    pub(crate) fn try_send_with(
        &self,
        generation: u32,
        mut write: impl FnMut(&Self, Claimed),
    ) -> Result<u64, SendError> {
        for _ in 0..ROUNDS {
            let claimed = self.claim(generation)?;
            write(self, claimed);
            if self.publish(claimed).is_ok() {
                return Ok(claimed.position);
            }
            self.release(claimed);
        }
        Err(SendError::Corrupt)
    }

    /// Closes the ring to senders; returns the first position that will not be written. Claims made
    /// before can still be published, and published messages still be received.
    pub(crate) fn close(&self) -> u64 {
        // AcqRel: as in `advance_tail`.
        let end = self.tail.fetch_or(CLOSED, Ordering::AcqRel) & POSITION;
        // A hint that makes receivers read the tail; the bit in the tail closes the ring.
        self.generation_word.fetch_or(1, Ordering::SeqCst);
        end
    }

    /// Reopens a closed and drained ring for another queue; senders of the former queue continue to
    /// find it closed. Returns the new generation, or `None` if the ring is not closed and empty.
    ///
    /// No receiver may use the ring during the call.
    pub(crate) fn reopen(&self) -> Option<u32> {
        let head = self.head.load(Ordering::Acquire);
        if !is_drained(self.tail.load(Ordering::Acquire), head) {
            return None;
        }
        let generation =
            (self.generation_word.load(Ordering::Relaxed) >> 1).wrapping_add(1) & (u32::MAX >> 1);
        // The generation changes first: a sender that reads the new tail also reads the new
        // generation and fails.
        self.generation_word.store(generation << 1, Ordering::SeqCst);
        // The ring continues one lap on. Voided slots stay voided; senders that find them move the
        // void on.
        let start = self.lap(head).wrapping_add(1) << self.count().trailing_zeros();
        self.head.store(start, Ordering::Release);
        self.seen.store(start, Ordering::Release);
        // Release: pairs with the Acquire of the tail in `claim`.
        self.tail.store(start, Ordering::Release);
        Some(generation)
    }

    /// Returns the current generation.
    pub(crate) fn generation(&self) -> u32 {
        self.generation_word.load(Ordering::Acquire) >> 1
    }

    /// Recovers the slots of ended processes if the next slot to receive holds no message, which is
    /// rare in a full ring; returns whether receivers must check again. A ring may be full of slots
    /// without a message, because their senders were killed or are slow. Receivers void only slots
    /// that block a message.
    #[cold]
    pub(crate) fn recover_if_stuck(&self) -> bool {
        let is_stuck = self.is_stuck();
        if is_stuck {
            self.recover();
        }
        is_stuck
    }

    /// Returns whether the next slot to receive holds no message.
    #[cold]
    pub(crate) fn is_stuck(&self) -> bool {
        let head = self.head.load(Ordering::Acquire);
        self.slot(head).state.load(Ordering::Acquire) != self.full(head)
    }

    /// Recovers the slots of senders in ended processes; returns their number.
    #[cold]
    pub(crate) fn recover(&self) -> usize {
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Acquire) & POSITION;
        // First void the slots that ended processes claimed and no receiver has voided yet.
        for ahead in 0..tail.wrapping_sub(head).min(self.count()) {
            let position = head.wrapping_add(ahead);
            let found = self.slot(position).state.load(Ordering::Acquire);
            if state::is_free(found, self.full(position))
                && self.claimant(position).is_some_and(|claimant| self.memory.is_dead(claimant))
            {
                self.void(position, found);
            }
        }
        let take = |&slot: &SlotWords<'_>| {
            let found = slot.state.load(Ordering::Acquire);
            self.is_orphaned(found) && self.take_over(slot, found)
        };
        (0..self.count()).map(|index| self.slot(index)).filter(take).count()
    }

    fn is_orphaned(&self, found: u64) -> bool {
        matches!(state::decode(found), State::Void(claimant) if self.memory.is_dead(claimant))
    }

    /// Releases the slot of an ended process; returns whether this thread did.
    fn take_over(&self, slot: SlotWords<'_>, found: u64) -> bool {
        // The exchange makes this process the slot's only user, as if it had voided a claim of its
        // own in the next lap: competing threads expect the old word and fail. AcqRel: as in
        // `skip`. If it fails, the void was moved on or another thread was faster.
        let void = encode(state::lap_of(found).wrapping_add(1), State::Void(self.own));
        let taken =
            slot.state.compare_exchange(found, void, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if taken {
            self.clear(slot);
        }
        taken
    }
}

/// Returns the sender of the last claim.
#[inline(always)]
fn claimant_of(tail: u64) -> SenderId {
    SenderId::from_bits(tail >> SENDER_SHIFT)
}

/// Returns whether the ring is closed and every claimed position has been received or skipped.
pub(super) fn is_drained(tail: u64, head: u64) -> bool {
    // The head is past the tail after it skipped a voided slot that senders have not skipped yet.
    tail & CLOSED != 0 && head.wrapping_sub(tail & POSITION).cast_signed() >= 0
}
