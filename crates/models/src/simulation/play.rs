//! Playing a program through.

use super::program::{Constants, Counts, Moment, Program, weights};
use std::collections::VecDeque;

/// Number of orders in which the ranks begin.
const ORDERS: u64 = 3;
/// Interval in which the ranks begin, in operations: it decides only which is last.
const BEGIN: f64 = 1e-6;

/// When the last process is done, and what lies on the way there: the mean of some orders in which
/// the ranks begin.
///
/// Ranks never begin at the same moment. Each count that they arrive at then has one last arrival.
/// The process of that rank executes what follows. A process without a last arrival has nothing to do until
/// its rank is complete, so the work concentrates in ever fewer processes. If all began at once,
/// every arrival of a ring or of an exchange in pairs would tie, and all processes would stay at
/// work to the end.
///
/// Rank r has core r mod `cores`. The processes of a core take turns in rank order; a process that
/// is not done is asked again when what it waits for has come.
///
/// ```
/// use models::simulation::{Constants, Curve, Program, Rank, run};
///
/// // Two processes that only begin and end, at 3 µs each; on one core there is a switch of 2 µs between them.
/// let constants =
///     Constants { start: 3.0, operation: 0.0, crossing: 0.0, switch: 2.0, copy: Curve::default(), combine: 0.0,
///     fetch: Curve::default() };
/// let program = Program { ranks: vec![Rank::default(); 2], steps: Vec::new() };
/// assert_eq!(run(&program, 2, &constants).microseconds, 3.0);
/// assert_eq!(run(&program, 1, &constants).microseconds, 8.0);
/// ```
pub fn run(program: &Program, cores: usize, constants: &Constants) -> Moment {
    let orders = if cores > 1 { ORDERS } else { 1 };
    let mut mean = Moment::default();
    for order in 0..orders {
        let moment = Play::new(program, cores.max(1), constants, order).run();
        mean.microseconds += moment.microseconds / orders as f64;
        mean.counts.add(&moment.counts.scaled(1.0 / orders as f64));
    }
    mean
}

/// Moment at which a rank begins. Processes of one core begin in turns anyway.
fn begin(order: u64, rank: usize, cores: usize, constants: &Constants) -> Moment {
    if cores == 1 {
        return Moment::default();
    }
    let operations = BEGIN * fraction(order << 32 | rank as u64);
    let counts = Counts { operations, ..Counts::default() };
    Moment { microseconds: constants.price(&counts), counts }
}

/// Fraction below 1 that looks random, by SplitMix64.
fn fraction(seed: u64) -> f64 {
    let mut bits = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// State of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Begun,
    Ended,
}

struct Play<'a> {
    program: &'a Program,
    constants: &'a Constants,
    /// When each core is free again, and for which of its processes it last worked.
    cores: Vec<(Moment, Option<usize>)>,
    stages: Vec<Stage>,
    /// When each rank begins.
    begins: Vec<Moment>,
    /// Operations that each process has enabled and not yet executed.
    work: Vec<VecDeque<usize>>,
    /// Arrivals that each operation still waits for.
    missing: Vec<u32>,
    /// The latest of what each operation waits for, and the process that brought it.
    arrived: Vec<(Moment, usize)>,
    /// Operations of each rank that are not complete, and when and on which core the last one was.
    open: Vec<usize>,
    completed: Vec<(Moment, usize)>,
    /// The core that has last written what a rank has received or sends.
    writers: Vec<usize>,
    end: Moment,
}

impl<'a> Play<'a> {
    fn new(program: &'a Program, cores: usize, constants: &'a Constants, order: u64) -> Self {
        let ranks = program.ranks.len();
        let mut open = vec![0; ranks];
        program
            .steps
            .iter()
            .flat_map(|step| &step.completes)
            .for_each(|step| open[program.steps[*step].rank] += 1);
        Play {
            program,
            constants,
            cores: vec![(Moment::default(), None); cores.min(ranks.max(1))],
            stages: vec![Stage::Waiting; ranks],
            begins: (0..ranks).map(|rank| begin(order, rank, cores, constants)).collect(),
            work: vec![VecDeque::new(); ranks],
            missing: program.steps.iter().map(|step| step.waits).collect(),
            arrived: vec![(Moment::default(), 0); program.steps.len()],
            open,
            completed: (0..ranks).map(|rank| (Moment::default(), rank % cores)).collect(),
            writers: (0..ranks).map(|rank| rank % cores).collect(),
            end: Moment::default(),
        }
    }

    fn run(mut self) -> Moment {
        while let Some((core, rank, from)) = self.next() {
            self.turn(core, rank, from);
        }
        self.end
    }

    /// Which core does something next, for which of its processes, and from when.
    fn next(&self) -> Option<(usize, usize, Moment)> {
        let ranks = self.program.ranks.len();
        let mut best: Option<(usize, usize, Moment)> = None;
        for (core, (free, last)) in self.cores.iter().enumerate() {
            // A process with work goes on; then come the others, in order after it.
            let first = last.unwrap_or(core);
            let own = (core..ranks).step_by(self.cores.len());
            let ready = own.filter_map(|rank| self.ready(rank, core).map(|ready| (rank, ready)));
            let order = |rank: usize| (rank + ranks - first) % ranks;
            let choice = ready.min_by(|(left, at), (right, then)| {
                let at = (free.later(*at).microseconds, order(*left));
                let then = (free.later(*then).microseconds, order(*right));
                at.0.total_cmp(&then.0).then(at.1.cmp(&then.1))
            });
            let Some((rank, ready)) = choice else { continue };
            let from = free.later(ready);
            if best.is_none_or(|(.., other)| from.microseconds < other.microseconds) {
                best = Some((core, rank, from));
            }
        }
        best
    }

    /// From when on a process has something to do.
    fn ready(&self, rank: usize, core: usize) -> Option<Moment> {
        match self.stages[rank] {
            Stage::Waiting => Some(self.begins[rank]),
            Stage::Begun if !self.work[rank].is_empty() => Some(Moment::default()),
            Stage::Begun if self.open[rank] == 0 => {
                let (mut at, by) = self.completed[rank];
                if by != core {
                    at.microseconds += self.constants.crossing;
                    at.counts.crossings += 1.0;
                }
                Some(at)
            }
            Stage::Begun | Stage::Ended => None,
        }
    }

    /// One thing that a process does.
    fn turn(&mut self, core: usize, rank: usize, from: Moment) {
        let mut now = from;
        let last = self.cores[core].1.replace(rank);
        if last.is_some_and(|last| last != rank) {
            self.spend(&mut now, Counts { switches: 1.0, ..Counts::default() });
        }
        match (self.stages[rank], self.work[rank].pop_front()) {
            (Stage::Waiting, _) => {
                self.stages[rank] = Stage::Begun;
                let input = self.program.ranks[rank].input;
                self.spend(
                    &mut now,
                    copy(input, false, Counts { starts: 1.0, ..Counts::default() }),
                );
                self.writers[rank] = core;
                for step in &self.program.ranks[rank].starts {
                    self.arrive(*step, rank, now);
                }
            }
            (_, Some(step)) => self.execute(step, rank, core, &mut now),
            (_, None) => {
                self.stages[rank] = Stage::Ended;
                let fetched = self.writers[rank] != core;
                self.spend(
                    &mut now,
                    copy(self.program.ranks[rank].output, fetched, Counts::default()),
                );
                self.end = self.end.later(now);
            }
        }
        self.cores[core].0 = now;
    }

    fn execute(&mut self, number: usize, by: usize, core: usize, now: &mut Moment) {
        let program = self.program;
        let step = &program.steps[number];
        *now = now.later(self.arrived[number].0);
        let fixed = Counts { operations: 1.0, combined: step.combined as f64, ..Counts::default() };
        self.spend(now, copy(step.copied, self.writers[step.from] != core, fixed));
        for complete in &step.completes {
            let rank = program.steps[*complete].rank;
            if step.copied > 0 && rank != step.from {
                self.writers[rank] = core;
            }
            self.open[rank] -= 1;
            if self.open[rank] == 0 {
                self.completed[rank] = (*now, core);
            }
        }
        for next in &step.enables {
            self.arrive(*next, by, *now);
        }
    }

    /// Records one arrival at an operation; the process of the last arrival executes it.
    fn arrive(&mut self, step: usize, by: usize, at: Moment) {
        // The arrival that is played last need not have come last.
        let latest = &mut self.arrived[step];
        if at.microseconds >= latest.0.microseconds {
            *latest = (at, by);
        }
        self.missing[step] = self.missing[step].saturating_sub(1);
        if self.missing[step] == 0 {
            let (_, last) = self.arrived[step];
            self.work[last].push_back(step);
        }
    }

    fn spend(&self, now: &mut Moment, counts: Counts) {
        now.microseconds += self.constants.price(&counts);
        now.counts.add(&counts);
    }
}

/// These counts, and a copy, of bytes that another core has written last or not.
fn copy(bytes: u64, fetched: bool, mut counts: Counts) -> Counts {
    for (knot, weight) in weights(bytes) {
        counts.copies[knot] += weight;
        counts.fetches[knot] += if fetched { weight } else { 0.0 };
    }
    counts
}

impl Counts {
    fn scaled(mut self, factor: f64) -> Self {
        let Counts { starts, operations, crossings, switches, combined, copies, fetches } =
            &mut self;
        let single = [starts, operations, crossings, switches, combined];
        single.into_iter().chain(copies).chain(fetches).for_each(|count| *count *= factor);
        self
    }

    pub(super) fn add(&mut self, other: &Counts) {
        self.starts += other.starts;
        self.operations += other.operations;
        self.crossings += other.crossings;
        self.switches += other.switches;
        self.combined += other.combined;
        self.copies.iter_mut().zip(other.copies).for_each(|(count, more)| *count += more);
        self.fetches.iter_mut().zip(other.fetches).for_each(|(count, more)| *count += more);
    }
}
