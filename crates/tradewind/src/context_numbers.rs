//! Numbers of new communicators.
//!
//! Every rank of a new communicator offers a number, and all of them take the one that counts
//! highest. So it counts above those of all communicators that any of them has had, which
//! distinguishes its messages from late ones of dropped communicators
//! ([`queues::matching::Contexts`]).

use crate::error::{Result, argument};
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers of communicators are below. The others are those of runs that
/// [watch](crate::internode) other ranks.
pub(crate) const NUMBERS: u32 = 1 << 31;

/// Source of numbers for new communicators.
#[derive(Debug)]
pub(crate) struct ContextNumbers {
    /// The highest count that this process has offered or taken.
    taken: AtomicU32,
    /// Lower bits of a number that are the rank that has offered it; the others count.
    rank_bits: u32,
}

impl ContextNumbers {
    /// Numbers for communicators of so many ranks.
    pub(crate) fn new(ranks: u32) -> Self {
        let rank_bits = u32::BITS - ranks.saturating_sub(1).leading_zeros();
        ContextNumbers { taken: AtomicU32::new(0), rank_bits }
    }

    /// Bits of a number that count.
    pub(crate) fn count_bits(&self) -> u32 {
        u32::MAX.checked_shl(self.rank_bits).unwrap_or(0)
    }

    /// A number that is not above any which is offered from now on.
    pub(crate) fn least(&self) -> u32 {
        // Relaxed: as in `offer`.
        let count = self.taken.load(Ordering::Relaxed).saturating_add(1);
        count.saturating_mul(1 << self.rank_bits.min(31))
    }

    /// The number that this rank offers for a new communicator, not 0. No other offer is the same:
    /// part of it is the rank, and threads of a rank count together.
    pub(crate) fn offer(&self, rank: u32) -> Result<u32> {
        // Relaxed: the numbers publish nothing, they only differ.
        let count = self.taken.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let ranks = 1_u64 << self.rank_bits;
        let counts = u64::from(NUMBERS) >> self.rank_bits;
        if u64::from(rank) < ranks && u64::from(count) < counts {
            return Ok(count << self.rank_bits | rank);
        }
        let found = format!("{count}, made by rank {rank}");
        let expected = format!("below {counts}, and its first rank below {ranks}");
        Err(argument("the number of a communicator", found, expected))
    }

    /// Takes the number of a new communicator from the offers of all its ranks, of which 0 is none.
    pub(crate) fn take(&self, offers: impl IntoIterator<Item = u32>) -> Option<u32> {
        let made = |number| (number != 0).then_some(number);
        let highest = offers.into_iter().map(made).reduce(|a, b| Some(a?.max(b?)))??;
        // Relaxed: the communicator that is created passes nothing on by this.
        self.taken.fetch_max(highest >> self.rank_bits, Ordering::Relaxed);
        Some(highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offer_is_a_number_of_its_own() {
        let numbers = ContextNumbers::new(65536);
        let offered = [numbers.offer(0), numbers.offer(0), numbers.offer(1), numbers.offer(65535)];
        let mut offered: Vec<u32> =
            offered.into_iter().map(|number| number.expect("numbers are left")).collect();
        assert!(offered.iter().all(|number| *number != 0), "0 is the number of the world");
        offered.sort_unstable();
        offered.dedup();
        assert_eq!(offered.len(), 4);
        assert!(numbers.offer(65536).is_err());
        let of_one_rank = ContextNumbers::new(1);
        assert_eq!(of_one_rank.offer(0).ok(), Some(1));
        assert!(of_one_rank.offer(1).is_err());
    }

    #[test]
    fn a_job_of_few_ranks_has_many_numbers() {
        let numbers = ContextNumbers::new(3);
        let offers = (0..200_000).filter(|_| numbers.least() <= numbers.offer(2).expect("one"));
        assert_eq!(offers.count(), 200_000);
        assert_eq!(numbers.take([4 * (NUMBERS / 4 - 2)]), Some(NUMBERS - 8));
        assert_eq!(numbers.offer(2).ok(), Some(NUMBERS - 2));
        assert!(numbers.offer(2).is_err() && numbers.least() >= NUMBERS);
    }

    #[test]
    fn a_communicator_counts_above_all_that_its_ranks_have_had() {
        let ranks = [0, 1, 2].map(|rank| (rank, ContextNumbers::new(4)));
        let mut last = [0; 3];
        let mut taken = Vec::new();
        for members in [&[0, 1][..], &[0, 1], &[1, 2], &[2], &[2], &[2], &[0, 2], &[0, 1, 2]] {
            let offer = |member: &usize| {
                let (rank, numbers) = &ranks[*member];
                numbers.offer(*rank).expect("numbers are left")
            };
            let offers: Vec<u32> = members.iter().map(offer).collect();
            let take = |member: &usize| ranks[*member].1.take(offers.iter().copied());
            let numbers: Vec<u32> = members.iter().filter_map(take).collect();
            assert!(numbers.iter().all(|number| *number == numbers[0]), "all take the same");
            assert_eq!(numbers.len(), members.len());
            for member in members {
                assert!(numbers[0] >> 2 > last[*member]);
                last[*member] = numbers[0] >> 2;
            }
            taken.push(numbers[0]);
        }
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 8, "none twice");
        assert_eq!(ranks[0].1.take([5, 0]), None, "a rank without a number");
    }
}
