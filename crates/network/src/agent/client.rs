//! A rank's side of its agent.

mod flows;
mod queries;
mod waiting;

use super::client_table::{ClientRun, ClientTable, slot_of};
use super::shared_region::{ENTRIES, FREE, SharedRegion, refused};
use super::submission::Submission;
use crate::backend::{
    Backend, CommunicatorContext, DrainOutcome, RankExits, RunId, ScheduleId, check_inputs,
    check_outputs,
};
use crate::error::{Error, system};
use crate::runs::schedule::{BufferLayout, check_context, is_supported};
use goal::schedule::Schedule;
use shm::arena::{Arena, ArenaError};
use shm::process::ProcessHandle;
use shm::segment::Offset;
use shm::word_copy;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time that a waiter sleeps before it checks whether the agent is alive.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(50);
/// Number of polls of a full ring before the rank sleeps between them.
const FULL_RING_POLLS: u32 = 1000;

/// Location of a rank's agent, for error messages.
#[derive(Clone, Debug)]
pub struct AgentAddress {
    /// Number of the node.
    pub node: u32,
    /// Address of the node.
    pub address: String,
}

/// A rank's side of its agent: a [`Backend`].
#[derive(Debug)]
pub struct AgentClient {
    region: Arc<SharedRegion>,
    arena: Arena,
    notifier: OwnedFd,
    agent: AgentAddress,
    /// The agent's process, if it is another one.
    service: Option<Arc<ProcessHandle>>,
    table: Mutex<ClientTable>,
}

impl AgentClient {
    /// Connects a rank to the agent that has the other side of this region. `service` is the
    /// agent's process, if it is another one; its death is noticed.
    ///
    /// # Errors
    /// If the region is too small.
    pub fn new(
        region: SharedRegion,
        notifier: OwnedFd,
        agent: AgentAddress,
        service: Option<ProcessHandle>,
    ) -> Result<AgentClient, Error> {
        let segment = Arc::clone(region.segment());
        let end = segment.bytes();
        let arena = Arena::new(segment, FREE..end)
            .map_err(|error| system("use the memory shared with the node service", error))?;
        let region = Arc::new(region);
        let service = service.map(Arc::new);
        Ok(AgentClient { region, arena, notifier, agent, service, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, ClientTable> {
        // Every change of the table follows all that can fail, so a panic leaves it consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes an entry. Waits while the ring is full; the agent consumes entries without waiting
    /// for other ranks.
    fn submit(&self, table: &mut ClientTable, submission: Submission) -> Result<(), Error> {
        if table.has_left {
            let why = "this rank has left the job: start collectives before the job is dropped";
            return Err(Error::Operation(why.into()));
        }
        let ring = self.region.ring();
        // The caller holds the lock of the table, so this thread is the only writer of the ring. If
        // the agent dies while the ring is full, `check_agent` ends the wait.
        let mut polls = 0u32;
        // Wrapping: the program may have overwritten its own region.
        while table.published.wrapping_sub(ring.consumed()) >= ENTRIES {
            polls += 1;
            if polls > FULL_RING_POLLS {
                self.check_agent()?;
                std::thread::sleep(Duration::from_micros(100));
            }
            std::thread::yield_now();
        }
        // The agent has consumed the entry a lap before, and `consumed` has acquired that, so the
        // words may be overwritten.
        self.region.write(table.published, submission);
        table.published += 1;
        if ring.publish(table.published, &mut table.notified) {
            // The counter is full only after more notifications than there are epochs.
            let _ = rustix::io::write(&self.notifier, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Frees the memory that the agent has consumed, and discarded runs that have ended.
    fn collect(&self, table: &mut ClientTable) {
        let consumed = self.region.ring().consumed();
        while let Some((_, at)) = table.retired.pop_front_if(|(after, _)| *after <= consumed) {
            self.free(at);
        }
        // The memory of a discarded run belongs to the agent until the run has ended.
        for run in std::mem::take(&mut table.discarded) {
            if self.is_complete(run) {
                self.end(table, run);
            } else {
                table.discarded.push(run);
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
                backend: "agent",
                what: what.into(),
                needed: bytes,
                limit: capacity,
                way_out: "fetch or discard runs that have ended, or use smaller buffers",
            },
            error => system("take memory for a run", error),
        })
    }

    /// Frees a run that has ended.
    fn end(&self, table: &mut ClientTable, run: RunId) {
        let (slot, _) = slot_of(run);
        if let Some(run) = table.slots.get_mut(slot as usize).and_then(|entry| entry.run.take()) {
            run.at.into_iter().for_each(|at| self.free(at));
            table.free_slots.push(slot);
        }
    }

    /// Number of the rank's node.
    pub fn node(&self) -> u32 {
        self.agent.node
    }

    /// Returns an error if the agent has ended.
    ///
    /// # Errors
    /// [`Error::NodeUnreachable`] with this node.
    pub fn check_agent(&self) -> Result<(), Error> {
        let has_ended =
            self.region.has_ended() || self.service.as_ref().is_some_and(|one| one.has_exited());
        if !has_ended {
            return Ok(());
        }
        let AgentAddress { node, address } = self.agent.clone();
        let why =
            "its node service, which ran this rank's collectives, has ended; start the job again";
        Err(Error::NodeUnreachable { node, address, why: why.into() })
    }

    /// Copies the buffers that the run reads into its memory.
    fn write_inputs(
        &self,
        layout: &BufferLayout,
        at: Offset,
        inputs: &[&[u8]],
    ) -> Result<(), Error> {
        let buffers = layout.buffers.iter().zip(inputs);
        for (buffer, input) in buffers.filter(|(buffer, _)| buffer.is_read) {
            word_copy::store(self.region.segment(), Offset(at.0 + buffer.at), input)
                .map_err(refused)?;
        }
        Ok(())
    }

    /// Copies what the run wrote to the buffers that are wanted.
    fn read_outputs(
        &self,
        layout: &BufferLayout,
        at: Offset,
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let buffers = layout.buffers.iter().zip(outputs);
        for (buffer, output) in buffers.filter(|(_, output)| !output.is_empty()) {
            for range in &buffer.written {
                let into = &mut output[range.start as usize..range.end as usize];
                word_copy::load(
                    self.region.segment(),
                    Offset(at.0 + buffer.at + range.start),
                    into,
                )
                .map_err(refused)?;
            }
        }
        Ok(())
    }

    /// Publishes the last entry, once.
    fn leave(&self) {
        let mut table = self.table();
        if !table.has_left {
            // A rank that is a thread ends so without the end of a process that others could see.
            let has_panicked = std::thread::panicking();
            // An agent that has ended needs no notice.
            let _ = self.submit(&mut table, Submission::Exit { has_panicked });
            table.has_left = true;
        }
    }
}

fn unknown(what: &str) -> Error {
    Error::Operation(format!(
        "this {what} is not known to the agent engine: it was released, or is another engine's"
    ))
}

impl Backend for AgentClient {
    fn name(&self) -> &'static str {
        "agent"
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
        // The agent makes the same checks and takes a violation for corrupt memory. So a mistake of
        // the caller must end here.
        check_context(self.name(), context, schedule)?;
        let bytes = schedule.as_bytes();
        let members: Vec<u8> =
            context.members.iter().flat_map(|member| member.to_le_bytes()).collect();
        let second = (members.len() as u64).next_multiple_of(8);
        let at = self.allocate("a schedule", second + bytes.len() as u64)?;
        word_copy::store(self.region.segment(), at, &members).map_err(refused)?;
        word_copy::store(self.region.segment(), Offset(at.0 + second), bytes).map_err(refused)?;
        let mut table = self.table();
        self.collect(&mut table);
        let id = table.next_schedule;
        let register = Submission::Register {
            id,
            communicator: context.number,
            rank: context.rank,
            at,
            members: context.members.len() as u64,
            bytes: bytes.len() as u64,
            signature,
        };
        self.submit(&mut table, register)?;
        // The agent copies the schedule before it consumes the entry. The memory is free after
        // that.
        let published = table.published;
        table.retired.push_back((published, at));
        table.next_schedule += 1;
        table.schedules.insert(id, Arc::new(BufferLayout::of(schedule)));
        Ok(ScheduleId(id))
    }

    fn release(&self, schedule: ScheduleId) {
        let mut table = self.table();
        if table.schedules.remove(&schedule.0).is_some() {
            // An agent that has ended needs no notice.
            let _ = self.submit(&mut table, Submission::Release { id: schedule.0 });
        }
    }

    fn end_communicators(&self, numbers: RangeInclusive<u32>) {
        let (first, last) = numbers.into_inner();
        // An agent that has ended needs no notice.
        let _ = self.submit(&mut self.table(), Submission::EndCommunicators { first, last });
    }

    fn start(&self, schedule: ScheduleId, sequence: u64, inputs: &[&[u8]]) -> Result<RunId, Error> {
        let mut table = self.table();
        self.collect(&mut table);
        let layout = table.schedules.get(&schedule.0).ok_or_else(|| unknown("schedule"))?;
        let layout = Arc::clone(layout);
        check_inputs(&layout.records, inputs)?;
        // The copy of the inputs needs no lock: the memory belongs to this call until it is
        // submitted.
        drop(table);
        let mut at = None;
        if layout.bytes > 0 {
            let memory = self.allocate("the buffers of a run", layout.bytes)?;
            self.write_inputs(&layout, memory, inputs)?;
            at = Some(memory);
        }
        let mut table = self.table();
        // Slot, generation and entry change under one lock. Otherwise two starts could publish
        // generations of one slot in the wrong order.
        let submitted = table.take_slot(&self.region).and_then(|(slot, generation)| {
            let at = at.unwrap_or_default();
            let start = Submission::Start { id: schedule.0, slot, generation, sequence, at };
            self.submit(&mut table, start).map(|()| (slot, generation))
        });
        match submitted {
            Ok((slot, generation)) => {
                // The agent may have completed the run before this line. That is no race:
                // completion is a word of the region, and `is_complete` does not read the table.
                table.slots[slot as usize].run = Some(ClientRun { layout, at });
                Ok(RunId(u64::from(generation) << 32 | u64::from(slot)))
            }
            // The slot is lost. Nothing can be submitted to an agent that has ended anyway.
            Err(error) => {
                at.into_iter().for_each(|at| self.free(at));
                Err(error)
            }
        }
    }

    #[inline]
    fn is_complete(&self, run: RunId) -> bool {
        let (slot, generation) = slot_of(run);
        self.region.slot(slot).is_some_and(|slot| slot.ended.reached(generation))
    }

    fn wait(&self, run: RunId, deadline: Option<Instant>) -> Result<bool, Error> {
        let (slot, _) = slot_of(run);
        let ended = &self.region.slot(slot).ok_or_else(|| unknown("run"))?.ended;
        self.wait_for(run, ended, deadline)
    }

    fn fetch(&self, run: RunId, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let (slot, _) = slot_of(run);
        let mut table = self.table();
        let layout = &table.run(run).ok_or_else(|| unknown("run"))?.layout;
        if !self.is_complete(run) {
            self.check_agent()?;
            let why = "the run has not ended: wait for it before you fetch its results";
            return Err(Error::Operation(why.into()));
        }
        check_outputs(&layout.records, outputs)?;
        let Some(run) = table.slots[slot as usize].run.take() else { return Err(unknown("run")) };
        // The slot is not free yet, so no other run uses it, and its memory belongs to this call.
        drop(table);
        let outcome = self.region.outcome(slot);
        let has_results = matches!(outcome, Ok(()) | Err(Error::DivisionByZero { .. }));
        let copied = match run.at {
            Some(at) if has_results => self.read_outputs(&run.layout, at, outputs),
            _ => Ok(()),
        };
        run.at.into_iter().for_each(|at| self.free(at));
        self.table().free_slots.push(slot);
        outcome.and(copied)
    }

    fn waiting_for(&self, run: RunId) -> Vec<u32> {
        if self.is_complete(run) {
            return Vec::new();
        }
        let (slot, generation) = slot_of(run);
        self.query(&mut self.table(), Submission::QueryAwaited { slot, generation })
    }

    fn announce_wait(&self, run: RunId) {
        let (slot, generation) = slot_of(run);
        // An agent that has ended sends nothing.
        let _ = self.submit(&mut self.table(), Submission::AnnounceWait { slot, generation });
    }

    fn rank_exits(&self) -> Option<&dyn RankExits> {
        Some(self)
    }

    fn has_unexpected(&self, context: &CommunicatorContext, sequence: u64) -> bool {
        let query = Submission::QueryUnexpected { communicator: context.number, sequence };
        !self.query(&mut self.table(), query).is_empty()
    }

    fn discard(&self, run: RunId) {
        let mut table = self.table();
        if table.run(run).is_some() {
            table.discarded.push(run);
            self.collect(&mut table);
        }
    }

    fn drain(&self, deadline: Instant, _: &dyn RankExits) -> Result<DrainOutcome, Error> {
        // `Exit` is the last entry of the ring, so the agent processes every start of this rank
        // before it.
        self.leave();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.region.await_drained(left.min(LIVENESS_INTERVAL)) {
                return Ok(DrainOutcome::Drained);
            }
            if left.is_zero() {
                return Ok(DrainOutcome::TimedOut);
            }
            self.check_agent()?;
        }
    }
}

impl Drop for AgentClient {
    fn drop(&mut self) {
        self.leave();
    }
}
