//! The direct engine: every rank executes its own runs between nodes, and sends its own
//! messages (`messages`).
//!
//! A rank has a TCP connection with every other rank of the job. A thread that starts a run sends
//! its first messages itself, and a thread that waits writes and reads the sockets itself: a
//! message passes through two threads, where the agent needs four and a change of thread on each
//! node. A run that has sent everything needs no thread until the rank waits for it, or tests it
//! (`background_need`). For others a background thread (`background`) sleeps, while no thread of
//! the rank waits, until something arrives, and executes what that enables. It also sends the
//! frames of calls that have returned before the system took them. The buffers of a call that waits
//! for the end of its run may be [used in place](DirectBackend::start_in_place). A start sends long
//! messages from the buffers of its caller and copies what it could not send; a wait receives long
//! messages into [those of its caller](DirectBackend::with_outputs_in_place).
//!
//! Runs and messages are in the table that the agent has, too. The end of a connection fails no
//! run, because the other rank may have left after its part. It ends a wait, [`Backend::lost`]
//! reports such ranks, and the agents of the job report the reason for the exit. A rank that leaves
//! first sends what its runs have left to send ([`Backend::drain`]). The runs of a process that is
//! killed end with it.

mod background;
mod background_need;
mod drain;
mod driver;
mod engine;
mod losses;
mod message_driver;
mod messages;
mod port;
mod run;
mod submissions;

pub use message_driver::MessageDriver;
pub use port::DirectPort;

use crate::agent::limits;
use crate::agent::messages::port::MessagePort;
use crate::agent::shared_region::notifier;
use crate::backend::{
    Backend, CommunicatorContext, DrainOutcome, LostRank, RankExits, RunId, ScheduleId,
    check_inputs, check_outputs,
};
use crate::error::Error;
use crate::job_nodes::Key;
use crate::node_map::NodeMap;
use crate::runs::run_context::RunKey;
use crate::runs::schedule::{RegisteredSchedule, check_context, is_supported};
use crate::transport::Transport;
use crate::transport::tcp::{Listener, Tcp, Timeouts};
use background::Background;
use driver::Driver;
use engine::DirectEngine;
use goal::schedule::Schedule;
use run::{DirectRun, DirectSchedule};
use shm::borrowed::{BorrowedBytes, with_substitutes};
use shm::mapped::Mapped;
use shm::sync::AtomicU32;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use submissions::Submissions;

/// Longest sleep of a thread while another one of the rank executes the runs of both.
const OTHER_DRIVER_INTERVAL: Duration = Duration::from_millis(1);
/// Time limit for the drain of a backend that is dropped.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// A rank's connections with all other ranks, and its runs: a [`Backend`].
#[derive(Debug)]
pub struct DirectBackend {
    rank: u32,
    driver: Arc<Driver>,
    table: Mutex<CallerTable>,
    /// True once the rank has left, whether or not it has sent everything.
    is_drained: AtomicBool,
}

/// Schedules and runs of the rank.
#[derive(Debug, Default)]
struct CallerTable {
    next: u64,
    schedules: HashMap<u64, Arc<DirectSchedule>>,
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
    /// the listener of each rank of the job, `listener` is this rank's own. `keep` gets the sockets
    /// before the first run: a process that has copies of them decides how they end if this one is
    /// killed.
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
        keep: impl FnOnce(&[BorrowedFd<'_>]),
    ) -> Result<DirectBackend, Error> {
        let mut transport = Tcp::connect_ranks(listener, rank, addresses, key, timeouts)?;
        let held = transport.enlarge(background_need::WANTED)?;
        keep(&transport.sockets());
        // Wakes a thread that sleeps in the engine when another thread of the rank needs it.
        let notifier = notifier()?;
        transport.watch(notifier.as_fd(), 0)?;
        let background = Background::new(transport.as_fd())?;
        // Every rank is a node of its own.
        let nodes = NodeMap::new(0..addresses.len() as u32);
        let submissions = Arc::new(Submissions::new(notifier));
        let engine = DirectEngine::new(nodes, Box::new(transport), submissions);
        let driver = Arc::new(Driver::new(engine, background, held));
        let is_drained = AtomicBool::new(false);
        Ok(DirectBackend { rank, driver, table: Mutex::default(), is_drained })
    }

    /// Opens this rank's end of its matched messages, once. `reports` is that at the agent, which
    /// reports exits; `wakeup` wakes the threads of the rank's endpoint. `nodes` has the
    /// nodes of the ranks: with those of its own the rank exchanges no messages here.
    pub fn open_messages(
        &self,
        reports: MessagePort,
        wakeup: Mapped<AtomicU32>,
        nodes: &NodeMap,
    ) -> (DirectPort, MessageDriver) {
        let near = nodes.of(self.rank).into_iter().flat_map(|node| nodes.members(node));
        let port = DirectPort::new(self.rank, Arc::clone(&self.driver), reports, wakeup, near);
        (port, MessageDriver::new(Arc::clone(&self.driver)))
    }

    /// Number of bytes that each connection holds in each direction while no thread reads it.
    pub fn held(&self) -> u64 {
        self.driver.held.load(Ordering::Relaxed)
    }

    /// Lowers [`held`](Self::held), to that of the rank that has the least. Precedes all runs.
    pub fn limit_held(&mut self, bytes: u64) {
        self.driver.held.fetch_min(bytes, Ordering::Relaxed);
    }

    /// Returns true if a run of the schedule needs no thread between its start and the wait for its
    /// end. Where that is so on every rank, none waits for another one that computes.
    ///
    /// ```
    /// use goal::{compile::compile, graph::{Access, Graph}};
    ///
    /// let exchange = |bytes| {
    ///     let mut graph = Graph::new(0, 2);
    ///     let input = graph.buffer(Access::Input, bytes);
    ///     let output = graph.buffer(Access::Output, bytes);
    ///     graph.send(input, 1, 0);
    ///     graph.receive(output, 1, 0);
    ///     compile(&graph).expect("in order")
    /// };
    /// let ranks = network::local::connect_directly(2)?;
    /// assert!(ranks[0].needs_no_thread(&exchange(8)));
    /// assert!(!ranks[0].needs_no_thread(&exchange(2 << 20)), "connections do not hold so much");
    /// # Ok::<(), network::error::Error>(())
    /// ```
    pub fn needs_no_thread(&self, schedule: &Schedule) -> bool {
        self.fits_connections(background_need::exchanged(schedule), schedule)
    }

    /// The same with the bytes that a run [exchanges](background_need::exchanged) with one rank.
    fn fits_connections(&self, exchanged: u64, schedule: &Schedule) -> bool {
        exchanged <= self.held() && schedule.view().sends_at_start()
    }

    /// Registers a schedule like [`Backend::register`], where a call waits for the end of every run:
    /// between the starts of runs and the waits for them no thread checks the connections.
    ///
    /// # Errors
    /// As [`Backend::register`].
    pub fn register_blocking(
        &self,
        context: &CommunicatorContext,
        schedule: &Schedule,
        signature: u32,
    ) -> Result<ScheduleId, Error> {
        self.add_schedule(context, schedule, signature, true)
    }

    fn add_schedule(
        &self,
        context: &CommunicatorContext,
        schedule: &Schedule,
        signature: u32,
        is_blocking: bool,
    ) -> Result<ScheduleId, Error> {
        check_context(self.name(), context, schedule)?;
        let numbers = [context.number, signature, context.rank];
        let members = context.members.to_vec();
        let nodes = members.clone();
        let registered = RegisteredSchedule::new(schedule.clone(), numbers, members, nodes, 0);
        let exchanged = background_need::exchanged(schedule);
        // A start hands over what the connections hold, without the receiver's consent.
        let mut limits = limits();
        if self.fits_connections(exchanged, schedule) {
            limits.eager_limit = limits.eager_limit.max(self.held());
        }
        let schedule = Arc::new(DirectSchedule::new(registered, exchanged, limits, is_blocking));
        let mut table = self.table();
        let id = table.next();
        table.schedules.insert(id, schedule);
        Ok(ScheduleId(id))
    }

    /// Starts a run with these buffers, one for each that the schedule declares, instead of copies
    /// of them. The caller waits for its end at once, or [discards](Backend::discard) it before the
    /// buffers are revoked. [`Backend::fetch`] then needs no outputs.
    ///
    /// # Errors
    /// As [`Backend::start`].
    pub fn start_in_place(
        &self,
        schedule: ScheduleId,
        sequence: u64,
        buffers: Vec<BorrowedBytes>,
    ) -> Result<RunId, Error> {
        let schedule = self.schedule(schedule)?;
        let records = &schedule.registered.layout.records;
        if buffers.len() != records.len() {
            return Err(Error::BufferCount { expected: records.len(), found: buffers.len() });
        }
        for (buffer, (bytes, record)) in buffers.iter().zip(records).enumerate() {
            let expected = record.length;
            let found = bytes.len() as u64;
            if found != expected {
                return Err(Error::Length { buffer, expected, found });
            }
        }
        // The caller's wait executes it.
        Ok(self.submit(schedule, sequence, buffers, true).0)
    }

    /// Makes a run write its results to these outputs, one for each buffer of the schedule, while
    /// `body` runs, which waits for it. Outputs that are not wanted are empty. Also returns true if
    /// the run has ended meanwhile: [`Backend::fetch`] then needs no outputs.
    ///
    /// # Errors
    /// [`Error::BufferCount`] or [`Error::Length`], with the first buffer that does not fit.
    pub fn with_outputs_in_place<R>(
        &self,
        run: RunId,
        outputs: &mut [&mut [u8]],
        body: impl FnOnce() -> R,
    ) -> Result<(R, bool), Error> {
        let Some(run) = self.run(run).filter(|run| !run.has_ended() && !run.is_in_place) else {
            return Ok((body(), false));
        };
        check_outputs(&run.registered().layout.records, outputs)?;
        let substitutes = run.borrowed_outputs(outputs);
        if substitutes.is_empty() {
            return Ok((body(), false));
        }
        Ok(with_substitutes(substitutes, || {
            let result = body();
            let has_ended = run.has_ended();
            if !has_ended {
                // Later messages go to the run's own buffers, which `fetch` copies as a whole.
                run.keep_results();
            }
            (result, has_ended)
        }))
    }

    fn submit(
        &self,
        schedule: Arc<DirectSchedule>,
        sequence: u64,
        buffers: Vec<BorrowedBytes>,
        is_in_place: bool,
    ) -> (RunId, Arc<DirectRun>) {
        let key =
            RunKey { rank: self.rank, communicator: schedule.registered.communicator, sequence };
        let run =
            Arc::new(DirectRun { key, schedule, buffers, is_in_place, outcome: OnceLock::new() });
        let mut table = self.table();
        let id = table.next();
        table.runs.insert(id, Arc::clone(&run));
        drop(table);
        self.driver.submissions.start(Arc::clone(&run));
        (RunId(id), run)
    }

    fn schedule(&self, schedule: ScheduleId) -> Result<Arc<DirectSchedule>, Error> {
        let registered = self.table().schedules.get(&schedule.0).cloned();
        registered.ok_or_else(|| unknown("schedule"))
    }

    fn cancel(&self, run: &DirectRun) {
        if !run.has_ended() {
            self.driver.interrupt(|engine| engine.cancel(run));
        }
    }

    fn table(&self) -> MutexGuard<'_, CallerTable> {
        // Every change of the table is one insertion or removal.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, run: RunId) -> Option<Arc<DirectRun>> {
        self.table().runs.get(&run.0).cloned()
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
        self.add_schedule(context, schedule, signature, false)
    }

    fn release(&self, schedule: ScheduleId) {
        self.table().schedules.remove(&schedule.0);
    }

    fn end_communicators(&self, numbers: RangeInclusive<u32>) {
        self.driver.submissions.end(numbers);
    }

    fn start(&self, schedule: ScheduleId, sequence: u64, inputs: &[&[u8]]) -> Result<RunId, Error> {
        let schedule = self.schedule(schedule)?;
        check_inputs(&schedule.registered.layout.records, inputs)?;
        let buffers = schedule.buffers(inputs)?;
        let substitutes = schedule.borrowed_inputs(&buffers, inputs);
        // This thread sends what can be sent now: waking another one would take longer. The inputs
        // are in place before the run is passed: a thread that has the engine may start it at once.
        Ok(with_substitutes(substitutes, || {
            let (id, run) = self.submit(schedule, sequence, buffers, false);
            self.driver.begin(&run);
            id
        }))
    }

    /// Takes what has arrived, unless another thread does so.
    fn is_complete(&self, run: RunId) -> bool {
        let Some(run) = self.run(run) else { return true };
        if !run.has_ended() && !self.driver.background.is_armed() {
            self.driver.advance();
        }
        run.has_ended()
    }

    fn wait(&self, run: RunId, deadline: Option<Instant>) -> Result<bool, Error> {
        let run = self.run(run).ok_or_else(|| unknown("run"))?;
        let submissions = &self.driver.submissions;
        loop {
            if let Some(mut engine) = self.driver.try_lock() {
                self.driver.background.disarm();
                let driven = engine.drive(&run, deadline);
                let has_new_loss = engine.take_new_loss();
                drop(engine);
                if driven? {
                    return Ok(true);
                }
                if has_new_loss {
                    return Ok(run.has_ended());
                }
            } else {
                submissions.wait_for_change(OTHER_DRIVER_INTERVAL, || run.has_ended());
                // The thread that has executed it advances what it has left.
                if run.has_ended() {
                    return Ok(true);
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(run.has_ended());
            }
            if submissions.is_interrupted() {
                // Another thread waits for the engine.
                std::thread::yield_now();
            }
        }
    }

    fn progress(&self, _: RunId) -> Result<(), Error> {
        self.driver.try_lock().map_or(Ok(()), |mut engine| engine.poll().map(drop))
    }

    fn waiting_for(&self, run: RunId) -> Vec<u32> {
        let Some(run) = self.run(run) else { return Vec::new() };
        self.driver.interrupt(|engine| engine.waiting_for(&run))
    }

    fn announce_wait(&self, run: RunId) {
        if let Some(run) = self.run(run) {
            self.driver.interrupt(|engine| engine.announce_wait(&run));
        }
    }

    fn lost(&self) -> Vec<LostRank> {
        self.driver.losses.all()
    }

    fn has_unexpected(&self, context: &CommunicatorContext, sequence: u64) -> bool {
        let key = RunKey { rank: self.rank, communicator: context.number, sequence };
        self.driver.interrupt(|engine| {
            // Perhaps nothing is read between the calls. If the system refuses, the next check
            // reads.
            engine.poll().is_ok() && engine.has_unexpected(key)
        })
    }

    fn fetch(&self, run: RunId, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let id = run;
        let run = self.run(id).ok_or_else(|| unknown("run"))?;
        if !run.has_ended() {
            let why = "the run has not ended: wait for it before you fetch its results";
            return Err(Error::Operation(why.into()));
        }
        check_outputs(&run.registered().layout.records, outputs)?;
        self.table().runs.remove(&id.0);
        run.fetch(outputs)
    }

    /// Discards the results of a run. A run in its caller's buffers that has not ended ends here,
    /// because the buffers are about to be revoked.
    fn discard(&self, run: RunId) {
        let Some(run) = self.table().runs.remove(&run.0) else { return };
        if run.is_in_place {
            self.cancel(&run);
        }
    }

    /// Ends the run, for all ranks that need something of this one.
    fn abandon(&self, run: RunId) {
        if let Some(run) = self.run(run) {
            self.cancel(&run);
        }
    }

    fn drain(&self, deadline: Instant, exits: &dyn RankExits) -> Result<DrainOutcome, Error> {
        self.is_drained.store(true, Ordering::Relaxed);
        drain::drain(&self.driver, deadline, exits)
    }
}

impl Drop for DirectBackend {
    fn drop(&mut self) {
        // A rank that fails must exit at once, so that the other ranks detect it.
        if !std::thread::panicking() && !*self.is_drained.get_mut() {
            // It fails only if the system refuses to read. Then nothing more can be done.
            let _ = self.drain(Instant::now() + DROP_LIMIT, &Vec::new);
        }
        self.driver.background.stop();
    }
}
