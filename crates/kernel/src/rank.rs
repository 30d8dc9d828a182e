//! A rank's side: no rights, one mapping and a descriptor to start runs with.

mod drain;
mod early;

use crate::bell::Bell;
use crate::books::{Books, Results, RunName, in_arena, read_run};
use crate::doorbell::Doorbell;
use crate::fault::Fault;
use crate::layout::{
    ACTIVE, ARENA, ARENA_BYTES, LARGE_SLOTS, MIDDLE_BYTES, MIDDLE_SLOTS, PIECE_BYTES, RANK_BYTES,
    RUN_UNDER_WAY, Run, SMALL_BYTES, SMALL_SLOTS, SUBMITTED, SUBMITTED_BEFORE, WAITING_FIRST,
};
use crate::loader::Handles;
use crate::prepared::{LIMIT_BYTES, PreparedSchedule, Sizes};
use crate::system::{self, Mapping};
use crate::wire::requests_within;
use early::EarlyMessages;
use goal::schedule::{Kind, OperationRecord, Schedule, ScheduleView};
use network::backend::{
    Backend, CommunicatorContext, RunId, ScheduleId, check_inputs, check_outputs,
};
use network::error::Error;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Operations of a schedule: fewer than the program executes in one activation.
const LIMIT_OPERATIONS: u32 = 8192;
/// Bytes in the slots of a rank.
const SLOT_BYTES: u64 =
    (SMALL_SLOTS * SMALL_BYTES + MIDDLE_SLOTS * MIDDLE_BYTES + LARGE_SLOTS * PIECE_BYTES) as u64;
/// Edges of an operation: as many as the program follows.
const LIMIT_EDGES: u32 = 1 << 16;
/// Bytes of the pieces of a message at the least MTU that the loader takes.
const SHORTEST_PIECE: u64 = 1280;
/// How often a waiter looks before it sleeps.
const LOOKS: u32 = 200;
/// How long it looks where each rank of the node has a core: a few packets.
const PATIENCE: Duration = Duration::from_micros(30);
/// How long a rank that leaves tries to start what still waits for room.
const LEAVING: Duration = Duration::from_secs(10);
/// A sleeper looks after its runs now and then: there may be work left over, or what it waits for
/// may be lost. The first nap, and the longest: each is half as long as the run has been waited
/// for.
const NAPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(128)];

/// The way out of what is too large for this engine.
const OTHER_ENGINE: &str = "take the agent engine for it";

/// A rank of a job, to run schedules with.
#[derive(Debug)]
pub struct Rank {
    memory: Mapping,
    bell: Bell,
    doorbell: Doorbell,
    start: OwnedFd,
    slot: u32,
    rank: u32,
    /// Whether each rank of this node can have a core.
    has_core: bool,
    node_of_rank: Arc<[u32]>,
    addresses: Arc<[IpAddr]>,
    /// Messages without receives, as far as there was no room for them, and whether there are any.
    early: Mutex<EarlyMessages>,
    has_early: AtomicBool,
    /// A node that has left so many requests unanswered is unreachable.
    maximum_unanswered: u32,
    books: Mutex<Books>,
    /// Whether there may be runs that are elsewhere than their names say.
    is_crowded: AtomicBool,
}

impl Rank {
    /// A rank with the descriptors that the loader gave it. It needs no rights. Starts are faster
    /// if the calling thread is in the network namespace in which the program was loaded.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub fn new(handles: Handles) -> std::io::Result<Self> {
        let memory = Mapping::new(&handles.memory, 0, RANK_BYTES.next_multiple_of(4096), true)?;
        let Handles { bell, start, slot, rank, node_of_rank, addresses, patience, .. } = handles;
        let maximum_unanswered = requests_within(patience);
        let bell = Bell::new(bell)?;
        let doorbell = Doorbell::new(&memory, slot);
        let node = node_of_rank.get(rank as usize);
        let neighbours = node_of_rank.iter().filter(|other| Some(*other) == node).count();
        let has_core =
            std::thread::available_parallelism().is_ok_and(|cores| neighbours <= cores.get());
        Ok(Rank {
            memory,
            bell,
            doorbell,
            start,
            slot,
            rank,
            has_core,
            node_of_rank,
            addresses,
            maximum_unanswered,
            early: Mutex::default(),
            has_early: AtomicBool::new(false),
            books: Mutex::new(Books::new()),
            is_crowded: AtomicBool::new(false),
        })
    }

    /// What went wrong in a run, if anything did so far.
    pub fn fault(&self, ticket: RunId) -> Option<Fault> {
        let books = self.books();
        let (frame, _) = books.frame_of(RunName::of(ticket))?;
        Fault::of(&read_run(&self.memory, frame))
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts runs that have waited for room, as long as there is some.
    fn advance<'a>(&'a self, mut books: MutexGuard<'a, Books>) -> Result<(), Error> {
        loop {
            let ready = books.advance(&self.memory);
            self.is_crowded.store(books.is_crowded(), Ordering::Relaxed);
            drop(books);
            if ready.is_empty() {
                return Ok(());
            }
            ready.iter().for_each(|frame| self.submit(*frame));
            // Some may be complete at once, and nobody is woken for them.
            self.kick()?;
            self.bring_back()?;
            books = self.books();
        }
    }

    /// Looks for a run that is not where its name says.
    #[cold]
    fn is_complete_elsewhere(&self, name: RunName) -> bool {
        // What goes wrong here goes wrong in `wait`, too, where it can be said.
        let _ = self.advance(self.books());
        self.books().is_complete(&self.memory, name.count)
    }

    /// Has the program look after this rank: it starts what was submitted and goes on with what was
    /// left over.
    fn kick(&self) -> Result<(), Error> {
        let mut is_done = self.doorbell.ring();
        // There may be more to do than one activation does.
        let lists = [SUBMITTED, SUBMITTED_BEFORE, ACTIVE, WAITING_FIRST];
        let has_more =
            || lists.iter().any(|word| self.memory.word(*word).load(Ordering::Acquire) != 0);
        while !is_done || has_more() {
            self.run_program(0)?;
            is_done = true;
        }
        Ok(())
    }

    /// Has the program ask the nodes of all ranks that a run waits for, for what may be lost.
    fn ask(&self, ticket: RunId) -> Result<(), Error> {
        let mut nodes = BTreeMap::new();
        for rank in self.partners(ticket) {
            if let Some(node) = self.node_of_rank.get(rank as usize) {
                nodes.insert(*node, rank);
            }
        }
        for (node, rank) in nodes {
            let unanswered = self.run_program(rank + 1)? / 2;
            if unanswered >= self.maximum_unanswered {
                return Err(Error::NodeUnreachable {
                    node,
                    address: self
                        .addresses
                        .get(node as usize)
                        .map_or_else(String::new, IpAddr::to_string),
                    why: format!("it has left {unanswered} requests in a row unanswered"),
                });
            }
        }
        Ok(())
    }

    /// Runs the program; `asked` is one more than a rank whose node is to be asked.
    fn run_program(&self, asked: u32) -> Result<u32, Error> {
        system::run_program(self.start.as_fd(), [self.slot, asked])
            .map_err(system_error("starting a run"))
    }

    /// Puts a run on the stack of those that are to be started.
    fn submit(&self, frame: u32) {
        let stack = self.memory.word(SUBMITTED);
        let next = self.memory.word(ARENA + in_arena(frame) + std::mem::offset_of!(Run, next));
        let mut top = stack.load(Ordering::Relaxed);
        loop {
            next.store(top, Ordering::Relaxed);
            // Partner: the exchange in `work`, which takes the whole stack. Whoever sees the run
            // sees what is in it.
            match stack.compare_exchange_weak(top, frame, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => top = found,
            }
        }
    }

    /// Copies what a run wrote to where the caller wants it.
    fn copy_out(
        &self,
        prepared: &PreparedSchedule,
        results: &Results<'_>,
        outputs: &mut [&mut [u8]],
    ) {
        for (index, (buffer, bytes)) in prepared.written().iter().enumerate() {
            let Some(output) = outputs.get_mut(*buffer).filter(|output| !output.is_empty()) else {
                continue;
            };
            let output = &mut output[bytes.clone()];
            match results {
                Results::Frame(frame) => {
                    self.memory.read(
                        ARENA + *frame as usize + prepared.memory(*buffer) + bytes.start,
                        output,
                    );
                }
                Results::Aside(_, written) => output.copy_from_slice(&written[index]),
            }
        }
    }

    /// Whether a run has ended, looked at for a moment.
    fn look(&self, ticket: RunId) -> bool {
        let look = || {
            let is_complete = self.is_complete(ticket);
            std::hint::spin_loop();
            is_complete
        };
        if (0..LOOKS).any(|_| look()) {
            return true;
        }
        let before = Instant::now();
        while self.has_core && before.elapsed() < PATIENCE {
            if (0..LOOKS / 8).any(|_| look()) {
                return true;
            }
            // Somebody else may want this core, such as a rank that is waited for.
            std::thread::yield_now();
        }
        false
    }
}

/// Whether all messages of a run could be there before they are wanted, in half of the slots: when
/// slots run out, senders are held back, and what a receive waits for could be behind what it does
/// not want yet. Which slots the pieces of a message need depends on how long a packet may be: it
/// has to fit either way.
fn fits_slots(view: &ScheduleView<'_>) -> bool {
    let receives = || {
        view.operations()
            .iter()
            .filter(|record| record.kind() == Kind::Receive)
            .map(|record| record.bytes)
    };
    let short = receives().filter(|bytes| *bytes <= SMALL_BYTES as u64).count();
    let longer = || receives().filter(|bytes| *bytes > SMALL_BYTES as u64);
    let in_short_packets: u64 = longer().map(|bytes| bytes.div_ceil(SHORTEST_PIECE)).sum();
    // The last piece of a message may be a short one.
    let long = longer().filter(|bytes| *bytes > MIDDLE_BYTES as u64);
    let in_long_packets: u64 = long.map(|bytes| bytes.div_ceil(PIECE_BYTES as u64)).sum();
    short <= SMALL_SLOTS / 2
        && in_short_packets <= MIDDLE_SLOTS as u64 / 2
        && in_long_packets <= LARGE_SLOTS as u64 / 2
}

/// Why the program does not take a schedule, if it does not.
fn refusal(schedule: &Schedule) -> Option<Error> {
    let (view, sizes) = (schedule.view(), Sizes::of(&schedule.view()));
    let unknown = |record: &OperationRecord| match record.kind() {
        Kind::Join => Some("a join, which meets in memory that all ranks share"),
        Kind::Calc if record.bytes != 0 => {
            Some("a computation without a result, which only takes time")
        }
        _ => None,
    };
    if let Some(what) = view.operations().iter().find_map(unknown) {
        let why = format!("{what}: take the agent engine for it");
        return Some(Error::Operation(format!("the kernel engine does not take {why}")));
    }
    let edges =
        view.operations().iter().map(|record| record.edge_count.max(record.start_edge_count)).max();
    let [edges, operations] = [edges.unwrap_or(0), view.header().operation_count].map(u64::from);
    let bytes = sizes.prepared + sizes.frame;
    let limits = [
        ("an operation with its successors", edges, u64::from(LIMIT_EDGES)),
        ("a schedule's number of operations", operations, u64::from(LIMIT_OPERATIONS)),
        ("a schedule with one run of it, in bytes,", bytes, LIMIT_BYTES),
    ];
    let large = limits.into_iter().find(|(_, needed, limit)| needed > limit);
    if let Some((what, needed, limit)) = large {
        return Some(too_large(what, needed, limit, OTHER_ENGINE));
    }
    let bytes = view
        .operations()
        .iter()
        .filter(|record| record.kind() == Kind::Receive)
        .map(|record| record.bytes)
        .sum();
    (!fits_slots(&view)).then(|| {
        too_large(
            "what a run receives before it is wanted, in bytes,",
            bytes,
            SLOT_BYTES / 2,
            OTHER_ENGINE,
        )
    })
}

fn system_error(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System {
        what: format!("{what} in the kernel"),
        why: format!("{source}; TRADEWIND_INTERNODE=agent does without the kernel engine"),
    }
}

fn too_large(what: &str, needed: u64, limit: u64, way_out: &'static str) -> Error {
    Error::TooLarge { backend: "kernel", what: what.to_owned(), needed, limit, way_out }
}

impl Backend for Rank {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn set_timed(&self, timed: bool) {
        self.books().timed = timed;
    }

    fn times(&self, ticket: RunId) -> Vec<u64> {
        let books = self.books();
        let known = books.frame_of(RunName::of(ticket));
        let Some((frame, prepared)) =
            known.filter(|(frame, _)| read_run(&self.memory, *frame).times != 0)
        else {
            return Vec::new();
        };
        let mut times = vec![0u64; prepared.schedule.view().operations().len()];
        self.memory
            .read(ARENA + frame as usize + prepared.times(), bytemuck::cast_slice_mut(&mut times));
        times
    }

    fn supports(&self, schedule: &Schedule) -> bool {
        refusal(schedule).is_none()
    }

    fn register(
        &self,
        context: &CommunicatorContext,
        schedule: &Schedule,
        stamp: u32,
    ) -> Result<ScheduleId, Error> {
        if let Some(refusal) = refusal(schedule) {
            return Err(refusal);
        }
        let number = self.books().prepare(&self.memory, context, schedule, stamp);
        let needed = || Sizes::of(&schedule.view()).prepared;
        number.map(ScheduleId).ok_or_else(|| {
            too_large(
                "what is prepared beside all that was before",
                needed(),
                ARENA_BYTES as u64 - LIMIT_BYTES,
                OTHER_ENGINE,
            )
        })
    }

    fn release(&self, prepared: ScheduleId) {
        self.books().release(prepared.0);
    }

    fn start(&self, prepared: ScheduleId, sequence: u64, inputs: &[&[u8]]) -> Result<RunId, Error> {
        let mut books = self.books();
        let unknown =
            || Error::Operation("the schedule was released before: prepare it again".to_owned());
        let buffers = books.schedule(prepared.0).ok_or_else(unknown)?.schedule.view().buffers();
        check_inputs(buffers, inputs)?;
        let name = books.start(&self.memory, prepared.0, sequence, inputs).ok_or_else(unknown)?;
        if name.frame == 0 {
            // What goes wrong in starting others goes wrong when this one is waited for, too.
            let _ = self.advance(books);
            return Ok(name.ticket());
        }
        drop(books);
        self.submit(name.frame);
        // It is submitted and takes place. If the program could not be run now, it will be by
        // whoever waits.
        let _ = self.kick();
        let _ = self.bring_back();
        Ok(name.ticket())
    }

    #[inline]
    fn is_complete(&self, ticket: RunId) -> bool {
        let name = RunName::of(ticket);
        // Partner: `end_run`. Only of a run that is complete the frame can be another's now.
        let state = self.memory.word(ARENA + in_arena(name.frame)).load(Ordering::Acquire);
        state != RUN_UNDER_WAY
            || (self.is_crowded.load(Ordering::Relaxed) && self.is_complete_elsewhere(name))
    }

    fn wait(&self, ticket: RunId, deadline: Option<Instant>) -> Result<bool, Error> {
        if self.look(ticket) {
            return Ok(true);
        }
        let [first, longest] = NAPS;
        while !self.is_complete(ticket) {
            let nap = (self.books().awaited_for(RunName::of(ticket)) / 2).clamp(first, longest);
            let left = deadline.map_or(nap, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(nap)
            });
            if left.is_zero() {
                return Ok(false);
            }
            let before = Instant::now();
            let is_complete = || self.is_complete(ticket);
            self.bell
                .sleep(&self.memory, left, is_complete)
                .map_err(system_error("waiting for a run"))?;
            if before.elapsed() >= nap && !is_complete() {
                self.progress(ticket)?;
            }
        }
        Ok(true)
    }

    fn progress(&self, ticket: RunId) -> Result<(), Error> {
        self.advance(self.books())?;
        self.kick()?;
        self.make_room()?;
        self.ask(ticket)
    }

    fn waiting_for(&self, ticket: RunId) -> Vec<u32> {
        self.ranks_of(
            ticket,
            |record| if record.kind() == Kind::Receive { record.peer() } else { None },
        )
    }

    fn fetch(&self, ticket: RunId, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let name = RunName::of(ticket);
        let mut books = self.books();
        let unknown = || {
            Error::Operation(
                "the run was fetched before, or has not ended: wait for it once".to_owned(),
            )
        };
        if !books.is_complete(&self.memory, name.count) {
            return Err(unknown());
        }
        let (results, prepared) = books.results(name).ok_or_else(unknown)?;
        check_outputs(prepared.schedule.view().buffers(), outputs)?;
        let run = match &results {
            Results::Frame(frame) => read_run(&self.memory, *frame),
            Results::Aside(run, _) => **run,
        };
        let fault = Fault::of(&run).map(|fault| fault.error(&prepared.context, run.sequence));
        self.copy_out(prepared, &results, outputs);
        books.end(&self.memory, name.count);
        if self.is_crowded.load(Ordering::Relaxed) {
            // What goes wrong in starting others goes wrong when they are waited for, too.
            let _ = self.advance(books);
        }
        fault.map_or(Ok(()), Err)
    }

    fn discard(&self, ticket: RunId) {
        self.books().forget(RunName::of(ticket));
    }

    fn drain(&self, deadline: Instant) -> Result<bool, Error> {
        drain::drain(self, deadline)
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if self.is_crowded.load(Ordering::Relaxed) {
            // Nobody is left who could be told.
            let _ = self.start_the_rest();
        }
    }
}

impl Rank {
    /// Ranks with which a run exchanges messages at present, in either direction: those of which
    /// anything may be lost.
    fn partners(&self, ticket: RunId) -> Vec<u32> {
        let is_from_any =
            |record: &OperationRecord| record.kind() == Kind::Receive && record.peer().is_none();
        let mut from_any = false;
        let partners = self.ranks_of(ticket, |record| {
            from_any |= is_from_any(record);
            matches!(record.kind(), Kind::Send | Kind::Receive).then(|| record.peer())?
        });
        if from_any { (0..self.node_of_rank.len() as u32).collect() } else { partners }
    }

    /// Ranks of the job for operations of a run that are started and not complete; `peer` gives the
    /// rank of the communicator for one of them.
    fn ranks_of(
        &self,
        ticket: RunId,
        mut peer: impl FnMut(&OperationRecord) -> Option<u32>,
    ) -> Vec<u32> {
        const RUNNING: u32 = 2;
        let books = self.books();
        let Some((frame, prepared)) = books.frame_of(RunName::of(ticket)) else {
            return Vec::new();
        };
        let states = ARENA + frame as usize + prepared.progress();
        let is_running = |index: usize| {
            let at = states + 32 * index + std::mem::offset_of!(crate::layout::Progress, phase);
            self.memory.word(at).load(Ordering::Relaxed) == RUNNING
        };
        let operations = prepared.schedule.view().operations();
        let running = operations.iter().enumerate().filter(|(index, _)| is_running(*index));
        let mut ranks: Vec<u32> = running
            .filter_map(|(_, record)| prepared.context.members.get(peer(record)? as usize).copied())
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Starts what still waits for room: others wait for it, whether this rank does or not.
    fn start_the_rest(&self) -> Result<(), Error> {
        let end = Instant::now() + LEAVING;
        loop {
            self.advance(self.books())?;
            if !self.books().has_queue() || Instant::now() >= end {
                return Ok(());
            }
            self.bell
                .sleep(&self.memory, NAPS[0], || false)
                .map_err(system_error("waiting for room"))?;
        }
    }

    /// The number of this rank in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }
}
