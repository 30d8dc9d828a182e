//! The direct engine: every rank executes its own runs between nodes, inside its calls.
//!
//! A rank has a TCP connection with every other rank of the job. The thread that waits for a run
//! writes and reads the sockets itself. A message thus passes through two threads, where the agent
//! needs four and a change of thread on each node. Nothing progresses between the calls, so this
//! backend is for blocking collectives, in which every rank waits. Their buffers may be
//! [lent](DirectBackend::start_lent), and are then used in place.
//!
//! Runs and messages are in the table that the agent has, too. The end of a connection fails no
//! run, because the other rank may have left after its part. It ends a wait, [`Backend::lost`]
//! reports such ranks, and the agents of the job report the reason for the exit.

mod engine;
mod run;
mod submissions;

use crate::agent::run_context::RunKey;
use crate::agent::schedule::{RegisteredSchedule, check_context, is_supported};
use crate::agent::shared_region::notifier;
use crate::backend::{
    Backend, CommunicatorContext, Departures, DrainOutcome, RunId, ScheduleId, check_inputs,
    check_outputs,
};
use crate::error::{Error, system};
use crate::job_nodes::Key;
use crate::node_map::NodeMap;
use crate::transport::Transport;
use crate::transport::tcp::{Listener, Tcp, Timeouts};
use engine::DirectEngine;
use goal::schedule::Schedule;
use run::DirectRun;
use shm::loan::LentBytes;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use submissions::Submissions;

/// Longest sleep of a thread while another one of the rank executes the runs of both.
const OTHER_DRIVER_INTERVAL: Duration = Duration::from_millis(1);
/// Time limit for the drain of a backend that is dropped.
const DROP_LIMIT: Duration = Duration::from_secs(5);
/// Time between two checks whether the other ranks have acknowledged everything.
const DRAIN_INTERVAL: Duration = Duration::from_micros(200);

/// A rank's connections with all other ranks, and its runs: a [`Backend`].
#[derive(Debug)]
pub struct DirectBackend {
    rank: u32,
    /// Locked by the thread that executes runs.
    engine: Mutex<DirectEngine>,
    submissions: Arc<Submissions>,
    table: Mutex<CallerTable>,
}

/// What the rank has registered and started.
#[derive(Debug, Default)]
struct CallerTable {
    next: u64,
    schedules: HashMap<u64, Arc<RegisteredSchedule>>,
    runs: HashMap<u64, Arc<DirectRun>>,
}

impl CallerTable {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl DirectBackend {
    /// Connects this rank with all others, which connect at about the same time. `addresses` has
    /// the listener of each rank of the job, `listener` is this rank's own.
    ///
    /// # Errors
    /// [`Error::NodeUnreachable`] with the first rank, as a node, that cannot be reached; if the
    /// system has no descriptor left.
    pub fn connect(
        listener: Listener,
        rank: u32,
        addresses: &[SocketAddr],
        key: Key,
        timeouts: Timeouts,
    ) -> Result<DirectBackend, Error> {
        let mut transport = Tcp::connect(listener, rank, addresses, key, timeouts)?;
        // Wakes a thread that sleeps in the engine when another thread of the rank needs it.
        let notifier = notifier()?;
        transport.watch(notifier.as_fd(), 0)?;
        // Every rank is a node of its own.
        let nodes = NodeMap::new(0..addresses.len() as u32);
        let submissions = Arc::new(Submissions::new(notifier));
        let engine = DirectEngine::new(nodes, Box::new(transport), Arc::clone(&submissions));
        let table = Mutex::default();
        Ok(DirectBackend { rank, engine: Mutex::new(engine), submissions, table })
    }

    /// Starts a run with these buffers, one for each that the schedule declares, instead of copies
    /// of them. The caller waits for its end, or [discards](Backend::discard) it, before the loan
    /// ends. [`Backend::fetch`] then needs no outputs.
    ///
    /// # Errors
    /// As [`Backend::start`].
    pub fn start_lent(
        &self,
        schedule: ScheduleId,
        sequence: u64,
        buffers: Vec<LentBytes>,
    ) -> Result<RunId, Error> {
        let mut table = self.table();
        let schedule = table.schedules.get(&schedule.0).ok_or_else(|| unknown("schedule"))?;
        let schedule = Arc::clone(schedule);
        let records = &schedule.layout.records;
        if buffers.len() != records.len() {
            return Err(Error::BufferCount { expected: records.len(), found: buffers.len() });
        }
        for (buffer, (lent, record)) in buffers.iter().zip(records).enumerate() {
            let (expected, found) = (record.length, lent.len() as u64);
            if found != expected {
                return Err(Error::Length { buffer, expected, found });
            }
        }
        let key = RunKey { rank: self.rank, communicator: schedule.communicator, sequence };
        let run = Arc::new(DirectRun { key, schedule, buffers, outcome: OnceLock::new() });
        let id = table.next();
        table.runs.insert(id, Arc::clone(&run));
        drop(table);
        self.submissions.start(run);
        Ok(RunId(id))
    }

    fn table(&self) -> MutexGuard<'_, CallerTable> {
        // Every change of the table is one insertion or removal.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, run: RunId) -> Option<Arc<DirectRun>> {
        self.table().runs.get(&run.0).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, DirectEngine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine, unless another thread executes runs.
    fn try_lock(&self) -> Option<MutexGuard<'_, DirectEngine>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(engine)) => Some(engine.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn unknown(what: &str) -> Error {
    Error::Operation(format!(
        "this {what} is not known to the direct engine: it was released, or is another engine's"
    ))
}

impl Backend for DirectBackend {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn supports(&self, schedule: &Schedule) -> bool {
        is_supported(schedule)
    }

    fn register(
        &self,
        context: &CommunicatorContext,
        schedule: &Schedule,
        signature: u32,
    ) -> Result<ScheduleId, Error> {
        check_context(self.name(), context, schedule)?;
        let numbers = [context.number, signature, context.rank];
        let members = context.members.to_vec();
        let nodes = members.clone();
        let registered = RegisteredSchedule::new(schedule.clone(), numbers, members, nodes, 0);
        let mut table = self.table();
        let id = table.next();
        table.schedules.insert(id, Arc::new(registered));
        Ok(ScheduleId(id))
    }

    fn release(&self, schedule: ScheduleId) {
        self.table().schedules.remove(&schedule.0);
    }

    fn start(&self, schedule: ScheduleId, sequence: u64, inputs: &[&[u8]]) -> Result<RunId, Error> {
        let registered = self.table().schedules.get(&schedule.0).cloned();
        let registered = registered.ok_or_else(|| unknown("schedule"))?;
        check_inputs(&registered.layout.records, inputs)?;
        let mut buffers = Vec::with_capacity(inputs.len());
        for (buffer, input) in registered.layout.buffers.iter().zip(inputs) {
            let mut bytes = Vec::new();
            let length = usize::try_from(buffer.length).unwrap_or(usize::MAX);
            bytes
                .try_reserve_exact(length)
                .map_err(|_| system("take memory for a run", "there is none left"))?;
            bytes.extend_from_slice(if buffer.is_read { input } else { &[] });
            bytes.resize(length, 0);
            buffers.push(LentBytes::owned(bytes));
        }
        self.start_lent(schedule, sequence, buffers)
    }

    fn is_complete(&self, run: RunId) -> bool {
        self.run(run).is_none_or(|run| run.has_ended())
    }

    fn wait(&self, run: RunId, deadline: Option<Instant>) -> Result<bool, Error> {
        let run = self.run(run).ok_or_else(|| unknown("run"))?;
        loop {
            if let Some(mut engine) = self.try_lock() {
                let driven = engine.drive(&run, deadline);
                let has_new_loss = engine.take_new_loss();
                drop(engine);
                self.submissions.notify_change();
                if driven? {
                    return Ok(true);
                }
                if has_new_loss {
                    return Ok(run.has_ended());
                }
            } else {
                self.submissions.wait_for_change(OTHER_DRIVER_INTERVAL, || run.has_ended());
                // The thread that executes runs also sends what this one has left.
                if run.has_ended() {
                    return Ok(true);
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(run.has_ended());
            }
            if self.submissions.is_interrupted() {
                // Another thread waits for the engine.
                std::thread::yield_now();
            }
        }
    }

    fn progress(&self, _: RunId) -> Result<(), Error> {
        self.try_lock().map_or(Ok(()), |mut engine| engine.poll())
    }

    fn waiting_for(&self, run: RunId) -> Vec<u32> {
        let Some(run) = self.run(run) else { return Vec::new() };
        self.try_lock().map_or_else(Vec::new, |engine| engine.waiting_for(&run))
    }

    fn lost(&self) -> Vec<u32> {
        self.try_lock().map_or_else(Vec::new, |engine| engine.lost())
    }

    fn has_unexpected(&self, context: &CommunicatorContext, sequence: u64) -> bool {
        let key = RunKey { rank: self.rank, communicator: context.number, sequence };
        self.try_lock().is_some_and(|mut engine| {
            // Nothing is read between the calls. If the system refuses, the next check reads.
            engine.poll().is_ok() && engine.has_unexpected(key)
        })
    }

    fn fetch(&self, run: RunId, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let id = run;
        let run = self.run(id).ok_or_else(|| unknown("run"))?;
        let Some(outcome) = run.outcome.get() else {
            let why = "the run has not ended: wait for it before you fetch its results";
            return Err(Error::Operation(why.into()));
        };
        check_outputs(&run.schedule.layout.records, outputs)?;
        self.table().runs.remove(&id.0);
        if let Ok(()) | Err(Error::DivisionByZero { .. }) = outcome {
            let layout = run.schedule.layout.buffers.iter().zip(&run.buffers);
            for ((buffer, bytes), output) in
                layout.zip(outputs).filter(|(_, output)| !output.is_empty())
            {
                for range in &buffer.written {
                    let range = range.start as usize..range.end as usize;
                    bytes.with(|bytes| output[range.clone()].copy_from_slice(&bytes[range]));
                }
            }
        }
        outcome.clone()
    }

    /// Discards the results of a run. One that has not ended ends here for all ranks: nothing would
    /// execute it after this call, and its buffers may be about to be revoked.
    fn discard(&self, run: RunId) {
        let Some(run) = self.table().runs.remove(&run.0) else { return };
        if !run.has_ended() {
            self.submissions.interrupt(|| self.lock().cancel(&run));
        }
    }

    fn drain(&self, deadline: Instant, _: &dyn Departures) -> Result<DrainOutcome, Error> {
        // A socket that is closed with unread data resets its connection, and the kernel then
        // discards what it has not sent. So this rank leaves when the kernels of the others have
        // everything.
        loop {
            if let Some(mut engine) = self.try_lock() {
                engine.poll()?;
                if !engine.has_unacknowledged() {
                    return Ok(DrainOutcome::Drained);
                }
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
