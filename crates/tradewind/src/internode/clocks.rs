//! Differences between the clocks of nodes, for profiles with one time axis.

use crate::error::Result;

/// Number of allgathers that the difference is computed from. Some are slow; each yields a lower
/// and an upper bound.
const ROUNDS: usize = 9;

/// Times at which a rank entered and left an allgather, in nanoseconds of its own clock.
#[derive(Clone, Copy, Debug)]
struct RoundTimes {
    entered: i64,
    left: i64,
}

/// Returns by how many nanoseconds this rank's clock is ahead of rank 0's. `allgather` gathers two
/// times of every rank, in rank order; all ranks call this function together.
pub(crate) fn ahead_of_first(
    mut allgather: impl FnMut([i64; 2]) -> Result<Vec<[i64; 2]>>,
) -> Result<i64> {
    let mut last = RoundTimes { entered: 0, left: 0 };
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..=ROUNDS {
        let entered = engine::trace::now().cast_signed();
        // Each round carries the times of the round before, which are not complete earlier.
        let [entered_first, left_first] = allgather([last.entered, last.left])?[0];
        let of_first = RoundTimes { entered: entered_first, left: left_first };
        if round > 0 {
            rounds.push((of_first, last));
        }
        last = RoundTimes { entered, left: engine::trace::now().cast_signed() };
    }
    Ok(ahead(&rounds))
}

/// Returns by how much the second clock is ahead of the first one. No rank leaves an allgather
/// before every rank has entered it, which bounds the difference from both sides; the bounds are
/// as far apart as a message takes. If they allow a difference of zero, the result is zero.
fn ahead(rounds: &[(RoundTimes, RoundTimes)]) -> i64 {
    let least = rounds
        .iter()
        .map(|(first, second)| second.entered.saturating_sub(first.left))
        .max()
        .unwrap_or(0);
    let most = rounds
        .iter()
        .map(|(first, second)| second.left.saturating_sub(first.entered))
        .min()
        .unwrap_or(0);
    if least <= 0 && 0 <= most { 0 } else { least.midpoint(most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(difference: i64) -> Vec<(RoundTimes, RoundTimes)> {
        // In true time: the second round is the quicker one.
        let times = |(entered, left)| RoundTimes { entered, left };
        let first = [(1_000, 1_400), (2_000, 2_060)].map(times);
        let second = [(1_200, 1_500), (2_030, 2_070)]
            .map(|(entered, left)| times((entered + difference, left + difference)));
        first.into_iter().zip(second).collect()
    }

    #[test]
    fn the_quickest_round_bounds_the_difference_best() {
        for difference in [-5_000_000, 700, 1 << 40] {
            assert!((ahead(&rounds(difference)) - difference).abs() <= 50, "{difference}");
        }
    }

    #[test]
    fn clocks_that_may_be_equal_count_as_equal() {
        assert_eq!(ahead(&rounds(0)), 0);
        assert_eq!(ahead(&rounds(20)), 0);
        assert_eq!(ahead(&[]), 0);
    }
}
