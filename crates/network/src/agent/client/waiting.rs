//! Waits for runs.

use super::{AgentClient, LIVENESS_INTERVAL};
use crate::agent::client_table::slot_of;
use crate::backend::RunId;
use crate::error::Error;
use rustix::thread::sched_getcpu;
use shm::completion::Completion;
use shm::published_wait::{self, Wait};
use shm::sync::{Ordering, spin_loop};
use shm::wait::INTERNODE_POLLING;
use std::time::{Duration, Instant};

/// Number of polls before a waiter sleeps: about a microsecond. The agent needs a core, too.
const POLLS: u32 = 50;
/// Largest extension of [`INTERNODE_POLLING`] for long buffers, at a nanosecond a byte.
const LONGEST_EXTENSION: Duration = Duration::from_millis(10);

impl AgentClient {
    /// Waits for a run with the completion word `ended`; see
    /// [`Backend::wait`](crate::backend::Backend::wait).
    pub(super) fn wait_for(
        &self,
        run: RunId,
        ended: &Completion,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let (_, generation) = slot_of(run);
        for _ in 0..POLLS {
            if ended.reached(generation) {
                return Ok(true);
            }
            spin_loop();
        }
        // Relaxed: the count is a hint for the agent and orders nothing.
        self.region.waits().fetch_add(1, Ordering::Relaxed);
        self.region.waiting().fetch_add(1, Ordering::Relaxed);
        let waited = match self.poll(ended, generation, self.bytes_of(run), deadline) {
            true => Ok(true),
            false => self.sleep_for(ended, generation, deadline),
        };
        self.region.waiting().fetch_sub(1, Ordering::Relaxed);
        waited
    }

    /// Bytes of the buffers of a run, or 0. They decide only how long a thread polls, so this does
    /// not wait for the table: a thread that submits to a full ring, or awaits an answer, keeps the
    /// lock for as long as the agent is stopped.
    fn bytes_of(&self, run: RunId) -> u64 {
        let table = self.table.try_lock().ok();
        table.as_ref().and_then(|table| table.run(run)).map_or(0, |run| run.layout.bytes)
    }

    /// Polls for the end of a run while the agent runs on another core, because waking a thread on
    /// an idle core takes longer than a message between nodes. Returns true once the run has ended,
    /// and false after [`INTERNODE_POLLING`] and an extension for the `bytes` bytes of its buffers,
    /// or at the deadline. On the agent's own core it returns at once, so that the thread sleeps: when
    /// a thread yields, the scheduler may run it again before a thread that has just been woken.
    fn poll(
        &self,
        ended: &Completion,
        generation: u32,
        bytes: u64,
        deadline: Option<Instant>,
    ) -> bool {
        let begin = Instant::now();
        let end = begin + INTERNODE_POLLING + Duration::from_nanos(bytes).min(LONGEST_EXTENSION);
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        let polling = self.region.polling();
        // Relaxed: the count is a hint for the agent and orders nothing.
        polling.fetch_add(1, Ordering::Relaxed);
        while !ended.reached(generation) && !self.shares_core() && Instant::now() < end {
            std::thread::yield_now();
        }
        polling.fetch_sub(1, Ordering::Relaxed);
        ended.reached(generation)
    }

    /// Returns true if the agent ran last on the core of this thread.
    fn shares_core(&self) -> bool {
        self.region.core().load(Ordering::Relaxed) == sched_getcpu() as u32
    }

    /// Sleeps until the run has ended, the deadline is over or the agent has ended.
    fn sleep_for(
        &self,
        ended: &Completion,
        generation: u32,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let _published = published_wait::publish(Wait::BetweenNodes);
        // The mark makes the agent's next change of the word wake this thread, so a completion
        // between this check and the sleep is not lost.
        while let Some(marked) = ended.prepare_sleep(generation) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            // An agent that is killed wakes no sleeper, so each looks after it now and then.
            let limit = left.map_or(LIVENESS_INTERVAL, |left| left.min(LIVENESS_INTERVAL));
            ended.sleep(marked, Some(limit));
            if !ended.reached(generation) {
                self.check_agent()?;
            }
        }
        Ok(ended.reached(generation))
    }
}
