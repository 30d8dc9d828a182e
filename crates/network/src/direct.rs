//! The direct engine: every rank executes its own runs between nodes, inside its calls.
//!
//! A rank has a TCP connection with every other rank of the job. The thread that waits for a run
//! writes and reads the sockets itself. A message thus passes through two threads, where the agent
//! needs four and a change of thread on each node. Nothing progresses between the calls, so this
//! backend is for blocking collectives, in which every rank waits.
//!
//! The engine is the agent's state machine with one rank and a region of memory in this process. It
//! differs in one point: the end of a connection fails no run, because the other rank may have left
//! after its part. [`Backend::lost`] reports such ranks, and the agents of the job report the
//! reason for the exit.

use crate::agent::shared_region::{SharedRegion, notifier};
use crate::agent::{AgentAddress, AgentClient, InlineAgent, limits};
use crate::backend::{Backend, CommunicatorContext, DrainOutcome, ExitedRank, RunId, ScheduleId};
use crate::error::{Error, system};
use crate::job_nodes::Key;
use crate::node_map::NodeMap;
use crate::transport::tcp::{Listener, Tcp, Timeouts};
use goal::schedule::Schedule;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Time for which a thread sleeps while another one of the rank executes the runs of both.
const OTHER_DRIVER_INTERVAL: Duration = Duration::from_millis(1);
/// Time limit for the drain of a backend that is dropped.
const DROP_LIMIT: Duration = Duration::from_secs(5);
/// Time between two checks whether the other ranks have acknowledged everything.
const DRAIN_INTERVAL: Duration = Duration::from_micros(200);

/// A rank's connections with all other ranks, and its runs: a [`Backend`].
#[derive(Debug)]
pub struct DirectBackend {
    client: AgentClient,
    /// Locked by the thread that executes runs.
    engine: Mutex<InlineAgent>,
}

impl DirectBackend {
    /// Connects this rank with all others, which connect at about the same time. `addresses` has
    /// the listener of each rank of the job, `listener` is this rank's own.
    ///
    /// # Errors
    /// [`Error::NodeUnreachable`] with the first rank, as a node, that cannot be reached; if the
    /// system has no memory or descriptor left.
    pub fn connect(
        listener: Listener,
        rank: u32,
        addresses: &[SocketAddr],
        key: Key,
        timeouts: Timeouts,
    ) -> Result<DirectBackend, Error> {
        let transport = Tcp::connect(listener, rank, addresses, key, timeouts)?;
        // Every rank is a node of its own.
        let nodes = NodeMap::new(0..addresses.len() as u32);
        let region = SharedRegion::create()?;
        let own = SharedRegion::open(Arc::clone(region.segment()))?;
        let notifier = notifier()?;
        let copy = notifier.try_clone().map_err(|error| system("copy a descriptor", error))?;
        let address = addresses.get(rank as usize).map(SocketAddr::to_string).unwrap_or_default();
        let client = AgentClient::new(own, copy, AgentAddress { node: rank, address }, None)?;
        let engine =
            InlineAgent::new(nodes, Box::new(transport), limits(), (rank, region, notifier))?;
        Ok(DirectBackend { client, engine: Mutex::new(engine) })
    }

    fn lock(&self) -> MutexGuard<'_, InlineAgent> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine, unless another thread executes runs.
    fn try_lock(&self) -> Option<MutexGuard<'_, InlineAgent>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(engine)) => Some(engine.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Processes what this rank has submitted, unless another thread does so anyway.
    fn serve(&self) {
        if let Some(mut engine) = self.try_lock() {
            engine.serve();
        }
    }
}

impl Backend for DirectBackend {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn supports(&self, schedule: &Schedule) -> bool {
        self.client.supports(schedule)
    }

    fn register(
        &self,
        context: &CommunicatorContext,
        schedule: &Schedule,
        signature: u32,
    ) -> Result<ScheduleId, Error> {
        let id = self.client.register(context, schedule, signature)?;
        // At once: entries that wait for the next run could fill the ring.
        self.serve();
        Ok(id)
    }

    fn release(&self, schedule: ScheduleId) {
        self.client.release(schedule);
        self.serve();
    }

    fn start(&self, schedule: ScheduleId, sequence: u64, inputs: &[&[u8]]) -> Result<RunId, Error> {
        self.client.start(schedule, sequence, inputs)
    }

    fn is_complete(&self, run: RunId) -> bool {
        self.client.is_complete(run)
    }

    fn wait(&self, run: RunId, deadline: Option<Instant>) -> Result<bool, Error> {
        while !self.client.is_complete(run) {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            if let Some(mut engine) = self.try_lock() {
                engine.drive(|| self.client.is_complete(run), deadline)?;
            } else {
                // The other thread may end its own run first. Then this one takes over.
                let end = Instant::now() + OTHER_DRIVER_INTERVAL;
                self.client.wait(run, Some(deadline.map_or(end, |deadline| deadline.min(end))))?;
            }
        }
        Ok(true)
    }

    fn progress(&self, _: RunId) -> Result<(), Error> {
        self.try_lock().map_or(Ok(()), |mut engine| engine.poll())
    }

    fn waiting_for(&self, run: RunId) -> Vec<u32> {
        self.try_lock().map_or_else(Vec::new, |engine| engine.waiting_for(run))
    }

    fn lost(&self) -> Vec<u32> {
        self.try_lock().map_or_else(Vec::new, |engine| engine.lost())
    }

    fn has_unexpected(&self, context: &CommunicatorContext, sequence: u64) -> bool {
        self.try_lock().is_some_and(|mut engine| {
            // Nothing is read between the calls. If the system refuses, the next check reads.
            engine.poll().is_ok() && engine.has_unexpected(context.number, sequence)
        })
    }

    fn fetch(&self, run: RunId, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.client.fetch(run, outputs)
    }

    fn discard(&self, run: RunId) {
        self.client.discard(run);
    }

    fn drain(
        &self,
        deadline: Instant,
        _: &dyn Fn() -> Vec<ExitedRank>,
    ) -> Result<DrainOutcome, Error> {
        let mut engine = self.lock();
        // A socket that is closed with unread data resets its connection, and the kernel then
        // discards what it has not sent. So this rank leaves when the kernels of the others have
        // everything.
        loop {
            engine.poll()?;
            if !engine.has_unacknowledged() {
                return Ok(DrainOutcome::Drained);
            }
            if Instant::now() >= deadline {
                return Ok(DrainOutcome::TimedOut);
            }
            std::thread::sleep(DRAIN_INTERVAL);
        }
    }
}

impl Drop for DirectBackend {
    fn drop(&mut self) {
        // A rank that fails must exit at once, so that the other ranks detect it.
        if !std::thread::panicking() {
            // It fails only if the system refuses to read. Then nothing more can be done.
            let _ = self.drain(Instant::now() + DROP_LIMIT, &Vec::new);
        }
    }
}
