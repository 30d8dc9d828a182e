//! How much the clocks of nodes differ, so that what their ranks have recorded fits together.

use crate::communicator::Communicator;
use crate::error::Result;
use engine::call::{Call, CallKind};

/// Meetings from which the difference is found: some are slow, and each says what it must be at
/// least and at most.
const MEETINGS: usize = 9;

/// When a rank came to a meeting of all ranks and when it left it, in nanoseconds of its own clock.
#[derive(Clone, Copy, Debug)]
struct Visit {
    came: i64,
    left: i64,
}

impl Communicator {
    /// By how many nanoseconds this rank's clock is ahead of rank 0's. A collective call.
    pub(crate) fn clock_ahead(&self) -> Result<i64> {
        let call = Call::new(CallKind::Link, 0, 0);
        let mut last = Visit { came: 0, left: 0 };
        let mut visits = Vec::with_capacity(MEETINGS);
        for meeting in 0..=MEETINGS {
            let came = engine::trace::now().cast_signed();
            let words = [last.came.cast_unsigned(), last.left.cast_unsigned(), 0, 0, 0, 0];
            let told = self.exchange_words(words, call)?;
            let of_first = Visit { came: told[0][0].cast_signed(), left: told[0][1].cast_signed() };
            if meeting > 0 {
                visits.push((of_first, last));
            }
            last = Visit { came, left: engine::trace::now().cast_signed() };
        }
        Ok(ahead(&visits))
    }
}

/// By how much the second clock is ahead of the first one. Nobody leaves a meeting before everybody
/// has come: that bounds the difference from both sides, and what is between the bounds is as long
/// as a message takes. Clocks of which the bounds allow that they are one are taken for one.
fn ahead(visits: &[(Visit, Visit)]) -> i64 {
    let least = visits
        .iter()
        .map(|(first, second)| second.came.saturating_sub(first.left))
        .max()
        .unwrap_or(0);
    let most = visits
        .iter()
        .map(|(first, second)| second.left.saturating_sub(first.came))
        .min()
        .unwrap_or(0);
    if least <= 0 && 0 <= most { 0 } else { least.midpoint(most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(difference: i64) -> Vec<(Visit, Visit)> {
        // In true time: the second meeting is the quicker one.
        let first = [(1_000, 1_400), (2_000, 2_060)].map(|(came, left)| Visit { came, left });
        let second = [(1_200, 1_500), (2_030, 2_070)];
        let second =
            second.map(|(came, left)| Visit { came: came + difference, left: left + difference });
        first.into_iter().zip(second).collect()
    }

    #[test]
    fn the_quickest_meeting_says_most_about_the_difference() {
        for difference in [-5_000_000, 700, 1 << 40] {
            assert!((ahead(&visits(difference)) - difference).abs() <= 50, "{difference}");
        }
    }

    #[test]
    fn clocks_that_may_be_one_are() {
        assert_eq!(ahead(&visits(0)), 0);
        assert_eq!(ahead(&visits(20)), 0);
        assert_eq!(ahead(&[]), 0);
    }
}
