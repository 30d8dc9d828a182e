//! Subjects side by side, one run of each in a round.

use super::repetition::{Form, Repetition, Start, Subject, Timer, turns};
use crate::harness::agreement;
use crate::harness::clock::{microseconds, now_ns};
use crate::harness::error::Error;
use models::statistics::median;

/// Delay of a rank after the common start beyond which a repetition is discarded.
const LATE_NS: i64 = 300;
/// Minimum number of rounds, whatever the budget.
const LEAST_ROUNDS: u32 = 7;
/// So many rounds before any is counted, as time allows: a linked schedule's runs take turns
/// in up to so many places in memory, each new at first.
const WARM_UP_ROUNDS: u32 = 17;
/// A subject within this factor of the fastest may be the fastest.
const CLOSE: f64 = 1.3;
/// Rounds between machines, whose clocks differ.
const BATCH_ROUNDS: u32 = 9;
/// Runs of a repetition there at most.
const MOST_CALLS: f64 = 1_000.0;

/// Time that a comparison may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// All rounds together take about so long, unless seven of them take longer.
    pub milliseconds: f64,
    /// There are no more rounds.
    pub most_rounds: u32,
}

impl Budget {
    /// For a trial.
    pub const QUICK: Budget = Budget { milliseconds: 10.0, most_rounds: 5 };
}

impl Timer<'_> {
    /// Microseconds of each repetition of each subject, the same on all ranks. All ranks call this.
    ///
    /// # Errors
    /// If a rank has failed, and the errors of the subjects.
    pub fn compare(
        &self,
        subjects: &mut [&mut dyn Subject],
        budget: Budget,
    ) -> Result<Vec<Vec<f64>>, Error> {
        let round_us = self.warm_up(subjects, budget)?;
        let rounds = (budget.milliseconds * 1e3 / round_us.max(1e-3))
            .clamp(0.0, f64::from(budget.most_rounds)) as u32;
        let mut taken = vec![Vec::new(); subjects.len()];
        for round in 0..rounds.max(LEAST_ROUNDS) {
            self.round(subjects, round, &mut taken)?;
        }
        self.times_of_rounds(&taken)
    }

    /// Compares as [`compare`](Self::compare); then times those close to the fastest, and the
    /// favourites, once more, longer and without the others. One of many subjects is always fastest
    /// by chance, so the repetitions that select one should not be those that time it.
    ///
    /// # Errors
    /// As [`compare`](Self::compare).
    pub fn settle(
        &self,
        subjects: &mut [&mut dyn Subject],
        is_favourite: impl Fn(usize) -> bool,
        budget: Budget,
    ) -> Result<Vec<Vec<f64>>, Error> {
        let mut times = self.compare(subjects, budget)?;
        let medians: Vec<f64> = times.iter().map(|times| median(times)).collect();
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        let is_close = |place: usize| medians[place] <= CLOSE * least || is_favourite(place);
        let (places, mut closest): (Vec<usize>, Vec<&mut dyn Subject>) = subjects
            .iter_mut()
            .enumerate()
            .filter(|(place, _)| is_close(*place))
            .map(|(place, subject)| (place, &mut **subject as &mut dyn Subject))
            .unzip();
        if closest.len() > 1 {
            let longer = Budget {
                milliseconds: 2.0 * budget.milliseconds,
                most_rounds: 3 * budget.most_rounds,
            };
            let again = self.compare(&mut closest, longer)?;
            places.iter().zip(again).for_each(|(place, again)| times[*place] = again);
        }
        Ok(times)
    }

    /// Compares between machines, whose clocks differ. A repetition is several runs back to back, and
    /// its time is that of one run on the rank that takes longest. Returns for each subject the runs of
    /// a repetition and the times.
    ///
    /// # Errors
    /// As [`compare`](Self::compare).
    pub fn compare_in_batches(
        &self,
        subjects: &mut [&mut dyn Subject],
        milliseconds: f64,
    ) -> Result<Vec<(u32, Vec<f64>)>, Error> {
        let share = milliseconds * 1e3 / f64::from(BATCH_ROUNDS) / subjects.len() as f64;
        let mut timed = Vec::new();
        for subject in subjects.iter_mut() {
            self.batch(*subject, 2)?;
            let each = agreement::largest(self.world, &[self.batch(*subject, 4)?])?[0];
            let calls = (share / each.max(1e-3)).clamp(2.0, MOST_CALLS) as u32;
            timed.push((calls, Vec::new()));
        }
        for round in 0..BATCH_ROUNDS {
            for turn in turns(round, subjects.len()) {
                let (calls, times) = &mut timed[turn];
                let own = self.batch(subjects[turn], *calls)?;
                times.push(agreement::largest(self.world, &[own])?[0]);
            }
        }
        Ok(timed)
    }

    /// Every subject once.
    fn round(
        &self,
        subjects: &mut [&mut dyn Subject],
        round: u32,
        taken: &mut [Vec<Repetition>],
    ) -> Result<(), Error> {
        let start = if self.shares_cores() { Start::Barrier } else { Start::Common };
        let form = Form { start, calls: 1, computation: None };
        for turn in turns(round, subjects.len()) {
            taken[turn].push(self.once(subjects[turn], round, form)?);
        }
        Ok(())
    }

    /// Every subject until it runs as it will run; about how long a round takes, the same on all
    /// ranks.
    fn warm_up(&self, subjects: &mut [&mut dyn Subject], budget: Budget) -> Result<f64, Error> {
        let mut taken = vec![Vec::new(); subjects.len()];
        let mut spent = 0.0;
        let mut least = f64::INFINITY;
        for round in 0..WARM_UP_ROUNDS {
            let begin = now_ns();
            self.round(subjects, round, &mut taken)?;
            let round_us = agreement::largest(self.world, &[microseconds(begin, now_ns())])?[0];
            least = least.min(round_us);
            spent += round_us;
            if round > 1 && spent > budget.milliseconds * 1e3 / 2.0 {
                break;
            }
        }
        Ok(least)
    }

    /// The times of each subject. After a common start those count in which no rank was late. On a
    /// machine so busy that some rank is nearly always late, all times of all subjects count.
    fn times_of_rounds(&self, taken: &[Vec<Repetition>]) -> Result<Vec<Vec<f64>>, Error> {
        let mut times = Vec::new();
        let mut late = Vec::new();
        for repetitions in taken {
            let begins: Vec<i64> = repetitions.iter().map(|one| one.begin).collect();
            let last_begin = agreement::latest(self.world, &begins)?;
            let of_all = self.of_all_ranks(repetitions)?;
            let is_late = |place: usize| {
                !self.shares_cores() && last_begin[place] - repetitions[place].left > LATE_NS
            };
            let (of_late, in_time): (Vec<_>, Vec<_>) =
                of_all.into_iter().enumerate().partition(|(place, _)| is_late(*place));
            let only_times = |all: Vec<(usize, f64)>| -> Vec<f64> {
                all.into_iter().map(|(_, time)| time).collect()
            };
            times.push(only_times(in_time));
            late.push(only_times(of_late));
        }
        if times.iter().any(|times| times.len() < LEAST_ROUNDS as usize) {
            times.iter_mut().zip(late).for_each(|(times, late)| times.extend(late));
        }
        Ok(times)
    }
}
