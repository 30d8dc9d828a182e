//! A rank's side of the engine: one mapping and two descriptors, without rights.

mod backend;
mod doorbell;
mod drain;
pub(crate) mod fault;
mod limits;
mod live_runs;
mod prepared_schedule;
mod run_table;
mod slot_pressure;
mod unexpected;
mod wakeup;

use crate::loader::Handles;
use crate::memory::layout::{
    ACTIVE, ARENA, RANK_BYTES, Run, SUBMITTED, SUBMITTED_BEFORE, WAITING_FIRST,
};
use crate::memory::mapping::{self, Mapping};
use crate::wire::requests_within;
use doorbell::Doorbell;
use fault::Fault;
use limits::system_error;
use network::backend::{Backend, RunId};
use network::error::Error;
use prepared_schedule::PreparedSchedule;
use run_table::{RunHandle, RunResults, RunTable, in_arena, read_run};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use unexpected::UnexpectedMessages;
use wakeup::RingWakeup;

/// Number of polls of a waiter before it reads the clock.
const SPINS: u32 = 200;
/// Polling time of a waiter if each rank of the node can have a core: a few packets.
const SPIN_LIMIT: Duration = Duration::from_micros(30);
/// Rank of a job that executes schedules by the kernel engine.
#[derive(Debug)]
pub struct Rank {
    memory: Mapping,
    wakeup: RingWakeup,
    doorbell: Doorbell,
    start: OwnedFd,
    slot: u32,
    rank: u32,
    /// True if each rank of this node can have a core.
    has_core: bool,
    node_of_rank: Arc<[u32]>,
    addresses: Arc<[IpAddr]>,
    /// Unexpected messages that were moved out of the slots.
    unexpected: Mutex<UnexpectedMessages>,
    /// True if there are any, so that the usual case takes no lock.
    has_unexpected: AtomicBool,
    /// Number of unanswered requests after which a node is unreachable.
    maximum_unanswered: u32,
    run_table: Mutex<RunTable>,
    /// True if a run may be elsewhere than in the frame that its handle names.
    has_displaced: AtomicBool,
}

impl Rank {
    /// Creates a rank from the loader's descriptors; this needs no rights. Starts are faster if the
    /// calling thread is in the network namespace in which the program was loaded.
    ///
    /// # Errors
    /// A descriptor cannot be mapped.
    pub fn new(handles: Handles) -> std::io::Result<Self> {
        let memory = Mapping::new(&handles.memory, 0, RANK_BYTES.next_multiple_of(4096), true)?;
        let Handles { wakeup, start, slot, rank, node_of_rank, addresses, timeout, .. } = handles;
        let maximum_unanswered = requests_within(timeout);
        let wakeup = RingWakeup::new(wakeup)?;
        let doorbell = Doorbell::new(&memory, slot);
        let node = node_of_rank.get(rank as usize);
        let neighbours = node_of_rank.iter().filter(|other| Some(*other) == node).count();
        let has_core =
            std::thread::available_parallelism().is_ok_and(|cores| neighbours <= cores.get());
        Ok(Rank {
            memory,
            wakeup,
            doorbell,
            start,
            slot,
            rank,
            has_core,
            node_of_rank,
            addresses,
            maximum_unanswered,
            unexpected: Mutex::default(),
            has_unexpected: AtomicBool::new(false),
            run_table: Mutex::new(RunTable::new()),
            has_displaced: AtomicBool::new(false),
        })
    }

    /// Returns the fault of a run, if one has occurred so far.
    pub fn fault(&self, run: RunId) -> Option<Fault> {
        let run_table = self.run_table();
        let (frame, _) = run_table.frame_of(RunHandle::of(run))?;
        Fault::of(&read_run(&self.memory, frame))
    }

    fn run_table(&self) -> MutexGuard<'_, RunTable> {
        self.run_table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts runs that waited for memory, as long as there is some.
    ///
    /// The lock is released before the program is notified: a started run may complete at once, and
    /// its completion makes memory for the next one, hence the loop.
    fn advance<'a>(&'a self, mut run_table: MutexGuard<'a, RunTable>) -> Result<(), Error> {
        loop {
            let ready = run_table.advance(&self.memory);
            self.has_displaced.store(run_table.has_displaced(), Ordering::Relaxed);
            drop(run_table);
            if ready.is_empty() {
                return Ok(());
            }
            // All of them before one notification: an activation takes the whole stack.
            ready.iter().for_each(|frame| self.submit(*frame));
            self.notify_program()?;
            self.put_back()?;
            run_table = self.run_table();
        }
    }

    /// Returns true if a run is complete that is not in the frame of its handle.
    #[cold]
    fn is_complete_elsewhere(&self, name: RunHandle) -> bool {
        // An error appears again in `wait`, which can return it.
        let _ = self.advance(self.run_table());
        self.run_table().is_complete(&self.memory, name.count)
    }

    /// Notifies the program: it starts submitted runs and continues work that was left over.
    fn notify_program(&self) -> Result<(), Error> {
        let mut is_done = self.doorbell.ring();
        // An activation ends when its time budget is spent, so it may leave work in these lists.
        // Acquire pairs with the program's updates; a stale zero is repaired by the next wait.
        let lists = [SUBMITTED, SUBMITTED_BEFORE, ACTIVE, WAITING_FIRST];
        let has_more =
            || lists.iter().any(|word| self.memory.word(*word).load(Ordering::Acquire) != 0);
        while !is_done || has_more() {
            self.run_program(0)?;
            is_done = true;
        }
        Ok(())
    }

    /// Requests lost packets from the nodes of all ranks with which a run exchanges messages.
    fn request_missing(&self, run: RunId) -> Result<(), Error> {
        let mut nodes = BTreeMap::new();
        for rank in self.partners(run) {
            if let Some(node) = self.node_of_rank.get(rank as usize) {
                nodes.insert(*node, rank);
            }
        }
        // One request a node: it covers the packets of all ranks of that node.
        for (node, rank) in nodes {
            let unanswered = self.run_program(rank + 1)? / 2;
            if unanswered >= self.maximum_unanswered {
                return Err(Error::NodeUnreachable {
                    node,
                    address: self
                        .addresses
                        .get(node as usize)
                        .map_or_else(String::new, IpAddr::to_string),
                    why: format!("{unanswered} requests in a row are unanswered"),
                });
            }
        }
        Ok(())
    }

    /// Runs the program. `asked` is 0, or one more than a rank: the program sends a request to the
    /// node of that rank.
    fn run_program(&self, asked: u32) -> Result<u32, Error> {
        mapping::run_program(self.start.as_fd(), [self.slot, asked])
            .map_err(system_error("starting a run"))
    }

    /// Pushes a run on the stack of submitted runs.
    fn submit(&self, frame: u32) {
        let stack = self.memory.word(SUBMITTED);
        let next = self.memory.word(ARENA + in_arena(frame) + std::mem::offset_of!(Run, next));
        let mut top = stack.load(Ordering::Relaxed);
        loop {
            next.store(top, Ordering::Relaxed);
            // Release pairs with the exchange in `work`, which takes the whole stack: it sees the
            // frame, the inputs and the link. Runs are never popped one by one, so a frame that is
            // pushed again (ABA) cannot corrupt the stack.
            match stack.compare_exchange_weak(top, frame, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => top = found,
            }
        }
    }

    /// Copies the results of a run to the caller's buffers.
    fn copy_out(
        &self,
        prepared: &PreparedSchedule,
        results: &RunResults<'_>,
        outputs: &mut [&mut [u8]],
    ) {
        for (index, (buffer, bytes)) in prepared.written().iter().enumerate() {
            let Some(output) = outputs.get_mut(*buffer).filter(|output| !output.is_empty()) else {
                continue;
            };
            // In range: `check_outputs` has compared the length with the schedule's.
            let output = &mut output[bytes.clone()];
            match results {
                RunResults::Frame(frame) => {
                    self.memory.read(
                        ARENA + *frame as usize + prepared.memory(*buffer) + bytes.start,
                        output,
                    );
                }
                RunResults::Aside(_, written) => output.copy_from_slice(&written[index]),
            }
        }
    }

    /// Polls a run for a moment; returns true if it is complete.
    fn spin(&self, run: RunId) -> bool {
        let poll = || {
            // One load of a word that the program writes once, so the line stays in this core's
            // cache until then.
            let is_complete = self.is_complete(run);
            std::hint::spin_loop();
            is_complete
        };
        if (0..SPINS).any(|_| poll()) {
            return true;
        }
        let before = Instant::now();
        while self.has_core && before.elapsed() < SPIN_LIMIT {
            if (0..SPINS / 8).any(|_| poll()) {
                return true;
            }
            // The core may be needed by the rank that this one waits for.
            std::thread::yield_now();
        }
        false
    }

    /// Returns the number of this rank in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }
}
