//! The two words by which the ends of a ring of pieces agree: what lies in a place, and how many
//! pieces were taken.

use crate::sync::{AtomicU64, Ordering};

/// Low bits of a stamp: the call.
const CALL_BITS: u32 = 24;

/// What lies where a piece is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing yet.
    Nothing,
    /// The piece.
    Piece,
    /// A piece of another collective.
    Stranger,
}

/// What a piece is marked with, by its position among all pieces that ever go through the ring.
fn stamp(position: u64, call: u32) -> u64 {
    // One more than the position, so that zeroed memory is the stamp of no piece.
    (position + 1) << CALL_BITS | u64::from(call & ((1 << CALL_BITS) - 1))
}

/// Says that a piece lies in its place. For the sender.
#[inline]
pub(crate) fn publish(word: &AtomicU64, position: u64, call: u32) {
    // Release: pairs with the Acquire in `look`.
    word.store(stamp(position, call), Ordering::Release);
}

/// Whether the piece of this position has come; its bytes can then be read. For the receiver.
#[inline]
pub(crate) fn look(word: &AtomicU64, position: u64, call: u32) -> Found {
    // Acquire: pairs with the Release in `publish`.
    match word.load(Ordering::Acquire) {
        found if found == stamp(position, call) => Found::Piece,
        found if found >> CALL_BITS == position + 1 => Found::Stranger,
        _ => Found::Nothing,
    }
}

/// Gives the locations of all pieces before `next` back. For the receiver.
#[inline]
pub(crate) fn give_back(taken: &AtomicU64, next: u64) {
    // Release: pairs with the Acquire in `room_until`.
    taken.store(next, Ordering::Release);
}

/// The first position that there is no room for, in a ring of so many locations. For the sender.
#[inline]
pub(crate) fn room_until(taken: &AtomicU64, locations: u64) -> u64 {
    // Acquire: pairs with the Release in `give_back`: the receiver is done with what lay there.
    taken.load(Ordering::Acquire) + locations
}
