//! One rank's part of programs.

use super::without_computations;
use goal::compile::compile;
use kernel::{Fault as RunFault, Rank};
use network::backend::{Backend, CommunicatorContext, RunId, ScheduleId};
use network::error::Error;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use testing::conformance::random::Program;
use testing::conformance::{Failure, Fault};

/// Time after which a run counts as stuck.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Results of one rank: by round, its buffers and its failure.
pub(super) type RankOutcome = Result<Vec<(Vec<Vec<u8>>, Option<Fault>)>, Failure>;

/// Parts of a rank in programs, each with the number of its communicator.
struct Parts<'a> {
    here: &'a Rank,
    rank: usize,
    programs: &'a [(u32, Program)],
    outcomes: Vec<RankOutcome>,
    /// Runs that were started and not waited for: program, schedule, round and run identifier.
    under_way: VecDeque<(usize, ScheduleId, usize, RunId)>,
}

/// Runs a rank's parts of all its programs, one round after the other. It waits for runs in the
/// order of their starts, and only without memory for more: the order is the same on all ranks, so
/// none waits forever.
pub(super) fn run(here: &Rank, rank: usize, programs: &[(u32, Program)]) -> Vec<RankOutcome> {
    let mine = || (0..programs.len()).filter(|number| rank < programs[*number].1.graphs.len());
    let outcomes = programs.iter().map(|_| Ok(Vec::new())).collect();
    let mut parts = Parts { here, rank, programs, outcomes, under_way: VecDeque::new() };
    for number in mine() {
        if let Err(failure) = parts.start(number) {
            parts.outcomes[number] = Err(failure);
        }
    }
    while parts.finish_first() {}
    let Parts { outcomes, .. } = parts;
    outcomes
        .into_iter()
        .enumerate()
        .filter(|(number, _)| mine().any(|own| own == *number))
        .map(|(_, all)| all)
        .collect()
}

impl Parts<'_> {
    fn start(&mut self, number: usize) -> Result<(), Failure> {
        let (communicator, program) = &self.programs[number];
        let members = (0..program.graphs.len() as u32).collect();
        let context =
            CommunicatorContext { number: *communicator, members, rank: self.rank as u32 };
        let graph = without_computations(&program.graphs[self.rank]);
        let schedule = compile(&graph).map_err(|error| Failure::Other(error.to_string()))?;
        let prepared = self.finish_runs_until(|here| here.register(&context, &schedule, 0))?;
        for (round, inputs) in program.inputs.iter().enumerate() {
            let inputs: Vec<&[u8]> = inputs[self.rank].iter().map(Vec::as_slice).collect();
            let run_id =
                self.finish_runs_until(|here| here.start(prepared, round as u64, &inputs))?;
            self.under_way.push_back((number, prepared, round, run_id));
        }
        Ok(())
    }

    /// Calls a function that needs memory; without memory, calls it again after the next run has
    /// ended.
    fn finish_runs_until<T>(
        &mut self,
        mut attempt: impl FnMut(&Rank) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        loop {
            match attempt(self.here) {
                Ok(value) => return Ok(value),
                Err(Error::TooLarge { .. }) if self.finish_first() => {}
                Err(error) => return Err(Failure::Other(error.to_string())),
            }
        }
    }

    /// Waits for the first run under way; false if there is none.
    fn finish_first(&mut self) -> bool {
        let Some((number, prepared, round, run_id)) = self.under_way.pop_front() else {
            return false;
        };
        if self.outcomes[number].is_err() {
            self.here.discard(run_id);
        } else {
            let finished = self.finish(number, round, run_id);
            if let (Ok(all), Ok(one)) = (&mut self.outcomes[number], finished.clone()) {
                all.push(one);
            }
            if let Err(failure) = finished {
                self.outcomes[number] = Err(failure);
            }
        }
        if round + 1 == self.programs[number].1.inputs.len() {
            self.here.release(prepared);
        }
        true
    }

    fn finish(
        &self,
        number: usize,
        round: usize,
        run_id: RunId,
    ) -> Result<(Vec<Vec<u8>>, Option<Fault>), Failure> {
        let other = |error: Error| Failure::Other(error.to_string());
        if !self.here.wait(run_id, Some(Instant::now() + TIME_LIMIT)).map_err(other)? {
            let awaited = self.here.waiting_for(run_id);
            return Err(Failure::Stuck(format!(
                "rank {}, round {round} waits for {awaited:?}",
                self.rank
            )));
        }
        let fault = self.here.fault(run_id);
        let mut buffers = self.programs[number].1.inputs[round][self.rank].clone();
        let mut outputs: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        let fetched = self.here.fetch(run_id, &mut outputs);
        match fault {
            None => fetched.map(|()| (buffers, None)).map_err(other),
            Some(RunFault::Division { vertex, .. }) => {
                Ok((buffers, Some(Fault { rank: self.rank as u32, vertex })))
            }
            Some(RunFault::Sizes { .. }) => Err(Failure::SizesDiffer(
                fetched.map_or_else(|error| error.to_string(), |()| String::new()),
            )),
            Some(fault) => Err(Failure::Other(format!("{fault:?}"))),
        }
    }
}
