//! Plans taking turns.

use super::graphs::CollectiveCall;
use super::runner::{Memory, Runner};
use crate::harness::Error;
use crate::harness::agreement;
use crate::harness::clock::{microseconds, now_ns};
use collectives::Choice;
use tradewind::Communicator;

/// Time between the announcement of a common start and the start: the announcement must be
/// visible to every rank by then.
const LEAD_NS: i64 = 3000;
/// Delay of a rank after the common start beyond which a repetition is discarded.
const LATE_NS: i64 = 300;
/// Minimum number of repetitions, whatever the budget.
const LEAST_ROUNDS: u32 = 7;

/// So many repetitions before any is counted, as time allows: a linked schedule's runs take turns
/// in up to so many places in memory, each new at first.
const WARM_UP_ROUNDS: u32 = 17;

/// A candidate within this factor of the fastest may be the fastest.
const CLOSE: f64 = 1.3;

/// Time that a comparison may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBudget {
    /// All repetitions of all plans together take about so long, unless seven of each take longer.
    pub milliseconds: f64,
    /// No plan is repeated more often.
    pub most_rounds: u32,
}

impl TimeBudget {
    /// For a measurement that counts.
    pub const USUAL: TimeBudget = TimeBudget { milliseconds: 120.0, most_rounds: 101 };
    /// For a look.
    pub const QUICK: TimeBudget = TimeBudget { milliseconds: 10.0, most_rounds: 5 };
}

/// Plans of one shape, timed side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The call that they ran for.
    pub shape: CollectiveCall,
    /// True if there were more ranks than cores.
    pub shares_cores: bool,
    /// Each plan, in the order in which they were given.
    pub timed: Vec<Timed>,
}

/// A plan and its times.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// The plan.
    pub plan: Choice,
    /// Its repetitions in microseconds, in the order in which they were made.
    pub microseconds: Vec<f64>,
}

impl Timed {
    /// The median repetition.
    pub fn median(&self) -> f64 {
        models::statistics::median(&self.microseconds)
    }
}

/// Times these plans side by side. All ranks call this with the same arguments and get the same
/// result; `cores` is how many the ranks share.
///
/// ```
/// use measure::experiments::algorithms::{TimeBudget, CollectiveCall, compare};
/// use collectives::{Algorithm, Choice, Collective};
/// use models::decision::CallForm;
///
/// tradewind::local(2, |world| {
///     let (operation, form) = (Collective::Bcast, CallForm::Blocking);
///     let shape = CollectiveCall { operation, form, ranks: 2, bytes: 64, root: 0 };
///     let plans = [Choice::of(Algorithm::Binomial), Choice::of(Algorithm::Join)];
///     let comparison = compare(&world, 2, &shape, &plans, TimeBudget::QUICK).expect("both exist");
///     assert!(comparison.timed.iter().all(|timed| timed.median() > 0.0));
///     Ok(())
/// })?;
/// # Ok::<(), tradewind::Error>(())
/// ```
///
/// # Errors
/// A plan that cannot be run for this shape, wrong results, a rank that is gone.
pub fn compare(
    world: &Communicator,
    cores: u32,
    shape: &CollectiveCall,
    plans: &[Choice],
    budget: TimeBudget,
) -> Result<Comparison, Error> {
    let mut turns = Rotation::begin(world, cores, shape, plans)?;
    let times = turns.measure(budget)?;
    Ok(turns.comparison(plans, times))
}

/// Compares as [`compare`]; then times those close to the fastest, and the `favourites`, once more,
/// longer and without the others. One of many plans is always fastest by chance, so the repetitions
/// that select a plan should not be those that time it.
///
/// # Errors
/// As [`compare`].
pub fn settle(
    world: &Communicator,
    cores: u32,
    shape: &CollectiveCall,
    plans: &[Choice],
    favourites: &[Choice],
    budget: TimeBudget,
) -> Result<Comparison, Error> {
    let mut turns = Rotation::begin(world, cores, shape, plans)?;
    let mut times = turns.measure(budget)?;
    let medians: Vec<f64> = times.iter().map(|times| models::statistics::median(times)).collect();
    let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let is_close =
        |plan: &usize| medians[*plan] <= CLOSE * least || favourites.contains(&plans[*plan]);
    turns.entrants.retain(is_close);
    if turns.entrants.len() > 1 {
        let longer = TimeBudget {
            milliseconds: 2.0 * budget.milliseconds,
            most_rounds: 3 * budget.most_rounds,
        };
        let again = turns.measure(longer)?;
        turns.entrants.iter().zip(again).for_each(|(plan, again)| times[*plan] = again);
    }
    Ok(turns.comparison(plans, times))
}

/// Runs a plan for the first time, which is not counted, and looks at what came of it.
pub(super) fn verify(
    world: &Communicator,
    shape: &CollectiveCall,
    runner: &Runner,
    plan: &Choice,
    memory: &mut Memory,
) -> Result<(), Error> {
    memory.spoil();
    runner.run(memory)?;
    let rank = world.rank();
    match memory.first_wrong(shape, rank) {
        None => Ok(()),
        Some(at) => {
            let what = format!("{shape} by {plan}, first at byte {at}");
            Err(Error::WrongData { rank, what })
        }
    }
}

/// When one plan ran on this rank.
#[derive(Clone, Copy)]
struct Lap {
    entrant: usize,
    /// The moment that all ranks waited for, if they did.
    common: Option<i64>,
    begin: i64,
    end: i64,
}

/// The repetitions of one rank.
struct Rotation<'a> {
    world: &'a Communicator,
    shape: CollectiveCall,
    shares_cores: bool,
    runners: Vec<Runner>,
    /// Which of them take turns.
    entrants: Vec<usize>,
    memory: Memory,
    laps: Vec<Lap>,
}

impl<'a> Rotation<'a> {
    /// Every plan has run once, and was right.
    fn begin(
        world: &'a Communicator,
        cores: u32,
        shape: &CollectiveCall,
        plans: &[Choice],
    ) -> Result<Self, Error> {
        let mut memory = Memory::new(shape, world.rank());
        let runners = plans
            .iter()
            .map(|plan| Runner::new(world, shape, plan))
            .collect::<Result<Vec<_>, _>>()?;
        for (runner, plan) in runners.iter().zip(plans) {
            verify(world, shape, runner, plan, &mut memory)?;
        }
        let entrants = (0..plans.len()).collect();
        let shares_cores = world.size() > cores;
        Ok(Rotation {
            world,
            shape: *shape,
            shares_cores,
            runners,
            entrants,
            memory,
            laps: Vec::new(),
        })
    }

    /// The repetitions of each entrant, the same on all ranks.
    fn measure(&mut self, budget: TimeBudget) -> Result<Vec<Vec<f64>>, Error> {
        let round_us = self.warm_up(budget)?;
        let rounds = (budget.milliseconds * 1e3 / round_us.max(1e-3))
            .clamp(0.0, f64::from(budget.most_rounds)) as u32;
        for round in 0..rounds.max(LEAST_ROUNDS) {
            self.take(round as usize)?;
        }
        self.times()
    }

    /// Times of these plans.
    fn comparison(self, plans: &[Choice], times: Vec<Vec<f64>>) -> Comparison {
        let timed = plans.iter().copied().zip(times);
        let timed = timed.map(|(plan, microseconds)| Timed { plan, microseconds }).collect();
        Comparison { shape: self.shape, shares_cores: self.shares_cores, timed }
    }

    /// Every entrant once. Each round begins with another one, so that none always follows the
    /// same.
    fn take(&mut self, round: usize) -> Result<(), Error> {
        let count = self.entrants.len();
        for turn in 0..count {
            let entrant = (turn + round) % count;
            let plan = self.entrants[entrant];
            self.world.barrier()?;
            let common = if self.shares_cores { None } else { Some(self.wait_for_start()?) };
            let begin = now_ns();
            self.runners[plan].run(&mut self.memory)?;
            self.laps.push(Lap { entrant, common, begin, end: now_ns() });
        }
        Ok(())
    }

    /// Every entrant until it runs as it will run; about how long a round takes, the same on all
    /// ranks.
    fn warm_up(&mut self, budget: TimeBudget) -> Result<f64, Error> {
        let mut spent = 0.0;
        let mut least = f64::INFINITY;
        for round in 0..WARM_UP_ROUNDS {
            let begin = now_ns();
            self.take(round as usize)?;
            let round_us = agreement::largest(self.world, &[microseconds(begin, now_ns())])?[0];
            least = least.min(round_us);
            spent += round_us;
            if round > 1 && spent > budget.milliseconds * 1e3 / 2.0 {
                break;
            }
        }
        self.laps.clear();
        Ok(least)
    }

    /// Waits for a moment that rank 0 names.
    fn wait_for_start(&self) -> Result<i64, Error> {
        let mut start = [now_ns() + LEAD_NS];
        self.world.bcast(&mut start, 0)?;
        while now_ns() < start[0] {
            std::hint::spin_loop();
        }
        Ok(start[0])
    }

    /// Evaluates the laps and removes them.
    fn times(&mut self) -> Result<Vec<Vec<f64>>, Error> {
        let laps = std::mem::take(&mut self.laps);
        let of = |moment: fn(&Lap) -> i64| laps.iter().map(moment).collect::<Vec<_>>();
        let first = agreement::earliest(self.world, &of(|lap| lap.begin))?;
        let last_begin = agreement::latest(self.world, &of(|lap| lap.begin))?;
        let end = agreement::latest(self.world, &of(|lap| lap.end))?;
        let mut times = vec![Vec::new(); self.entrants.len()];
        let mut late = times.clone();
        for (index, lap) in laps.iter().enumerate() {
            let in_time = lap.common.is_none_or(|common| last_begin[index] - common <= LATE_NS);
            let kept = if in_time { &mut times } else { &mut late };
            kept[lap.entrant].push(microseconds(lap.common.unwrap_or(first[index]), end[index]));
        }
        // On a machine so busy that some rank is nearly always late, what there is must do, for all
        // plans alike.
        if times.iter().any(|times| times.len() < LEAST_ROUNDS as usize) {
            times.iter_mut().zip(late).for_each(|(times, late)| times.extend(late));
        }
        Ok(times)
    }
}
