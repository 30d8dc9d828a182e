//! The agent's side of one rank: its submissions, its schedules and the results of its runs.
//!
//! The rank can change its memory at any time. So a session copies what it checks, and keeps its
//! state in private memory. A rank that violates the protocol counts as exited.

use super::shared_region::{ENTRIES, SharedRegion, refused};
use super::submission::{SLOTS, Submission};
use crate::error::Error;
use crate::flows::marks::MarkLine;
use crate::node_map::NodeMap;
use crate::run_counts::{self, StartedRuns};
use crate::runs::run::PreparedRun;
use crate::runs::schedule::RegisteredSchedule;
use crate::runs::zero_copy::{BorrowedMemory, RegionBuffer};
use goal::schedule::Schedule;
use interpreter::{Interpreter, Limits};
use shm::mapped::Mapped;
use shm::segment::{Offset, Segment};
use shm::sync::Ordering;
use shm::word_copy;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Largest number of bytes of all schedules of a rank, with an overhead for each.
const SCHEDULE_BYTES: u64 = 1 << 30;
const SCHEDULE_OVERHEAD: u64 = 1 << 10;
/// Bytes of a rank's runs under way that are admitted without a look at the memory that it has
/// committed.
const UNCHECKED_BYTES: u64 = 64 << 20;

/// A rank at its agent.
#[derive(Debug)]
pub(crate) struct RankSession {
    /// Number of the rank in the job.
    pub(crate) rank: u32,
    region: SharedRegion,
    /// Becomes readable when the rank has submitted something while the agent sleeps.
    pub(crate) notifier: OwnedFd,
    /// Number of entries consumed.
    consumed: u64,
    /// Number of times that the agent went to sleep.
    epochs: u64,
    schedules: HashMap<u64, Arc<RegisteredSchedule>>,
    /// Bytes of all schedules.
    schedule_bytes: u64,
    /// Number of the wait from which the agent has woken the rank last.
    woken: u32,
    /// Number of runs under way.
    pub(crate) runs: usize,
    /// Bytes of their buffers.
    run_bytes: u64,
    /// Runs that the rank has started on another backend, for its announcement.
    started_elsewhere: Vec<StartedRuns>,
    /// True once the rank submits nothing any more.
    pub(crate) has_exited: bool,
}

/// Place of a run in the rank's memory, as the rank has submitted it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLocation {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    /// Start of its buffers.
    pub(crate) at: Offset,
    /// Bytes of its buffers.
    pub(crate) bytes: u64,
}

/// Something that a correct rank never writes into its region. The agent trusts nothing of such a
/// rank any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolViolation;

impl RankSession {
    pub(crate) fn new(rank: u32, region: SharedRegion, notifier: OwnedFd) -> Self {
        RankSession {
            rank,
            region,
            notifier,
            consumed: 0,
            epochs: 0,
            schedules: HashMap::new(),
            schedule_bytes: 0,
            woken: 0,
            runs: 0,
            run_bytes: 0,
            started_elsewhere: Vec::new(),
            has_exited: false,
        }
    }

    /// Returns the marks of the rank on its objects.
    pub(crate) fn marks(&self) -> Mapped<MarkLine> {
        self.region.marks().clone()
    }

    /// The rank's next submission, if there is one.
    pub(crate) fn next(&mut self) -> Result<Option<Submission>, ProtocolViolation> {
        let published = self.region.ring().published();
        if published == self.consumed || self.has_exited {
            return Ok(None);
        }
        // The rank never publishes more than a lap ahead: it waits for `consumed`.
        if published.wrapping_sub(self.consumed) > ENTRIES {
            return Err(ProtocolViolation);
        }
        self.region.read(self.consumed).map(Some).ok_or(ProtocolViolation)
    }

    /// Returns true if a thread of the rank waits for the completion of a run, and has not been
    /// woken since it began to. A thread that has been woken needs its core, which may be the
    /// agent's.
    pub(crate) fn is_waiting(&self) -> bool {
        // Relaxed: as in `is_polling`.
        self.region.waiting().load(Ordering::Relaxed) != 0
            && self.region.waits().load(Ordering::Relaxed) != self.woken
    }

    /// Reports the core on which the agent runs.
    pub(crate) fn set_core(&self, core: u32) {
        // Relaxed: a hint, which decides how the rank waits. Stored when it changes only, so that
        // the line stays in the rank's cache.
        if self.region.core().load(Ordering::Relaxed) != core {
            self.region.core().store(core, Ordering::Relaxed);
        }
    }

    /// Returns true if a thread of the rank polls for the completion of a run.
    pub(crate) fn is_polling(&self) -> bool {
        // Relaxed: a hint. It decides how the agent waits, and orders nothing.
        self.region.polling().load(Ordering::Relaxed) != 0
    }

    /// The memory that the rank shares with the agent.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        self.region.segment()
    }

    /// Notes that the agent has woken a thread of the rank: see [`is_waiting`](Self::is_waiting).
    pub(crate) fn set_woken(&mut self) {
        // Relaxed: as in `is_polling`.
        self.woken = self.region.waits().load(Ordering::Relaxed);
    }

    /// Returns the entry of [`next`](Self::next) to the rank, with the memory it refers to.
    pub(crate) fn consume(&mut self) {
        self.consumed += 1;
        self.region.ring().consume(self.consumed);
    }

    /// Requests a notification before the agent sleeps; false if the rank has submitted something
    /// meanwhile.
    pub(crate) fn arm(&mut self) -> bool {
        self.epochs += 1;
        // After the exit the ring is never read again, so its contents must not keep the agent
        // awake.
        self.has_exited || self.region.ring().arm(self.consumed, self.epochs)
    }

    /// Withdraws the request: the agent is awake.
    pub(crate) fn disarm(&self) {
        self.region.ring().disarm();
    }

    /// Validates and copies a schedule.
    pub(crate) fn register(
        &mut self,
        submission: Submission,
        nodes: &NodeMap,
    ) -> Result<(), ProtocolViolation> {
        let Submission::Register { id, communicator, rank, at, members, bytes, signature } =
            submission
        else {
            return Ok(());
        };
        let second = members
            .checked_mul(4)
            .and_then(|bytes| bytes.checked_next_multiple_of(8))
            .ok_or(ProtocolViolation)?;
        let end = at.plus(second).and_then(|middle| middle.plus(bytes)).ok_or(ProtocolViolation)?;
        if end.0 > self.region.segment().bytes() || members > u64::from(nodes.ranks()) {
            return Err(ProtocolViolation);
        }
        self.release(id);
        // The sizes are the rank's claim. They are bounded before anything is allocated.
        let weight = second.saturating_add(bytes).saturating_add(SCHEDULE_OVERHEAD);
        let left = SCHEDULE_BYTES.checked_sub(self.schedule_bytes).ok_or(ProtocolViolation)?;
        if weight > left {
            return Err(ProtocolViolation);
        }
        // Only the copies are validated and used: the rank may change the originals meanwhile.
        let listed = self.copy(at.0, 4 * members)?;
        let members: Vec<u32> =
            listed.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let schedule = self.copy(at.0 + second, bytes)?;
        let schedule = Schedule::from_bytes(&schedule).map_err(|_| ProtocolViolation)?;
        let header = *schedule.view().header();
        // A schedule is for one member of its communicator. If that is another rank, this rank
        // could send messages in its name.
        let fits = (header.rank, header.ranks as usize) == (rank, members.len())
            && members.get(rank as usize) == Some(&self.rank);
        let nodes: Option<Vec<u32>> = members.iter().map(|member| nodes.of(*member)).collect();
        let Some(nodes) = nodes.filter(|_| fits) else { return Err(ProtocolViolation) };
        let numbers = [communicator, signature, rank];
        let registered = RegisteredSchedule::new(schedule, numbers, members, nodes, weight);
        self.schedules.insert(id, Arc::new(registered));
        self.schedule_bytes += weight;
        Ok(())
    }

    /// Copies bytes of the region.
    fn copy(&self, at: u64, bytes: u64) -> Result<Vec<u8>, ProtocolViolation> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes as usize).map_err(|_| ProtocolViolation)?;
        copy.resize(bytes as usize, 0);
        word_copy::load(self.region.segment(), Offset(at), &mut copy)
            .map_err(|_| ProtocolViolation)?;
        Ok(copy)
    }

    pub(crate) fn release(&mut self, id: u64) {
        if let Some(schedule) = self.schedules.remove(&id) {
            self.schedule_bytes -= schedule.weight;
        }
    }

    /// Counts a run that starts. A correct rank has committed distinct memory for the buffers of
    /// all its runs; a larger sum would make the agent allocate memory that the rank has not.
    pub(crate) fn count_start(&mut self, location: RunLocation) -> Result<(), ProtocolViolation> {
        // The agent allocates as much as the rank claims. The claim is compared with memory that
        // the rank has really committed, so it cannot exceed what the rank pays itself.
        let bytes = self.run_bytes.saturating_add(location.bytes);
        if self.runs >= SLOTS as usize || bytes > UNCHECKED_BYTES && bytes > self.region.committed()
        {
            return Err(ProtocolViolation);
        }
        self.runs += 1;
        self.run_bytes = bytes;
        Ok(())
    }

    /// Counts the end of a run that was completed for the rank.
    pub(crate) fn count_end(&mut self, location: RunLocation) {
        self.runs -= 1;
        self.run_bytes -= location.bytes;
    }

    pub(crate) fn schedule(&self, id: u64) -> Option<Arc<RegisteredSchedule>> {
        self.schedules.get(&id).cloned()
    }

    /// An interpreter and the buffers for a run, with the inputs of the rank.
    pub(crate) fn prepare_run(
        &self,
        schedule: &RegisteredSchedule,
        location: RunLocation,
        limits: Limits,
    ) -> Result<PreparedRun, Error> {
        let layout = &schedule.layout;
        // All offsets below are inside the region then.
        let end = location.at.plus(layout.bytes);
        if end.is_none_or(|end| end.0 > self.region.segment().bytes()) {
            let why = "the buffers of the run do not lie in the rank's shared region";
            return Err(Error::Operation(why.into()));
        }
        let mut prepared = PreparedRun::of(schedule.take_idle(limits)?);
        for (number, buffer) in layout.buffers.iter().enumerate() {
            let at = location.at.plus(buffer.at).unwrap_or(Offset(u64::MAX));
            let segment = self.region.segment();
            if buffer.is_borrowed() {
                let region = RegionBuffer::new(Arc::clone(segment), at, buffer.length);
                prepared.borrow_buffer(number, BorrowedMemory::Region(region))?;
            } else if buffer.is_read {
                word_copy::load(segment, at, &mut prepared.buffers[number]).map_err(refused)?;
            }
        }
        Ok(prepared)
    }

    /// Writes the results of a run that is over into the rank's memory and keeps its interpreter.
    pub(crate) fn finish_run(
        &self,
        schedule: &RegisteredSchedule,
        location: RunLocation,
        mut interpreter: Interpreter,
        has_results: bool,
    ) {
        // The results are written before `complete` releases the slot's count. A rank that acquires
        // the count reads all of them.
        let buffers = interpreter.reset();
        let written = schedule.layout.buffers.iter().zip(&buffers).filter(|_| has_results);
        // A borrowed buffer is empty here: its results are in place.
        for (buffer, bytes) in written.filter(|(_, bytes)| !bytes.is_empty()) {
            for range in &buffer.written {
                let at = location.at.plus(buffer.at + range.start).unwrap_or(Offset(u64::MAX));
                // A location outside the region is the rank's own doing: it gets no results.
                let _ = word_copy::store(
                    self.region.segment(),
                    at,
                    &bytes[range.start as usize..range.end as usize],
                );
            }
        }
        schedule.put_idle(interpreter, buffers);
    }

    /// Notes runs that the rank has started on another backend.
    pub(crate) fn count_elsewhere(
        &mut self,
        started: StartedRuns,
    ) -> Result<(), ProtocolViolation> {
        if self.started_elsewhere.len() >= run_counts::LONGEST {
            return Err(ProtocolViolation);
        }
        self.started_elsewhere.push(started);
        Ok(())
    }

    /// The counts of the announcement.
    pub(crate) fn take_elsewhere(&mut self) -> Vec<StartedRuns> {
        std::mem::take(&mut self.started_elsewhere)
    }

    /// Answers a query for the ranks that a run waits for.
    pub(crate) fn answer(&self, ranks: &[u32]) {
        self.region.answer(ranks);
    }

    /// Allows the rank's process to exit.
    pub(crate) fn set_drained(&self) {
        self.region.set_drained();
    }

    /// Completes a run for the rank.
    pub(crate) fn complete(&mut self, location: RunLocation, outcome: &Result<(), Error>) {
        // Before the completion: the thread may begin its next wait as soon as it is woken, and
        // that wait has not been woken. Relaxed: as in `is_polling`.
        let waits = self.region.waits().load(Ordering::Relaxed);
        if self.region.complete(location.slot, location.generation, outcome) {
            self.woken = waits;
        }
    }
}

impl Drop for RankSession {
    fn drop(&mut self) {
        self.region.set_ended();
    }
}
