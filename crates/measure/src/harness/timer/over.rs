//! A subject over a computation: the time that it adds.

use super::repetition::{Form, Repetition, Start, Subject, Timer, calls, own_times, turns};
use crate::harness::agreement;
use crate::harness::clock::{microseconds, now_ns};
use crate::harness::computation::ComputeRate;
use crate::harness::error::Error;
use crate::harness::processor_time::{softirq_ticks, tick_us, used_by_process_us};
use models::statistics::median;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;

/// The repetitions are divided into so many rounds.
const ROUNDS: u32 = 20;
/// A difference of so many ticks may come from where they happen to fall.
const TICKS_OF_CHANCE: i64 = 2;
/// After this long, what the last starter had written when it read the clock is visible everywhere.
const SETTLED_NS: i64 = 1000;
/// The largest skew, as a share of the computation.
const SKEW: u64 = 10;
/// The node computes so many times as long as the subject takes alone, so that there is time to
/// finish it in …
const TIMES_ALONE: f64 = 10.0;
/// … but no longer than this where that still is twice the subject. Ranks that share a core
/// compute one after the other, so that each computes for its part of that time: long repetitions
/// would see every turn of other processes …
const ENOUGH_COMPUTATION_US: f64 = 10_000.0;
/// … and at least so long that the ranks' leaving a barrier one after the other does not matter.
const LEAST_COMPUTATION_US: f64 = 20.0;
/// The longest computation, in microseconds.
pub const MOST_COMPUTATION_US: f64 = 1e7;
/// Without a wish, the repetitions take about this long.
const BUDGET_US: f64 = 1e6;
/// Bounds of their number.
const REPETITIONS: std::ops::RangeInclusive<f64> = 5.0..=4000.0;

/// Extent of a measurement over a computation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// Length of the computation of each rank, in microseconds; `None`: all ranks of a core together
    /// ten times as long as the subject takes alone, each at least 20 µs.
    pub computation_us: Option<f64>,
    /// Repetitions; `None`: as many as take about a second, between 5 and 4000.
    pub repetitions: Option<u32>,
    /// After so many runs the subject repeats itself: the number of its roots.
    pub cycle: u32,
    /// Seed of the skews, together with the rank.
    pub seed: u64,
}

/// Times of a subject over a computation, in microseconds, the same on all ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct OverTimes {
    /// Start and wait with nothing between them, a time for each batch of runs back to back.
    pub alone: Vec<f64>,
    /// Runs of a batch.
    pub calls: u32,
    /// The computation by itself.
    pub computation: Vec<f64>,
    /// Start, computation and wait.
    pub over: Vec<f64>,
    /// Time that the subject adds to the computation: of each repetition the largest of a rank, or
    /// that of the ranks together.
    pub exposed: Vec<f64>,
    /// Of all looks by any rank after all ranks had started, the share that found the subject
    /// complete.
    pub unattended: f64,
    /// Processor time of all ranks, services and interrupts, less that of the computation, in
    /// microseconds a repetition.
    pub processor: f64,
}

/// All repetitions on one rank.
#[derive(Debug, Default)]
struct Taken {
    /// The computation by itself.
    computation: Vec<Repetition>,
    /// The subject over the computation.
    over: Vec<Repetition>,
    /// Processor time that others than the ranks used for the subject, in microseconds a
    /// repetition, as far as this rank adds it.
    others_us: f64,
}

impl Timer<'_> {
    /// Times a subject alone, and over a computation, which takes turns with the same computation by
    /// itself. A random skew holds up every rank in each repetition, so that no rank profits from
    /// ranks that start in step. All ranks call this.
    ///
    /// **When ranks have cores of their own** a rank's time runs from its own start to its own end,
    /// and its own median of the computation by itself is subtracted. **When ranks share cores** that
    /// would charge a rank for the turns that others take on its core; then a repetition counts once,
    /// from the moment the first rank leaves the barrier until the last is done, and the same of the
    /// computation by itself, under the same skew, is subtracted.
    ///
    /// # Errors
    /// If a rank has failed, and the errors of the subject.
    pub fn over(&self, subject: &mut dyn Subject, extent: Extent) -> Result<OverTimes, Error> {
        let rate = self.rate()?;
        self.warm_up_alone(subject, extent.cycle)?;
        let estimate_us = self.estimate(subject, extent.cycle)?;
        let for_it = || computation_for(estimate_us, self.ranks_per_core());
        let computation_us = extent.computation_us.unwrap_or_else(for_it);
        let steps = rate.steps(computation_us);
        let repetitions = match extent.repetitions {
            Some(repetitions) => repetitions,
            None => {
                let begin = now_ns();
                self.turns_over(subject, 2, (steps, &[0, 0]))?;
                let two_us = agreement::largest(self.world, &[microseconds(begin, now_ns())])?[0];
                let number = BUDGET_US / (two_us / 2.0).max(1e-3);
                number.clamp(*REPETITIONS.start(), *REPETITIONS.end()) as u32
            }
        };
        let (calls, alone) = self.alone(subject, extent.cycle, estimate_us, repetitions)?;
        let skews = skews(steps, repetitions, extent.seed, self.world.rank());
        let taken = self.turns_over(subject, repetitions, (steps, &skews))?;
        let [computation, over, exposed] =
            if self.place.has_common_clock && self.ranks_per_core() > 1 {
                self.exposed_of_all(&taken)?
            } else {
                self.exposed_of_each(&taken)?
            };
        let unattended = self.unattended(&taken)?;
        let processor = self.processor(&taken)?;
        Ok(OverTimes { alone, calls, computation, over, exposed, unattended, processor })
    }

    /// All ranks compute the same number of steps, those of the fastest.
    fn rate(&self) -> Result<ComputeRate, Error> {
        let own = ComputeRate::calibrate().microseconds_per_step();
        Ok(ComputeRate::new(-agreement::largest(self.world, &[-own])?[0]))
    }

    fn ranks_per_core(&self) -> u32 {
        self.world.size().div_ceil(self.place.cores.max(1))
    }

    /// Runs the subject until its times are those of later runs: a rank's first runs touch new memory.
    fn warm_up_alone(&self, subject: &mut dyn Subject, cycle: u32) -> Result<(), Error> {
        const CALLS: u32 = 64;
        const MOST_US: f64 = 2e6;
        let mut calls = 0;
        let mut spent = 0.0;
        while calls < CALLS && spent < MOST_US {
            let each = agreement::largest(self.world, &[self.batch(subject, cycle)?])?[0];
            calls += cycle;
            spent += each * f64::from(cycle);
        }
        Ok(())
    }

    /// About how long a run takes, in microseconds, the same on all ranks: the least of three batches,
    /// because a processor that is taken away only makes them longer. Batches grow until they are
    /// long enough.
    fn estimate(&self, subject: &mut dyn Subject, cycle: u32) -> Result<f64, Error> {
        const LONG_ENOUGH_US: f64 = 1000.0;
        let mut least = f64::INFINITY;
        let mut calls = cycle;
        let mut enough = 0;
        while enough < 3 {
            let each = agreement::largest(self.world, &[self.batch(subject, calls)?])?[0];
            least = least.min(each);
            if each * f64::from(calls) < LONG_ENOUGH_US { calls *= 2 } else { enough += 1 }
        }
        Ok(least)
    }

    /// The number of runs of a batch, and the time of a run for each batch.
    fn alone(
        &self,
        subject: &mut dyn Subject,
        cycle: u32,
        estimate_us: f64,
        repetitions: u32,
    ) -> Result<(u32, Vec<f64>), Error> {
        /// A batch is at least so long.
        const BATCH_US: f64 = 100.0;
        /// All batches together take about so long.
        const ALL_US: f64 = 200_000.0;
        const LEAST_BATCHES: f64 = 3.0;
        // Whole cycles, so that every batch has the same mixture.
        let cycles = (BATCH_US / (estimate_us * f64::from(cycle)).max(1e-3)).clamp(1.0, 10_000.0);
        let calls = cycle * cycles as u32;
        let most = f64::from(repetitions).max(LEAST_BATCHES);
        let batches =
            (ALL_US / (estimate_us * f64::from(calls)).max(1e-3)).clamp(LEAST_BATCHES, most) as u32;
        let own =
            (0..batches).map(|_| self.batch(subject, calls)).collect::<Result<Vec<_>, _>>()?;
        Ok((calls, agreement::largest(self.world, &own)?))
    }

    /// The computation by itself and over the subject, in turns of several repetitions, between which
    /// the processor time of others is read.
    fn turns_over(
        &self,
        subject: &mut dyn Subject,
        repetitions: u32,
        computation: (u64, &[u64]),
    ) -> Result<Taken, Error> {
        let form = Form { start: Start::Barrier, calls: 1, computation: Some(computation) };
        let mut nothing = calls(|| Ok(()));
        let mut taken = Taken::default();
        let mut others = [BackgroundCpu::default(); 2];
        for (round, block) in blocks(repetitions).enumerate() {
            for turn in turns(round as u32, 2) {
                let before = self.background()?;
                for number in block.clone() {
                    if turn == 0 {
                        taken.computation.push(self.once(&mut nothing, number, form)?);
                    } else {
                        taken.over.push(self.once(subject, number, form)?);
                    }
                }
                others[turn].add(before, self.background()?);
            }
        }
        taken.others_us = others[1].beyond(others[0]) / f64::from(repetitions);
        Ok(taken)
    }

    /// The processor time up to now outside the ranks that this rank adds to the job's.
    fn background(&self) -> Result<BackgroundCpu, Error> {
        let service_us = self.place.service.map_or(Ok(0.0), used_by_process_us)?;
        let ticks = if self.place.adds_interrupts { softirq_ticks() } else { None };
        Ok(BackgroundCpu { service_us, softirq_ticks: ticks.unwrap_or(0).cast_signed() })
    }

    /// Ranks have cores of their own: each rank's own time, and of a repetition the slowest rank.
    fn exposed_of_each(&self, taken: &Taken) -> Result<[Vec<f64>; 3], Error> {
        let usual = median(&own_times(&taken.computation));
        let exposed: Vec<f64> =
            own_times(&taken.over).into_iter().map(|time| time - usual).collect();
        Ok([
            self.of_slowest_rank(&taken.computation)?,
            self.of_slowest_rank(&taken.over)?,
            agreement::largest(self.world, &exposed)?,
        ])
    }

    /// Ranks share cores: from the first rank that leaves the barrier to the last that is done.
    fn exposed_of_all(&self, taken: &Taken) -> Result<[Vec<f64>; 3], Error> {
        let computation = self.of_all_ranks(&taken.computation)?;
        let over = self.of_all_ranks(&taken.over)?;
        // Repetitions of the same number have the same skews on every rank.
        let exposed = over.iter().zip(&computation).map(|(over, alone)| over - alone).collect();
        Ok([computation, over, exposed])
    }

    /// Of all looks, by any rank, after all ranks had started: the share that found the subject
    /// complete. Without a common clock all looks count.
    fn unattended(&self, taken: &Taken) -> Result<f64, Error> {
        let started: Vec<i64> = taken.over.iter().map(|one| one.started).collect();
        let common = self.place.has_common_clock;
        let all_started = if common { agreement::latest(self.world, &started)? } else { started };
        let counts = |one: &Repetition, all_started: i64| {
            one.started == all_started || one.computed >= all_started + SETTLED_NS
        };
        let mut looks = 0.0;
        let mut complete = 0.0;
        for (one, all_started) in taken.over.iter().zip(all_started) {
            if counts(one, all_started) {
                looks += 1.0;
                complete += f64::from(u8::from(one.unattended));
            }
        }
        let everywhere = agreement::sum(self.world, &[looks, complete])?;
        // The rank that starts last always looks after all have started, so there are looks.
        Ok(if everywhere[0] > 0.0 { everywhere[1] / everywhere[0] } else { 0.0 })
    }

    /// Processor time of all, less that of the computation, in microseconds a repetition.
    fn processor(&self, taken: &Taken) -> Result<f64, Error> {
        let of_ranks = |taken: &[Repetition]| {
            let own: Vec<f64> = taken.iter().map(|one| one.used_us).collect();
            agreement::sum(self.world, &own)
        };
        let ranks = median(&of_ranks(&taken.over)?) - median(&of_ranks(&taken.computation)?);
        Ok(ranks + agreement::sum(self.world, &[taken.others_us])?[0])
    }
}

/// A computation that such a subject could be finished in, by so many ranks on each core.
fn computation_for(alone_us: f64, ranks_per_core: u32) -> f64 {
    let of_the_node = (TIMES_ALONE * alone_us).min(ENOUGH_COMPUTATION_US.max(2.0 * alone_us));
    (of_the_node / f64::from(ranks_per_core)).clamp(LEAST_COMPUTATION_US, MOST_COMPUTATION_US)
}

/// By how many steps each repetition's start is held up on a rank: up to a tenth of the
/// computation. One rank's skews are the same in every run with this seed.
fn skews(steps: u64, repetitions: u32, seed: u64, rank: u32) -> Vec<u64> {
    let mut random = SmallRng::seed_from_u64(seed.wrapping_mul(1 << 32) ^ u64::from(rank));
    (0..repetitions).map(|_| random.random_range(0..=steps / SKEW)).collect()
}

/// `repetitions` in blocks of nearly equal length.
fn blocks(repetitions: u32) -> impl Iterator<Item = Range<u32>> {
    let count = repetitions.min(ROUNDS);
    let bound =
        move |block: u32| (u64::from(repetitions) * u64::from(block) / u64::from(count)) as u32;
    (0..count).map(move |block| bound(block)..bound(block + 1))
}

/// Processor time used outside the ranks.
#[derive(Clone, Copy, Debug, Default)]
struct BackgroundCpu {
    service_us: f64,
    softirq_ticks: i64,
}

impl BackgroundCpu {
    fn add(&mut self, before: BackgroundCpu, after: BackgroundCpu) {
        self.service_us += after.service_us - before.service_us;
        self.softirq_ticks += after.softirq_ticks - before.softirq_ticks;
    }

    /// Returns the excess over `there` in microseconds; differences within the resolution count as
    /// 0.
    fn beyond(self, there: BackgroundCpu) -> f64 {
        let ticks = self.softirq_ticks - there.softirq_ticks;
        let softirq_us = if ticks > TICKS_OF_CHANCE { ticks as f64 * tick_us() } else { 0.0 };
        (self.service_us - there.service_us).max(0.0) + softirq_us
    }
}

#[cfg(test)]
mod tests {
    use super::super::repetition::Place;
    use super::*;
    use crate::harness::processor_time::RankKind;
    use tradewind::local;

    fn repetition(left: i64, begin: i64, end: i64) -> Repetition {
        Repetition {
            left,
            begin,
            started: begin,
            computed: end,
            end,
            unattended: true,
            used_us: 0.0,
        }
    }

    fn taken(computation: Vec<Repetition>, over: Vec<Repetition>) -> Taken {
        Taken { computation, over, others_us: 0.0 }
    }

    /// Runs `body` on two ranks, which have taken these.
    fn on_two_ranks(
        taken: [Taken; 2],
        body: impl Fn(&Timer<'_>, &Taken) -> Result<(), Error> + Sync,
    ) {
        let outcome = local(2, |world| {
            let place = Place {
                cores: 2,
                rank_kind: RankKind::Thread,
                service: None,
                adds_interrupts: false,
                has_common_clock: true,
            };
            let timer = Timer::new(&world, place);
            body(&timer, &taken[world.rank() as usize]).expect("two ranks can agree");
            Ok(())
        });
        outcome.expect("a job of threads");
    }

    #[test]
    fn the_slowest_rank_counts_and_each_subtracts_its_own_computation() {
        let fast = taken(vec![repetition(0, 1000, 3000)], vec![repetition(0, 1000, 8000)]);
        let slow = taken(vec![repetition(0, 0, 6000)], vec![repetition(0, 0, 9000)]);
        on_two_ranks([fast, slow], |timer, taken| {
            assert_eq!(timer.exposed_of_each(taken)?, [vec![6.0], vec![9.0], vec![5.0]]);
            Ok(())
        });
    }

    #[test]
    fn ranks_that_share_cores_are_timed_together() {
        let first = taken(vec![repetition(0, 0, 3000)], vec![repetition(10_000, 0, 14_000)]);
        let second = taken(vec![repetition(2000, 0, 6000)], vec![repetition(11_000, 0, 17_500)]);
        on_two_ranks([first, second], |timer, taken| {
            assert_eq!(timer.exposed_of_all(taken)?, [vec![6.0], vec![7.5], vec![1.5]]);
            Ok(())
        });
    }

    #[test]
    fn a_look_before_all_have_started_does_not_count() {
        let early = Repetition { unattended: false, ..repetition(0, 0, 1000) };
        let late = repetition(0, 2000, 3000);
        let over = |one| taken(Vec::new(), vec![one]);
        on_two_ranks([over(early), over(late)], |timer, taken| {
            assert_eq!(timer.unattended(taken)?, 1.0);
            Ok(())
        });
        let incomplete = Repetition { unattended: false, ..repetition(0, 2000, 3000) };
        on_two_ranks([over(repetition(0, 0, 3000)), over(incomplete)], |timer, taken| {
            assert_eq!(timer.unattended(taken)?, 0.5);
            Ok(())
        });
    }

    #[test]
    fn processor_time_of_ranks_and_others_is_added() {
        let used = |used_us| Repetition { used_us, ..repetition(0, 0, 1) };
        let taken = |alone, over, others_us| Taken {
            computation: vec![used(alone)],
            over: vec![used(over)],
            others_us,
        };
        on_two_ranks([taken(10.0, 11.0, 0.5), taken(10.0, 12.0, 0.0)], |timer, taken| {
            assert_eq!(timer.processor(taken)?, 3.5);
            Ok(())
        });
    }

    #[test]
    fn all_repetitions_are_in_one_block() {
        for repetitions in [1, 2, 19, 20, 21, 4000] {
            let all: Vec<u32> = blocks(repetitions).flatten().collect();
            assert!(all.into_iter().eq(0..repetitions), "{repetitions}");
        }
    }

    #[test]
    fn two_ticks_of_interrupts_are_none() {
        let ticks = |softirq_ticks| BackgroundCpu { service_us: 0.0, softirq_ticks };
        assert_eq!(ticks(5).beyond(ticks(3)), 0.0);
        assert_eq!(ticks(6).beyond(ticks(3)), 3.0 * tick_us());
    }

    #[test]
    fn a_computation_gives_time_enough_and_not_too_much() {
        assert_eq!(computation_for(5.0, 1), 50.0);
        assert_eq!(computation_for(5.0, 2), 25.0);
        assert_eq!(computation_for(0.1, 1), LEAST_COMPUTATION_US);
        assert_eq!(computation_for(1e5, 1), 2e5);
        assert_eq!(computation_for(1e9, 1), MOST_COMPUTATION_US);
    }
}
