//! Lock-free distribution of the chunks of one task, each exactly once.

use crate::sync::{AtomicU64, Ordering};

/// Takes the next number of this lap, from 0. Returns `None` if `limit` numbers have been taken or
/// a later lap has begun. A word of an earlier lap counts as 0.
///
/// One word distributes the chunks; a second one counts the finished chunks. The rank that takes
/// `limit − 1` from the second word finished last and has acquired all other ranks' writes.
pub(crate) fn next_in_lap(word: &AtomicU64, lap: u32, limit: u32) -> Option<u32> {
    // The word holds the lap plus one in its upper half: zeroed memory then belongs to no lap.
    let mine = u64::from(lap.wrapping_add(1)) << 32;
    // Relaxed: the value is only a guess that the compare-exchange verifies.
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        // Laps wrap, so the sign of the difference decides. A word of a later lap means that this
        // task is complete and the slot is in use again: a late rank must not take a chunk.
        let ahead = ((seen >> 32) as u32).wrapping_sub((mine >> 32) as u32).cast_signed();
        let taken = match ahead {
            0 => seen as u32,
            1.. => return None,
            _ => 0,
        };
        if taken >= limit {
            return None;
        }
        // AcqRel: the exchanges of a lap form a release sequence, which carries every finisher's
        // writes to the rank that finishes last. A rank that dies after this exchange leaves its
        // chunk undone; the waiters' liveness check reports the death.
        match word.compare_exchange_weak(
            seen,
            mine | u64::from(taken + 1),
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            Ok(_) => return Some(taken),
            Err(now) => seen = now,
        }
    }
}
