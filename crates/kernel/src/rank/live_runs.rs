//! The runs of a rank at one instant, by communicator and number.

use network::run_counts::RunCounts;
use std::collections::HashMap;

/// Number of a communicator, and of a run in it.
pub(super) type RunKey = (u32, u64);

/// Stage of a run that was not fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunStage {
    /// It waits for memory.
    Queued,
    UnderWay,
    /// All its receives are complete, or it has failed.
    Complete,
}

/// Runs that were started and not fetched.
#[derive(Debug)]
pub(super) struct LiveRuns {
    stages: HashMap<RunKey, RunStage>,
    /// Runs started.
    counts: RunCounts,
}

impl LiveRuns {
    pub(super) fn new(stages: HashMap<RunKey, RunStage>, counts: RunCounts) -> Self {
        LiveRuns { stages, counts }
    }

    /// Returns the stage of a run; `None` if it was fetched or has not started.
    pub(super) fn stage(&self, run: RunKey) -> Option<RunStage> {
        self.stages.get(&run).copied()
    }

    /// Returns true if this rank will not receive messages of a run any more: it has ended, as has
    /// its communicator perhaps, or another backend ran the collective of that number.
    ///
    /// The runs of a communicator start in the order of their numbers, so no run below the last one
    /// is still to start.
    pub(super) fn is_over(&self, run: RunKey) -> bool {
        let (communicator, sequence) = run;
        match self.stage(run) {
            Some(stage) => stage == RunStage::Complete,
            None => sequence < self.counts.next(communicator),
        }
    }

    /// Returns the runs that are under way.
    pub(super) fn under_way(&self) -> impl Iterator<Item = RunKey> {
        let stages = self.stages.iter().filter(|(_, stage)| **stage == RunStage::UnderWay);
        stages.map(|(run, _)| *run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::layout::{ARENA, RANK_BYTES, RUN_COMPLETE};
    use crate::memory::mapping::Mapping;
    use crate::rank::run_table::{RunHandle, RunTable};
    use goal::compile::compile;
    use goal::graph::{Access, Graph};
    use network::backend::CommunicatorContext;
    use proptest::prelude::*;
    use std::sync::atomic::Ordering;

    /// Number of communicators.
    const COMMUNICATORS: u32 = 2;

    #[derive(Clone, Debug)]
    enum Step {
        /// Starts a run after this many numbers that other backends take.
        Start { communicator: u32, skipped: u64 },
        /// Completes the run in the frame of one of the live runs.
        Complete(usize),
        /// Fetches one of the live runs if it is complete.
        Fetch(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let start = (0..COMMUNICATORS, 0..4_u64)
            .prop_map(|(communicator, skipped)| Step::Start { communicator, skipped });
        prop_oneof![
            start,
            any::<usize>().prop_map(Step::Complete),
            any::<usize>().prop_map(Step::Fetch)
        ]
    }

    /// Returns schedules, by communicator. Five runs fill the arena.
    fn prepare(table: &mut RunTable, memory: &Mapping) -> Vec<u64> {
        let mut graph = Graph::new(0, 2);
        let output = graph.buffer(Access::Output, 900_000);
        graph.receive(output, 1, 0);
        let schedule = compile(&graph).expect("the graph is right");
        let context = |number| CommunicatorContext { number, members: [0, 1].into(), rank: 0 };
        (0..COMMUNICATORS)
            .map(|number| {
                table.prepare(memory, &context(number), &schedule, 0).expect("it is small")
            })
            .collect()
    }

    proptest! {
        #[test]
        fn runs_are_over_once_they_are_complete(steps in prop::collection::vec(step(), 0..60)) {
            let file = tempfile::tempfile().expect("a file");
            file.set_len(RANK_BYTES as u64).expect("a longer file");
            let memory = Mapping::new(&file, 0, RANK_BYTES, true).expect("memory");
            let mut table = RunTable::new();
            let schedules = prepare(&mut table, &memory);
            let mut live: Vec<(RunKey, RunHandle)> = Vec::new();
            let mut next = [0_u64; COMMUNICATORS as usize];
            for step in steps {
                match step {
                    Step::Start { communicator, skipped } => {
                        let at = communicator as usize;
                        let sequence = next[at] + skipped;
                        next[at] = sequence + 1;
                        let handle = table.start(&memory, schedules[at], sequence, &[&[]]);
                        live.push(((communicator, sequence), handle.expect("it is registered")));
                    }
                    Step::Complete(at) if !live.is_empty() => {
                        if let Some((frame, _)) = table.frame_of(live[at % live.len()].1) {
                            let word = memory.word(ARENA + frame as usize);
                            word.store(RUN_COMPLETE, Ordering::Release);
                        }
                    }
                    Step::Fetch(at) if !live.is_empty() => {
                        let at = at % live.len();
                        if table.is_complete(&memory, live[at].1.count) {
                            table.end(&memory, live.remove(at).1.count);
                            table.advance(&memory);
                        }
                    }
                    Step::Complete(_) | Step::Fetch(_) => {}
                }
                let runs = table.live(&memory);
                for (communicator, next) in (0..).zip(next) {
                    for run in (0..next + 3).map(|sequence| (communicator, sequence)) {
                        let handle = live.iter().find(|(key, _)| *key == run).map(|(_, own)| *own);
                        let stage = handle.map(|own| match table.frame_of(own) {
                            _ if table.is_complete(&memory, own.count) => RunStage::Complete,
                            Some(_) => RunStage::UnderWay,
                            None => RunStage::Queued,
                        });
                        prop_assert_eq!(runs.stage(run), stage);
                        let is_over = stage == Some(RunStage::Complete)
                            || stage.is_none() && run.1 < next;
                        prop_assert_eq!(runs.is_over(run), is_over);
                    }
                }
            }
        }
    }
}
