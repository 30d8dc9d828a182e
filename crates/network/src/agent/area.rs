//! The memory that one rank and its agent share, and what lies where in it.
//!
//! | from byte | what | who writes |
//! |---|---|---|
//! | 0 | how many entries were published | the rank |
//! | 64 | how many were taken; whether the agent sleeps, has sent everything, or has ended | the agent |
//! | 1024 | the answer to the last question: how many ranks a run waits for, and which (u32 each) | the agent |
//! | 4096 | the ring: 1024 entries of 64 bytes | the rank |
//! | 69,632 | slots: 65,536 lines; a line's first word counts the runs in the slot that have ended | the agent |
//! | 4,263,936 | notes: what went wrong in the run of each slot, 1024 bytes | the agent |
//! | 71,372,800 | schedules and buffers, allocated by the rank | both, in turns |
//!
//! The file is sparse. A run's buffers are the rank's until it publishes the entry that starts the
//! run, then the agent's until the slot's count says that the run has ended. The agent believes
//! nothing that it reads here: lengths and places are checked by the segment, schedules when they
//! are taken, and bytes are copied by [`shm::word_copy`].

use super::bell::Bell;
use crate::carrier::Error;
use crate::outcome;
use rustix::event::EventfdFlags;
use shm::completion::Completion;
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Backing, Offset, Segment, SegmentError};
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use shm::word_copy;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Entries of the ring.
pub(crate) const ENTRIES: u64 = 1024;
/// Runs of one rank that may be under way or not fetched yet.
pub(crate) const SLOTS: u32 = 1 << 16;
const ANSWER: u64 = 1024;
/// Ranks that an answer names: more than a person wants to read.
const NAMED: usize = 256;
const RING: u64 = 4096;
const SLOT_TABLE: u64 = RING + 64 * ENTRIES;
const NOTES: u64 = SLOT_TABLE + 64 * SLOTS as u64;
const NOTE_BYTES: u64 = 1024;
/// Where the rank's own memory begins.
pub(crate) const FREE: u64 = NOTES + NOTE_BYTES * SLOTS as u64;

const _: () = assert!(outcome::MAX_BYTES + 4 <= NOTE_BYTES as usize && FREE == 71_372_800);

shm::shared_lines! {
    /// What the rank says.
    struct RankLine {
        published: AtomicU64,
    }
    /// What the agent says.
    struct AgentLine {
        taken: AtomicU64,
        nap: AtomicU64,
        ended: AtomicU32,
        /// Counts the questions that have an answer.
        answered: Completion,
        /// 1 as soon as the rank may end: the node has nothing to send that needs this process.
        drained: Completion,
    }
    /// Where a run ends.
    pub(crate) struct Slot {
        /// Counts the runs in this slot that have ended.
        pub(crate) ended: Completion,
        /// Whether the last of them failed; the slot's note then says how.
        failed: AtomicU32,
    }
    struct Entry {
        words: [AtomicU64; 8],
    }
}

/// What a rank asks of its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submission {
    /// Take a schedule: the members of the communicator (u32 each) at `at`, the schedule's bytes at
    /// the next multiple of 8.
    Prepare {
        id: u64,
        communicator: u32,
        rank: u32,
        at: Offset,
        members: u64,
        bytes: u64,
        stamp: u32,
    },
    /// Forget a schedule.
    Release { id: u64 },
    /// Start a run whose buffers lie at `at`.
    Start { id: u64, slot: u32, generation: u32, sequence: u64, at: Offset },
    /// Say whom a run waits for.
    Ask { slot: u32, generation: u32 },
    /// Nothing follows.
    Leave,
}

impl Submission {
    fn encode(self) -> [u64; 8] {
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        match self {
            Submission::Prepare { id, communicator, rank, at, members, bytes, stamp } => {
                [1, id, pair(communicator, rank), at.0, members, bytes, u64::from(stamp), 0]
            }
            Submission::Release { id } => [2, id, 0, 0, 0, 0, 0, 0],
            Submission::Start { id, slot, generation, sequence, at } => {
                [3, id, pair(slot, generation), at.0, sequence, 0, 0, 0]
            }
            Submission::Leave => [4, 0, 0, 0, 0, 0, 0, 0],
            Submission::Ask { slot, generation } => [5, 0, pair(slot, generation), 0, 0, 0, 0, 0],
        }
    }

    fn decode([kind, id, pair, at, fourth, fifth, sixth, _]: [u64; 8]) -> Option<Submission> {
        let (low, high, at) = (pair as u32, (pair >> 32) as u32, Offset(at));
        match kind {
            1 => {
                let (members, bytes, stamp) = (fourth, fifth, sixth as u32);
                Some(Submission::Prepare {
                    id,
                    communicator: low,
                    rank: high,
                    at,
                    members,
                    bytes,
                    stamp,
                })
            }
            2 => Some(Submission::Release { id }),
            3 if low < SLOTS => {
                Some(Submission::Start { id, slot: low, generation: high, sequence: fourth, at })
            }
            4 => Some(Submission::Leave),
            5 => Some(Submission::Ask { slot: low, generation: high }),
            _ => None,
        }
    }
}

/// One side's view of the memory.
#[derive(Debug)]
pub struct Area {
    segment: Arc<Segment>,
    rank: Mapped<RankLine>,
    agent: Mapped<AgentLine>,
    ring: MappedSlice<Entry>,
    slots: MappedSlice<Slot>,
}

impl Area {
    /// Makes the memory for a rank: as large as the machine's, of which only what is used is taken.
    ///
    /// # Errors
    /// When the system has no room.
    pub fn create() -> Result<Area, Error> {
        let machine = rustix::system::sysinfo();
        let bytes = (machine.totalram as u64)
            .saturating_mul(u64::from(machine.mem_unit))
            .max(FREE + (1 << 30));
        let segment = Segment::create(bytes, Backing::Memory).map_err(refused)?;
        segment.commit(Offset(0), SLOT_TABLE).map_err(refused)?;
        Area::open(Arc::new(segment))
    }

    /// The other side's view of the same memory.
    ///
    /// # Errors
    /// When the segment is too small to be one.
    pub fn open(segment: Arc<Segment>) -> Result<Area, Error> {
        let open = || {
            Ok(Area {
                rank: Mapped::new(&segment, Offset(0))?,
                agent: Mapped::new(&segment, Offset(64))?,
                ring: MappedSlice::new(&segment, Offset(RING), ENTRIES as usize)?,
                slots: MappedSlice::new(&segment, Offset(SLOT_TABLE), SLOTS as usize)?,
                segment: Arc::clone(&segment),
            })
        };
        open().map_err(refused)
    }

    /// The memory, to be passed on.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Bytes that have been taken of the system for it.
    pub(crate) fn committed(&self) -> u64 {
        const BLOCK: u64 = 512;
        rustix::fs::fstat(self.segment.as_fd())
            .map_or(0, |status| status.st_blocks.cast_unsigned() * BLOCK)
    }

    pub(crate) fn bell(&self) -> Bell<'_> {
        Bell { tail: &self.rank.published, head: &self.agent.taken, nap: &self.agent.nap }
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize)
    }

    /// The rank: writes entry number `place`, which the agent has taken a lap ago.
    pub(crate) fn write(&self, place: u64, submission: Submission) {
        for (word, value) in
            self.ring[(place % ENTRIES) as usize].words.iter().zip(submission.encode())
        {
            // Relaxed: published by `Bell::publish`.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The agent: entry number `place`, which was published; `None` if it is nonsense.
    pub(crate) fn read(&self, place: u64) -> Option<Submission> {
        let entry = &self.ring[(place % ENTRIES) as usize];
        Submission::decode(std::array::from_fn(|word| entry.words[word].load(Ordering::Relaxed)))
    }

    /// The rank: makes sure that the lines of slots up to this one can be touched.
    pub(crate) fn commit_slot(&self, slot: u32) -> Result<(), Error> {
        let page = 4096;
        if (64 * u64::from(slot)).is_multiple_of(page) {
            self.segment
                .commit(Offset(SLOT_TABLE + 64 * u64::from(slot)), page)
                .map_err(refused)?;
        }
        Ok(())
    }

    /// The agent: ends the run of a slot, with what went wrong.
    pub(crate) fn end(&self, slot: u32, generation: u32, outcome: &Result<(), Error>) {
        let Some(line) = self.slot(slot) else { return };
        if outcome.is_err() {
            let bytes = outcome::encode(outcome);
            let note = [&(bytes.len() as u32).to_le_bytes(), &bytes[..]].concat();
            let at = Offset(NOTES + NOTE_BYTES * u64::from(slot));
            // Where there is no memory for it the rank reads an empty note, and says that it could
            // not be read.
            let _ = self
                .segment
                .commit(at, NOTE_BYTES)
                .and_then(|()| word_copy::store(&self.segment, at, &note));
        }
        // Relaxed: the count releases it.
        line.failed.store(u32::from(outcome.is_err()), Ordering::Relaxed);
        line.ended.set(generation);
    }

    /// The rank: how the run of a slot has ended.
    pub(crate) fn outcome(&self, slot: u32) -> Result<(), Error> {
        let failed = self.slot(slot).is_some_and(|line| line.failed.load(Ordering::Relaxed) != 0);
        if !failed {
            return Ok(());
        }
        let unknown =
            || Error::Operation("the run failed, and what went wrong could not be read".into());
        let mut note = [0; NOTE_BYTES as usize];
        word_copy::load(&self.segment, Offset(NOTES + NOTE_BYTES * u64::from(slot)), &mut note)
            .map_err(refused)?;
        let length = u32::from_le_bytes([note[0], note[1], note[2], note[3]]) as usize;
        let bytes = note.get(4..4usize.saturating_add(length)).ok_or_else(unknown)?;
        outcome::decode(bytes).ok_or_else(unknown)?.and(Err(unknown()))
    }

    /// The agent: answers a question.
    pub(crate) fn answer(&self, ranks: &[u32]) {
        let named = &ranks[..ranks.len().min(NAMED)];
        let bytes: Vec<u8> = std::iter::once(&(named.len() as u32))
            .chain(named)
            .flat_map(|word| word.to_le_bytes())
            .collect();
        // It lies in the first page, which was committed with the area.
        let _ = word_copy::store(&self.segment, Offset(ANSWER), &bytes);
        self.agent.answered.add(1);
    }

    /// The rank: waits for the answer to the question of this number.
    pub(crate) fn await_answer(&self, number: u32, patience: Duration) -> Vec<u32> {
        let deadline = Instant::now() + patience;
        while let Some(marked) = self.agent.answered.prepare_sleep(number) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Vec::new();
            }
            self.agent.answered.sleep(marked, Some(left));
        }
        let mut bytes = [0; 4 + 4 * NAMED];
        if word_copy::load(&self.segment, Offset(ANSWER), &mut bytes).is_err() {
            return Vec::new();
        }
        let (words, _) = bytes.as_chunks::<4>();
        let count = u32::from_le_bytes(words[0]) as usize;
        words[1..].iter().take(count).map(|word| u32::from_le_bytes(*word)).collect()
    }

    /// The agent: the rank's process may end without stopping a message.
    pub(crate) fn set_drained(&self) {
        self.agent.drained.set(1);
    }

    /// The rank: waits until its process may end; false when the time was over first.
    pub(crate) fn await_drained(&self, limit: Duration) -> bool {
        if let Some(marked) = self.agent.drained.prepare_sleep(1) {
            self.agent.drained.sleep(marked, Some(limit));
        }
        self.agent.drained.reached(1)
    }

    /// The agent: says that it does nothing any more, and wakes nobody: sleepers look up by
    /// themselves.
    pub(crate) fn say_ended(&self) {
        // Release: pairs with the Acquire in `has_ended`; what it did comes before.
        self.agent.ended.store(1, Ordering::Release);
    }

    /// The rank: whether the agent has ended.
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire: pairs with the Release in `say_ended`.
        self.agent.ended.load(Ordering::Acquire) != 0
    }
}

/// A descriptor with which a rank wakes its agent.
///
/// # Errors
/// When the system has none left.
pub fn doorbell() -> Result<OwnedFd, Error> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| system("make a doorbell", error))
}

pub(crate) fn refused(error: SegmentError) -> Error {
    Error::System { what: "the memory shared with the node service".into(), why: error.to_string() }
}

pub(crate) fn system(what: &str, why: impl std::fmt::Display) -> Error {
    Error::System { what: format!("cannot {what}"), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_submitted_is_read() {
        let area = Area::create().expect("memory");
        let other = Area::open(Arc::clone(area.segment())).expect("the same");
        let at = Offset(1 << 33);
        for submission in [
            Submission::Prepare {
                id: 7,
                communicator: u32::MAX,
                rank: 3,
                at,
                members: 9,
                bytes: 1 << 40,
                stamp: 77,
            },
            Submission::Release { id: u64::MAX },
            Submission::Ask { slot: 9, generation: u32::MAX },
            Submission::Start { id: 1, slot: SLOTS - 1, generation: 5, sequence: 1 << 50, at },
            Submission::Leave,
        ] {
            area.write(ENTRIES + 3, submission);
            assert_eq!(other.read(3), Some(submission));
        }
    }

    #[test]
    fn nonsense_is_recognised() {
        let area = Area::create().expect("memory");
        assert_eq!(area.read(0), None, "nothing was written");
        area.write(
            0,
            Submission::Start { id: 1, slot: SLOTS, generation: 0, sequence: 0, at: Offset(0) },
        );
        assert_eq!(area.read(0), None, "a slot that there is not");
    }

    #[test]
    fn an_outcome_reaches_the_rank() {
        let area = Area::create().expect("memory");
        let error = Error::RankFailed {
            rank: 3,
            how: crate::carrier::Exit::Failed("was ended by signal 9".into()),
        };
        area.end(5, 1, &Err(error.clone()));
        assert!(area.slot(5).expect("a slot").ended.reached(1));
        assert_eq!(area.outcome(5), Err(error));
        area.end(5, 2, &Ok(()));
        assert_eq!(area.outcome(5), Ok(()));
    }
}
