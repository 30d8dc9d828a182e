//! Detection of failed ranks for backends that cannot detect them: a BPF program has no view of
//! processes.
//!
//! The general backend has one. A rank that has waited for a while therefore runs a schedule on it
//! that receives from every other rank. No rank sends those messages, so the run ends only when
//! one of the ranks, or a node, is gone. Its communicator has the number of this rank: the other
//! ranks take no part, and no message is sent.

use super::translation::translate;
use crate::context_numbers;
use crate::error::Result;
use goal::compile::compile;
use goal::graph::{Blocks, Graph};
use network::backend::{Backend, CommunicatorContext, LostRank, RunId};
use network::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for the other ranks to finish after a rank has failed, on a backend that completes what the
/// rank has started.
const FAILURE_GRACE: Duration = Duration::from_secs(2);
/// The same for a rank that left in order, or that is lost without a report of its exit. The cause
/// may be a node that is about to be found unreachable, and is then reported instead.
const EXIT_GRACE: Duration = Duration::from_secs(20);
/// Duration of a poll of the watching run.
const POLL_TIME: Duration = Duration::from_micros(100);
/// Number of the communicator of rank 0's watching runs; those of the others follow.
const FIRST_NUMBER: u32 = context_numbers::NUMBERS;

/// A run that ends when a rank of a communicator is gone.
#[derive(Debug)]
pub(super) struct LivenessWatch {
    context: CommunicatorContext,
    backend: Arc<dyn Backend>,
    state: Mutex<WatchState>,
}

#[derive(Debug)]
struct WatchState {
    /// The run that watches the remaining ranks.
    run: Option<RunId>,
    /// Ranks that have left in order, the time of detection, and the error.
    exits: Vec<(u32, Instant, Error)>,
    /// Ranks that are lost, and the time of detection.
    losses: Vec<(LostRank, Instant)>,
    /// Any other failure and the time of its detection.
    failure: Option<(Instant, Error)>,
}

impl LivenessWatch {
    /// Starts to watch the other ranks of a communicator.
    pub(super) fn start(context: &CommunicatorContext, backend: &Arc<dyn Backend>) -> Result<Self> {
        let run = Some(start_run(context, backend, &[])?);
        let state = WatchState { run, exits: Vec::new(), losses: Vec::new(), failure: None };
        let state = Mutex::new(state);
        Ok(LivenessWatch { context: context.clone(), backend: Arc::clone(backend), state })
    }

    /// Fails if an incomplete run can never complete. It waits for messages of the ranks `awaited`
    /// of the job; its backend receives nothing from the ranks `lost` any more.
    pub(super) fn check(
        &self,
        awaited: impl FnOnce() -> Vec<u32>,
        lost: impl FnOnce() -> Vec<LostRank>,
    ) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.poll(&mut state)?;
        self.note(&mut state, lost());
        if state.failure.is_none() && state.exits.is_empty() && state.losses.is_empty() {
            return Ok(());
        }
        let translate = |error: &Error| translate(&self.context, error.clone());
        let awaited = awaited();
        let is_lost = |rank: &u32| state.losses.iter().any(|(lost, _)| lost.rank == *rank);
        // Nothing arrives from a lost rank any more, so a run that waits for one has failed. One
        // that waits for it through others only fails as well, as on one node: the ranks between
        // may be outside of the call for any length of time.
        let is_certain = awaited.iter().any(is_lost);
        let is_final = |error: &Error| match error {
            Error::NodeUnreachable { .. } => true,
            Error::RankFailed { rank, .. } => is_lost(rank),
            _ => false,
        };
        // Otherwise the backend completes what the rank has started, and with it perhaps the run.
        // So the failure is reported only after the grace period.
        if let Some((detected, error)) = &state.failure
            && (is_certain || is_final(error) || detected.elapsed() >= FAILURE_GRACE)
        {
            return Err(translate(error));
        }
        // A rank that left in order fails only the runs that wait for its messages.
        let missing = state.exits.iter().find(|(rank, detected, _)| {
            awaited.contains(rank) && (is_lost(rank) || detected.elapsed() >= EXIT_GRACE)
        });
        if let Some((.., error)) = missing {
            return Err(translate(error));
        }
        // Nothing explains the loss of the rank, which may be alive: a network between has ended
        // the connection, for example.
        let silent = state.losses.iter().find(|(lost, detected)| {
            awaited.contains(&lost.rank) && detected.elapsed() >= EXIT_GRACE
        });
        silent.map_or(Ok(()), |(lost, _)| Err(translate(&lost.error())))
    }

    /// Notes the losses of ranks of the communicator.
    fn note(&self, state: &mut WatchState, lost: Vec<LostRank>) {
        let now = Instant::now();
        for lost in lost.into_iter().filter(|one| self.context.members.contains(&one.rank)) {
            if state.losses.iter().all(|(known, _)| known.rank != lost.rank) {
                state.losses.push((lost, now));
            }
        }
    }

    /// Returns true if it is known why each of these ranks of the job is gone.
    pub(super) fn explains(&self, lost: &[LostRank]) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_left = |rank| state.exits.iter().any(|(left, ..)| *left == rank);
        let is_explained =
            |lost: &LostRank| !self.context.members.contains(&lost.rank) || has_left(lost.rank);
        state.failure.is_some() || lost.iter().all(is_explained)
    }

    /// Returns true if a rank or a node is known to have failed. A rank that has left in order does
    /// not count.
    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failure.is_some()
    }

    /// Records why the watching run has ended, if it has; after an exit in order a new run watches
    /// the remaining ranks.
    fn poll(&self, state: &mut WatchState) -> Result<()> {
        let Some(run) = state.run else { return Ok(()) };
        // A wait, not a test: it also fails if the node service, which executes the run, is gone.
        let has_ended = self
            .backend
            .wait(run, Some(Instant::now() + POLL_TIME))
            .map_err(|error| translate(&self.context, error))?;
        if !has_ended {
            return Ok(());
        }
        state.run = None;
        // No rank sends to it, so an end means a failure, which the result names.
        match self.backend.fetch(run, &mut []).err() {
            Some(error @ Error::RankFailed { rank, .. }) if error.has_left() => {
                state.exits.push((rank, Instant::now(), error));
                let gone: Vec<u32> = state.exits.iter().map(|(rank, ..)| *rank).collect();
                state.run = Some(start_run(&self.context, &self.backend, &gone)?);
            }
            error => state.failure = error.map(|error| (Instant::now(), error)),
        }
        Ok(())
    }
}

/// Starts a run that waits for all other ranks of the communicator but `gone`.
fn start_run(
    context: &CommunicatorContext,
    backend: &Arc<dyn Backend>,
    gone: &[u32],
) -> Result<RunId> {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let own = context.members[context.rank as usize];
    let members: Arc<[u32]> =
        context.members.iter().copied().filter(|rank| !gone.contains(rank)).collect();
    let rank = members.iter().position(|rank| *rank == own).unwrap_or(0) as u32;
    let mut graph = Graph::new(rank, members.len() as u32);
    for other in (0..members.len() as u32).filter(|other| *other != rank) {
        graph.receive(Blocks::none(), other, 0);
    }
    // No other rank starts runs of this communicator, so none counts as having done its part. All
    // watching runs of this rank are runs of it, so the agent keeps one count of them.
    let number = FIRST_NUMBER | own;
    let sequence = STARTED.fetch_add(1, Ordering::Relaxed);
    let watched = CommunicatorContext { number, members, rank };
    let failed = |error| translate(context, error);
    let id = backend.register(&watched, &compile(&graph)?, 0).map_err(failed)?;
    let started = backend.start(id, sequence, &[]).map_err(failed);
    backend.release(id);
    started
}

impl Drop for LivenessWatch {
    fn drop(&mut self) {
        if let Some(run) = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).run {
            self.backend.discard(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use goal::schedule::Schedule;
    use network::backend::{DrainOutcome, RankExits, ScheduleId};
    use network::error::RankExit;
    use std::collections::HashSet;

    /// A backend that reports at once that rank 2 has failed, if it has.
    #[derive(Debug)]
    struct Reports {
        has_rank_2_failed: bool,
        /// Communicators and numbers of the runs.
        started: Mutex<HashSet<(u64, u64)>>,
    }

    fn rank_2_failed() -> Error {
        Error::RankFailed { rank: 2, how: RankExit::Failed("was ended by signal 9".into()) }
    }

    impl Backend for Reports {
        fn name(&self) -> &'static str {
            "reports"
        }

        fn supports(&self, _: &Schedule) -> bool {
            true
        }

        fn register(
            &self,
            context: &CommunicatorContext,
            _: &Schedule,
            _: u32,
        ) -> std::result::Result<ScheduleId, Error> {
            Ok(ScheduleId(context.number.into()))
        }

        fn release(&self, _: ScheduleId) {}

        fn start(
            &self,
            schedule: ScheduleId,
            sequence: u64,
            _: &[&[u8]],
        ) -> std::result::Result<RunId, Error> {
            let is_new = self.started.lock().expect("no panic").insert((schedule.0, sequence));
            assert!(is_new, "an agent refuses run {sequence}, which was started before");
            Ok(RunId(0))
        }

        fn is_complete(&self, _: RunId) -> bool {
            true
        }

        fn wait(&self, _: RunId, _: Option<Instant>) -> std::result::Result<bool, Error> {
            Ok(self.has_rank_2_failed)
        }

        fn fetch(&self, _: RunId, _: &mut [&mut [u8]]) -> std::result::Result<(), Error> {
            Err(rank_2_failed())
        }

        fn discard(&self, _: RunId) {}

        fn drain(&self, _: Instant, _: &dyn RankExits) -> std::result::Result<DrainOutcome, Error> {
            Ok(DrainOutcome::Drained)
        }
    }

    fn lost(rank: u32) -> LostRank {
        LostRank { rank, why: "the network has ended the connection".into() }
    }

    /// Rank 0 of 3 watches the others.
    fn watch(has_rank_2_failed: bool) -> LivenessWatch {
        let started = Mutex::default();
        let backend: Arc<dyn Backend> = Arc::new(Reports { has_rank_2_failed, started });
        watch_by(&backend)
    }

    fn watch_by(backend: &Arc<dyn Backend>) -> LivenessWatch {
        let context = CommunicatorContext { number: 0, members: (0..3).collect(), rank: 0 };
        LivenessWatch::start(&context, backend).expect("the graph is right")
    }

    /// Rank 0 waits for rank 1, which waits for rank 2.
    #[test]
    fn a_failed_rank_that_is_lost_fails_runs_that_wait_for_it_through_others() {
        let outcome = watch(true).check(|| vec![1], || vec![lost(2)]);
        assert_eq!(outcome.expect_err("rank 2 failed").failed_rank(), Some(2));
        let outcome = watch(true).check(|| vec![1], Vec::new);
        assert!(outcome.is_ok(), "what rank 2 has started may be completed: {outcome:?}");
    }

    #[test]
    fn a_lost_rank_of_which_nothing_is_reported_fails_the_runs_that_wait_for_it() {
        let watch = watch(false);
        let outcome = watch.check(|| vec![1], || vec![lost(1)]);
        assert!(outcome.is_ok(), "the report of its exit may be on its way: {outcome:?}");
        for (_, detected) in &mut watch.state.lock().expect("no panic").losses {
            *detected -= EXIT_GRACE;
        }
        let outcome = watch.check(|| vec![2], || vec![lost(1)]);
        assert!(outcome.is_ok(), "nothing is missing: {outcome:?}");
        let error = watch.check(|| vec![1], || vec![lost(1)]).expect_err("rank 1 is lost");
        assert_eq!(error.failed_rank(), Some(1), "{error}");
        assert!(error.to_string().contains("the network has ended the connection"), "{error}");
    }

    #[test]
    fn watches_of_a_rank_are_distinct_runs_of_one_communicator() {
        let reports = Arc::new(Reports { has_rank_2_failed: false, started: Mutex::default() });
        let backend = Arc::clone(&reports) as Arc<dyn Backend>;
        (0..70_000).for_each(|_| drop(watch_by(&backend)));
        let started = reports.started.lock().expect("no panic");
        let communicators: HashSet<u64> = started.iter().map(|(number, _)| *number).collect();
        assert_eq!((started.len(), communicators.len()), (70_000, 1));
    }
}
