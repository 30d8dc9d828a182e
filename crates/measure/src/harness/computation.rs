//! A computation of fixed length.
//!
//! It is a count of steps, not a loop that watches the clock: whatever takes the processor away
//! meanwhile makes it longer and so becomes visible, as in NBCBench (Schneider et al. 2011, section
//! 4.2; Hoefler, Lumsdaine and Rehm, SC 2007).

use crate::harness::clock::{microseconds, now_ns};
use std::hint::black_box;

/// Steps of one try of a calibration: about a tenth of a millisecond, far below a turn of the
/// scheduler.
const STEPS: u64 = 100_000;
/// Tries. The fastest counts, because a stolen processor makes a try longer and nothing makes it
/// shorter.
const TRIES: u32 = 15;

/// Computes so many steps, in registers only.
///
/// Each step needs the one before, so that no compiler makes it shorter and no vector unit faster
/// (a generator of Marsaglia, "Xorshift RNGs", 2003).
#[inline(never)]
pub fn compute(steps: u64) {
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..steps {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// Speed of the computation on this machine.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct ComputeRate {
    microseconds_per_step: f64,
}

impl ComputeRate {
    /// Measures it, which takes a few milliseconds.
    pub fn calibrate() -> Self {
        let fastest = (0..TRIES).map(|_| one_try()).fold(f64::INFINITY, f64::min);
        ComputeRate { microseconds_per_step: fastest / STEPS as f64 }
    }

    /// Rate that was measured elsewhere, as by another rank.
    pub fn new(microseconds_per_step: f64) -> Self {
        ComputeRate { microseconds_per_step }
    }

    /// Microseconds that one step takes.
    pub fn microseconds_per_step(self) -> f64 {
        self.microseconds_per_step
    }

    /// The steps that take this long when nothing comes in between; at least one.
    ///
    /// ```
    /// let rate = measure::harness::computation::ComputeRate::new(0.002);
    /// assert_eq!(rate.steps(100.0), 50_000);
    /// ```
    pub fn steps(self, microseconds: f64) -> u64 {
        // The conversion saturates, and what is not a number becomes 0.
        ((microseconds / self.microseconds_per_step) as u64).max(1)
    }
}

fn one_try() -> f64 {
    let begin = now_ns();
    compute(STEPS);
    microseconds(begin, now_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_returns_a_rate_to_count_with() {
        let rate = ComputeRate::calibrate();
        assert!(rate.microseconds_per_step() > 0.0 && rate.microseconds_per_step().is_finite());
        assert!(rate.steps(1000.0) >= rate.steps(10.0));
    }

    #[test]
    fn an_invalid_time_becomes_one_step() {
        for microseconds in [f64::NAN, -1.0, 0.0] {
            assert_eq!(ComputeRate::new(0.001).steps(microseconds), 1);
        }
    }
}
