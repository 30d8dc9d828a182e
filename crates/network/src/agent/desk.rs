//! The agent's side of one rank: what it asks for, its schedules, and where its results go.

use super::area::{Area, ENTRIES, SLOTS, Submission, refused};
use super::lent::LentBuffer;
use super::plan::{Buffer, Plan};
use crate::carrier::Error;
use crate::nodes::Nodes;
use goal::schedule::{Kind, OperationRecord, Schedule};
use interpreter::{Interpreter, Limits};
use shm::segment::Offset;
use shm::word_copy;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of all schedules of a rank, with so much for the books of each.
const SCHEDULES: u64 = 1 << 30;
const BOOKS: u64 = 1 << 10;
/// Bytes of the runs of a rank under way that may be more than it has memory for: it need not be
/// asked then.
const UNASKED: u64 = 64 << 20;
/// Interpreters that a schedule keeps for its next runs, unless their buffers are large.
const SPARE_RUNS: usize = 64;
const SPARE_BYTES: u64 = 1 << 20;

/// A rank at its agent.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Its number in the job.
    pub(crate) rank: u32,
    area: Area,
    pub(crate) doorbell: OwnedFd,
    /// Entries taken.
    taken: u64,
    /// Times the agent went to sleep.
    naps: u64,
    schedules: HashMap<u64, Arc<Taken>>,
    /// What they take.
    schedule_bytes: u64,
    /// Runs of this rank under way.
    pub(crate) runs: usize,
    /// Bytes of their buffers.
    run_bytes: u64,
    /// It submits nothing any more.
    pub(crate) has_left: bool,
}

/// A schedule that the agent has taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) communicator: u32,
    /// What is called, in 24 bits.
    pub(crate) stamp: u32,
    /// This rank of the communicator.
    pub(crate) rank: u32,
    /// Ranks of the job, and their nodes, by rank of the communicator.
    pub(crate) members: Vec<u32>,
    pub(crate) nodes: Vec<u32>,
    schedule: Arc<Schedule>,
    /// What it takes of the agent's memory.
    weight: u64,
    /// Operations that send a message or contribute to a join.
    pub(crate) sends: u32,
    plan: Plan,
    /// Interpreters without a run, each with its buffers.
    spare: Mutex<Vec<Spare>>,
}

type Spare = (Interpreter, Vec<Vec<u8>>);

/// A run, as its rank asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) at: Offset,
    /// Of its buffers.
    pub(crate) bytes: u64,
}

impl Taken {
    /// Bytes of the buffers of a run.
    pub(crate) fn bytes(&self) -> u64 {
        self.plan.bytes
    }
}

impl Desk {
    pub(crate) fn new(rank: u32, area: Area, doorbell: OwnedFd) -> Self {
        Desk {
            rank,
            area,
            doorbell,
            taken: 0,
            naps: 0,
            schedules: HashMap::new(),
            schedule_bytes: 0,
            runs: 0,
            run_bytes: 0,
            has_left: false,
        }
    }

    /// What the rank has submitted next. `Err` if it wrote nonsense: then nothing of it is believed
    /// any more.
    pub(crate) fn next(&mut self) -> Result<Option<Submission>, Nonsense> {
        let published = self.area.bell().published();
        if published == self.taken || self.has_left {
            return Ok(None);
        }
        if published.wrapping_sub(self.taken) > ENTRIES {
            return Err(Nonsense);
        }
        self.area.read(self.taken).map(Some).ok_or(Nonsense)
    }

    /// The entry that [`next`](Self::next) gave is done with.
    pub(crate) fn take(&mut self) {
        self.taken += 1;
        self.area.bell().take(self.taken);
    }

    /// Marks that the agent goes to sleep; false when the rank has submitted something meanwhile.
    pub(crate) fn doze(&mut self) -> bool {
        self.naps += 1;
        self.has_left || self.area.bell().doze(self.taken, self.naps)
    }

    /// The agent is up again.
    pub(crate) fn rise(&self) {
        self.area.bell().rise();
    }

    /// Copies and checks a schedule.
    pub(crate) fn prepare(
        &mut self,
        submission: Submission,
        nodes: &Nodes,
    ) -> Result<(), Nonsense> {
        let Submission::Prepare { id, communicator, rank, at, members, bytes, stamp } = submission
        else {
            return Ok(());
        };
        let second = members
            .checked_mul(4)
            .and_then(|bytes| bytes.checked_next_multiple_of(8))
            .ok_or(Nonsense)?;
        let end = at.plus(second).and_then(|middle| middle.plus(bytes)).ok_or(Nonsense)?;
        if end.0 > self.area.segment().bytes() || members > u64::from(nodes.ranks()) {
            return Err(Nonsense);
        }
        self.release(id);
        // An agent is not led into taking memory that there is not.
        let weight = second.saturating_add(bytes).saturating_add(BOOKS);
        let room = SCHEDULES.checked_sub(self.schedule_bytes).ok_or(Nonsense)?;
        if weight > room {
            return Err(Nonsense);
        }
        let read = |at: u64, bytes: u64| {
            let mut copy = Vec::new();
            copy.try_reserve_exact(bytes as usize).map_err(|_| Nonsense)?;
            copy.resize(bytes as usize, 0);
            word_copy::load(self.area.segment(), Offset(at), &mut copy)
                .map(|()| copy)
                .map_err(|_| Nonsense)
        };
        let listed = read(at.0, 4 * members)?;
        let members: Vec<u32> =
            listed.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let homes: Option<Vec<u32>> = members.iter().map(|member| nodes.of(*member)).collect();
        let schedule = Schedule::from_bytes(&read(at.0 + second, bytes)?).map_err(|_| Nonsense)?;
        let header = schedule.view().header();
        let fits = (header.rank, header.ranks as usize) == (rank, members.len())
            && members.get(rank as usize) == Some(&self.rank);
        let (true, Some(nodes)) = (fits, homes) else { return Err(Nonsense) };
        let sends = |record: &&OperationRecord| matches!(record.kind(), Kind::Send | Kind::Join);
        let sends = schedule.view().operations().iter().filter(sends).count() as u32;
        let plan = Plan::of(&schedule);
        let spare = Mutex::default();
        let stamp = stamp & 0xff_ffff;
        let schedule = Arc::new(schedule);
        let taken = Taken {
            communicator,
            stamp,
            rank,
            members,
            nodes,
            schedule,
            weight,
            sends,
            plan,
            spare,
        };
        self.schedules.insert(id, Arc::new(taken));
        self.schedule_bytes += weight;
        Ok(())
    }

    pub(crate) fn release(&mut self, id: u64) {
        if let Some(taken) = self.schedules.remove(&id) {
            self.schedule_bytes -= taken.weight;
        }
    }

    /// A run begins. Its buffers and those of all others under way are places in the rank's memory,
    /// each another one: a rank that has not so much wants to lead its agent into taking it.
    pub(crate) fn begin(&mut self, place: Place) -> Result<(), Nonsense> {
        let bytes = self.run_bytes.saturating_add(place.bytes);
        if self.runs >= SLOTS as usize || bytes > UNASKED && bytes > self.area.committed() {
            return Err(Nonsense);
        }
        (self.runs, self.run_bytes) = (self.runs + 1, bytes);
        Ok(())
    }

    /// A run has ended and its rank been told.
    pub(crate) fn conclude(&mut self, place: Place) {
        (self.runs, self.run_bytes) = (self.runs - 1, self.run_bytes - place.bytes);
    }

    pub(crate) fn schedule(&self, id: u64) -> Option<Arc<Taken>> {
        self.schedules.get(&id).cloned()
    }

    /// An interpreter and the buffers for its run, with what the rank put into them.
    pub(crate) fn interpreter(
        &self,
        taken: &Taken,
        place: Place,
        limits: Limits,
    ) -> Result<Spare, Error> {
        // The rank's own memory holds as much; what it cannot have written is not allocated here
        // either.
        if place.at.plus(taken.plan.bytes).is_none_or(|end| end.0 > self.area.segment().bytes()) {
            return Err(Error::Operation(
                "the buffers of the run do not lie in the rank's area".into(),
            ));
        }
        let spare = taken.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (mut interpreter, mut buffers) = match spare {
            Some(spare) => spare,
            None => {
                let interpreter =
                    Interpreter::new(Arc::clone(&taken.schedule), limits).map_err(operation)?;
                let buffers = buffers(&taken.plan, &interpreter)?;
                (interpreter, buffers)
            }
        };
        for (number, (buffer, bytes)) in taken.plan.buffers.iter().zip(&mut buffers).enumerate() {
            let at = place.at.plus(buffer.at).unwrap_or(Offset(u64::MAX));
            if is_lent(buffer, number, &interpreter) {
                let lent = LentBuffer::new(Arc::clone(self.area.segment()), at, buffer.length);
                interpreter.borrow_buffer(number, Box::new(lent)).map_err(operation)?;
            } else if buffer.is_read {
                word_copy::load(self.area.segment(), at, bytes).map_err(refused)?;
            }
        }
        Ok((interpreter, buffers))
    }

    /// Takes an interpreter back whose run is over, and gives the rank what the run wrote.
    pub(crate) fn finish(
        &self,
        taken: &Taken,
        place: Place,
        mut interpreter: Interpreter,
        has_results: bool,
    ) {
        let buffers = interpreter.reset();
        for (buffer, bytes) in taken.plan.buffers.iter().zip(&buffers).filter(|_| has_results) {
            // A buffer that was lent has its results where they belong.
            if bytes.is_empty() {
                continue;
            }
            for range in &buffer.written {
                let at = place.at.plus(buffer.at + range.start).unwrap_or(Offset(u64::MAX));
                // A place outside the area is of the rank's own making: it gets no results.
                let _ = word_copy::store(
                    self.area.segment(),
                    at,
                    &bytes[range.start as usize..range.end as usize],
                );
            }
        }
        let own_bytes: usize = buffers.iter().map(Vec::len).sum();
        let mut spare = taken.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_RUNS && (own_bytes as u64 <= SPARE_BYTES || spare.is_empty()) {
            spare.push((interpreter, buffers));
        }
    }

    /// Tells the rank whom a run waits for.
    pub(crate) fn answer(&self, ranks: &[u32]) {
        self.area.answer(ranks);
    }

    /// Releases a rank that waits until its process may end.
    pub(crate) fn set_drained(&self) {
        self.area.set_drained();
    }

    /// Tells the rank that a run has ended.
    pub(crate) fn end(&self, place: Place, outcome: &Result<(), Error>) {
        self.area.end(place.slot, place.generation, outcome);
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.area.say_ended();
    }
}

/// What a rank wrote into its area cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

/// Whether a buffer of a run stays in the rank's memory.
fn is_lent(buffer: &Buffer, number: usize, interpreter: &Interpreter) -> bool {
    buffer.stays_in_place() && interpreter.can_borrow(number)
}

fn operation(error: impl std::fmt::Display) -> Error {
    Error::Operation(error.to_string())
}

/// Fresh buffers, where there is memory for them; nothing for those that are lent.
fn buffers(plan: &Plan, interpreter: &Interpreter) -> Result<Vec<Vec<u8>>, Error> {
    let buffer = |length: u64| {
        let mut bytes: Vec<u8> = Vec::new();
        let reserved =
            usize::try_from(length).is_ok_and(|length| bytes.try_reserve_exact(length).is_ok());
        if !reserved {
            let what = format!("take {length} bytes for a buffer of a run");
            return Err(super::area::system(
                &what,
                "the node service has no memory left; use smaller buffers",
            ));
        }
        bytes.resize(length as usize, 0);
        Ok(bytes)
    };
    let own = |(number, planned): (usize, &Buffer)| {
        buffer(if is_lent(planned, number, interpreter) { 0 } else { planned.length })
    };
    plan.buffers.iter().enumerate().map(own).collect()
}
