//! An agent without a thread, for one rank of this process.

use super::client_table::slot_of;
use super::clock::{now, until};
use super::run::RunKey;
use super::session::RankSession;
use super::shared_region::SharedRegion;
use super::state::AgentState;
use crate::backend::RunId;
use crate::error::Error;
use crate::node_map::NodeMap;
use crate::transport::{Arrival, Transport};
use interpreter::Limits;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time for which a thread polls before it sleeps.
const POLLING_TIME: Duration = Duration::from_micros(500);

/// The state machine of an agent, which the calls of its one rank execute.
#[derive(Debug)]
pub(crate) struct InlineAgent {
    state: AgentState,
    rank: u32,
    arrivals: Vec<Arrival>,
}

impl InlineAgent {
    /// The agent of a rank, with the agent's side of the region and its notifier.
    ///
    /// # Errors
    /// If the system refuses to watch the notifier.
    pub(crate) fn new(
        nodes: NodeMap,
        mut transport: Box<dyn Transport>,
        limits: Limits,
        (rank, region, notifier): (u32, SharedRegion, OwnedFd),
    ) -> Result<Self, Error> {
        // Wakes a thread that sleeps here when another thread of the rank submits a run.
        transport.watch(notifier.as_fd(), 0)?;
        let mut state = AgentState::new(nodes, transport, limits);
        state.ignore_lost_nodes();
        state.open(RankSession::new(rank, region, notifier));
        Ok(InlineAgent { state, rank, arrivals: Vec::new() })
    }

    /// Processes what the rank has submitted.
    pub(crate) fn serve(&mut self) {
        self.state.turn(now(), &mut self.arrivals);
    }

    /// Processes what the rank has submitted and what has arrived, without waiting.
    ///
    /// # Errors
    /// If the system refuses to read.
    pub(crate) fn poll(&mut self) -> Result<(), Error> {
        self.state.turn(now(), &mut self.arrivals);
        self.state.transport().wait(Some(Duration::ZERO), &mut self.arrivals)?;
        self.state.turn(now(), &mut self.arrivals);
        Ok(())
    }

    /// Executes runs until `is_complete` holds and everything has been handed to the kernel, or the
    /// deadline has passed.
    ///
    /// # Errors
    /// If the system refuses to read.
    pub(crate) fn drive(
        &mut self,
        is_complete: impl Fn() -> bool,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let mut last_event = Instant::now();
        loop {
            let turn = self.state.turn(now(), &mut self.arrivals);
            // Nothing is sent after the return, so the queues must be empty.
            if is_complete() && !self.state.has_queued() {
                return Ok(());
            }
            let time = Instant::now();
            if deadline.is_some_and(|deadline| time >= deadline) {
                return Ok(());
            }
            if turn.had_events {
                last_event = time;
            }
            if time.saturating_duration_since(last_event) < POLLING_TIME {
                if !turn.had_events {
                    // With more ranks than cores the awaited rank may run on this one.
                    std::thread::yield_now();
                }
                self.state.transport().wait(Some(Duration::ZERO), &mut self.arrivals)?;
            } else {
                self.sleep(deadline.map(|deadline| deadline.saturating_duration_since(time)))?;
            }
        }
    }

    /// Sleeps until something arrives, another thread of the rank submits something, a computation
    /// ends, or the time is over.
    fn sleep(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let timeout = if self.state.arm() {
            self.state.next_timer().map(until).into_iter().chain(limit).min()
        } else {
            Some(Duration::ZERO)
        };
        let slept = self.state.transport().wait(timeout, &mut self.arrivals);
        self.state.disarm();
        slept
    }

    /// Ranks that a run waits for at this moment.
    pub(crate) fn waiting_for(&self, run: RunId) -> Vec<u32> {
        let (slot, generation) = slot_of(run);
        self.state.awaited_by(self.rank, slot, generation)
    }

    /// Returns true if there are messages for a run that the rank has not started.
    pub(crate) fn has_unexpected(&self, communicator: u32, sequence: u64) -> bool {
        self.state.has_unexpected(RunKey { rank: self.rank, communicator, sequence })
    }

    /// Ranks with connections that have ended.
    pub(crate) fn lost(&self) -> Vec<u32> {
        self.state.lost_nodes()
    }

    /// Returns true if the kernel of another rank has not acknowledged everything.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.state.has_unacknowledged()
    }
}
