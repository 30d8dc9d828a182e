//! The memory that a rank and its agent share, and its layout.
//!
//! | from byte | contents | written by |
//! |---|---|---|
//! | 0 | number of entries published | the rank |
//! | 64 | number of entries consumed; whether the agent sleeps, has sent everything, or has ended | the agent |
//! | 128 | marks of objects of which the agent awaits a notification | both |
//! | 1024 | answer to the last query: number of ranks, and the ranks (u32 each) | the agent |
//! | 4096 | submission ring: 1024 entries of 64 bytes | the rank |
//! | 69,632 | slots: 65,536 lines; the first word of a line counts the runs in the slot that have ended | the agent |
//! | 4,263,936 | errors: the failure of the run in each slot, 1024 bytes | the agent |
//! | 71,372,800 | schedules and buffers, allocated by the rank | both, in turns |
//!
//! The file is sparse. A run's buffers belong to the rank until it publishes the entry that starts
//! the run, then to the agent until the slot's count includes the run. The agent does not trust
//! what it reads here: the segment checks offsets and lengths, schedules are validated when they
//! are registered, and [`shm::word_copy`] copies the bytes.

use super::submission::{SLOTS, Submission};
use super::submission_ring::SubmissionRing;
use crate::backend::ExitedRank;
use crate::error::{self, Error, system};
use crate::flows::marks::MarkLine;
use rustix::event::EventfdFlags;
use shm::completion::Completion;
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Backing, Offset, Segment, SegmentError};
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use shm::word_copy;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Entries of the submission ring.
pub(crate) const ENTRIES: u64 = 1024;
const ANSWER: u64 = 1024;
/// Largest number of ranks in an answer: more than fit an error message.
pub(crate) const MAX_NAMED: usize = 256;
const RING: u64 = 4096;
const SLOT_TABLE: u64 = RING + 64 * ENTRIES;
const ERRORS: u64 = SLOT_TABLE + 64 * SLOTS as u64;
const ERROR_BYTES: u64 = 1024;
/// Start of the memory that the rank allocates.
pub(crate) const FREE: u64 = ERRORS + ERROR_BYTES * SLOTS as u64;

const _: () = assert!(error::MAX_OUTCOME_BYTES + 4 <= ERROR_BYTES as usize && FREE == 71_372_800);

shm::shared_lines! {
    /// Words that the rank writes.
    struct RankLine {
        published: AtomicU64,
        /// Number of threads that poll for the completion of a run, on another core than the
        /// agent's.
        polling: AtomicU32,
        /// Number of threads that wait for the completion of a run, those that poll included.
        waiting: AtomicU32,
        /// Number of times that a thread has begun to wait.
        waits: AtomicU32,
    }
    /// Words that the agent writes.
    struct AgentLine {
        consumed: AtomicU64,
        epoch: AtomicU64,
        ended: AtomicU32,
        /// The core on which the agent ran last.
        core: AtomicU32,
        /// Number of queries that have an answer.
        answered: Completion,
        /// 1 as soon as the rank may exit: the node has nothing to send that needs this process.
        drained: Completion,
    }
    /// Completion of the runs of one slot.
    pub(crate) struct SlotLine {
        /// Number of runs in this slot that have ended.
        pub(crate) ended: Completion,
        /// 1 if the last of them failed; its error is then in the slot's error area.
        failed: AtomicU32,
    }
    struct RingEntry {
        words: [AtomicU64; 8],
    }
}

impl ExitedRank {
    /// Returns the rank as it is in an answer: its number, and one bit for its failure.
    pub(crate) fn word(self) -> u32 {
        self.rank << 1 | u32::from(self.has_failed)
    }

    pub(crate) fn of_word(word: u32) -> Self {
        ExitedRank { rank: word >> 1, has_failed: word & 1 != 0 }
    }
}

/// One side's view of the memory.
#[derive(Debug)]
pub struct SharedRegion {
    segment: Arc<Segment>,
    rank: Mapped<RankLine>,
    agent: Mapped<AgentLine>,
    marks: Mapped<MarkLine>,
    ring: MappedSlice<RingEntry>,
    slots: MappedSlice<SlotLine>,
}

impl SharedRegion {
    /// Creates the memory for a rank, with as much address space as the machine has memory. Only
    /// the part in use takes memory.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn create() -> Result<SharedRegion, Error> {
        let machine = rustix::system::sysinfo();
        let bytes = (machine.totalram as u64)
            .saturating_mul(u64::from(machine.mem_unit))
            .max(FREE + (1 << 30));
        let segment = Segment::create(bytes, Backing::Memory).map_err(refused)?;
        segment.commit(Offset(0), SLOT_TABLE).map_err(refused)?;
        SharedRegion::open(Arc::new(segment))
    }

    /// Opens the other side's view of the same memory.
    ///
    /// # Errors
    /// If the segment is too small.
    pub fn open(segment: Arc<Segment>) -> Result<SharedRegion, Error> {
        let open = || {
            Ok(SharedRegion {
                rank: Mapped::new(&segment, Offset(0))?,
                agent: Mapped::new(&segment, Offset(64))?,
                marks: Mapped::new(&segment, Offset(128))?,
                ring: MappedSlice::new(&segment, Offset(RING), ENTRIES as usize)?,
                slots: MappedSlice::new(&segment, Offset(SLOT_TABLE), SLOTS as usize)?,
                segment: Arc::clone(&segment),
            })
        };
        open().map_err(refused)
    }

    /// The memory, to be passed to the other process.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Bytes of memory in use.
    pub(crate) fn committed(&self) -> u64 {
        const BLOCK: u64 = 512;
        rustix::fs::fstat(self.segment.as_fd())
            .map_or(0, |status| status.st_blocks.cast_unsigned() * BLOCK)
    }

    pub(crate) fn ring(&self) -> SubmissionRing<'_> {
        SubmissionRing {
            tail: &self.rank.published,
            head: &self.agent.consumed,
            epoch: self.epoch(),
        }
    }

    /// Marks of the rank on its objects.
    pub(crate) fn marks(&self) -> &Mapped<MarkLine> {
        &self.marks
    }

    /// Number of the agent's sleep, for all rings of the rank: written by the agent.
    pub(crate) fn epoch(&self) -> &AtomicU64 {
        &self.agent.epoch
    }

    /// Number of threads that wait for the completion of a run: written by the rank.
    pub(crate) fn waiting(&self) -> &AtomicU32 {
        &self.rank.waiting
    }

    /// Number of times that a thread has begun to wait: written by the rank.
    pub(crate) fn waits(&self) -> &AtomicU32 {
        &self.rank.waits
    }

    /// The core on which the agent ran last: written by the agent.
    pub(crate) fn core(&self) -> &AtomicU32 {
        &self.agent.core
    }

    /// Number of threads that poll for the completion of a run: written by the rank.
    pub(crate) fn polling(&self) -> &AtomicU32 {
        &self.rank.polling
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> Option<&SlotLine> {
        self.slots.get(slot as usize)
    }

    /// Writes an entry, by its number (rank). The agent has consumed the one a lap before.
    pub(crate) fn write(&self, entry: u64, submission: Submission) {
        let words = &self.ring[(entry % ENTRIES) as usize].words;
        for (word, value) in words.iter().zip(submission.encode()) {
            // Relaxed: `SubmissionRing::publish` releases it.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads a published entry, by its number (agent); `None` if it is invalid.
    pub(crate) fn read(&self, entry: u64) -> Option<Submission> {
        let words = &self.ring[(entry % ENTRIES) as usize].words;
        // A rank may overwrite the words meanwhile. Each is read once, so what is validated is what
        // is used.
        Submission::decode(std::array::from_fn(|word| words[word].load(Ordering::Relaxed)))
    }

    /// Commits the memory of the lines of slots up to this one (rank).
    pub(crate) fn commit_slot(&self, slot: u32) -> Result<(), Error> {
        const PAGE: u64 = 4096;
        let line = 64 * u64::from(slot);
        if line.is_multiple_of(PAGE) {
            self.segment.commit(Offset(SLOT_TABLE + line), PAGE).map_err(refused)?;
        }
        Ok(())
    }

    /// Completes the run of a slot (agent). Returns true if that has woken a thread.
    pub(crate) fn complete(&self, slot: u32, generation: u32, outcome: &Result<(), Error>) -> bool {
        let Some(line) = self.slot(slot) else { return false };
        if outcome.is_err() {
            let bytes = error::encode(outcome);
            let framed = [&(bytes.len() as u32).to_le_bytes(), &bytes[..]].concat();
            let at = Offset(ERRORS + ERROR_BYTES * u64::from(slot));
            // Without memory for it the rank reads an empty error, and reports that it could not be
            // read.
            let _ = self
                .segment
                .commit(at, ERROR_BYTES)
                .and_then(|()| word_copy::store(&self.segment, at, &framed));
        }
        // Relaxed: the count releases it, and the error and the results before it.
        line.failed.store(u32::from(outcome.is_err()), Ordering::Relaxed);
        line.ended.set(generation)
    }

    /// Outcome of the last run of a slot, which has ended (rank).
    pub(crate) fn outcome(&self, slot: u32) -> Result<(), Error> {
        // Relaxed: the caller has acquired the count of the slot, which the agent released after
        // this flag.
        let failed = self.slot(slot).is_some_and(|line| line.failed.load(Ordering::Relaxed) != 0);
        if !failed {
            return Ok(());
        }
        // The agent wrote these bytes, so they are valid. They are checked all the same, because
        // the program may have overwritten its own region.
        let unknown = || Error::Operation("the run failed, and its error could not be read".into());
        let mut framed = [0; ERROR_BYTES as usize];
        word_copy::load(&self.segment, Offset(ERRORS + ERROR_BYTES * u64::from(slot)), &mut framed)
            .map_err(refused)?;
        let length = u32::from_le_bytes([framed[0], framed[1], framed[2], framed[3]]) as usize;
        let bytes = framed.get(4..4usize.saturating_add(length)).ok_or_else(unknown)?;
        error::decode(bytes).ok_or_else(unknown)?.and(Err(unknown()))
    }

    /// Answers a query (agent).
    pub(crate) fn answer(&self, ranks: &[u32]) {
        let named = &ranks[..ranks.len().min(MAX_NAMED)];
        let bytes: Vec<u8> = std::iter::once(&(named.len() as u32))
            .chain(named)
            .flat_map(|word| word.to_le_bytes())
            .collect();
        // The answer lies in the first page, which was committed with the region.
        let _ = word_copy::store(&self.segment, Offset(ANSWER), &bytes);
        // Releases the bytes before it: the rank acquires the count before it reads them.
        self.agent.answered.add(1);
    }

    /// Waits for the answer to the query of this number (rank); `None` if it does not come in time.
    pub(crate) fn await_answer(&self, number: u32, limit: Duration) -> Option<Vec<u32>> {
        let deadline = Instant::now() + limit;
        // Queries are numbered, so an answer that missed its time limit is not taken for the answer
        // to this one.
        while let Some(marked) = self.agent.answered.prepare_sleep(number) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.agent.answered.sleep(marked, Some(left));
        }
        let mut bytes = [0; 4 + 4 * MAX_NAMED];
        // It lies in the first page.
        word_copy::load(&self.segment, Offset(ANSWER), &mut bytes).ok()?;
        let (words, _) = bytes.as_chunks::<4>();
        let count = u32::from_le_bytes(words[0]) as usize;
        Some(words[1..].iter().take(count).map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Allows the rank's process to exit (agent).
    pub(crate) fn set_drained(&self) {
        self.agent.drained.set(1);
    }

    /// Waits until this process may exit (rank); false if the time was over first.
    pub(crate) fn await_drained(&self, limit: Duration) -> bool {
        if let Some(marked) = self.agent.drained.prepare_sleep(1) {
            self.agent.drained.sleep(marked, Some(limit));
        }
        self.agent.drained.reached(1)
    }

    /// Marks the agent as ended (agent). Sleeping ranks notice by themselves, so none is woken.
    pub(crate) fn set_ended(&self) {
        // Release: pairs with the Acquire in `has_ended`; everything that the agent did comes
        // before.
        self.agent.ended.store(1, Ordering::Release);
    }

    /// Returns true if the agent has ended (rank).
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire: pairs with the Release in `set_ended`.
        self.agent.ended.load(Ordering::Acquire) != 0
    }
}

/// Creates the descriptor with which a rank wakes its agent.
///
/// # Errors
/// If the system has none left.
pub fn notifier() -> Result<OwnedFd, Error> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| system("make a descriptor for wake-ups", error))
}

pub(crate) fn refused(error: SegmentError) -> Error {
    Error::System { what: "the memory shared with the node service".into(), why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_counts::StartedRuns;

    #[test]
    fn entries_are_read_as_they_were_written() {
        let region = SharedRegion::create().expect("memory");
        let other = SharedRegion::open(Arc::clone(region.segment())).expect("the same");
        let at = Offset(1 << 33);
        for submission in [
            Submission::Register {
                id: 7,
                communicator: u32::MAX,
                rank: 3,
                at,
                members: 9,
                bytes: 1 << 40,
                signature: 77,
            },
            Submission::Release { id: u64::MAX },
            Submission::QueryAwaited { slot: 9, generation: u32::MAX },
            Submission::AnnounceWait { slot: 9, generation: u32::MAX },
            Submission::QueryExited { first: u32::MAX },
            Submission::QueryUnexpected { communicator: u32::MAX, sequence: u64::MAX },
            Submission::CountStarted(StartedRuns { first: 7, last: u32::MAX, count: u64::MAX }),
            Submission::EndCommunicators { first: 7, last: u32::MAX },
            Submission::AnnounceExit,
            Submission::QueryNeverStart { communicator: u32::MAX, sequence: u64::MAX },
            Submission::OpenMessages { at, ring: u64::MAX },
            Submission::Start { id: 1, slot: SLOTS - 1, generation: 5, sequence: 1 << 50, at },
            Submission::Exit { has_panicked: false },
            Submission::Exit { has_panicked: true },
        ] {
            region.write(ENTRIES + 3, submission);
            assert_eq!(other.read(3), Some(submission));
        }
    }

    #[test]
    fn invalid_entries_are_recognised() {
        let region = SharedRegion::create().expect("memory");
        assert_eq!(region.read(0), None, "nothing was written");
        region.write(
            0,
            Submission::Start { id: 1, slot: SLOTS, generation: 0, sequence: 0, at: Offset(0) },
        );
        assert_eq!(region.read(0), None, "there is no such slot");
    }

    #[test]
    fn the_outcome_of_a_run_reaches_its_rank() {
        let region = SharedRegion::create().expect("memory");
        let error = Error::RankFailed {
            rank: 3,
            how: crate::error::RankExit::Failed("was ended by signal 9".into()),
        };
        region.complete(5, 1, &Err(error.clone()));
        assert!(region.slot(5).expect("a slot").ended.reached(1));
        assert_eq!(region.outcome(5), Err(error));
        region.complete(5, 2, &Ok(()));
        assert_eq!(region.outcome(5), Ok(()));
    }
}
