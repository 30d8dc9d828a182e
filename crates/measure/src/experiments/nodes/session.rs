//! One measure of one candidate: its ranks, their schedules, and what every round found.

use super::cost::{BackgroundTime, Reading, Spent};
use super::lap::{Runner, StartBarrier};
use super::measure::{ExchangePattern, Measure};
use super::programs;
use super::row::{Kind, Row};
use super::setting::Setting;
use crate::harness::Error;
use crate::harness::clock::{microseconds, now_ns};
use crate::harness::computation::{ComputeRate, compute};
use crate::harness::processor_time::{RankKind, used_by_rank_us};
use models::statistics::median;
use network::backend::{Backend, CommunicatorContext};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Calls that only warm up.
const WARM_UP: u32 = 10;

/// Runs functions of a rank on the rank's node.
pub trait RankLocation: Sync {
    /// Runs this rank's part.
    fn run(&self, rank: usize, part: &mut (dyn FnMut() + Send));
}

/// Every rank where its thread was started: for nodes that are only simulated.
#[derive(Clone, Copy, Debug)]
pub struct SameNode;

impl RankLocation for SameNode {
    fn run(&self, _: usize, part: &mut (dyn FnMut() + Send)) {
        part();
    }
}

/// An engine, with ranks on each node.
#[derive(Debug)]
pub struct Candidate {
    name: String,
    backends: Vec<Arc<dyn Backend>>,
    ranks_per_node: NonZeroU32,
    communicators: AtomicU32,
}

impl Candidate {
    /// An engine of this name, with a rank on each node; `backends` in the order of the ranks.
    pub fn new(name: &str, backends: Vec<Arc<dyn Backend>>) -> Self {
        let ranks_per_node = NonZeroU32::MIN;
        let communicators = AtomicU32::new(1);
        Candidate { name: name.to_owned(), backends, ranks_per_node, communicators }
    }

    /// The same with so many consecutive ranks on each node.
    #[must_use]
    pub fn with_ranks_per_node(self, ranks_per_node: NonZeroU32) -> Self {
        Candidate { ranks_per_node, ..self }
    }
}

/// One measure of one candidate.
#[derive(Debug)]
pub(super) struct Session {
    engine: String,
    measure: Measure,
    nodes: u32,
    /// The schedule by rank, and the shorter one that is subtracted where there is one.
    runners: Vec<Vec<Runner>>,
    /// By kind of value, then by round.
    rounds: Vec<Vec<f64>>,
}

/// Samples of a rank in a round, by kind of value.
type Samples = Vec<Vec<f64>>;

impl Session {
    /// Prepares the schedules; none if the engine does not take them.
    pub(super) fn prepare(candidate: &Candidate, measure: Measure) -> Result<Option<Self>, Error> {
        let ranks = candidate.backends.len() as u32;
        let members: Arc<[u32]> = (0..ranks).collect();
        let mut runners: Vec<Vec<Runner>> = candidate.backends.iter().map(|_| Vec::new()).collect();
        for longer in [true, false] {
            let number = candidate.communicators.fetch_add(1, Ordering::Relaxed);
            for (rank, backend) in (0..).zip(&candidate.backends) {
                let place = (rank, ranks, candidate.ranks_per_node);
                let Some(graph) = graph(measure, place, longer)? else { continue };
                let context = CommunicatorContext { number, members: Arc::clone(&members), rank };
                let schedule = goal::compile::compile(&graph).map_err(tradewind::Error::from)?;
                if !backend.supports(&schedule) {
                    return Ok(None);
                }
                runners[rank as usize].push(Runner::new(backend, &context, &schedule)?);
            }
        }
        let rounds = vec![Vec::new(); Kind::of(measure).len()];
        let engine = match measure {
            Measure::Exchange { form, .. } => format!("{}, {}", candidate.name, form.name()),
            _ => candidate.name.clone(),
        };
        let nodes = ranks.div_ceil(candidate.ranks_per_node.get());
        Ok(Some(Session { engine, measure, nodes, runners, rounds }))
    }

    /// One round.
    pub(super) fn take(
        &mut self,
        setting: &Setting,
        rate: ComputeRate,
        place: &dyn RankLocation,
    ) -> Result<(), Error> {
        let cores = shm::process::allowed_cores();
        let barrier = StartBarrier::new(self.runners.len() as u32);
        let measure = self.measure;
        let background = BackgroundTime::new();
        let outcomes: Vec<Result<Samples, Error>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0usize..)
                .zip(&mut self.runners)
                .map(|(rank, runners)| {
                    let barrier = &barrier;
                    let cores = &cores;
                    let background = &background;
                    scope.spawn(move || {
                        let mut outcome = Err(Error::Panicked);
                        place.run(rank, &mut || {
                            // Without a core of its own a rank is measured all the same.
                            let _ = shm::process::bind_current_thread(cores[rank % cores.len()]);
                            let round = RankRound { rank, barrier, setting, rate, background };
                            outcome = round.run(measure, runners);
                        });
                        outcome
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(Error::Panicked)))
                .collect()
        });
        let mut ranks = outcomes.into_iter().collect::<Result<Vec<Samples>, Error>>()?;
        if let (Measure::Exchange { .. }, Some(first)) = (measure, ranks.first_mut()) {
            first.extend(by_one(setting.calls, &mut self.runners)?);
        }
        for (index, (kind, rounds)) in Kind::of(measure).iter().zip(&mut self.rounds).enumerate() {
            let samples: Vec<&[f64]> =
                ranks.iter().filter_map(|rank| rank.get(index)).map(Vec::as_slice).collect();
            rounds.push(together(*kind, &samples, &background));
        }
        Ok(())
    }

    /// The rows of all rounds.
    pub(super) fn finish(self) -> Vec<Row> {
        let bytes = match self.measure {
            Measure::PingPong { bytes }
            | Measure::Overlap { bytes }
            | Measure::Reduction { bytes } => bytes,
            Measure::Exchange { bytes, .. } => bytes,
            _ => 0,
        };
        let kinds = Kind::of(self.measure).into_iter().zip(&self.rounds);
        kinds.map(|(kind, rounds)| Row::of(kind, &self.engine, self.nodes, bytes, rounds)).collect()
    }
}

/// From the samples of all ranks to the value of a round.
fn together(kind: Kind, ranks: &[&[f64]], background: &BackgroundTime) -> f64 {
    let slowest = || {
        let laps = ranks.iter().map(|samples| samples.len()).min().unwrap_or(0);
        let most =
            |lap: usize| ranks.iter().map(|samples| samples[lap]).fold(f64::NEG_INFINITY, f64::max);
        (0..laps).map(most).collect::<Vec<f64>>()
    };
    match kind {
        Kind::Unattended => {
            let all: Vec<f64> = ranks.concat();
            100.0 * all.iter().sum::<f64>() / all.len().max(1) as f64
        }
        Kind::Stolen => {
            ranks.iter().map(|samples| median(samples)).sum::<f64>() + background.each_lap_us()
        }
        Kind::Latency
        | Kind::Barrier
        | Kind::Alone
        | Kind::Total
        | Kind::Exposed
        | Kind::Exchange(_) => median(&slowest()),
        Kind::Test | Kind::LateWait | Kind::Start | Kind::Operation | Kind::Reduction => {
            ranks.first().map_or(f64::NAN, |samples| median(samples))
        }
        Kind::ExchangeByOne(_) | Kind::ExchangeCost(_) => {
            ranks.first().map_or(f64::NAN, |samples| median(samples))
        }
    }
}

/// Calls in a row, of which one thread starts the part of every rank and waits for all: the time of
/// one, and the processor time of the whole process.
fn by_one(calls: u32, ranks: &mut [Vec<Runner>]) -> Result<Samples, Error> {
    let mut runs = Vec::with_capacity(ranks.len());
    let mut call = || -> Result<(), Error> {
        for runner in ranks.iter_mut().flatten() {
            runs.push(runner.start()?);
        }
        for (runner, run) in ranks.iter_mut().flatten().zip(runs.drain(..)) {
            runner.wait(run)?;
            runner.fetch(run)?;
        }
        Ok(())
    };
    (0..WARM_UP).try_for_each(|_| call())?;
    let used = used_by_rank_us(RankKind::Process);
    let begin = now_ns();
    (0..calls).try_for_each(|_| call())?;
    let each = |all: f64| vec![all / f64::from(calls)];
    let time = microseconds(begin, now_ns());
    Ok(vec![each(time), each(used_by_rank_us(RankKind::Process) - used)])
}

/// The graph of a measure, and the shorter one that is subtracted.
fn graph(
    measure: Measure,
    (rank, ranks, per_node): (u32, u32, NonZeroU32),
    longer: bool,
) -> Result<Option<goal::graph::Graph>, Error> {
    Ok(Some(match (measure, longer) {
        (Measure::PingPong { bytes }, true) => programs::ping_pong(rank, ranks, bytes),
        (Measure::Barrier | Measure::Test, true) => programs::barrier(rank, ranks)?,
        (Measure::Overlap { bytes }, true) => programs::exchange(rank, ranks, bytes),
        (Measure::LateWait, true) => programs::exchange(rank, ranks, 8),
        (Measure::Start, true) => programs::one_send(rank, ranks),
        (Measure::Operation, _) => programs::chain(
            rank,
            ranks,
            if longer { programs::CHAINS.0 } else { programs::CHAINS.1 },
        ),
        (Measure::Reduction { bytes }, _) => {
            programs::reduction(rank, ranks, bytes, if longer { 9 } else { 1 })
        }
        (Measure::Exchange { pattern: ExchangePattern::AllRanks, bytes, form }, true) => {
            programs::alltoall(rank, ranks, per_node, bytes, form)?
        }
        (Measure::Exchange { pattern: ExchangePattern::Torus, bytes, form }, true) => {
            programs::torus(rank, ranks, per_node, bytes, form)?
        }
        (_, false) => return Ok(None),
    }))
}

/// Execution of a round by one rank.
struct RankRound<'a> {
    rank: usize,
    barrier: &'a StartBarrier,
    setting: &'a Setting,
    rate: ComputeRate,
    background: &'a BackgroundTime,
}

impl RankRound<'_> {
    fn run(&self, measure: Measure, runners: &mut [Runner]) -> Result<Samples, Error> {
        self.background.except_me();
        let Some((runner, shorter)) = runners.split_first_mut() else { return Ok(Vec::new()) };
        for _ in 0..WARM_UP {
            runner.call()?;
        }
        let calls = self.setting.calls;
        match measure {
            Measure::PingPong { .. } => {
                self.batch(runner, calls.div_ceil(programs::TRIPS), f64::from(2 * programs::TRIPS))
            }
            Measure::Barrier => self.batch(runner, calls, 1.0),
            Measure::Overlap { .. } => self.overlap(runner),
            Measure::Test => Self::test(runner),
            Measure::LateWait => self.late_wait(runner),
            Measure::Start => self.start(runner),
            Measure::Operation => {
                let difference = f64::from(programs::CHAINS.0 - programs::CHAINS.1);
                self.beyond(runner, shorter, 1e3 / difference)
            }
            Measure::Reduction { .. } => self.beyond(runner, shorter, 1.0 / 8.0),
            Measure::Exchange { .. } => self.batch(runner, calls, 1.0),
        }
    }

    /// Calls in a row; microseconds of a `parts`-th of a call.
    fn batch(&self, runner: &mut Runner, calls: u32, parts: f64) -> Result<Samples, Error> {
        let mut turn = 0;
        self.barrier.pass(&mut turn);
        let begin = now_ns();
        for _ in 0..calls {
            runner.call()?;
        }
        Ok(vec![vec![microseconds(begin, now_ns()) / f64::from(calls) / parts]])
    }

    /// The exchange alone, then computations with and without it in turns.
    fn overlap(&self, runner: &mut Runner) -> Result<Samples, Error> {
        let alone = self.batch(runner, self.setting.calls.div_ceil(4), 1.0)?.concat();
        let steps = self.rate.steps(self.setting.computation_us);
        let laps = self.setting.calls.div_ceil(4);
        let mut turn = 1;
        let mut bare = Vec::new();
        let mut over = Vec::new();
        let mut used_bare = Vec::new();
        let mut used_over = Vec::new();
        let mut unattended = Vec::new();
        for _ in 0..laps {
            // Rank 0 takes long to read; after the barrier all begin at once.
            let before = self.read_background()?;
            self.barrier.pass(&mut turn);
            let spent = Spent::now();
            let begin = now_ns();
            compute(steps);
            bare.push(microseconds(begin, now_ns()));
            used_bare.push(spent.since_us());
            self.barrier.pass(&mut turn);
            before.map_or(Ok(()), |before| self.background.note_bare(before))?;
            let before = self.read_background()?;
            self.barrier.pass(&mut turn);
            let spent = Spent::now();
            let begin = now_ns();
            let run = runner.start()?;
            compute(steps);
            unattended.push(f64::from(u8::from(runner.is_complete(run))));
            runner.wait(run)?;
            over.push(microseconds(begin, now_ns()));
            used_over.push(spent.since_us());
            runner.fetch(run)?;
            self.barrier.pass(&mut turn);
            before.map_or(Ok(()), |before| self.background.note_over(before))?;
        }
        // The threads are there until all clocks have been read.
        self.barrier.pass(&mut turn);
        let usual = median(&bare);
        let used = median(&used_bare);
        let exposed = over.iter().map(|lap| lap - usual).collect();
        let stolen = used_over.iter().map(|lap| lap - used).collect();
        Ok(vec![alone, over, exposed, unattended, stolen])
    }

    /// Returns the background CPU time, which rank 0 reads for all ranks.
    fn read_background(&self) -> Result<Option<Reading>, Error> {
        if self.rank == 0 { self.background.read().map(Some) } else { Ok(None) }
    }

    fn test(runner: &mut Runner) -> Result<Samples, Error> {
        const LOOKS: u32 = 10_000;
        let run = runner.start()?;
        runner.wait(run)?;
        let begin = now_ns();
        let complete =
            (0..LOOKS).filter(|_| std::hint::black_box(&*runner).is_complete(run)).count();
        let each = (now_ns() - begin) as f64 / f64::from(LOOKS);
        runner.fetch(run)?;
        if complete == LOOKS as usize { Ok(vec![vec![each]]) } else { Err(Error::Forgotten) }
    }

    fn late_wait(&self, runner: &mut Runner) -> Result<Samples, Error> {
        let steps = self.rate.steps(self.setting.computation_us);
        let mut turn = 0;
        let mut waits = Vec::new();
        for _ in 0..self.setting.calls.div_ceil(10) {
            self.barrier.pass(&mut turn);
            let run = runner.start()?;
            while !runner.is_complete(run) {
                compute(steps);
            }
            let begin = now_ns();
            runner.wait(run)?;
            waits.push(microseconds(begin, now_ns()));
            runner.fetch(run)?;
        }
        Ok(vec![waits])
    }

    fn start(&self, runner: &mut Runner) -> Result<Samples, Error> {
        let mut turn = 0;
        let mut starts = Vec::new();
        for _ in 0..self.setting.calls {
            self.barrier.pass(&mut turn);
            let begin = now_ns();
            let run = runner.start()?;
            starts.push(microseconds(begin, now_ns()));
            runner.wait(run)?;
            runner.fetch(run)?;
        }
        Ok(vec![starts])
    }

    /// Time of the long schedule beyond the short one's, in `scale` microseconds, on rank
    /// 0 by itself.
    fn beyond(
        &self,
        runner: &mut Runner,
        shorter: &mut [Runner],
        scale: f64,
    ) -> Result<Samples, Error> {
        let Some(shorter) = shorter.first_mut() else { return Ok(Vec::new()) };
        let mut differences = Vec::new();
        if self.rank == 0 {
            let timed = |runner: &mut Runner| -> Result<f64, Error> {
                let begin = now_ns();
                runner.call()?;
                Ok(microseconds(begin, now_ns()))
            };
            for _ in 0..self.setting.calls.div_ceil(4) {
                differences.push((timed(runner)? - timed(shorter)?) * scale);
            }
        }
        self.barrier.pass(&mut 0);
        Ok(vec![differences])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::nodes::{LevelScheme, compare};
    use network::local::connect;
    use network::node_map::NodeMap;

    #[test]
    fn exchanges_are_measured_in_one_level_and_in_two() {
        let clients = connect(&NodeMap::new([0, 0, 1, 1])).expect("threads need nothing");
        let backends = clients.into_iter().map(|client| Arc::new(client) as Arc<dyn Backend>);
        let two = NonZeroU32::new(2).expect("not zero");
        let candidates = [Candidate::new("agent", backends.collect()).with_ranks_per_node(two)];
        let setting = Setting { rounds: 1, calls: 3, computation_us: 1.0 };
        let measures = [ExchangePattern::AllRanks, ExchangePattern::Torus].map(|pattern| {
            [LevelScheme::Direct, LevelScheme::TwoLevels].map(|form| Measure::Exchange {
                pattern,
                bytes: 8,
                form,
            })
        });
        let rows = compare(&candidates, measures.as_flattened(), &setting, &SameNode)
            .expect("no rank fails");
        // Called by all, by one, and what that takes of processors.
        let engines: Vec<&str> = rows.iter().step_by(3).map(|row| row.engine.as_str()).collect();
        assert_eq!(
            engines,
            ["agent, direct", "agent, two-level", "agent, direct", "agent, two-level"]
        );
        assert!(
            rows.len() == 12 && rows.iter().all(|row| row.nodes == 2 && row.median.is_finite()),
            "{rows:?}"
        );
    }
}
