//! Clocks, the computation, the random skew and percentiles: what every loop here measures with.
//!
//! `bench/c/measure.h` is the same text in C. Change both or neither: the comparison is only fair
//! while the two sides run one algorithm.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

fn microseconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
}

/// Microseconds on the monotonic clock.
pub fn wall_us() -> f64 {
    microseconds(ClockId::Monotonic)
}

/// Microseconds of user and system time this process and all its threads have used.
pub fn processor_us() -> f64 {
    microseconds(ClockId::ProcessCPUTime)
}

/// Work of a rank between start and wait: iterations in registers, or, as if an accelerator
/// computed, nanoseconds of sleep.
#[derive(Clone, Copy)]
pub struct Computation {
    /// 0: none.
    pub amount: u64,
    is_idle: bool,
}

impl Computation {
    /// Reads an amount, such as 300000 or, of sleep, 8000000ns.
    pub fn read(text: &str) -> Option<Self> {
        let (amount, is_idle) = match text.strip_suffix("ns") {
            Some(amount) => (amount, true),
            None => (text, false),
        };
        Some(Self { amount: amount.parse().ok()?, is_idle })
    }
}

/// Computes or sleeps.
pub fn compute(computation: Computation) {
    if computation.is_idle {
        std::thread::sleep(Duration::from_nanos(computation.amount));
    } else {
        iterate(computation.amount);
    }
}

/// A fixed amount of work, in registers only. The count is fixed once for all ranks, so
/// that a processor stolen meanwhile shows as time. Each step depends on the one before: no compiler
/// makes it shorter, no vector unit makes it faster.
#[inline(never)]
fn iterate(iterations: u64) {
    let mut x = 88_172_645_463_325_252_u64;
    for _ in 0..iterations {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
}

/// The next number of a splitmix64 sequence (Steele, Lea, Flood 2014, figure 16).
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A delay of up to `percent` of the computation, so that no library profits from ranks that start
/// in step.
pub fn skew(random: &mut u64, computation: Computation, percent: u64) {
    let amount = next_random(random) % (computation.amount * percent / 100 + 1);
    compute(Computation { amount, ..computation });
}

/// Sorts `values` in place; what [`percentile`] needs.
pub fn sort(values: &mut [f64]) {
    values.sort_by(f64::total_cmp);
}

/// The value below which `percent` of the sorted values lie (nearest rank).
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[((sorted.len() - 1) as f64 * (percent as f64 / 100.0) + 0.5) as usize]
}

/// Number of repetitions of `each_us` that fit `budget_us`, within bounds.
pub fn repetitions_within(budget_us: f64, each_us: f64, least: usize, most: usize) -> usize {
    let fit = if each_us > 0.0 { budget_us / each_us } else { most as f64 };
    (fit as usize).clamp(least, most)
}
