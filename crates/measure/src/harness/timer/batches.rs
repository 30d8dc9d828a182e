//! Rounds of many runs back to back, where one run is shorter than a look at the clock.

use super::repetition::{Form, Place, Start, Subject, Timer};
use crate::harness::agreement;
use crate::harness::clock::microseconds;
use crate::harness::error::Error;
use crate::harness::processor_time::RankKind;
use tradewind::Communicator;

/// Runs before anything counts: they bring pages and caches in (Bokhari 1995, section 1.1).
const DISCARDED: u32 = 2;
/// More than so many runs in a repetition make it no better.
const MOST: f64 = 1e6;

/// Extent of a measurement in batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batches {
    /// Number of repetitions.
    pub rounds: u32,
    /// About how long each takes, in microseconds; it has at least one run.
    pub microseconds: f64,
}

impl Batches {
    /// About how long they take with the runs before them, in milliseconds.
    pub fn milliseconds(self) -> u64 {
        (f64::from(self.rounds + 1) * self.microseconds * 1e-3).ceil() as u64
    }

    /// Microseconds of one run, for each repetition: those of the rank that takes longest, the same
    /// on all ranks. All ranks call this.
    ///
    /// ```
    /// use measure::harness::timer::{Batches, calls};
    /// tradewind::local(2, |world| {
    ///     let times = Batches { rounds: 5, microseconds: 100.0 }
    ///         .time(&world, &mut calls(|| Ok(world.barrier()?)))
    ///         .expect("two ranks can meet");
    ///     assert!(times.len() == 5 && times.iter().all(|time| *time > 0.0));
    ///     Ok(())
    /// })
    /// # .expect("a job of threads");
    /// ```
    ///
    /// # Errors
    /// If a rank has failed, and the errors of the subject.
    pub fn time(self, world: &Communicator, subject: &mut dyn Subject) -> Result<Vec<f64>, Error> {
        // Only the ranks' own times count, wherever they are.
        let place = Place {
            cores: 0,
            rank_kind: RankKind::Thread,
            service: None,
            adds_interrupts: false,
            has_common_clock: false,
        };
        Timer::new(world, place).batches(subject, self)
    }
}

impl Timer<'_> {
    pub(super) fn batches(
        &self,
        subject: &mut dyn Subject,
        extent: Batches,
    ) -> Result<Vec<f64>, Error> {
        self.batch(subject, DISCARDED)?;
        let calls = self.calls_within(subject, extent.microseconds)?;
        let own = (0..extent.rounds)
            .map(|_| self.batch(subject, calls))
            .collect::<Result<Vec<_>, _>>()?;
        agreement::largest(self.world, &own)
    }

    /// Number of runs that take about so long.
    fn calls_within(&self, subject: &mut dyn Subject, limit_us: f64) -> Result<u32, Error> {
        let mut tried = 1;
        loop {
            let each = agreement::largest(self.world, &[self.batch(subject, tried)?])?[0];
            // An eighth of the time is exact enough.
            if each * f64::from(tried) >= limit_us / 8.0 || f64::from(tried) >= MOST {
                return Ok((limit_us / each.max(1e-3)).clamp(1.0, MOST) as u32);
            }
            tried *= 2;
        }
    }

    /// Microseconds of one of so many runs on this rank.
    pub(super) fn batch(&self, subject: &mut dyn Subject, calls: u32) -> Result<f64, Error> {
        let form = Form { start: Start::Barrier, calls, computation: None };
        let one = self.once(subject, 0, form)?;
        Ok(microseconds(one.begin, one.end) / f64::from(calls.max(1)))
    }
}
