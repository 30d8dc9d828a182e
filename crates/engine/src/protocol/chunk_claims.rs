//! Handing out the chunks of one piece of work, each once, without a lock.

use crate::sync::{AtomicU64, Ordering};

/// Takes the next number of this lap, from 0; `None` when `limit` were taken, or a later lap has
/// begun. A word of an earlier lap counts as 0.
///
/// One word hands out chunks, a second one counts those that are finished: whoever takes `limit −
/// 1` from it finished last and has acquired what all others wrote.
pub(crate) fn next_in_lap(word: &AtomicU64, lap: u32, limit: u32) -> Option<u32> {
    // Laps are told apart by one more than their number, so that zeroed memory belongs to none.
    let mine = u64::from(lap.wrapping_add(1)) << 32;
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let ahead = ((seen >> 32) as u32).wrapping_sub((mine >> 32) as u32).cast_signed();
        let taken = match ahead {
            0 => seen as u32,
            1.. => return None,
            _ => 0,
        };
        if taken >= limit {
            return None;
        }
        // AcqRel: a chain of these carries every finisher's writes to the one that finishes last.
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
