//! A rank's side: no rights, one mapping and a descriptor to start runs with.

use crate::arena::Arena;
use crate::bell::Bell;
use crate::doorbell::Doorbell;
use crate::fault::Fault;
use crate::layout::{
    ACTIVE, ARENA, ARENA_BYTES, MIDDLE_SLOTS, RANK_BYTES, RUN_COMPLETE, RUN_UNDER_WAY, Run, SMALL_BYTES, SMALL_SLOTS,
    SUBMITTED,
};
use crate::loader::Handles;
use crate::prepared::{PreparedSchedule, Sizes};
use crate::system::{self, Mapping};
use crate::wire::MAXIMUM_UNANSWERED;
use goal::schedule::{Kind, OperationRecord, Schedule, ScheduleView};
use network::carrier::{Carrier, Context, Error, Prepared, Ticket};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A schedule and a run of it may take so many bytes of the arena, so that several can be there at once.
const LIMIT_BYTES: u64 = ARENA_BYTES as u64 / 3;
/// Operations of a schedule: fewer than the program executes in one activation.
const LIMIT_OPERATIONS: u32 = 8192;
/// Edges of an operation: as many as the program follows.
const LIMIT_EDGES: u32 = 1 << 16;
/// Bytes of the pieces of a message at an MTU of 1500, or fewer.
const SHORTEST_PIECE: u64 = 1280;
/// How often a waiter looks before it sleeps.
const LOOKS: u32 = 200;
/// How long it looks where each rank of the host has a core: a few packets.
const PATIENCE: Duration = Duration::from_micros(30);
/// A sleeper looks after its runs now and then: there may be work left over, or what it waits for may be lost. The
/// first nap, and the longest: each is twice as long as the one before.
const NAPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(128)];

/// A rank of a job, to run schedules with.
#[derive(Debug)]
pub struct Rank {
    memory: Mapping,
    bell: Bell,
    doorbell: Doorbell,
    start: OwnedFd,
    slot: u32,
    rank: u32,
    /// Whether each rank of this host can have a core.
    has_core: bool,
    host_of_rank: Arc<[u32]>,
    addresses: Arc<[IpAddr]>,
    books: Mutex<Books>,
}

/// What the rank knows about its arena.
#[derive(Debug)]
struct Books {
    arena: Arena,
    prepared: HashMap<u64, PreparedSchedule>,
    next: u64,
    /// The schedule of every run, by the place of its frame.
    runs: HashMap<u32, u64>,
    /// Runs that nobody will fetch.
    forgotten: Vec<u32>,
    /// Whether runs note when each operation is executed.
    timed: bool,
}

impl Rank {
    /// A rank with the descriptors that the loader gave it. It needs no rights. Starts are faster if the calling thread is in the
    /// network namespace in which the program was loaded.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub fn new(handles: Handles) -> std::io::Result<Self> {
        let memory = Mapping::new(&handles.memory, 0, RANK_BYTES.next_multiple_of(4096), true)?;
        let books = Books {
            arena: Arena::new(),
            prepared: HashMap::new(),
            next: 0,
            runs: HashMap::new(),
            forgotten: Vec::new(),
            timed: false,
        };
        let Handles { bell, start, slot, rank, host_of_rank, addresses, .. } = handles;
        let bell = Bell::new(bell)?;
        let doorbell = Doorbell::new(&memory, slot);
        let host = host_of_rank.get(rank as usize);
        let neighbours = host_of_rank.iter().filter(|other| Some(*other) == host).count();
        let has_core = std::thread::available_parallelism().is_ok_and(|cores| neighbours <= cores.get());
        Ok(Rank {
            memory,
            bell,
            doorbell,
            start,
            slot,
            rank,
            has_core,
            host_of_rank,
            addresses,
            books: Mutex::new(books),
        })
    }

    /// Has runs that start from now on note when each operation is executed; see [`times`](Self::times).
    pub fn set_timed(&self, timed: bool) {
        self.books().timed = timed;
    }

    /// When the operations of a run were executed, by their place in the schedule, in nanoseconds of `CLOCK_MONOTONIC`;
    /// 0 for those that were not, and for all if nobody asked before the start.
    pub fn times(&self, ticket: Ticket) -> Vec<u64> {
        let books = self.books();
        let frame = ticket.0 as u32;
        let Some(prepared) = books.runs.get(&frame).and_then(|number| books.prepared.get(number)) else {
            return Vec::new();
        };
        let mut times = vec![0u64; prepared.schedule.view().operations().len()];
        if self.run(frame).times != 0 {
            self.memory.read(ARENA + frame as usize + prepared.times(), bytemuck::cast_slice_mut(&mut times));
        }
        times
    }

    /// What went wrong in a run, if anything did so far.
    pub fn fault(&self, ticket: Ticket) -> Option<Fault> {
        Fault::of(&self.run(ticket.0 as u32))
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of what the program says about a run.
    fn run(&self, frame: u32) -> Run {
        let mut run: Run = bytemuck::Zeroable::zeroed();
        self.memory.read(ARENA + in_arena(frame), bytemuck::bytes_of_mut(&mut run));
        run
    }

    /// Has the program look after this rank: it starts what was submitted and goes on with what was left over.
    fn kick(&self) -> Result<(), Error> {
        let mut is_done = self.doorbell.ring();
        // There may be more to do than one activation does.
        let has_more = || [SUBMITTED, ACTIVE].iter().any(|word| self.memory.word(*word).load(Ordering::Acquire) != 0);
        while !is_done || has_more() {
            self.run_program(0)?;
            is_done = true;
        }
        Ok(())
    }

    /// Has the program ask the hosts of all ranks that a run waits for, for what may be lost.
    fn ask(&self, ticket: Ticket) -> Result<(), Error> {
        let mut hosts = BTreeMap::new();
        for rank in self.partners(ticket) {
            if let Some(host) = self.host_of_rank.get(rank as usize) {
                hosts.insert(*host, rank);
            }
        }
        for (host, rank) in hosts {
            let unanswered = self.run_program(rank + 1)? / 2;
            if unanswered >= MAXIMUM_UNANSWERED {
                return Err(Error::HostUnreachable {
                    host,
                    address: self.addresses.get(host as usize).map_or_else(String::new, IpAddr::to_string),
                    why: format!("it has left {unanswered} requests in a row unanswered"),
                });
            }
        }
        Ok(())
    }

    /// Runs the program; `asked` is one more than a rank whose host is to be asked.
    fn run_program(&self, asked: u32) -> Result<u32, Error> {
        system::run_program(self.start.as_fd(), [self.slot, asked]).map_err(system_error("starting a run"))
    }

    /// Puts a run on the stack of those that are to be started.
    fn submit(&self, frame: u32) {
        let stack = self.memory.word(SUBMITTED);
        let next = self.memory.word(ARENA + in_arena(frame) + std::mem::offset_of!(Run, next));
        let mut top = stack.load(Ordering::Relaxed);
        loop {
            next.store(top, Ordering::Relaxed);
            // Partner: the exchange in `work`, which takes the whole stack. Whoever sees the run sees what is in it.
            match stack.compare_exchange_weak(top, frame, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => top = found,
            }
        }
    }

    /// Copies what a run wrote to where the caller wants it.
    fn copy_out(&self, prepared: &PreparedSchedule, frame: u32, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let buffers = prepared.schedule.view().buffers();
        for (buffer, (output, record)) in
            outputs.iter().zip(buffers).enumerate().filter(|(_, (output, _))| !output.is_empty())
        {
            check_length(buffer, record.length, output.len())?;
        }
        for (buffer, bytes) in prepared.written() {
            if let Some(output) = outputs.get_mut(*buffer).filter(|output| !output.is_empty()) {
                self.memory
                    .read(ARENA + frame as usize + prepared.memory(*buffer) + bytes.start, &mut output[bytes.clone()]);
            }
        }
        Ok(())
    }

    /// Whether a run has ended, looked at for a moment.
    fn look(&self, ticket: Ticket) -> bool {
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
        }
        false
    }
}

impl Books {
    /// Takes back the frames of forgotten runs that have ended.
    fn sweep(&mut self, is_complete: impl Fn(u32) -> Option<bool>) {
        let forgotten = std::mem::take(&mut self.forgotten);
        for frame in forgotten {
            match is_complete(frame) {
                None => self.forgotten.push(frame),
                Some(well) => self.end(frame, well),
            }
        }
    }

    /// The end of a run. The frame of one that failed stays: what arrives for it is dropped there.
    fn end(&mut self, frame: u32, well: bool) {
        let Some(number) = self.runs.remove(&frame) else { return };
        let Some(prepared) = self.prepared.get_mut(&number) else { return };
        if well {
            prepared.give_back(frame);
        }
        self.drop_unused(number);
    }

    /// Gives up a schedule that nobody will start again and that has no run.
    fn drop_unused(&mut self, number: u64) {
        if self.prepared.get(&number).is_some_and(|prepared| prepared.is_released && prepared.runs == 0)
            && let Some(prepared) = self.prepared.remove(&number)
        {
            prepared.give_up(&mut self.arena);
        }
    }

    /// A frame for a run, if need be from the frames that others have put by.
    fn frame(&mut self, memory: &Mapping, number: u64, sequence: u64) -> Option<u32> {
        let timed = self.timed;
        let prepared = self.prepared.get_mut(&number)?;
        let mut frame = prepared.frame(&mut self.arena, memory, sequence, timed);
        if frame.is_none() {
            self.prepared.values_mut().for_each(|prepared| prepared.give_up_frames(&mut self.arena));
            frame = self.prepared.get_mut(&number)?.frame(&mut self.arena, memory, sequence, timed);
        }
        self.runs.insert(frame?, number);
        frame
    }
}

/// Whether all messages of a run could be there before they are wanted, in half of the slots: when slots run out, senders are
/// held back, and what a receive waits for could be behind what it does not want yet.
fn fits_slots(view: &ScheduleView<'_>) -> bool {
    let receives = view.operations().iter().filter(|record| record.kind() == Kind::Receive);
    let [mut short, mut pieces] = [0, 0];
    for record in receives {
        match record.bytes {
            bytes if bytes <= SMALL_BYTES as u64 => short += 1,
            // As if all pieces were those of an ordinary Ethernet: longer ones are fewer, but have fewer slots.
            bytes => pieces += bytes.div_ceil(SHORTEST_PIECE),
        }
    }
    short <= SMALL_SLOTS as u64 / 2 && pieces <= MIDDLE_SLOTS as u64 / 2
}

fn in_arena(place: u32) -> usize {
    place as usize & (ARENA_BYTES - 1) & !63
}

fn check_length(buffer: usize, expected: u64, found: usize) -> Result<(), Error> {
    let found = found as u64;
    if expected == found { Ok(()) } else { Err(Error::Length { buffer, expected, found }) }
}

fn system_error(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { what: what.to_owned(), why: source.to_string() }
}

fn too_large(what: &str, needed: u64, limit: u64) -> Error {
    Error::TooLarge { carrier: "kernel", what: what.to_owned(), needed, limit, way_out: "take the agent engine for it" }
}

impl Carrier for Rank {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn admits(&self, schedule: &Schedule) -> bool {
        let view = schedule.view();
        let sizes = Sizes::of(&view);
        let known = view.operations().iter().all(|record| match record.kind() {
            Kind::Join => false,
            // The program computes nothing but what has a result.
            Kind::Calc => record.bytes == 0,
            _ => record.edge_count <= LIMIT_EDGES && record.start_edge_count <= LIMIT_EDGES,
        });
        known
            && fits_slots(&view)
            && view.header().operation_count <= LIMIT_OPERATIONS
            && sizes.prepared + sizes.frame <= LIMIT_BYTES
    }

    fn prepare(&self, context: &Context, schedule: &Schedule, stamp: u32) -> Result<Prepared, Error> {
        if !self.admits(schedule) {
            let sizes = Sizes::of(&schedule.view());
            return Err(too_large(
                "a schedule with one run of it (or one that meets or computes)",
                sizes.prepared + sizes.frame,
                LIMIT_BYTES,
            ));
        }
        let mut books = self.books();
        let Books { arena, prepared, .. } = &mut *books;
        let mut made = PreparedSchedule::new(arena, &self.memory, context, schedule, stamp);
        if made.is_none() {
            prepared.values_mut().for_each(|prepared| prepared.give_up_frames(arena));
            made = PreparedSchedule::new(arena, &self.memory, context, schedule, stamp);
        }
        let made = made
            .ok_or_else(|| too_large("what is prepared", Sizes::of(&schedule.view()).prepared, ARENA_BYTES as u64))?;
        let number = books.next;
        books.next += 1;
        books.prepared.insert(number, made);
        Ok(Prepared(number))
    }

    fn release(&self, prepared: Prepared) {
        let mut books = self.books();
        if let Some(prepared) = books.prepared.get_mut(&prepared.0) {
            prepared.is_released = true;
        }
        books.drop_unused(prepared.0);
    }

    fn start(&self, prepared: Prepared, sequence: u64, inputs: &[&[u8]]) -> Result<Ticket, Error> {
        let mut books = self.books();
        books.sweep(|frame| match self.memory.word(ARENA + in_arena(frame)).load(Ordering::Acquire) {
            RUN_UNDER_WAY => None,
            state => Some(state == RUN_COMPLETE),
        });
        let unknown = || Error::Operation("the schedule was released before: prepare it again".to_owned());
        let buffers = books.prepared.get(&prepared.0).ok_or_else(unknown)?.schedule.view().buffers();
        for (buffer, (input, record)) in
            inputs.iter().zip(buffers).enumerate().filter(|(_, (input, _))| !input.is_empty())
        {
            check_length(buffer, record.length, input.len())?;
        }
        let frame = books.frame(&self.memory, prepared.0, sequence);
        let frame = frame.ok_or_else(|| too_large("the memory of all runs under way", 0, ARENA_BYTES as u64))?;
        if let Some(prepared) = books.prepared.get(&prepared.0) {
            for (buffer, input) in inputs.iter().enumerate().filter(|(_, input)| !input.is_empty()) {
                self.memory.write(ARENA + frame as usize + prepared.memory(buffer), input);
            }
        }
        drop(books);
        self.submit(frame);
        self.kick()?;
        Ok(Ticket(u64::from(frame)))
    }

    #[inline]
    fn is_complete(&self, ticket: Ticket) -> bool {
        // Partner: `end_run`.
        self.memory.word(ARENA + in_arena(ticket.0 as u32)).load(Ordering::Acquire) != RUN_UNDER_WAY
    }

    fn wait(&self, ticket: Ticket, deadline: Option<Instant>) -> Result<bool, Error> {
        if self.look(ticket) {
            return Ok(true);
        }
        let [mut nap, longest] = NAPS;
        while !self.is_complete(ticket) {
            let left = deadline.map_or(nap, |deadline| deadline.saturating_duration_since(Instant::now()).min(nap));
            if left.is_zero() {
                return Ok(false);
            }
            let before = Instant::now();
            let is_complete = || self.is_complete(ticket);
            self.bell.sleep(&self.memory, left, is_complete).map_err(system_error("waiting for a run"))?;
            if !is_complete() && before.elapsed() >= left {
                self.kick()?;
                self.ask(ticket)?;
                nap = longest.min(2 * nap);
            }
        }
        Ok(true)
    }

    fn awaited(&self, ticket: Ticket) -> Vec<u32> {
        self.ranks_of(ticket, |record| if record.kind() == Kind::Receive { record.peer() } else { None })
    }

    fn fetch(&self, ticket: Ticket, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let frame = ticket.0 as u32;
        if !self.is_complete(ticket) {
            return Err(Error::Operation("the run has not ended: wait for it first".to_owned()));
        }
        let mut books = self.books();
        let unknown = || Error::Operation("the run was fetched before".to_owned());
        let number = *books.runs.get(&frame).ok_or_else(unknown)?;
        let prepared = books.prepared.get(&number).ok_or_else(unknown)?;
        let run = self.run(frame);
        let fault = Fault::of(&run).map(|fault| fault.error(&prepared.context, run.sequence));
        self.copy_out(prepared, frame, outputs)?;
        books.end(frame, run.state == RUN_COMPLETE);
        fault.map_or(Ok(()), Err)
    }

    fn forget(&self, ticket: Ticket) {
        self.books().forgotten.push(ticket.0 as u32);
    }
}

impl Rank {
    /// Ranks with which a run exchanges messages at present, in either direction: those of which anything may be lost.
    fn partners(&self, ticket: Ticket) -> Vec<u32> {
        let is_from_any = |record: &OperationRecord| record.kind() == Kind::Receive && record.peer().is_none();
        let mut from_any = false;
        let partners = self.ranks_of(ticket, |record| {
            from_any |= is_from_any(record);
            matches!(record.kind(), Kind::Send | Kind::Receive).then(|| record.peer())?
        });
        if from_any { (0..self.host_of_rank.len() as u32).collect() } else { partners }
    }

    /// Ranks of the job for operations of a run that are started and not complete; `peer` gives the rank of the
    /// communicator for one of them.
    fn ranks_of(&self, ticket: Ticket, mut peer: impl FnMut(&OperationRecord) -> Option<u32>) -> Vec<u32> {
        const RUNNING: u32 = 2;
        let books = self.books();
        let frame = ticket.0 as u32;
        let Some(prepared) = books.runs.get(&frame).and_then(|number| books.prepared.get(number)) else {
            return Vec::new();
        };
        let states = ARENA + frame as usize + prepared.progress();
        let is_running = |index: usize| {
            let at = states + 32 * index + std::mem::offset_of!(crate::layout::Progress, phase);
            self.memory.word(at).load(Ordering::Relaxed) == RUNNING
        };
        let operations = prepared.schedule.view().operations();
        let running = operations.iter().enumerate().filter(|(index, _)| is_running(*index));
        let mut ranks: Vec<u32> =
            running.filter_map(|(_, record)| prepared.context.members.get(peer(record)? as usize).copied()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// The number of this rank in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }
}
