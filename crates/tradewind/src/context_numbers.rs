//! Numbers of new communicators.

use crate::error::{Result, argument};
use std::sync::atomic::{AtomicU32, Ordering};

/// Source of numbers for new communicators, of which the first rank takes one for all.
#[derive(Debug)]
pub(crate) struct ContextNumbers {
    /// Numbers that this process has taken.
    taken: AtomicU32,
    /// Bits of a number that are the first rank; the others count.
    rank_bits: u32,
}

impl ContextNumbers {
    /// Numbers for communicators whose first ranks have at most so many bits, below 32.
    pub(crate) fn new(rank_bits: u32) -> Self {
        ContextNumbers { taken: AtomicU32::new(0), rank_bits }
    }

    /// A number for a communicator with this first rank, not 0. No other communicator has it: part
    /// of it is the rank, so ranks need not agree, and threads of a rank need not take turns.
    pub(crate) fn next(&self, rank: u32) -> Result<u32> {
        let count_bits = u32::BITS - self.rank_bits;
        // Relaxed: the numbers publish nothing, they only differ.
        let count = self.taken.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let ranks = 1_u64 << self.rank_bits;
        let counts = 1_u64 << count_bits;
        if u64::from(rank) < ranks && u64::from(count) < counts {
            return Ok(u64::from(rank).checked_shl(count_bits).unwrap_or(0) as u32 | count);
        }
        let found = format!("{count}, made by rank {rank}");
        let expected = format!("below {counts}, and its first rank below {ranks}");
        Err(argument("the number of a communicator", found, expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_communicator_has_its_own_number() {
        let numbers = ContextNumbers::new(16);
        let taken = [numbers.next(0), numbers.next(0), numbers.next(1), numbers.next(65535)];
        let mut taken: Vec<u32> =
            taken.into_iter().map(|number| number.expect("numbers are left")).collect();
        assert!(taken.iter().all(|number| *number != 0), "0 is the number of the world");
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 4);
        assert!(numbers.next(65536).is_err());
        let of_one_rank = ContextNumbers::new(0);
        assert_eq!(of_one_rank.next(0).ok(), Some(1));
        assert!(of_one_rank.next(1).is_err());
    }
}
