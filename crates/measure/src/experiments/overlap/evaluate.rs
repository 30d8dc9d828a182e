//! From all ranks' repetitions to one row.

use super::experiment::Experiment;
use super::plan::Plan;
use super::repetitions::{Lap, RankTimes};
use super::row::OverlapRow;
use super::trial::Trial;
use crate::harness::Error;
use crate::harness::agreement;
use crate::harness::clock::microseconds;
use models::statistics::{Deciles, median};
use tradewind::Communicator;

/// After this long, what the last starter had written when it read the clock is visible everywhere.
const SETTLED_NS: i64 = 1000;

/// Times of the repetitions, over all ranks, in microseconds.
#[derive(Debug)]
struct Times {
    alone: Vec<f64>,
    over: Vec<f64>,
    exposed: Vec<f64>,
}

/// The row; the same on all ranks.
pub(super) fn row(
    experiment: &Experiment<'_>,
    trial: &Trial,
    plan: &Plan,
    alone_us: f64,
    laps: &RankTimes,
) -> Result<OverlapRow, Error> {
    let world = experiment.world;
    let common = experiment.setting.has_common_clock;
    let times = if common && experiment.ranks_per_core() > 1 {
        of_all_ranks(world, laps)?
    } else {
        of_each_rank(world, laps)?
    };
    let exposed = Deciles::of(&times.exposed);
    Ok(OverlapRow {
        op: trial.collective,
        algorithm: trial.algorithm.to_owned(),
        ranks: world.size(),
        bytes: trial.bytes,
        engine: trial.engine,
        alone_us: to_nanoseconds(alone_us),
        compute_us: to_nanoseconds(median(&times.alone)),
        total_us: to_nanoseconds(median(&times.over)),
        exposed_us: to_nanoseconds(exposed.median),
        overlap: overlap_percent(exposed.median, alone_us),
        unattended: unattended(world, laps, common)?,
        stolen_us: to_nanoseconds(stolen(world, laps)?),
        repetitions: plan.repetitions,
        p10_us: to_nanoseconds(exposed.p10),
        p90_us: to_nanoseconds(exposed.p90),
    })
}

/// Microseconds with three decimals: a clock has no more.
fn to_nanoseconds(microseconds: f64) -> f64 {
    (microseconds * 1e3).round() / 1e3
}

/// The share of the collective that the computation hides, in percent, with one decimal.
fn overlap_percent(exposed_us: f64, alone_us: f64) -> f64 {
    if alone_us <= 0.0 {
        return 0.0;
    }
    ((1.0 - exposed_us / alone_us).clamp(0.0, 1.0) * 1000.0).round() / 10.0
}

/// Ranks have cores of their own: each rank's own time, and of a repetition the slowest rank.
fn of_each_rank(world: &Communicator, laps: &RankTimes) -> Result<Times, Error> {
    let own =
        |laps: &[Lap]| laps.iter().map(|lap| microseconds(lap.begin, lap.end)).collect::<Vec<_>>();
    let alone = own(&laps.alone);
    let over = own(&laps.over);
    let usual = median(&alone);
    let exposed: Vec<f64> = over.iter().map(|time| time - usual).collect();
    Ok(Times {
        alone: agreement::largest(world, &alone)?,
        over: agreement::largest(world, &over)?,
        exposed: agreement::largest(world, &exposed)?,
    })
}

/// Ranks share cores: from the first rank that leaves the barrier to the last that is done.
fn of_all_ranks(world: &Communicator, laps: &RankTimes) -> Result<Times, Error> {
    let whole = |laps: &[Lap]| -> Result<Vec<f64>, Error> {
        let begin =
            agreement::earliest(world, &laps.iter().map(|lap| lap.left).collect::<Vec<_>>())?;
        let end = agreement::latest(world, &laps.iter().map(|lap| lap.end).collect::<Vec<_>>())?;
        Ok(begin.iter().zip(&end).map(|(begin, end)| microseconds(*begin, *end)).collect())
    };
    let alone = whole(&laps.alone)?;
    let over = whole(&laps.over)?;
    // Repetitions of the same number have the same skews on every rank.
    let exposed = over.iter().zip(&alone).map(|(over, alone)| over - alone).collect();
    Ok(Times { alone, over, exposed })
}

/// Of all looks, by any rank, after all ranks had started: the share that found the collective
/// complete. Without a common clock all looks count.
fn unattended(world: &Communicator, laps: &RankTimes, common: bool) -> Result<f64, Error> {
    let started: Vec<i64> = laps.over.iter().map(|lap| lap.started).collect();
    let all_started = if common { agreement::latest(world, &started)? } else { started };
    let counts = |lap: &Lap, all_started: i64| {
        lap.started == all_started || lap.computed >= all_started + SETTLED_NS
    };
    let mut looks = 0.0;
    let mut complete = 0.0;
    for (lap, all_started) in laps.over.iter().zip(all_started) {
        if counts(lap, all_started) {
            looks += 1.0;
            complete += f64::from(u8::from(lap.unattended));
        }
    }
    let everywhere = agreement::sum(world, &[looks, complete])?;
    // The rank that starts last always looks after all have started, so there are looks.
    Ok(if everywhere[0] > 0.0 { (everywhere[1] / everywhere[0] * 1e4).round() / 1e4 } else { 0.0 })
}

/// Processor time of all, less that of the computation, in microseconds a repetition.
fn stolen(world: &Communicator, laps: &RankTimes) -> Result<f64, Error> {
    let of_ranks = |laps: &[Lap]| {
        agreement::sum(world, &laps.iter().map(|lap| lap.used_us).collect::<Vec<_>>())
    };
    let ranks = median(&of_ranks(&laps.over)?) - median(&of_ranks(&laps.alone)?);
    Ok(ranks + agreement::sum(world, &[laps.others_us])?[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tradewind::local;

    fn lap(left: i64, begin: i64, end: i64) -> Lap {
        Lap { left, begin, started: begin, computed: end, end, unattended: true, used_us: 0.0 }
    }

    /// Runs `body` on two ranks, which have these laps.
    fn on_two_ranks(
        laps: [RankTimes; 2],
        body: impl Fn(&Communicator, &RankTimes) -> Result<(), Error> + Sync,
    ) {
        let outcome = local(2, |world| {
            body(&world, &laps[world.rank() as usize]).expect("two ranks can agree");
            Ok(())
        });
        outcome.expect("a job of threads");
    }

    #[test]
    fn the_slowest_rank_counts_and_each_subtracts_its_own_computation() {
        let fast = RankTimes {
            alone: vec![lap(0, 1000, 3000)],
            over: vec![lap(0, 1000, 8000)],
            others_us: 0.0,
        };
        let slow =
            RankTimes { alone: vec![lap(0, 0, 6000)], over: vec![lap(0, 0, 9000)], others_us: 0.0 };
        on_two_ranks([fast, slow], |world, laps| {
            let times = of_each_rank(world, laps)?;
            assert_eq!((times.alone, times.over, times.exposed), (vec![6.0], vec![9.0], vec![5.0]));
            Ok(())
        });
    }

    #[test]
    fn ranks_that_share_cores_are_timed_together() {
        let first = RankTimes {
            alone: vec![lap(0, 0, 3000)],
            over: vec![lap(10_000, 0, 14_000)],
            others_us: 0.0,
        };
        let second = RankTimes {
            alone: vec![lap(2000, 0, 6000)],
            over: vec![lap(11_000, 0, 17_500)],
            others_us: 0.0,
        };
        on_two_ranks([first, second], |world, laps| {
            let times = of_all_ranks(world, laps)?;
            assert_eq!((times.alone, times.over, times.exposed), (vec![6.0], vec![7.5], vec![1.5]));
            Ok(())
        });
    }

    #[test]
    fn a_poll_before_all_have_started_does_not_count() {
        let early = Lap { unattended: false, ..lap(0, 0, 1000) };
        let late = lap(0, 2000, 3000);
        let laps = |over| RankTimes { alone: Vec::new(), over: vec![over], others_us: 0.0 };
        on_two_ranks([laps(early), laps(late)], |world, laps| {
            assert_eq!(unattended(world, laps, true)?, 1.0);
            Ok(())
        });
        let incomplete = Lap { unattended: false, ..lap(0, 2000, 3000) };
        on_two_ranks([laps(lap(0, 0, 3000)), laps(incomplete)], |world, laps| {
            assert_eq!(unattended(world, laps, true)?, 0.5);
            Ok(())
        });
    }

    #[test]
    fn what_all_have_used_is_stolen() {
        let used = |used_us| Lap { used_us, ..lap(0, 0, 1) };
        let laps = |alone, over, others_us| RankTimes {
            alone: vec![used(alone)],
            over: vec![used(over)],
            others_us,
        };
        on_two_ranks([laps(10.0, 11.0, 0.5), laps(10.0, 12.0, 0.0)], |world, laps| {
            assert_eq!(stolen(world, laps)?, 3.5);
            Ok(())
        });
    }

    proptest! {
        #[test]
        fn overlap_is_a_percentage(exposed_us in -1e3..1e6, alone_us in 0.0..1e6) {
            prop_assert!((0.0..=100.0).contains(&overlap_percent(exposed_us, alone_us)));
        }
    }

    #[test]
    fn overlap_is_what_remains_hidden() {
        assert_eq!(overlap_percent(1.0, 4.0), 75.0);
        assert_eq!(overlap_percent(5.0, 4.0), 0.0);
        assert_eq!(overlap_percent(-0.1, 4.0), 100.0);
        assert_eq!(overlap_percent(0.0, 0.0), 0.0);
    }
}
