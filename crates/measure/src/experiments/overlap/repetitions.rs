//! The repetitions: the computation by itself and over the collective, in turns.

use super::experiment::{Experiment, Setting};
use super::plan::Plan;
use super::trial::Trial;
use crate::harness::Error;
use crate::harness::agreement;
use crate::harness::clock::{microseconds, now_ns};
use crate::harness::computation::compute;
use crate::harness::processor_time::{softirq_ticks, tick_us, used_by_process_us, used_by_rank_us};
use std::ops::Range;

/// The repetitions are divided into so many blocks of each kind.
const BLOCKS: u32 = 20;
/// A difference of so many ticks may come from where they happen to fall.
const TICKS_OF_CHANCE: i64 = 2;

/// One repetition on one rank: moments in nanoseconds on the node's clock, and what it cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lap {
    /// The rank has left the barrier.
    pub(super) left: i64,
    /// The skew is over.
    pub(super) begin: i64,
    /// The collective is started.
    pub(super) started: i64,
    /// The computation is over.
    pub(super) computed: i64,
    /// The result is there.
    pub(super) end: i64,
    /// True if the collective was complete when the computation was over.
    pub(super) unattended: bool,
    /// Processor time from `begin` to `end`, in microseconds.
    pub(super) used_us: f64,
}

/// All repetitions on one rank.
#[derive(Debug, Default)]
pub(super) struct RankTimes {
    /// The computation by itself.
    pub(super) alone: Vec<Lap>,
    /// The computation over the collective.
    pub(super) over: Vec<Lap>,
    /// Processor time that others than the ranks used for the collective, in microseconds a
    /// repetition, as far as this rank adds it.
    pub(super) others_us: f64,
}

fn lap_alone(experiment: &Experiment<'_>, plan: &Plan, skew: u64) -> Result<Lap, Error> {
    let kind = experiment.setting.rank_kind;
    experiment.world.barrier()?;
    let left = now_ns();
    compute(skew);
    let used = used_by_rank_us(kind);
    let begin = now_ns();
    // The clock is read as often as over the collective, so that its cost cancels.
    let started = now_ns();
    compute(plan.steps);
    let computed = now_ns();
    let end = now_ns();
    Ok(Lap {
        left,
        begin,
        started,
        computed,
        end,
        unattended: false,
        used_us: used_by_rank_us(kind) - used,
    })
}

fn lap_over(
    experiment: &Experiment<'_>,
    trial: &mut Trial,
    plan: &Plan,
    repetition: u32,
    skew: u64,
) -> Result<Lap, Error> {
    let kind = experiment.setting.rank_kind;
    experiment.world.barrier()?;
    let left = now_ns();
    compute(skew);
    let used = used_by_rank_us(kind);
    let begin = now_ns();
    let under_way = trial.start(repetition)?;
    let started = now_ns();
    compute(plan.steps);
    let computed = now_ns();
    let unattended = under_way.is_complete();
    under_way.wait()?;
    let end = now_ns();
    Ok(Lap {
        left,
        begin,
        started,
        computed,
        end,
        unattended,
        used_us: used_by_rank_us(kind) - used,
    })
}

/// Runs all repetitions of both kinds, with these skews.
pub(super) fn run(
    experiment: &Experiment<'_>,
    trial: &mut Trial,
    plan: &Plan,
    skews: &[u64],
) -> Result<RankTimes, Error> {
    let mut laps = RankTimes::default();
    let mut others_alone = BackgroundCpu::default();
    let mut others_over = BackgroundCpu::default();
    for (number, block) in blocks(plan.repetitions).enumerate() {
        for alone in [number % 2 == 0, number % 2 == 1] {
            let before = BackgroundCpu::read(experiment)?;
            for repetition in block.clone() {
                let skew = skews[repetition as usize];
                if alone {
                    laps.alone.push(lap_alone(experiment, plan, skew)?);
                } else {
                    laps.over.push(lap_over(experiment, trial, plan, repetition, skew)?);
                }
            }
            let spent = if alone { &mut others_alone } else { &mut others_over };
            spent.add(before, BackgroundCpu::read(experiment)?);
        }
    }
    laps.others_us = others_over.beyond(others_alone) / f64::from(plan.repetitions);
    Ok(laps)
}

/// Measures two repetitions of each kind, in microseconds, the same on all ranks. Also warms
/// up.
pub(super) fn time_of_two_us(
    experiment: &Experiment<'_>,
    trial: &mut Trial,
    plan: &Plan,
) -> Result<f64, Error> {
    let begin = now_ns();
    run(experiment, trial, &Plan { repetitions: 2, ..*plan }, &[0, 0])?;
    Ok(agreement::largest(experiment.world, &[microseconds(begin, now_ns())])?[0])
}

/// `repetitions` in blocks of nearly equal length.
fn blocks(repetitions: u32) -> impl Iterator<Item = Range<u32>> {
    let count = repetitions.min(BLOCKS);
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
    /// Reads the times up to now that this rank adds to the job's.
    fn read(experiment: &Experiment<'_>) -> Result<Self, Error> {
        let Setting { service, adds_interrupts, .. } = experiment.setting;
        let service_us = service.map_or(Ok(0.0), used_by_process_us)?;
        let ticks = if adds_interrupts { softirq_ticks() } else { None };
        Ok(BackgroundCpu { service_us, softirq_ticks: ticks.unwrap_or(0).cast_signed() })
    }

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
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_hold_every_repetition_once(repetitions in 1u32..5000) {
            let all: Vec<u32> = blocks(repetitions).flatten().collect();
            prop_assert_eq!(all, (0..repetitions).collect::<Vec<_>>());
            prop_assert!(blocks(repetitions).all(|block| !block.is_empty()));
        }
    }

    #[test]
    fn a_tick_or_two_are_chance() {
        let spent = |service_us, softirq_ticks| BackgroundCpu { service_us, softirq_ticks };
        assert_eq!(spent(5.0, 7).beyond(spent(2.0, 5)), 3.0);
        assert_eq!(spent(2.0, 5).beyond(spent(5.0, 7)), 0.0);
        assert_eq!(spent(0.0, 9).beyond(spent(0.0, 4)), 5.0 * tick_us());
    }
}
