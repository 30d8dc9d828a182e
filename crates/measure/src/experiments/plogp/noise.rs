//! The clock, and what disturbs this processor: what a loop sees that does nothing but look at the
//! clock.

use crate::harness::clock::now_ns;
use models::machine_file::Noise;

/// A step between two looks that is this many times as long as usual, and …
const TIMES: i64 = 10;
/// … at least so many nanoseconds, is an interruption.
const LEAST_NS: i64 = 1000;

/// The smallest step of the clock in nanoseconds, and the noise, from looking at it for so long.
pub(super) fn look(milliseconds: u64) -> (f64, Noise) {
    let end = now_ns() + i64::try_from(milliseconds).unwrap_or(i64::MAX / 2_000_000) * 1_000_000;
    let mut looks = Looks::begin(now_ns());
    while looks.last < end {
        looks.add(now_ns());
    }
    looks.found()
}

/// Steps between looks at a clock.
struct Looks {
    first: i64,
    last: i64,
    /// The shortest step that is one.
    resolution: i64,
    /// About how long a step takes that nothing comes into.
    usual: i64,
    interruptions: u32,
    lost: i64,
    longest: i64,
}

impl Looks {
    fn begin(now: i64) -> Self {
        Looks {
            first: now,
            last: now,
            resolution: i64::MAX,
            usual: i64::MAX,
            interruptions: 0,
            lost: 0,
            longest: 0,
        }
    }

    fn add(&mut self, now: i64) {
        let step = now - self.last;
        self.last = now;
        if step <= 0 {
            return;
        }
        self.resolution = self.resolution.min(step);
        self.usual = self.usual.min(step);
        if step >= LEAST_NS.max(TIMES.saturating_mul(self.usual)) {
            self.interruptions += 1;
            self.lost += step - self.usual;
            self.longest = self.longest.max(step - self.usual);
        }
    }

    fn found(&self) -> (f64, Noise) {
        let all = self.last - self.first;
        if all <= 0 {
            return (0.0, Noise::default());
        }
        let noise = Noise {
            share: self.lost as f64 / all as f64,
            per_second: f64::from(self.interruptions) * 1e9 / all as f64,
            longest: self.longest as f64 * 1e-3,
        };
        (self.resolution as f64, noise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half a second of looks every 20 ns, of which two were held up: for 30 and for 70 µs.
    #[test]
    fn what_looks_miss_is_noise() {
        let mut looks = Looks::begin(0);
        let mut now = 0;
        for look in 0..24_995_000_u32 {
            now += match look {
                1_000_000 => 30_020,
                9_000_000 => 70_020,
                _ => 20,
            };
            looks.add(now);
        }
        let (resolution, noise) = looks.found();
        assert_eq!(now, 500_000_000);
        assert_eq!((resolution, noise.longest), (20.0, 70.0));
        assert!(
            (noise.share - 100e-6 / 0.5).abs() < 1e-12 && (noise.per_second - 4.0).abs() < 1e-9,
            "{noise:?}"
        );
    }

    #[test]
    fn a_clock_that_stands_still_tells_nothing() {
        let mut looks = Looks::begin(5);
        looks.add(5);
        assert_eq!(looks.found(), (0.0, Noise::default()));
    }

    #[test]
    fn this_machine_has_a_clock() {
        let (resolution, noise) = look(2);
        assert!(resolution > 0.0 && (0.0..=1.0).contains(&noise.share), "{resolution} {noise:?}");
    }
}
