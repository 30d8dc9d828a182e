//! The two words by which the ends of a ring agree: the tag of the piece at a position, and the
//! number of taken pieces.

use crate::sync::{AtomicU64, Ordering};

/// Number of low bits of a tag that hold the digest of the call.
const CALL_BITS: u32 = 24;

/// State of the position of an expected piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceState {
    /// The piece has not been written.
    Absent,
    /// The piece can be read.
    Present,
    /// The position holds a piece of another collective.
    Foreign,
}

/// Returns the tag of a piece, from its position among all pieces that ever pass through the ring.
fn tag(position: u64, call: u32) -> u64 {
    // The position plus one: zeroed memory is then the tag of no piece.
    (position + 1) << CALL_BITS | u64::from(call & ((1 << CALL_BITS) - 1))
}

/// Publishes a written piece. For the sender.
#[inline]
pub(crate) fn publish(word: &AtomicU64, position: u64, call: u32) {
    // Release: pairs with the Acquire in `poll`: the bytes of the piece are written.
    word.store(tag(position, call), Ordering::Release);
}

/// Returns the state of a position; the bytes of a present piece can be read. For the receiver.
#[inline]
pub(crate) fn poll(word: &AtomicU64, position: u64, call: u32) -> PieceState {
    // Acquire: pairs with the Release in `publish`.
    match word.load(Ordering::Acquire) {
        found if found == tag(position, call) => PieceState::Present,
        // Positions never repeat, so an older tag is that of a piece which was taken before.
        found if found >> CALL_BITS == tag(position, 0) >> CALL_BITS => PieceState::Foreign,
        _ => PieceState::Absent,
    }
}

/// Frees the positions of all pieces before `next`. For the receiver.
#[inline]
pub(crate) fn release(taken: &AtomicU64, next: u64) {
    // Release: pairs with the Acquire in `writable_until`: the receiver has read the pieces.
    taken.store(next, Ordering::Release);
}

/// Returns the first position that is not free, in a ring of so many positions. For the sender.
#[inline]
pub(crate) fn writable_until(taken: &AtomicU64, positions: u64) -> u64 {
    // Acquire: pairs with the Release in `release`. The next writes overwrite pieces that the
    // receiver has read.
    // Saturating: a receiver with corrupt memory may have stored any number.
    taken.load(Ordering::Acquire).saturating_add(positions)
}

/// Returns whether the receiver has taken all positions before `next`. For the sender.
#[inline]
pub(crate) fn are_taken(taken: &AtomicU64, next: u64) -> bool {
    // Acquire: pairs with the Release in `release`: the receiver has read the pieces.
    taken.load(Ordering::Acquire) >= next
}
