//! Repetition of a disturbed measurement.

use crate::harness::agreement;
use crate::harness::context::StepContext;
use crate::harness::doubts::{Doubts, Sign};
use crate::harness::error::Error;
use crate::harness::load::LoadMeter;
use crate::rows::{Load, Row};

/// Attempts at a measurement that something disturbs, …
pub(crate) const ATTEMPTS: u32 = 3;
/// … and where little is measured.
pub(crate) const QUICK_ATTEMPTS: u32 = 1;

/// Measures until nothing disturbs it, at most so many times. Returns the rows of the least disturbed
/// attempt with the load beside it. All ranks call this. `measure` returns the rows of an attempt,
/// and `doubts` what the first rank's times say against them.
pub(crate) fn undisturbed_rows(
    here: &StepContext<'_>,
    attempts: u32,
    mut measure: impl FnMut() -> Result<Vec<Row>, Error>,
    doubts: impl Fn(&[Row]) -> Result<Doubts, Error>,
) -> Result<Vec<Row>, Error> {
    let (rows, found) = least_disturbed(attempts, || {
        let meter = LoadMeter::start(here)?;
        let rows = measure()?;
        let own = if here.world.rank() == 0 { doubts(&rows)? } else { Doubts::default() };
        let doubts = of_all_ranks(here, own.and(meter.doubts(here)?))?;
        Ok((rows, doubts))
    })?;
    let load = Some(Load::from(found));
    Ok(rows.into_iter().map(|row| Row { load, ..row }).collect())
}

fn least_disturbed<T>(
    attempts: u32,
    mut attempt: impl FnMut() -> Result<(T, Doubts), Error>,
) -> Result<(T, Doubts), Error> {
    let mut best = attempt()?;
    for _ in 1..attempts {
        if !best.1.is_disturbed() {
            break;
        }
        let next = attempt()?;
        if next.1.worst() < best.1.worst() {
            best = next;
        }
    }
    Ok(best)
}

/// The doubts of all ranks, on all ranks.
pub(super) fn of_all_ranks(here: &StepContext<'_>, own: Doubts) -> Result<Doubts, Error> {
    let all = agreement::largest(here.world, own.shares())?;
    Ok(Doubts::of(Sign::ALL.into_iter().zip(all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes attempts with these loads by other processes.
    fn attempts(loads: &[f64]) -> (f64, Doubts, usize) {
        let mut left = loads.iter().copied();
        let (found, doubts) = least_disturbed(loads.len() as u32, || {
            let load = left.next().expect("no more attempts than were asked for");
            Ok((load, Doubts::of([(Sign::OtherProcesses, load), (Sign::Spread, 0.1)])))
        })
        .expect("no attempt fails");
        (found, doubts, loads.len() - left.count())
    }

    #[test]
    fn a_quiet_attempt_ends_the_repetition() {
        let (found, doubts, made) = attempts(&[0.9, 0.01, 0.0]);
        assert_eq!((found, doubts.is_disturbed(), made), (0.01, false, 2));
        assert_eq!(doubts.to_string(), "");
        assert_eq!(attempts(&[0.05, 0.0]).2, 1);
    }

    #[test]
    fn the_least_disturbed_attempt_counts_where_none_is_quiet() {
        let (found, doubts, made) = attempts(&[0.9, 0.3, 0.6]);
        assert_eq!((found, doubts.is_disturbed(), made), (0.3, true, 3));
        assert_eq!(doubts.to_string(), "other processes used 30 % of the cores");
    }

    #[test]
    fn an_attempt_that_fails_ends_all() {
        let failed = least_disturbed::<()>(3, || Err(Error::Panicked));
        assert!(matches!(failed, Err(Error::Panicked)));
    }
}
