//! Trials: plans of a collective that take turns while the program runs, to refine the decision table.

use crate::communicator::Communicator;
use crate::error::Result;
use crate::placement::Placement;
use crate::reduction::{Op, OpOnBytes};
use crate::selection::algorithms::Algorithms;
use crate::selection::refiner::{EnginePlan, Refiner};
use collectives::{Collective, Levels};
use goal::arithmetic::DataType;
use models::decision::{CallForm, Measured, Query};
use models::statistics::{median, percentile};
use std::time::Instant;

/// Batches of each plan that count.
const ROUNDS: usize = 7;
/// Calls of a batch.
const CALLS: u32 = 4;
/// A plan that takes this many times as long as the best in the first batch takes part in no other.
const HOPELESS: f64 = 4.0;

/// Buffers of a rank for calls of one collective and size.
struct Memory {
    input: Vec<u8>,
    output: Vec<u8>,
    /// The sum of elements of a type that the size is a multiple of.
    sum: OpOnBytes,
}

impl Communicator {
    /// Counts a call, and makes the trials that are due. The same on all ranks.
    #[cold]
    pub(crate) fn refine(
        &self,
        refiner: &Refiner,
        (form, operation, bytes): (CallForm, Collective, u64),
    ) {
        for query in refiner.count(form, operation, bytes) {
            let plans = refiner.plans(&query);
            if plans.len() < 2 {
                continue;
            }
            match self.trial(&query, &plans) {
                Ok(measured) => refiner.settle(&query, &measured),
                Err(error) => {
                    // The call itself will fail for the same reason.
                    log::warn!("decisions are refined no more: a trial of {query}: {error}");
                    refiner.stop();
                }
            }
        }
    }

    /// Times these plans in turns. All ranks get the same times: those of the rank that takes
    /// longest.
    fn trial(&self, query: &Query, plans: &[EnginePlan]) -> Result<Vec<Measured>> {
        let mut memory = Memory::of(query);
        let handles: Vec<Communicator> =
            plans.iter().map(|plan| self.with_plan(query.operation, plan)).collect();
        // The first calls link the schedules.
        let mut first = Vec::new();
        for handle in &handles {
            handle.batch(query, &mut memory)?;
            first.push(handle.batch(query, &mut memory)?);
        }
        let first = self.slowest(&first)?;
        let best = first.iter().copied().fold(f64::INFINITY, f64::min);
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

    /// Microseconds of a call of a batch on this rank. The first and the last rank are roots in
    /// turn, so that buffers cannot hide the latency.
    fn batch(&self, query: &Query, memory: &mut Memory) -> Result<f64> {
        self.in_trial(Algorithms::default(), None).barrier()?;
        let begin = Instant::now();
        for call in 0..CALLS {
            let root = if call % 2 == 0 { 0 } else { self.size() - 1 };
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
        let (input, output) = (input.as_slice(), output.as_mut_slice());
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
        let (input, output) = (input.as_slice(), output.as_mut_slice());
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
    fn of(query: &Query) -> Self {
        let Query { operation, ranks, bytes, .. } = *query;
        // The refiner has checked that this is little.
        let (one, all) = (bytes as usize, bytes as usize * ranks as usize);
        let (input, output) = match operation {
            Collective::Barrier => (0, 0),
            Collective::Bcast => (0, one),
            Collective::Scatter | Collective::ReduceScatter => (all, one),
            Collective::Gather | Collective::Allgather => (one, all),
            Collective::Alltoall => (all, all),
            _ => (one, one),
        };
        let data_type = if bytes.is_multiple_of(8) { DataType::F64 } else { DataType::U8 };
        Memory { input: vec![0; input], output: vec![0; output], sum: Op::Sum.on_bytes(data_type) }
    }
}
