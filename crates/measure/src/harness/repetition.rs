//! Repetitions of something that all ranks do together.
//!
//! One repetition is often shorter than a look at the clock, so a lap consists of many, and a
//! measurement of several laps. What is kept are the laps, for their minimum and quantiles (Bokhari
//! 1995, section 3, fits minima where others interfere); the first pass, which brings pages and
//! caches in, is discarded (section 1.1).

use crate::harness::clock::{microseconds, now_ns};
use crate::harness::error::Error;
use tradewind::{Communicator, Op};

/// Repetitions before anything counts.
const DISCARDED: u64 = 2;
/// More than so many repetitions in a lap make it no better.
const MOST: f64 = 1e6;

/// Amount of measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repetition {
    /// Number of laps.
    pub laps: u32,
    /// About how long each takes, in microseconds; a lap has at least one repetition.
    pub microseconds: f64,
}

impl Repetition {
    /// About how long they take with what comes before, in milliseconds.
    pub fn milliseconds(self) -> u64 {
        (f64::from(self.laps + 1) * self.microseconds * 1e-3).ceil() as u64
    }

    /// Microseconds of one repetition, for each lap: those of the rank that takes longest, the same
    /// on all ranks. `repeat` does its work so many times; all ranks call this.
    ///
    /// ```
    /// use measure::harness::repetition::Repetition;
    /// tradewind::local(2, |world| {
    ///     let times = Repetition { laps: 5, microseconds: 100.0 }
    ///         .time(&world, |times| Ok((0..times).try_for_each(|_| world.barrier())?))
    ///         .expect("two ranks can meet");
    ///     assert!(times.len() == 5 && times.iter().all(|time| *time > 0.0));
    ///     Ok(())
    /// })
    /// # .expect("a job of threads");
    /// ```
    ///
    /// # Errors
    /// If a rank has failed, and the errors of `repeat`.
    pub fn time(
        self,
        world: &Communicator,
        mut repeat: impl FnMut(u64) -> Result<(), Error>,
    ) -> Result<Vec<f64>, Error> {
        repeat(DISCARDED)?;
        let repetitions = self.repetitions(world, &mut repeat)?;
        let mut own = Vec::with_capacity(self.laps as usize);
        for _ in 0..self.laps {
            own.push(lap(world, repetitions, &mut repeat)? / repetitions as f64);
        }
        let mut slowest = vec![0.0; own.len()];
        world.allreduce(&own, &mut slowest, Op::Maximum)?;
        Ok(slowest)
    }

    /// Number of repetitions that fill a lap.
    fn repetitions(
        self,
        world: &Communicator,
        repeat: &mut impl FnMut(u64) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let mut tried = 1;
        loop {
            let mut slowest = [0.0];
            world.allreduce(&[lap(world, tried, repeat)?], &mut slowest, Op::Maximum)?;
            // An eighth of a lap is exact enough.
            if slowest[0] >= self.microseconds / 8.0 || tried as f64 >= MOST {
                let each = slowest[0] / tried as f64;
                return Ok((self.microseconds / each.max(1e-3)).clamp(1.0, MOST) as u64);
            }
            tried *= 2;
        }
    }
}

/// Microseconds of this rank for so many repetitions, which all ranks begin together.
fn lap(
    world: &Communicator,
    repetitions: u64,
    repeat: &mut impl FnMut(u64) -> Result<(), Error>,
) -> Result<f64, Error> {
    world.barrier()?;
    let begin = now_ns();
    repeat(repetitions)?;
    Ok(microseconds(begin, now_ns()))
}
