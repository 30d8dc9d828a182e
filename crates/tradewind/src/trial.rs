//! Trials: plans of a collective that take turns while the program runs, to refine the decision table.

use crate::communicator::Communicator;
use crate::error::Result;
use crate::placement::Placement;
use crate::reduction::{FoldOrder, Op, OpOnBytes};
use crate::selection::algorithms::Algorithms;
use crate::selection::refiner::{EnginePlan, Refiner};
use crate::selection::rules::SelectionRules;
use collectives::{Collective, Levels};
use engine::signature::{CallKind, Signature};
use goal::arithmetic::DataType;
use goal::compile::compile;
use models::decision::{CallForm, Measured, Query};
use models::statistics::{median, percentile};
use std::time::Instant;

/// Batches of each plan that count.
const ROUNDS: usize = 7;
/// Calls of a batch.
const CALLS: u32 = 4;
/// A plan that takes this many times as long as the best in the first batch takes part in no other.
const HOPELESS: f64 = 4.0;

/// Least memory of a rank's part of the segment for a trial: two of the shortest buffers that are
/// staged.
const LEAST_SPACE: u64 = 8192;

/// Buffers of a rank for calls of one collective and size.
struct Memory {
    input: Vec<u8>,
    output: Vec<u8>,
    /// The sum of elements of a type that the size is a multiple of.
    sum: OpOnBytes,
}

/// Outcome of a trial, the same on all ranks.
enum Outcome {
    /// Times of the plans.
    Times(Vec<Measured>),
    /// A rank has no memory for it.
    NoMemory,
    /// It failed on a rank, with this error here or elsewhere.
    Failed(String),
}

impl Communicator {
    /// Counts a call, and makes the trials that are due. The same on all ranks.
    ///
    /// # Errors
    /// Fails if not all ranks come to the end of a trial. They may have left it at different calls, so that
    /// the next ones of the program would meet others: the communicator is broken.
    #[cold]
    pub(crate) fn refine(
        &self,
        refiner: &Refiner,
        (form, operation, bytes): (CallForm, Collective, u64),
    ) -> Result<()> {
        for query in refiner.count(form, operation, bytes) {
            let plans = refiner.plans(&query);
            if plans.len() < 2 {
                continue;
            }
            match self.trial_on_all(&query, &plans).inspect_err(|_| refiner.break_off())? {
                Outcome::Times(measured) => refiner.settle(&query, &measured),
                // A later call of the program may have more memory, but is not worth a count.
                Outcome::NoMemory => {
                    log::debug!("no trial of {query}: a rank has no memory for it")
                }
                Outcome::Failed(why) => {
                    log::warn!("decisions are refined no more: a trial of {query}: {why}");
                    refiner.stop();
                }
            }
        }
        Ok(())
    }

    /// A [`trial`](Self::trial), if all ranks can make it. All ranks return alike, unless the agreement
    /// itself fails: a rank that alone settled or stopped would choose differently from then on.
    fn trial_on_all(&self, query: &Query, plans: &[EnginePlan]) -> Result<Outcome> {
        let call = Signature::new(CallKind::Link, 0, 0);
        let handles: Vec<Communicator> =
            plans.iter().map(|plan| self.with_plan(query.operation, plan)).collect();
        // The program's calls may need none of the memory, because their buffers are shared ones.
        let may = SelectionRules::may_refine() && self.has_space(query, &handles);
        let memory = if may { Memory::of(query) } else { None };
        let ready = self.allgather_word(u64::from(memory.is_some()), call)?;
        let Some(memory) = memory.filter(|_| ready.iter().all(|ready| *ready == 1)) else {
            return Ok(Outcome::NoMemory);
        };
        let measured = self.trial(query, plans, &handles, memory);
        // Ranks that complete this agreement are at the same call, however the trial has ended.
        let failed = self.allgather_word(u64::from(measured.is_err()), call)?;
        Ok(match (measured, failed.iter().position(|failed| *failed != 0)) {
            (Ok(measured), None) => Outcome::Times(measured),
            (Ok(_), Some(rank)) => Outcome::Failed(format!("rank {rank} has failed")),
            (Err(error), _) => Outcome::Failed(error.to_string()),
        })
    }

    /// Returns `true` if this rank's part of the segment has space for the schedules and a call of each.
    /// Between nodes the calls take none of it.
    fn has_space(&self, query: &Query, handles: &[Communicator]) -> bool {
        if self.internode().is_some() {
            return true;
        }
        let Query { operation, form, bytes, .. } = *query;
        let block = |handle: &Communicator, root: u32| -> Result<u64> {
            let selected = handle.selector().select(form, operation, bytes, FoldOrder::Any);
            if selected.is_join() {
                return Ok(0);
            }
            // The length of a block does not depend on the reduction.
            let graph = |rank| self.equal_graph(&selected, rank, (root, bytes, None));
            let compiled = |rank| Ok(compile(&graph(rank)?)?);
            let schedules = (0..self.size()).map(compiled).collect::<Result<Vec<_>>>()?;
            Ok(self.group().block_bytes(schedules)?)
        };
        let mut needed = 0;
        for handle in handles {
            for root in self.roots() {
                let Ok(bytes) = block(handle, root) else { return false };
                needed += bytes;
            }
        }
        // Private buffers are staged, in powers of two. A start that finds the memory of earlier
        // calls still in use waits for it, so that of one call is enough.
        let (input, output) = lengths(query);
        needed += [input, output].map(u64::next_power_of_two).iter().sum::<u64>();
        let arena = self.group().arena();
        arena.allocate(needed.max(LEAST_SPACE), 64).and_then(|at| arena.free(at)).is_ok()
    }

    /// Times these plans in turns, but for those that another engine runs. All ranks get the same
    /// times: those of the rank that takes longest.
    fn trial(
        &self,
        query: &Query,
        plans: &[EnginePlan],
        handles: &[Communicator],
        mut memory: Memory,
    ) -> Result<Vec<Measured>> {
        // The first calls link the schedules.
        let mut first = Vec::new();
        for (handle, (engine, _)) in handles.iter().zip(plans) {
            handle.batch(query, &mut memory)?;
            let time = handle.batch(query, &mut memory)?;
            // Times of another engine than the plan's do not count.
            let backend = self.last_backend(query.form);
            let has_run = engine.is_none_or(|engine| Some(engine.name()) == backend);
            first.push(if has_run { time } else { f64::INFINITY });
        }
        let first = self.slowest(&first)?;
        let best = first.iter().copied().fold(f64::INFINITY, f64::min);
        if first.iter().filter(|time| time.is_finite()).count() < 2 {
            return Ok(Vec::new());
        }
        let taking: Vec<usize> =
            (0..plans.len()).filter(|plan| first[*plan] <= HOPELESS * best).collect();
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            let mut of_round = vec![0.0; taking.len()];
            for turn in 0..taking.len() {
                let turn = (turn + round) % taking.len();
                of_round[turn] = handles[taking[turn]].batch(query, &mut memory)?;
            }
            times.extend(of_round);
        }
        let times = self.slowest(&times)?;
        let measured = |(turn, plan): (usize, &usize)| {
            let mut own: Vec<f64> = times.chunks(taking.len()).map(|round| round[turn]).collect();
            own.sort_by(f64::total_cmp);
            let quartiles = [0.25, 0.75].map(|share| percentile(&own, share));
            let (engine, plan) = plans[*plan];
            Measured { plan, engine, median: median(&own), quartiles }
        };
        Ok(taking.iter().enumerate().map(measured).collect())
    }

    /// A handle for a trial of this plan.
    fn with_plan(&self, operation: Collective, (engine, plan): &EnginePlan) -> Communicator {
        let ranks_per_node = match self.rules().placement() {
            Placement::Nodes(layout) => layout.ranks_per_node,
            Placement::OneNode(_) => None,
        };
        let forced = Algorithms::default().with(operation, plan.algorithm);
        let algorithms = Algorithms {
            tuning: plan.tuning(),
            ranks_per_node: ranks_per_node.filter(|_| plan.levels == Levels::Two),
            // A plan of the operation has one of its algorithms.
            ..forced.unwrap_or_default()
        };
        self.in_trial(algorithms, *engine)
    }

    /// The roots of calls in turn: two, so that buffers cannot hide the latency.
    fn roots(&self) -> [u32; 2] {
        [0, self.size() - 1]
    }

    /// Microseconds of a call of a batch on this rank.
    fn batch(&self, query: &Query, memory: &mut Memory) -> Result<f64> {
        self.in_trial(Algorithms::default(), None).barrier()?;
        let begin = Instant::now();
        for call in 0..CALLS {
            let root = self.roots()[call as usize % 2];
            match query.form {
                CallForm::Blocking => self.call(query.operation, memory, root)?,
                CallForm::Nonblocking => self.start_and_wait(query.operation, memory, root)?,
            }
        }
        Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS))
    }

    /// The longest times of all ranks, on all ranks.
    fn slowest(&self, own: &[f64]) -> Result<Vec<f64>> {
        let mut slowest = vec![0.0; own.len()];
        let handle = self.in_trial(Algorithms::default(), None);
        handle.allreduce(own, &mut slowest, Op::Maximum)?;
        Ok(slowest)
    }

    fn call(&self, operation: Collective, memory: &mut Memory, root: u32) -> Result<()> {
        let Memory { input, output, sum } = memory;
        let input = input.as_slice();
        let output = output.as_mut_slice();
        match operation {
            Collective::Barrier => self.barrier(),
            Collective::Bcast => self.bcast(output, root),
            Collective::Scatter => self.scatter(input, output, root),
            Collective::Gather => self.gather(input, output, root),
            Collective::Allgather => self.allgather(input, output),
            Collective::Alltoall => self.alltoall(input, output),
            Collective::Reduce => self.reduce(input, output, *sum, root),
            Collective::Allreduce => self.allreduce(input, output, *sum),
            Collective::ReduceScatter => self.reduce_scatter_block(input, output, *sum),
            Collective::Scan => self.scan(input, output, *sum),
            Collective::Exscan => self.exscan(input, output, *sum),
        }
    }

    fn start_and_wait(&self, operation: Collective, memory: &mut Memory, root: u32) -> Result<()> {
        let Memory { input, output, sum } = memory;
        let input = input.as_slice();
        let output = output.as_mut_slice();
        match operation {
            Collective::Barrier => self.ibarrier()?.wait(),
            Collective::Bcast => self.ibcast(output, root)?.wait(),
            Collective::Scatter => self.iscatter(input, output, root)?.wait().map(drop),
            Collective::Gather => self.igather(input, output, root)?.wait().map(drop),
            Collective::Allgather => self.iallgather(input, output)?.wait().map(drop),
            Collective::Alltoall => self.ialltoall(input, output)?.wait().map(drop),
            Collective::Reduce => self.ireduce(input, output, *sum, root)?.wait().map(drop),
            Collective::Allreduce => self.iallreduce(input, output, *sum)?.wait().map(drop),
            Collective::ReduceScatter => {
                self.ireduce_scatter_block(input, output, *sum)?.wait().map(drop)
            }
            Collective::Scan => self.iscan(input, output, *sum)?.wait().map(drop),
            Collective::Exscan => self.iexscan(input, output, *sum)?.wait().map(drop),
        }
    }
}

impl Memory {
    /// Buffers for this call; `None` if there is no memory.
    fn of(query: &Query) -> Option<Self> {
        let (input, output) = lengths(query);
        let zeros = |bytes: u64| {
            let mut buffer = Vec::new();
            buffer.try_reserve_exact(bytes as usize).ok()?;
            buffer.resize(bytes as usize, 0);
            Some(buffer)
        };
        let is_whole = query.bytes.is_multiple_of(8);
        let sum = Op::Sum.on_bytes(if is_whole { DataType::F64 } else { DataType::U8 });
        Some(Memory { input: zeros(input)?, output: zeros(output)?, sum })
    }
}

/// Lengths of the input and the output of a call, of which the refiner has checked that they are
/// little.
fn lengths(query: &Query) -> (u64, u64) {
    let one = query.bytes;
    let all = one * u64::from(query.ranks);
    match query.operation {
        Collective::Barrier => (0, 0),
        Collective::Bcast => (0, one),
        Collective::Scatter | Collective::ReduceScatter => (all, one),
        Collective::Gather | Collective::Allgather => (one, all),
        Collective::Alltoall => (all, all),
        _ => (one, one),
    }
}
