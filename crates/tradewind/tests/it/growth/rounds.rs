//! Rounds of one kind, with ranks that lag, and what is in use before and after them.

use crate::job_kinds::Kind;
use std::fmt;
use std::fs::{read_dir, read_to_string};
use std::sync::Mutex;
use std::time::Duration;
use tradewind::{Communicator, Op, Result};

/// Ranks of the jobs: with three of them, two may wait for different ones.
pub(super) const RANKS: u32 = 3;

/// One kind of object, created, used and dropped.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// A round, with its number.
    pub(super) round: fn(&Communicator, usize) -> Result<()>,
}

/// The number of rounds before the first measurement and between the two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    first: usize,
    more: usize,
    /// True if the growth of all rows is to be shown.
    pub(super) are_shown: bool,
}

impl Rounds {
    /// A third of them, at most a thousand, then the rest: what grows with the rounds triples.
    pub(super) fn of_environment() -> Self {
        let wanted = std::env::var("TRADEWIND_GROWTH_ROUNDS").ok();
        let wanted = wanted.and_then(|text| text.parse::<usize>().ok());
        let all = wanted.unwrap_or(300);
        let first = (all / 3).min(1000);
        Rounds { first, more: all - first, are_shown: wanted.is_some() }
    }
}

/// The rank that lags in a round.
#[derive(Clone, Copy, Debug)]
enum Lag {
    None,
    ByTurns,
    Always(u32),
}

const LAGS: [Lag; 4] = [Lag::None, Lag::ByTurns, Lag::Always(RANKS - 1), Lag::Always(0)];

impl Lag {
    fn rank(self, round: usize) -> Option<u32> {
        match self {
            Lag::None => None,
            Lag::ByTurns => Some(round as u32 % RANKS),
            Lag::Always(rank) => Some(rank),
        }
    }
}

/// Names of the figures of [`InUse`].
const FIGURES: [&str; 4] = ["KiB of private memory", "KiB of the arena", "descriptors", "mappings"];

/// Resources in use: the most of a process, or of a rank's part of the segment.
///
/// The pages of the segment are not among the private memory: they stay once they were in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct InUse([i64; FIGURES.len()]);

impl InUse {
    /// A collective call.
    fn now(world: &Communicator) -> Result<Self> {
        // Nothing of the rounds is under way behind it.
        world.barrier()?;
        let own = [resident(), (world.allocated_bytes() >> 10) as i64, descriptors(), mappings()];
        let mut most = [0; FIGURES.len()];
        world.allreduce(&own, &mut most, Op::Maximum)?;
        Ok(InUse(most))
    }
}

/// Resident private memory of this process in kibibytes.
fn resident() -> i64 {
    let status = read_to_string("/proc/self/status").expect("the system has /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let value = line.and_then(|line| line.trim().strip_suffix(" kB")).map(str::trim);
    value.and_then(|value| value.parse().ok()).expect("a number of kibibytes")
}

fn descriptors() -> i64 {
    read_dir("/proc/self/fd").expect("the system has /proc").count() as i64
}

fn mappings() -> i64 {
    read_to_string("/proc/self/maps").expect("the system has /proc").lines().count() as i64
}

/// Resources in use after the first rounds and after all of them.
pub(super) struct Growth {
    name: &'static str,
    rounds: Rounds,
    first: InUse,
    last: InUse,
}

impl Growth {
    /// Returns whether the growth is more than chance, in a job on one node or on several.
    pub(super) fn is_excessive(&self, on_one_node: bool) -> bool {
        /// Pages that an allocator keeps, and objects that other ranks used in the last rounds.
        /// Between nodes the pages are those of node services and of the ranks' own threads as well.
        const CHANCE: [[i64; FIGURES.len()]; 2] =
            [[2 << 10, 2 << 10, 8, 16], [768, 2 << 10, 8, 16]];
        let chance = CHANCE[usize::from(on_one_node)];
        let mut figures = self.last.0.iter().zip(self.first.0).zip(chance);
        figures.any(|((last, first), chance)| last - first > chance)
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Growth { name, rounds, first, last } = self;
        write!(formatter, "{name}, {} rounds and {} more:", rounds.first, rounds.more)?;
        for ((first, last), figure) in first.0.iter().zip(last.0).zip(FIGURES) {
            write!(formatter, " {first} {figure}, then {last};")?;
        }
        let bytes = (last.0[0] - first.0[0]) as f64 * 1024.0 / rounds.more as f64;
        write!(formatter, " {bytes:.1} bytes of private memory a round")
    }
}

/// Runs the rounds of a row, a part of them with each lag.
pub(super) fn measure(world: &Communicator, row: &Row, rounds: Rounds) -> Result<Growth> {
    let run = |count: usize| {
        (0..count).try_for_each(|round| {
            let lag = LAGS[round * LAGS.len() / count];
            if lag.rank(round) == Some(world.rank()) {
                std::thread::sleep(Duration::from_micros(20));
            }
            (row.round)(world, round)
        })
    };
    run(rounds.first)?;
    let first = InUse::now(world)?;
    run(rounds.more)?;
    let last = InUse::now(world)?;
    Ok(Growth { name: row.name, rounds, first, last })
}

/// The same in a job of its own, whose ranks are threads.
pub(super) fn measure_job(job: Kind, row: &Row, rounds: Rounds) -> Growth {
    let measured = Mutex::new(None);
    let outcome = job.run(RANKS, |world| {
        let growth = measure(&world, row, rounds)?;
        if world.rank() == 0 {
            *measured.lock().expect("no panic holds it") = Some(growth);
        }
        world.barrier()
    });
    outcome.unwrap_or_else(|error| panic!("{}: {error}", row.name));
    let measured = measured.into_inner().expect("no panic holds it");
    measured.expect("rank 0 has measured")
}
