//! A job's segment on one node: its layout, the ranks that have joined, and the ranks that have
//! left.

pub(crate) mod decisions;
pub(crate) mod deferred_free;
pub mod membership;

use crate::error::{Error, Exit, Straggler};
use crate::node::decisions::Decisions;
use crate::node::membership::{LivenessCheck, Member};
use crate::state::StateLayout;
use crate::wait::SpinPolicy;
use goal::limits;
use shm::arena::Arena;
use shm::completion::Completion;
use shm::mapped::{Mapped, MappedSlice};
use shm::memory::SegmentMemory;
use shm::process::ProcessState;
use shm::segment::{Backing, Offset, Segment};
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Assignment of the operations of a schedule to processes.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// Cooperative progress: the process that completes an operation also runs the operations that
    /// it enables, for any rank of the node.
    Peers = 0,
    /// In-call progress: each rank runs its own operations, inside its own calls. This is the usual
    /// design of MPI libraries, and serves as the baseline.
    Caller = 1,
}

impl EngineKind {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Peers => "peers",
            EngineKind::Caller => "caller",
        }
    }
}

impl std::fmt::Display for EngineKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

impl std::str::FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [EngineKind::Peers, EngineKind::Caller]
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("there is no engine {text:?}: choose peers or caller"))
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"tradewin");
const VERSION: u32 = 2;
const RANK_LIMIT: u32 = 4096;

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
        /// Number of ranks that have left or failed. AcqRel by `mark`, Acquire by `failures`.
        failures: AtomicU32,
        /// The first rank that failed, plus one; 0 while no rank has failed. Errors name this rank,
        /// because later failures are its consequences. Release by `mark`, Acquire by
        /// `first_failed`.
        first_failed: AtomicU32,
        service: AtomicU32,
        /// 1 if operations of kind `calc` end immediately instead of spinning.
        skip_calc: AtomicU32,
        eager_limit: AtomicU64,
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

/// Layout of a job on its node.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// Number of ranks.
    pub ranks: u32,
    /// Assignment of operations to processes.
    pub engine: EngineKind,
    /// Address space of each rank's part of the segment, in bytes. Pages are allocated on first use.
    pub arena_bytes: u64,
    /// Number of cores that the ranks share. With more ranks than cores, waiting ranks do not spin.
    pub cores: u32,
    /// Source of the segment's memory.
    pub backing: Backing,
    /// True if operations of kind `calc` end immediately.
    pub skip_calc: bool,
    /// Longest message of a schedule, in bytes, that is sent before its receive is posted.
    pub eager_limit: u64,
    /// Selection of algorithms, for all ranks.
    pub decisions: Option<Decisions>,
}

impl JobOptions {
    /// Returns the default options for `ranks` ranks. `TRADEWIND_SEGMENT_DIR` names a directory for the
    /// segment (default: anonymous memory), `TRADEWIND_ARENA_MIB` the address space of a rank's
    /// part in MiB (default 4096), `TRADEWIND_EAGER_BYTES` the eager limit (default 4096),
    /// `TRADEWIND_DECISIONS` the [decisions](Decisions).
    ///
    /// # Errors
    /// Returns an error if a variable has an invalid value.
    pub fn new(ranks: u32, engine: EngineKind) -> Result<Self, Error> {
        let backing = match std::env::var_os("TRADEWIND_SEGMENT_DIR") {
            Some(directory) => Backing::Directory(directory.into()),
            None => Backing::Memory,
        };
        let arena_mib = number("TRADEWIND_ARENA_MIB", 4096, 1..=1 << 24)?;
        let eager_limit = number("TRADEWIND_EAGER_BYTES", limits::EAGER_ON_NODE, 0..=1 << 30)?;
        let cores = (shm::process::allowed_cores().len() as u32).max(1);
        let arena_bytes = arena_mib << 20;
        let decisions = Decisions::find();
        Ok(JobOptions {
            ranks,
            engine,
            arena_bytes,
            cores,
            backing,
            skip_calc: false,
            eager_limit,
            decisions,
        })
    }
}

/// Returns the number in an environment variable, or the default.
fn number(name: &str, usual: u64, range: std::ops::RangeInclusive<u64>) -> Result<u64, Error> {
    let Some(text) = std::env::var_os(name) else { return Ok(usual) };
    text.to_str()
        .and_then(|text| text.parse().ok())
        .filter(|value| range.contains(value))
        .ok_or_else(|| {
            Error::Environment(format!(
                "{name} is {text:?}, it must be a number from {} to {}: change it or unset it",
                range.start(),
                range.end()
            ))
        })
}

/// Handle of one process to the job's segment.
#[derive(Debug)]
pub struct Node {
    memory: SegmentMemory,
    header: Mapped<JobHeader>,
    lines: MappedSlice<RankLine>,
    ranks: u32,
    engine: EngineKind,
    cores: u32,
    skip_calc: bool,
    eager_limit: u64,
    world_state: Offset,
}

const LINES_AT: u64 = 4096;

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
        header.version.store(VERSION, Ordering::Relaxed);
        header.ranks.store(options.ranks, Ordering::Relaxed);
        header.arena_first.store(arena_first, Ordering::Relaxed);
        header.arena_bytes.store(arena_bytes, Ordering::Relaxed);
        header.engine.store(options.engine as u32, Ordering::Relaxed);
        header.cores.store(options.cores, Ordering::Relaxed);
        header.skip_calc.store(u32::from(options.skip_calc), Ordering::Relaxed);
        header.eager_limit.store(options.eager_limit, Ordering::Relaxed);
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
        let ranks = header.ranks.load(Ordering::Relaxed);
        if magic != MAGIC
            || header.version.load(Ordering::Relaxed) != VERSION
            || ranks == 0
            || ranks > RANK_LIMIT
        {
            return Err(Error::NotAJob);
        }
        let lines = MappedSlice::new(&segment, Offset(LINES_AT), ranks as usize)?;
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
            world_state: world_state(ranks),
            // SAFETY: the engine is the protocol: operations start when their counters say so, in
            // graphs that the checker has found free of races, and slots are used again when every
            // rank has consumed the run before.
            memory: unsafe { SegmentMemory::new(segment) },
            header,
            lines,
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

    /// Returns the doorbell of a rank of the job.
    pub(crate) fn wakeup(&self, rank: u32) -> Result<Mapped<WakeupLine>, Error> {
        Ok(Mapped::new(self.segment(), wakeup_at(self.ranks, rank))?)
    }

    /// Returns whether every rank has a core of its own.
    pub(crate) fn has_cores_for_all(&self) -> bool {
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

    /// Joins as `rank`. This process then allocates from the rank's part of the segment.
    ///
    /// # Errors
    /// Returns an error if there is no such rank, or if it has joined already.
    pub fn join(self: &Arc<Self>, rank: u32) -> Result<Member, Error> {
        let Some(line) = self.lines.get(rank as usize) else {
            return Err(Error::Argument {
                what: "the rank",
                found: rank.to_string(),
                expected: format!("below {}", self.ranks),
            });
        };
        let first = self.header.arena_first.load(Ordering::Relaxed);
        let bytes = self.header.arena_bytes.load(Ordering::Relaxed);
        let from = first.saturating_add(u64::from(rank).saturating_mul(bytes));
        let arena = Arena::new(Arc::clone(self.segment()), from..from.saturating_add(bytes))?;
        line.process.store(std::process::id(), Ordering::Relaxed);
        // AcqRel: pairs with the Acquire loads in `exit_of` and `wait_for_all`. Of two processes
        // that join as the same rank, exactly one succeeds.
        if line
            .state
            .compare_exchange(state::ABSENT, state::JOINED, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            return Err(Error::Environment(format!(
                "rank {rank} has joined this job already: is TRADEWIND_RANK set twice to the same number?"
            )));
        }
        // AcqRel: pairs with the Acquire in `wait_for_all`. A process that dies between the two
        // updates is JOINED but not counted; `mark` then reports it to the waiting ranks.
        self.header.joined.fetch_add(1, Ordering::AcqRel);
        shm::futex::wake_all(&self.header.joined);
        Ok(Member::new(Arc::clone(self), rank, Arc::new(arena)))
    }

    /// Waits until every rank has joined.
    ///
    /// # Errors
    /// Returns an error if a rank failed before it joined, or if the limit has passed.
    pub fn wait_for_all(&self, liveness: &LivenessCheck<'_>, limit: Duration) -> Result<(), Error> {
        let start = std::time::Instant::now();
        loop {
            // Acquire: pairs with the AcqRel addition in `join`.
            let joined = self.header.joined.load(Ordering::Acquire);
            if joined >= self.ranks {
                return Ok(());
            }
            liveness.check(|_| true)?;
            if start.elapsed() > limit {
                let missing = self
                    .lines
                    .iter()
                    .position(|line| line.state.load(Ordering::Acquire) == state::ABSENT);
                let rank = missing.unwrap_or(0) as u32;
                return Err(Error::RankFailed { rank, how: Exit::NeverStarted });
            }
            shm::futex::wait(&self.header.joined, joined, Some(Duration::from_millis(50)));
        }
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
            line.detail.store(detail.cast_unsigned(), Ordering::Relaxed);
            // Release: pairs with the Acquire in `exit_of`.
            match line.state.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    if how != Exit::Left {
                        // Release: pairs with the Acquire in `first_failed`. The exchange fails if
                        // another rank failed first.
                        let first = &self.header.first_failed;
                        let _ = first.compare_exchange(
                            0,
                            rank + 1,
                            Ordering::Release,
                            Ordering::Relaxed,
                        );
                    }
                    // Release: pairs with the Acquire in `failures`. Counted last, so a rank that
                    // sees the count also sees the cause and the state.
                    self.header.failures.fetch_add(1, Ordering::AcqRel);
                    shm::futex::wake_all(&self.header.joined);
                    return;
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Returns the way in which a rank left, if it has left.
    pub fn exit_of(&self, rank: u32) -> Option<Exit> {
        let line = self.lines.get(rank as usize)?;
        // Acquire: pairs with the exchange in `mark`.
        let state = line.state.load(Ordering::Acquire);
        let detail = line.detail.load(Ordering::Relaxed).cast_signed();
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

    /// Returns the rank that failed first, if one has failed.
    pub(crate) fn first_failed(&self) -> Option<u32> {
        // Acquire: pairs with the exchange in `mark`.
        self.header.first_failed.load(Ordering::Acquire).checked_sub(1)
    }

    /// Returns the number of ranks that have left or failed.
    #[inline]
    pub(crate) fn failures(&self) -> u32 {
        // Acquire: pairs with the addition in `mark`.
        self.header.failures.load(Ordering::Acquire)
    }

    /// Describes a rank that others wait for.
    pub(crate) fn straggler(&self, world_rank: u32, rank: u32) -> Straggler {
        let process = self.process_of(world_rank);
        let stopped =
            shm::process::state(process).is_ok_and(|state| state == ProcessState::Stopped);
        Straggler { rank, process, stopped }
    }
}

/// Returns the offset of a rank's doorbell. The doorbells follow the rank lines.
fn wakeup_at(ranks: u32, rank: u32) -> Offset {
    Offset(LINES_AT + 64 * (u64::from(ranks) + u64::from(rank)))
}

fn world_state(ranks: u32) -> Offset {
    Offset((LINES_AT + 2 * 64 * u64::from(ranks)).next_multiple_of(4096))
}
