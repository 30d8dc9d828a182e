//! A job's segment on one node: its layout, the ranks that have joined, and the ranks that have
//! left.

pub(crate) mod decisions;
pub(crate) mod deferred_free;
pub mod liveness;
pub mod membership;
pub mod observed;
mod options;

pub use options::{EngineKind, JobOptions};

use crate::error::{Error, Exit, Straggler};
use crate::node::decisions::Decisions;
use crate::shortage::{self, ShortageLine};
use crate::state::StateLayout;
use crate::wait::SpinPolicy;
use shm::completion::Completion;
use shm::mapped::{Mapped, MappedSlice};
use shm::memory::SegmentMemory;
use shm::process::ProcessState;
use shm::published_wait::WAIT_BYTES;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

const MAGIC: u64 = u64::from_le_bytes(*b"tradewin");
const VERSION: u32 = 5;
/// Largest number of ranks of a job on one node.
pub const RANK_LIMIT: u32 = 4096;

shm::shared_lines! {
    /// The first bytes of the segment.
    struct JobHeader {
        magic: AtomicU64,
        version: AtomicU32,
        ranks: AtomicU32,
        arena_first: AtomicU64,
        arena_bytes: AtomicU64,
        engine: AtomicU32,
        cores: AtomicU32,
        /// Number of ranks that have joined; a futex. AcqRel by `join`, Acquire by `wait_for_all`.
        joined: AtomicU32,
        /// 1 once a rank has left or failed. Release by `mark`, Acquire by `has_failures`.
        failures: AtomicU32,
        /// The first rank that failed, plus one; 0 while no rank has failed. Errors name this rank,
        /// because later failures are its consequences. Release by `mark`, Acquire by
        /// `first_failed`.
        first_failed: AtomicU32,
        service: AtomicU32,
        /// 1 if operations of kind `calc` end immediately instead of spinning.
        skip_calc: AtomicU32,
        eager_limit: AtomicU64,
        /// See [`Node::single_copy`].
        single_copy: AtomicU64,
        /// Offset and length of the encoded decisions; length 0 if there are none.
        decisions_at: AtomicU64,
        decisions_bytes: AtomicU64,
        /// A value of `decisions_use`. The first rank to exchange it decides for all ranks.
        decisions_use: AtomicU32,
    }

    /// A rank's doorbell. Counts the tasks that other ranks deferred to it or completed for it.
    pub(crate) struct WakeupLine {
        pub(crate) events: Completion,
    }

    /// One rank's line.
    struct RankLine {
        /// A value of `state`. Release by each change, Acquire by each read. `detail` is written
        /// before the change that publishes it.
        state: AtomicU32,
        process: AtomicU32,
        detail: AtomicU32,
        /// The rank in the job plus one, for an observer; 0 before it is published.
        job_rank: AtomicU32,
        /// 1 if the rank is counted as short of memory, see [`ShortageLine`].
        shortage: AtomicU32,
    }
}

mod decisions_use {
    pub(super) const UNDECIDED: u32 = 0;
    pub(super) const USE: u32 = 1;
    pub(super) const IGNORE: u32 = 2;
}

mod state {
    pub(super) const ABSENT: u32 = 0;
    pub(super) const JOINED: u32 = 1;
    pub(super) const EXITED: u32 = 2;
    pub(super) const KILLED: u32 = 3;
    pub(super) const LEFT: u32 = 4;
    pub(super) const NEVER_STARTED: u32 = 5;
    pub(super) const PANICKED: u32 = 6;
    pub(super) const VANISHED: u32 = 7;
}

/// Handle of one process to the job's segment.
#[derive(Debug)]
pub struct Node {
    memory: SegmentMemory,
    header: Mapped<JobHeader>,
    lines: MappedSlice<RankLine>,
    shortage: Mapped<ShortageLine>,
    ranks: u32,
    engine: EngineKind,
    cores: u32,
    skip_calc: bool,
    eager_limit: u64,
    single_copy: u64,
    world_state: Offset,
}

const LINES_AT: u64 = 4096;

/// Offset of the [`ShortageLine`], the last line before those of the ranks.
const SHORTAGE_AT: Offset = Offset(LINES_AT - 64);

impl Node {
    /// Creates the segment of a new job.
    ///
    /// # Errors
    /// Returns an error if the segment cannot be created, or if the number of ranks is 0 or above
    /// 4096.
    pub fn create(options: &JobOptions) -> Result<Arc<Self>, Error> {
        if options.ranks == 0 || options.ranks > RANK_LIMIT {
            return Err(Error::Argument {
                what: "the number of ranks",
                found: options.ranks.to_string(),
                expected: format!("from 1 to {RANK_LIMIT}"),
            });
        }
        let state = world_state(options.ranks);
        let state_bytes = StateLayout::new(options.ranks).bytes();
        let decisions = options.decisions.as_ref().map_or(Vec::new(), Decisions::encode);
        let decisions_at = state.0 + state_bytes;
        let arena_first = (decisions_at + decisions.len() as u64).next_multiple_of(1 << 20);
        let arena_bytes = options.arena_bytes.next_multiple_of(4096);
        let total =
            u64::from(options.ranks).saturating_mul(arena_bytes).saturating_add(arena_first);
        let segment = Arc::new(Segment::create(total, options.backing.clone())?);
        segment.commit(Offset(0), decisions_at + decisions.len() as u64)?;
        let header = Mapped::<JobHeader>::new(&segment, Offset(0))?;
        // Relaxed, up to the magic number: its Release publishes the fields.
        header.version.store(VERSION, Ordering::Relaxed);
        header.ranks.store(options.ranks, Ordering::Relaxed);
        header.arena_first.store(arena_first, Ordering::Relaxed);
        header.arena_bytes.store(arena_bytes, Ordering::Relaxed);
        header.engine.store(options.engine as u32, Ordering::Relaxed);
        header.cores.store(options.cores, Ordering::Relaxed);
        header.skip_calc.store(u32::from(options.skip_calc), Ordering::Relaxed);
        header.eager_limit.store(options.eager_limit, Ordering::Relaxed);
        // Only collectives of several ranks with a core each stream.
        let can_stream = (2..=options.cores).contains(&options.ranks);
        let measured = || if can_stream { measured_single_copy() } else { u64::MAX };
        let single_copy = options.single_copy.unwrap_or_else(measured);
        header.single_copy.store(single_copy, Ordering::Relaxed);
        header.service.store(std::process::id(), Ordering::Relaxed);
        // Release: pairs with the Acquire in `open`: a process that sees the magic number sees the
        // fields above.
        header.magic.store(MAGIC, Ordering::Release);
        let node = Node::open(segment)?;
        // Relaxed: no other process has the segment yet. Its descriptor is passed on after this
        // function, and the system call orders these stores before the receiver's loads.
        node.memory.write(Offset(decisions_at), &decisions)?;
        node.header.decisions_at.store(decisions_at, Ordering::Relaxed);
        node.header.decisions_bytes.store(decisions.len() as u64, Ordering::Relaxed);
        Ok(node)
    }

    /// Opens the segment of an existing job.
    ///
    /// # Errors
    /// Returns an error if the segment belongs to no job, or to a job of another version.
    pub fn open(segment: Arc<Segment>) -> Result<Arc<Self>, Error> {
        let header = Mapped::<JobHeader>::new(&segment, Offset(0))?;
        // Acquire: pairs with the Release in `create`.
        let magic = header.magic.load(Ordering::Acquire);
        // Relaxed, here and below: the magic number has been acquired, and the fields precede it.
        let ranks = header.ranks.load(Ordering::Relaxed);
        if magic != MAGIC
            || header.version.load(Ordering::Relaxed) != VERSION
            || ranks == 0
            || ranks > RANK_LIMIT
        {
            return Err(Error::NotAJob);
        }
        // The number of ranks is bounded above, and the mapping checks that the lines lie in the
        // segment: a damaged header cannot lead outside.
        let lines = MappedSlice::new(&segment, Offset(LINES_AT), ranks as usize)?;
        let shortage = Mapped::new(&segment, SHORTAGE_AT)?;
        let engine = match header.engine.load(Ordering::Relaxed) {
            0 => EngineKind::Peers,
            _ => EngineKind::Caller,
        };
        Ok(Arc::new(Node {
            ranks,
            engine,
            cores: header.cores.load(Ordering::Relaxed),
            skip_calc: header.skip_calc.load(Ordering::Relaxed) != 0,
            eager_limit: header.eager_limit.load(Ordering::Relaxed),
            single_copy: header.single_copy.load(Ordering::Relaxed),
            world_state: world_state(ranks),
            // SAFETY: the engine is the protocol: operations start when their counters say so, in
            // graphs that the checker has found free of races, and slots are used again when every
            // rank has consumed the run before.
            memory: unsafe { SegmentMemory::new(segment) },
            header,
            lines,
            shortage,
        }))
    }

    /// Returns the number of ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the assignment of operations to processes.
    pub fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Returns the number of cores that the ranks share.
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// Returns whether `calc` operations end immediately.
    pub fn skip_calc(&self) -> bool {
        self.skip_calc
    }

    /// Returns the length of the longest eager message of a schedule, in bytes.
    pub fn eager_limit(&self) -> u64 {
        self.eager_limit
    }

    /// Returns the length in bytes from which two ranks that exchange messages read each other's
    /// private memory; `u64::MAX` if no rank reads another's.
    pub(crate) fn single_copy(&self) -> u64 {
        self.single_copy
    }

    /// Returns the decisions that the creator of the job read: the same bytes for every rank.
    ///
    /// # Errors
    /// Returns an error if the layout of the segment is invalid.
    pub fn decisions(&self) -> Result<Option<Decisions>, Error> {
        let at = Offset(self.header.decisions_at.load(Ordering::Relaxed));
        match self.header.decisions_bytes.load(Ordering::Relaxed) {
            0 => Ok(None),
            bytes => Ok(Some(self.memory.inspect(at, bytes, Decisions::decode)?)),
        }
    }

    /// Settles whether the ranks use the decisions. The first call of any rank decides, and all
    /// calls return its value, so that all ranks select the same algorithms.
    pub fn settle_decisions(&self, use_them: bool) -> bool {
        let mine = if use_them { decisions_use::USE } else { decisions_use::IGNORE };
        let word = &self.header.decisions_use;
        // Relaxed: the word publishes no other memory.
        match word.compare_exchange(
            decisions_use::UNDECIDED,
            mine,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => use_them,
            Err(settled) => settled == decisions_use::USE,
        }
    }

    /// Returns the segment's bytes.
    pub(crate) fn memory(&self) -> &SegmentMemory {
        &self.memory
    }

    /// Returns the segment.
    pub fn segment(&self) -> &Arc<Segment> {
        self.memory.segment()
    }

    /// Returns the offset of the state of the communicator of all ranks.
    pub(crate) fn world_state(&self) -> Offset {
        self.world_state
    }

    /// Returns the offset of the mailboxes of all ranks: [`MAILBOX_BYTES`] zeroed bytes each.
    pub fn mailboxes(&self) -> Offset {
        mailboxes_at(self.ranks)
    }

    /// Returns the doorbell of a rank of the job.
    pub(crate) fn wakeup(&self, rank: u32) -> Result<Mapped<WakeupLine>, Error> {
        Ok(Mapped::new(self.segment(), wakeup_at(self.ranks, rank))?)
    }

    /// Returns whether every rank has a core of its own.
    pub fn has_cores_for_all(&self) -> bool {
        self.ranks <= self.cores
    }

    /// Returns the number of polls and yields before a waiting rank sleeps.
    pub(crate) fn spin_policy(&self) -> SpinPolicy {
        SpinPolicy::new(self.ranks, self.cores)
    }

    /// Returns the process of the node service.
    pub fn service_process(&self) -> u32 {
        self.header.service.load(Ordering::Relaxed)
    }

    /// Returns the process of a rank; 0 before it joined.
    pub fn process_of(&self, rank: u32) -> u32 {
        self.lines.get(rank as usize).map_or(0, |line| line.process.load(Ordering::Relaxed))
    }

    /// Records that a rank has left or failed; only the first record counts. Ranks that wait for it
    /// detect it within one liveness interval.
    pub fn mark(&self, rank: u32, how: Exit) {
        let Some(line) = self.lines.get(rank as usize) else { return };
        let (next, detail) = match how {
            Exit::Exited(status) => (state::EXITED, status),
            Exit::Killed(signal) => (state::KILLED, signal),
            Exit::Left => (state::LEFT, 0),
            Exit::NeverStarted => (state::NEVER_STARTED, 0),
            Exit::Panicked => (state::PANICKED, 0),
            Exit::Vanished => (state::VANISHED, 0),
        };
        let mut seen = line.state.load(Ordering::Acquire);
        // The first recorded exit is final.
        while seen == state::ABSENT || seen == state::JOINED {
            // If two processes record an exit at once, the detail of the loser may remain. It only
            // completes the text of a message, so no lock orders the two.
            line.detail.store(detail.cast_unsigned(), Ordering::Relaxed);
            // Release: pairs with the Acquire in `exit_of`.
            match line.state.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => seen = next,
                Err(now) => seen = now,
            }
        }
        // Repeated for an exit that is recorded already: its recorder may have been killed before
        // these steps. Each of them may be done twice.
        if seen != state::LEFT {
            // Release: pairs with the Acquire in `first_failed`. The exchange fails if another rank
            // failed first.
            let first = &self.header.first_failed;
            let _ = first.compare_exchange(0, rank + 1, Ordering::Release, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `has_failures`. Stored last, so a rank that sees it
        // also sees the cause and the state.
        self.header.failures.store(1, Ordering::Release);
        self.shortage.end(&line.shortage);
        shm::futex::wake_all(&self.header.joined);
    }

    /// Returns whether a rank is short of memory and waits for ranks that are, too.
    pub(crate) fn is_blocked(&self, rank: u32) -> bool {
        let line = self.lines.get(rank as usize);
        line.is_some_and(|line| shortage::is_blocked(&line.shortage))
    }

    /// Returns the way in which a rank left, if it has left.
    pub fn exit_of(&self, rank: u32) -> Option<Exit> {
        let line = self.lines.get(rank as usize)?;
        // Acquire: pairs with the exchange in `mark`.
        let state = line.state.load(Ordering::Acquire);
        decode_exit(state, line.detail.load(Ordering::Relaxed))
    }

    /// Returns the rank that failed first, if one has failed.
    pub(crate) fn first_failed(&self) -> Option<u32> {
        // Acquire: pairs with the exchange in `mark`.
        self.header.first_failed.load(Ordering::Acquire).checked_sub(1)
    }

    /// Returns whether a rank has left or failed.
    #[inline]
    pub(crate) fn has_failures(&self) -> bool {
        // Acquire: pairs with the store in `mark`.
        self.header.failures.load(Ordering::Acquire) != 0
    }

    /// Describes a rank that others wait for.
    pub(crate) fn straggler(&self, world_rank: u32, rank: u32) -> Straggler {
        let process = self.process_of(world_rank);
        let stopped =
            shm::process::state(process).is_ok_and(|state| state == ProcessState::Stopped);
        Straggler { rank, process, stopped }
    }
}

/// Returns the way in which a rank with this state left, if it has left.
fn decode_exit(state: u32, detail: u32) -> Option<Exit> {
    let detail = detail.cast_signed();
    Some(match state {
        state::EXITED => Exit::Exited(detail),
        state::KILLED => Exit::Killed(detail),
        state::LEFT => Exit::Left,
        state::NEVER_STARTED => Exit::NeverStarted,
        state::PANICKED => Exit::Panicked,
        state::VANISHED => Exit::Vanished,
        _ => return None,
    })
}

/// Returns the length from which one copy is faster than two, by a measurement.
fn measured_single_copy() -> u64 {
    /// Two copies through a ring that stays in the caches are faster below, if the sender has just
    /// written the message: the kernel waits for the lines of each page anew, while the copy from a
    /// ring goes on over the end of a page.
    const SHORTEST: u64 = 128 << 10;
    if shm::process_memory::is_fast() { SHORTEST } else { u64::MAX }
}

/// Bytes of a rank's mailbox for matched messages, of which this crate uses nothing.
pub const MAILBOX_BYTES: u64 = 128;

/// Returns the offset of the first mailbox. The mailboxes follow the doorbells, in pairs of lines.
fn mailboxes_at(ranks: u32) -> Offset {
    Offset((LINES_AT + 2 * 64 * u64::from(ranks)).next_multiple_of(MAILBOX_BYTES))
}

/// Returns the offset of a rank's line.
fn line_at(rank: u32) -> Offset {
    Offset(LINES_AT + u64::from(rank) * size_of::<RankLine>() as u64)
}

/// Number of queues of a rank that an observer finds.
pub(crate) const LISTED_QUEUES: u64 = 128;

/// Returns the offset of a rank's published waits, which follow the mailboxes.
fn waits_at(ranks: u32, rank: u32) -> Offset {
    let first = mailboxes_at(ranks).0 + MAILBOX_BYTES * u64::from(ranks);
    Offset(first + WAIT_BYTES * u64::from(rank))
}

/// Returns the offset of the list of a rank's queues. The lists follow the published waits.
fn queues_at(ranks: u32, rank: u32) -> Offset {
    Offset(waits_at(ranks, ranks).0 + 8 * LISTED_QUEUES * u64::from(rank))
}

/// Returns the offset of a rank's doorbell. The doorbells follow the rank lines.
fn wakeup_at(ranks: u32, rank: u32) -> Offset {
    Offset(LINES_AT + 64 * (u64::from(ranks) + u64::from(rank)))
}

fn world_state(ranks: u32) -> Offset {
    Offset(queues_at(ranks, ranks).0.next_multiple_of(4096))
}
