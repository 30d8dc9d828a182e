//! Rounds of one kind, with ranks that lag, and the memory before and after them.

use crate::job_kinds::Kind;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;
use tradewind::{Communicator, Op, Result};

/// Ranks of the jobs: with three of them, two may wait for different ones.
const RANKS: u32 = 3;

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
    /// True if the memory of all rows is to be shown.
    pub(super) are_shown: bool,
}

impl Rounds {
    /// A third of them, then the rest: what grows with the rounds triples.
    pub(super) fn of_environment() -> Self {
        let wanted = std::env::var("TRADEWIND_GROWTH_ROUNDS").ok();
        let wanted = wanted.and_then(|text| text.parse::<usize>().ok());
        let all = wanted.unwrap_or(300);
        Rounds { first: all / 3, more: all - all / 3, are_shown: wanted.is_some() }
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

/// Kibibytes in use.
#[derive(Clone, Copy, Debug, Default)]
struct InUse {
    /// Of the process, in private memory.
    process: i64,
    /// The most that a rank has allocated in its part of the segment.
    arena: i64,
}

impl InUse {
    /// A collective call.
    fn now(world: &Communicator) -> Result<Self> {
        // Nothing of the rounds is under way behind it.
        world.barrier()?;
        let own = world.allocated_bytes();
        let mut most = [0];
        world.allreduce(&[own], &mut most, Op::Maximum)?;
        Ok(InUse { process: resident(), arena: (most[0] >> 10) as i64 })
    }
}

/// Resident memory of this process in kibibytes, without the segment: its pages stay once they were
/// in use.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system has /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let value = line.and_then(|line| line.trim().strip_suffix(" kB")).map(str::trim);
    value.and_then(|value| value.parse().ok()).expect("a number of kibibytes")
}

/// The memory in use after the first rounds and after all of them.
pub(super) struct Growth {
    name: &'static str,
    first: InUse,
    last: InUse,
}

impl Growth {
    pub(super) fn is_excessive(&self, job: Kind, rounds: Rounds) -> bool {
        /// Pages that an allocator keeps.
        const PAGES: i64 = 768;
        /// Those of node services and of the ranks' own threads as well.
        const PAGES_BETWEEN_NODES: i64 = 2 << 10;
        /// What the ranks and agents of a job keep for a round that makes communicators: the number
        /// of runs of each, for the reports of exits. A job has fewer than 65,536 communicators
        /// between nodes, so that it is bounded.
        const COUNTS: i64 = 1;
        /// Objects that other ranks still used in the last rounds.
        const ARENA: i64 = 2 << 10;
        let process = match job {
            Kind::OneNode(_) => PAGES,
            _ => PAGES_BETWEEN_NODES + COUNTS * rounds.more as i64,
        };
        self.last.process - self.first.process > process
            || self.last.arena - self.first.arena > ARENA
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Growth { name, first, last } = self;
        write!(
            formatter,
            "{name}: process {} KiB, then {} KiB; arena {} KiB, then {} KiB",
            first.process, last.process, first.arena, last.arena
        )
    }
}

/// Runs the rounds of a row in a job of its own, a part of them with each lag.
pub(super) fn measure(job: Kind, row: &Row, rounds: Rounds) -> Growth {
    let measured = Mutex::new([InUse::default(); 2]);
    let run = |world: &Communicator, count: usize| {
        (0..count).try_for_each(|round| {
            let lag = LAGS[round * LAGS.len() / count];
            if lag.rank(round) == Some(world.rank()) {
                std::thread::sleep(Duration::from_micros(20));
            }
            (row.round)(world, round)
        })
    };
    let outcome = job.run(RANKS, |world| {
        run(&world, rounds.first)?;
        let first = InUse::now(&world)?;
        run(&world, rounds.more)?;
        let last = InUse::now(&world)?;
        if world.rank() == 0 {
            *measured.lock().expect("no panic holds it") = [first, last];
        }
        world.barrier()
    });
    outcome.unwrap_or_else(|error| panic!("{}: {error}", row.name));
    let [first, last] = *measured.lock().expect("no panic holds it");
    Growth { name: row.name, first, last }
}
