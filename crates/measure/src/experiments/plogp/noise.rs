//! The clock, and what disturbs this processor: what a loop sees that does nothing but look at the
//! clock.

use crate::harness::StepContext;
use crate::harness::clock::now_ns;
use crate::rows::{Quantity, Row, What};
use models::machine_file::Noise;

/// A step between two looks that is this many times as long as usual, and …
const TIMES: i64 = 10;
/// … at least so many nanoseconds, is an interruption.
const LEAST_NS: i64 = 1000;

/// Looks at the clock for so long.
pub(super) fn look(here: &StepContext<'_>, milliseconds: u64) -> Vec<Row> {
    let begin = now_ns();
    let end = begin + i64::try_from(milliseconds).unwrap_or(i64::MAX / 2_000_000) * 1_000_000;
    let mut looks = Looks::begin(begin);
    while looks.last < end {
        looks.add(now_ns());
    }
    let row = |(quantity, times)| here.row(What::Looks, quantity, times);
    looks.times().into_iter().map(row).collect()
}

/// The smallest step of the clock in nanoseconds, and the noise, from rows of [`look`].
pub(super) fn of_rows<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Option<(f64, Noise)> {
    let rows: Vec<&Row> = rows.into_iter().filter(|row| row.what == What::Looks).collect();
    let times = |quantity| rows.iter().find(|row| row.quantity == quantity).map(|row| &row.times);
    let all = times(Quantity::Alone)?.first()?;
    let lost = times(Quantity::Interruption).map(Vec::as_slice).unwrap_or_default();
    let noise = Noise {
        share: lost.iter().sum::<f64>() / all,
        per_second: lost.len() as f64 * 1e6 / all,
        longest: lost.iter().copied().fold(0.0, f64::max),
    };
    Some((times(Quantity::Least)?.first()? * 1e3, noise))
}

/// Steps between looks at a clock, in nanoseconds.
struct Looks {
    first: i64,
    last: i64,
    /// The shortest step that is one: about how long a step takes that nothing comes into.
    shortest: i64,
    /// By how much longer each interruption took.
    lost: Vec<i64>,
}

impl Looks {
    fn begin(now: i64) -> Self {
        // Memory that has to grow would be an interruption of its own.
        let lost = Vec::with_capacity(1 << 12);
        Looks { first: now, last: now, shortest: i64::MAX, lost }
    }

    fn add(&mut self, now: i64) {
        let step = now - self.last;
        self.last = now;
        if step <= 0 {
            return;
        }
        self.shortest = self.shortest.min(step);
        if step >= LEAST_NS.max(TIMES.saturating_mul(self.shortest)) {
            self.lost.push(step - self.shortest);
        }
    }

    /// Microseconds of each quantity; none if the clock stands still.
    fn times(&self) -> Vec<(Quantity, Vec<f64>)> {
        let all = self.last - self.first;
        if all <= 0 {
            return Vec::new();
        }
        let microseconds = |ns: &i64| *ns as f64 * 1e-3;
        let lost: Vec<f64> = self.lost.iter().map(microseconds).collect();
        let mut times = vec![
            (Quantity::Least, vec![microseconds(&self.shortest)]),
            (Quantity::Alone, vec![microseconds(&all)]),
        ];
        times.extend((!lost.is_empty()).then_some((Quantity::Interruption, lost)));
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::plogp::found::tests::row;

    fn found(looks: &Looks) -> Option<(f64, Noise)> {
        let row = |(quantity, times): (Quantity, Vec<f64>)| row(What::Looks, quantity, &times);
        let rows: Vec<Row> = looks.times().into_iter().map(row).collect();
        of_rows(&rows)
    }

    /// Half a second of looks every 20 ns, of which two were held up: for 30 and for 70 µs.
    #[test]
    fn interruptions_between_looks_are_noise() {
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
        let (resolution, noise) = found(&looks).expect("the clock moves");
        assert_eq!(now, 500_000_000);
        assert_eq!((resolution, noise.longest), (20.0, 70.0));
        assert!(
            (noise.share - 100e-6 / 0.5).abs() < 1e-12 && (noise.per_second - 4.0).abs() < 1e-9,
            "{noise:?}"
        );
    }

    #[test]
    fn a_clock_that_stands_still_has_no_rows() {
        let mut looks = Looks::begin(5);
        looks.add(5);
        assert_eq!(found(&looks), None);
        looks.add(9);
        assert_eq!(found(&looks), Some((4.0, Noise::default())));
    }
}
