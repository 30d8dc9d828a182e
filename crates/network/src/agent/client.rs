//! A rank's side of the agent.

use super::area::{Area, ENTRIES, FREE, SLOTS, Submission, refused, system};
use super::plan::Plan;
use crate::carrier::{Carrier, Context, Error, Prepared, Ticket};
use crate::transport::frame::{MAX_MESSAGE, MAX_OPERATIONS};
use goal::schedule::Schedule;
use shm::arena::{Arena, ArenaError};
use shm::process::ProcessHandle;
use shm::segment::Offset;
use shm::sync::spin_loop;
use shm::word_copy;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a waiter looks before it sleeps: about a microsecond. The agent needs a core, too.
const LOOKS: u32 = 50;
/// How long a waiter sleeps before it looks whether the agent still lives.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Where a rank's agent is, for messages to people.
#[derive(Clone, Debug)]
pub struct Home {
    /// The number of the node.
    pub node: u32,
    /// Its address.
    pub address: String,
}

/// What a rank has of the agent: a [`Carrier`].
#[derive(Debug)]
pub struct Client {
    area: Area,
    arena: Arena,
    doorbell: OwnedFd,
    home: Home,
    /// The agent's process, where that is another one.
    service: Option<ProcessHandle>,
    books: Mutex<Books>,
}

/// What the rank keeps in mind.
#[derive(Debug, Default)]
struct Books {
    next_prepared: u64,
    prepared: HashMap<u64, Arc<Plan>>,
    /// By slot: how often it was used, and its run.
    slots: Vec<SlotBook>,
    free: Vec<u32>,
    /// Runs that nobody will fetch.
    forgotten: Vec<Ticket>,
    /// Entries published.
    published: u64,
    /// The last nap of the agent that it was rung out of.
    rung: u64,
    /// Questions asked, as the agent counts its answers: in 30 bits.
    asked: u32,
    /// Whether the last entry has been published.
    has_left: bool,
    /// Memory that the agent has done with when it has taken so many entries.
    retired: VecDeque<(u64, Offset)>,
}

#[derive(Debug, Default)]
struct SlotBook {
    generation: u32,
    run: Option<Run>,
}

#[derive(Clone, Debug)]
struct Run {
    plan: Arc<Plan>,
    at: Option<Offset>,
}

impl Client {
    /// The rank's side of an area whose other side an agent has. `service` is the agent's process,
    /// where that is another one: its death is noticed.
    ///
    /// # Errors
    /// When the area is too small to be one.
    pub fn new(
        area: Area,
        doorbell: OwnedFd,
        home: Home,
        service: Option<ProcessHandle>,
    ) -> Result<Client, Error> {
        let segment = Arc::clone(area.segment());
        let end = segment.bytes();
        let arena = Arena::new(segment, FREE..end)
            .map_err(|error| system("use the memory shared with the node service", error))?;
        Ok(Client { area, arena, doorbell, home, service, books: Mutex::default() })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // The books are changed after everything that can fail.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes an entry. Waits for room in the ring, which the agent makes without waiting for
    /// anybody.
    fn submit(&self, books: &mut Books, submission: Submission) -> Result<(), Error> {
        if books.has_left {
            let why = "this rank has left the job: start collectives before the job is dropped";
            return Err(Error::Operation(why.into()));
        }
        let bell = self.area.bell();
        let mut looks = 0u32;
        while books.published - bell.taken() >= ENTRIES {
            looks += 1;
            if looks > 1000 {
                self.check_agent()?;
                std::thread::sleep(Duration::from_micros(100));
            }
            std::thread::yield_now();
        }
        self.area.write(books.published, submission);
        books.published += 1;
        if bell.publish(books.published, &mut books.rung) {
            // It is full only when it has rung more often than the agent could ever have missed.
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Frees what the agent has done with.
    fn tidy(&self, books: &mut Books) {
        let taken = self.area.bell().taken();
        while let Some((_, at)) = books.retired.pop_front_if(|(after, _)| *after <= taken) {
            self.free(at);
        }
        let forgotten = std::mem::take(&mut books.forgotten);
        for ticket in forgotten {
            if self.is_complete(ticket) {
                self.let_go(books, ticket);
            } else {
                books.forgotten.push(ticket);
            }
        }
    }

    fn free(&self, at: Offset) {
        // It was allocated here and is freed once.
        let freed = self.arena.free(at);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    fn allocate(&self, what: &str, bytes: u64) -> Result<Offset, Error> {
        self.arena.allocate(bytes, 64).map_err(|error| match error {
            ArenaError::Full { capacity, .. } => Error::TooLarge {
                carrier: "agent",
                what: what.into(),
                needed: bytes,
                limit: capacity,
                way_out: "fetch or forget runs that have ended, or use smaller buffers",
            },
            error => system("take memory for a run", error),
        })
    }

    /// A slot, and the generation of its next run.
    fn take_slot(&self, books: &mut Books) -> Result<(u32, u32), Error> {
        let slot = match books.free.pop() {
            Some(slot) => slot,
            None => {
                let fresh = books.slots.len() as u32;
                if fresh == SLOTS {
                    return Err(Error::TooLarge {
                        carrier: "agent",
                        what: "the runs that are under way or not fetched".into(),
                        needed: u64::from(SLOTS) + 1,
                        limit: u64::from(SLOTS),
                        way_out: "fetch or forget some before you start more",
                    });
                }
                self.area.commit_slot(fresh)?;
                books.slots.push(SlotBook::default());
                fresh
            }
        };
        let book = &mut books.slots[slot as usize];
        // The word that counts has 30 bits.
        book.generation = (book.generation + 1) % (1 << 30);
        Ok((slot, book.generation))
    }

    /// The run of a ticket that has not been let go of.
    fn run(books: &Books, ticket: Ticket) -> Option<&Run> {
        let (slot, generation) = parts(ticket);
        books.slots.get(slot as usize).filter(|book| book.generation == generation)?.run.as_ref()
    }

    /// Ends a ticket whose run has ended.
    fn let_go(&self, books: &mut Books, ticket: Ticket) {
        let (slot, _) = parts(ticket);
        if let Some(run) = books.slots.get_mut(slot as usize).and_then(|book| book.run.take()) {
            run.at.into_iter().for_each(|at| self.free(at));
            books.free.push(slot);
        }
    }

    fn check_agent(&self) -> Result<(), Error> {
        let gone =
            self.area.has_ended() || self.service.as_ref().is_some_and(ProcessHandle::has_exited);
        let Home { node, address } = &self.home;
        let why =
            "its node service, which ran this rank's collectives, has ended; start the job again"
                .to_owned();
        if gone {
            Err(Error::NodeUnreachable { node: *node, address: address.clone(), why })
        } else {
            Ok(())
        }
    }

    /// Copies the buffers that the run reads into its memory.
    fn write_inputs(&self, plan: &Plan, at: Offset, inputs: &[&[u8]]) -> Result<(), Error> {
        for (buffer, input) in plan.buffers.iter().zip(inputs).filter(|(buffer, _)| buffer.is_read)
        {
            word_copy::store(self.area.segment(), Offset(at.0 + buffer.at), input)
                .map_err(refused)?;
        }
        Ok(())
    }
}

/// The ticket's slot, and which of its runs.
fn parts(ticket: Ticket) -> (u32, u32) {
    (ticket.0 as u32, (ticket.0 >> 32) as u32)
}

fn check_inputs(plan: &Plan, inputs: &[&[u8]]) -> Result<(), Error> {
    if inputs.len() != plan.buffers.len() {
        let why =
            format!("the schedule has {} buffers, {} were given", plan.buffers.len(), inputs.len());
        return Err(Error::Operation(why));
    }
    for (number, (buffer, input)) in plan.buffers.iter().zip(inputs).enumerate() {
        let (expected, found) = (buffer.length, input.len() as u64);
        if found != expected && (buffer.is_read || found != 0) {
            return Err(Error::Length { buffer: number, expected, found });
        }
    }
    Ok(())
}

fn unknown(what: &str) -> Error {
    Error::Operation(format!(
        "this {what} is not known to the agent engine: it was released, or is another carrier's"
    ))
}

impl Carrier for Client {
    fn name(&self) -> &'static str {
        "agent"
    }

    fn admits(&self, schedule: &Schedule) -> bool {
        let view = schedule.view();
        let longest = view.operations().iter().map(|record| record.bytes).max().unwrap_or(0);
        view.header().operation_count < MAX_OPERATIONS && longest <= MAX_MESSAGE
    }

    fn prepare(
        &self,
        context: &Context,
        schedule: &Schedule,
        stamp: u32,
    ) -> Result<Prepared, Error> {
        let (header, bytes) = (*schedule.view().header(), schedule.as_bytes());
        if (header.rank, header.ranks as usize) != (context.rank, context.members.len()) {
            let why = format!(
                "the schedule is for rank {} of {}, the communicator has this process as rank {} of {}",
                header.rank,
                header.ranks,
                context.rank,
                context.members.len()
            );
            return Err(Error::Operation(why));
        }
        if !self.admits(schedule) {
            return Err(Error::TooLarge {
                carrier: "agent",
                what: "the schedule's operations".into(),
                needed: u64::from(header.operation_count),
                limit: u64::from(MAX_OPERATIONS),
                way_out: "cut the collective into several, and messages to less than 1 TiB",
            });
        }
        let members: Vec<u8> =
            context.members.iter().flat_map(|member| member.to_le_bytes()).collect();
        let second = (members.len() as u64).next_multiple_of(8);
        let at = self.allocate("a schedule", second + bytes.len() as u64)?;
        word_copy::store(self.area.segment(), at, &members).map_err(refused)?;
        word_copy::store(self.area.segment(), Offset(at.0 + second), bytes).map_err(refused)?;
        let mut books = self.books();
        self.tidy(&mut books);
        let id = books.next_prepared;
        let (communicator, rank, members) =
            (context.number, context.rank, context.members.len() as u64);
        let prepare = Submission::Prepare {
            id,
            communicator,
            rank,
            at,
            members,
            bytes: bytes.len() as u64,
            stamp,
        };
        self.submit(&mut books, prepare)?;
        let published = books.published;
        books.retired.push_back((published, at));
        books.next_prepared += 1;
        books.prepared.insert(id, Arc::new(Plan::of(schedule)));
        Ok(Prepared(id))
    }

    fn release(&self, prepared: Prepared) {
        let mut books = self.books();
        if books.prepared.remove(&prepared.0).is_some() {
            // An agent that has ended needs to forget nothing.
            let _ = self.submit(&mut books, Submission::Release { id: prepared.0 });
        }
    }

    fn start(&self, prepared: Prepared, sequence: u64, inputs: &[&[u8]]) -> Result<Ticket, Error> {
        let mut books = self.books();
        self.tidy(&mut books);
        let plan = Arc::clone(books.prepared.get(&prepared.0).ok_or_else(|| unknown("schedule"))?);
        check_inputs(&plan, inputs)?;
        drop(books);
        let mut at = None;
        if plan.bytes > 0 {
            let place = self.allocate("the buffers of a run", plan.bytes)?;
            self.write_inputs(&plan, place, inputs)?;
            at = Some(place);
        }
        let mut books = self.books();
        let submitted = self.take_slot(&mut books).and_then(|(slot, generation)| {
            let (id, at) = (prepared.0, at.unwrap_or_default());
            let submission = Submission::Start { id, slot, generation, sequence, at };
            self.submit(&mut books, submission).map(|()| (slot, generation))
        });
        match submitted {
            Ok((slot, generation)) => {
                books.slots[slot as usize].run = Some(Run { plan, at });
                Ok(Ticket(u64::from(generation) << 32 | u64::from(slot)))
            }
            // The slot is not used again either: nothing is submitted to an agent that has ended.
            Err(error) => {
                at.into_iter().for_each(|at| self.free(at));
                Err(error)
            }
        }
    }

    #[inline]
    fn is_complete(&self, ticket: Ticket) -> bool {
        let (slot, generation) = parts(ticket);
        self.area.slot(slot).is_some_and(|slot| slot.ended.reached(generation))
    }

    fn wait(&self, ticket: Ticket, deadline: Option<Instant>) -> Result<bool, Error> {
        let (slot, generation) = parts(ticket);
        let ended = &self.area.slot(slot).ok_or_else(|| unknown("run"))?.ended;
        for _ in 0..LOOKS {
            if ended.reached(generation) {
                return Ok(true);
            }
            spin_loop();
        }
        while let Some(marked) = ended.prepare_sleep(generation) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            ended.sleep(marked, Some(left.map_or(LOOK_UP, |left| left.min(LOOK_UP))));
            if !ended.reached(generation) {
                self.check_agent()?;
            }
        }
        Ok(ended.reached(generation))
    }

    fn fetch(&self, ticket: Ticket, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let (slot, _) = parts(ticket);
        let mut books = self.books();
        Self::run(&books, ticket).ok_or_else(|| unknown("run"))?;
        if !self.is_complete(ticket) {
            self.check_agent()?;
            return Err(Error::Operation(
                "the run has not ended: wait for it before you fetch its results".into(),
            ));
        }
        let Some(run) = books.slots[slot as usize].run.take() else { return Err(unknown("run")) };
        drop(books);
        let outcome = self.area.outcome(slot);
        let has_results = matches!(outcome, Ok(()) | Err(Error::DivisionByZero { .. }));
        let copied = match run.at {
            Some(at) if has_results => self.read_outputs(&run.plan, at, outputs),
            _ => Ok(()),
        };
        run.at.into_iter().for_each(|at| self.free(at));
        self.books().free.push(slot);
        outcome.and(copied)
    }

    fn awaited(&self, ticket: Ticket) -> Vec<u32> {
        // The agent answers at once, unless it is stopped.
        const PATIENCE: Duration = Duration::from_secs(1);
        let (slot, generation) = parts(ticket);
        let mut books = self.books();
        if self.is_complete(ticket) || self.check_agent().is_err() {
            return Vec::new();
        }
        if self.submit(&mut books, Submission::Ask { slot, generation }).is_err() {
            return Vec::new();
        }
        books.asked = (books.asked + 1) % (1 << 30);
        self.area.await_answer(books.asked, PATIENCE)
    }

    fn forget(&self, ticket: Ticket) {
        let mut books = self.books();
        if Self::run(&books, ticket).is_some() {
            books.forgotten.push(ticket);
            self.tidy(&mut books);
        }
    }

    fn drain(&self, deadline: Instant) -> Result<bool, Error> {
        self.leave();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.area.await_drained(left.min(LOOK_UP)) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            self.check_agent()?;
        }
    }
}

impl Client {
    fn read_outputs(
        &self,
        plan: &Plan,
        at: Offset,
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        for (number, (buffer, output)) in plan.buffers.iter().zip(outputs).enumerate() {
            if output.is_empty() {
                continue;
            }
            let (expected, found) = (buffer.length, output.len() as u64);
            if found != expected {
                return Err(Error::Length { buffer: number, expected, found });
            }
            for range in &buffer.written {
                let into = &mut output[range.start as usize..range.end as usize];
                word_copy::load(self.area.segment(), Offset(at.0 + buffer.at + range.start), into)
                    .map_err(refused)?;
            }
        }
        Ok(())
    }
}

impl Client {
    /// Publishes the last entry, once.
    fn leave(&self) {
        let mut books = self.books();
        if !books.has_left {
            // An agent that has ended needs no notice.
            let _ = self.submit(&mut books, Submission::Leave);
            books.has_left = true;
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.leave();
    }
}
