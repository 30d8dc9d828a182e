//! Membership of one rank in a job: its memory and its own tasks.

use crate::error::{Error, Exit, Outcome};
use crate::memory::{MemoryHolder, Pending, RunMemory, Swept, Turn};
use crate::node::deferred_free::{DeferredFree, ReleaseLine};
use crate::node::liveness::LivenessCheck;
use crate::node::{
    LISTED_QUEUES, Node, RankLine, SHORTAGE_AT, line_at, queues_at, state, waits_at,
};
use crate::trace::Trace;
use crate::wait::OwnTasks;
use shm::arena::{Arena, ArenaError};
use shm::limbo::Limbo;
use shm::mapped::{Mapped, MappedSlice};
use shm::process::ProcessHandle;
use shm::published_wait::{WAIT_LINES, WaitTable};
use shm::segment::Offset;
use shm::sync::{AtomicU32, Ordering};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

impl Node {
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
        let shortage = Mapped::new(self.segment(), SHORTAGE_AT)?;
        let mark_at = line_at(rank).0 + std::mem::offset_of!(RankLine, shortage) as u64;
        let mark = Mapped::new(self.segment(), Offset(mark_at))?;
        let queues = queues_at(self.ranks, rank);
        let queues = MappedSlice::new(self.segment(), queues, LISTED_QUEUES as usize)?;
        let arena = arena.listing_queues_in(queues);
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
        // Only the process that has the rank writes its number: a second one that joins as the same
        // rank must not make the first one look ended. The addition below publishes it.
        line.process.store(std::process::id(), Ordering::Relaxed);
        // AcqRel: pairs with the Acquire in `wait_for_all`. A process that dies between the two
        // updates is JOINED but not counted; `mark` then reports it to the waiting ranks.
        self.header.joined.fetch_add(1, Ordering::AcqRel);
        shm::futex::wake_all(&self.header.joined);
        let arena = Arc::new(arena);
        let memory = Arc::new(RunMemory::new(Arc::clone(&arena), shortage, mark));
        Ok(Member::new(Arc::clone(self), rank, (arena, memory)))
    }
}

/// Membership of one rank in a job.
#[derive(Debug)]
pub struct Member {
    node: Arc<Node>,
    rank: u32,
    arena: Arc<Arena>,
    /// The arena as runs use it.
    memory: Arc<RunMemory>,
    service: Option<ProcessHandle>,
    /// Objects that this rank has given up and other ranks still use.
    limbo: Limbo<Arc<dyn Remnant>>,
    /// Objects that may have tasks for this rank.
    own_work: Mutex<Vec<Weak<dyn OwnerWork>>>,
    has_own_work: AtomicU32,
    trace: Option<Arc<Trace>>,
    background: OnceLock<RegisteredWork>,
    published_waits: Option<Arc<WaitTable>>,
}

/// Work of a layer above.
#[derive(Debug)]
struct RegisteredWork {
    work: Weak<dyn Background>,
    /// 0 while there is none. A poll that finds nothing is one load: to use `work` costs two locked
    /// instructions.
    doorbell: Mapped<AtomicU32>,
}

/// An object with tasks that only its own rank can execute, in any later call.
pub(crate) trait OwnerWork: Send + Sync + std::fmt::Debug {
    /// Executes the tasks. Returns what it has found.
    fn progress_own(&self, member: &Member) -> Outcome<OwnTasks>;

    /// Returns whether there will be no task until something is started and registered again.
    fn is_idle(&self) -> bool;

    /// Returns whether runs with requests wait for a slot or for memory.
    fn has_queue(&self) -> bool;
}

/// The part of an object given up by this rank that other ranks still need.
pub(crate) trait Remnant: Send + Sync + std::fmt::Debug {
    /// Releases the shared memory if no rank needs this rank's part any more. Returns whether
    /// nothing is left. Allocates no memory.
    fn try_end(&self, member: &Member) -> bool;
}

/// Work of a layer above that goes on while the rank waits for a collective.
pub trait Background: Send + Sync + std::fmt::Debug {
    /// Continues the work. Returns whether more of it is expected soon. An error is reported by the
    /// layer's own next call.
    fn progress(&self) -> bool;
}

impl RegisteredWork {
    /// Continues the work. Returns whether more of it is expected soon.
    #[cold]
    fn progress(&self) -> bool {
        self.work.upgrade().is_some_and(|work| work.progress())
    }
}

impl Member {
    fn new(node: Arc<Node>, rank: u32, (arena, memory): (Arc<Arena>, Arc<RunMemory>)) -> Self {
        // Sleepers of other processes execute the fence for this process when they need it. If the
        // system does not permit that, this process executes its own fences.
        shm::fence::register();
        Member {
            node,
            rank,
            arena,
            memory,
            service: None,
            limbo: Limbo::default(),
            own_work: Mutex::default(),
            has_own_work: AtomicU32::new(0),
            trace: None,
            background: OnceLock::new(),
            published_waits: None,
        }
    }

    /// Publishes the waits of all threads of this process as those of this rank, and its number in
    /// the job. A process with threads that are different ranks publishes none.
    ///
    /// # Errors
    /// Returns an error if the segment does not have the expected layout.
    pub fn publish_waits(&mut self, job_rank: u32) -> Result<(), Error> {
        let node = &self.node;
        let at = waits_at(node.ranks, self.rank);
        let lines = MappedSlice::new(node.segment(), at, WAIT_LINES)?;
        self.published_waits = Some(WaitTable::publish(lines));
        // Relaxed: only an observer reads it.
        if let Some(line) = node.lines.get(self.rank as usize) {
            line.job_rank.store(job_rank.saturating_add(1), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Records a profile from now on.
    pub fn record_trace(&mut self) -> Arc<Trace> {
        Arc::clone(self.trace.get_or_insert_default())
    }

    /// Returns the profile, if one is recorded.
    pub(crate) fn trace(&self) -> Option<Arc<Trace>> {
        self.trace.clone()
    }

    /// Makes later calls of this rank execute the object's tasks until it is idle. Call this after
    /// the start that creates the tasks: an object found idle is unregistered.
    pub(crate) fn register(&self, work: Weak<dyn OwnerWork>) {
        let mut own_work = self.own_work.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropped objects go, so the list does not grow with every schedule that was ever linked.
        own_work.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&work));
        own_work.push(work);
        // Release: pairs with the Acquire in `progress`.
        self.has_own_work.store(1, Ordering::Release);
    }

    /// Makes this rank continue the work whenever it waits for a collective and the word is not 0.
    /// The first registration counts.
    pub fn register_background(&self, work: Weak<dyn Background>, doorbell: Mapped<AtomicU32>) {
        self.background.get_or_init(|| RegisteredWork { work, doorbell });
    }

    /// Returns whether any object is registered.
    pub(crate) fn has_own_work(&self) -> bool {
        // Relaxed: a hint. `progress` acquires the flag before it uses the list.
        self.has_own_work.load(Ordering::Relaxed) != 0
    }

    /// Returns whether runs of this rank are queued, in any of its communicators.
    pub(crate) fn has_queue(&self) -> bool {
        let own_work = self.own_work.lock().unwrap_or_else(PoisonError::into_inner);
        let works: SmallVec<[Arc<dyn OwnerWork>; 4]> =
            own_work.iter().filter_map(Weak::upgrade).collect();
        // The last reference to an object may be among these, and its end takes the lock.
        drop(own_work);
        works.iter().any(|work| work.has_queue())
    }

    /// Executes this rank's tasks in all its communicators, and continues the work of layers above.
    #[inline]
    pub(crate) fn progress(&self) -> Outcome<OwnTasks> {
        // Relaxed: a hint. The work acquires what it uses.
        let is_due =
            |registered: &&RegisteredWork| registered.doorbell.load(Ordering::Relaxed) != 0;
        let expected = match self.background.get().filter(is_due) {
            // Not counted as a task: a waiting rank must sleep in the end.
            Some(registered) if registered.progress() => OwnTasks::Expected,
            _ => OwnTasks::None,
        };
        let expected = if self.memory.is_any_rank_short() {
            self.reclaim();
            // Results of this rank that are complete later have to be moved as well.
            OwnTasks::Expected
        } else {
            expected
        };
        // Acquire: pairs with the Release in `register`.
        if self.has_own_work.load(Ordering::Acquire) == 0 {
            return Ok(expected);
        }
        Ok(self.execute_own_work()? | expected)
    }

    fn execute_own_work(&self) -> Outcome<OwnTasks> {
        // The tasks run without the lock, because they may register further objects.
        let (works, listed): (SmallVec<[Arc<dyn OwnerWork>; 4]>, usize) = {
            let own_work = self.own_work.lock().unwrap_or_else(PoisonError::into_inner);
            (own_work.iter().filter_map(Weak::upgrade).collect(), own_work.len())
        };
        let mut tasks = OwnTasks::None;
        let mut any_idle = works.len() < listed;
        for work in works {
            tasks = tasks | work.progress_own(self)?;
            any_idle |= work.is_idle();
        }
        if any_idle {
            self.unregister_idle();
        }
        Ok(tasks)
    }

    /// Unregisters idle objects, so a waiting rank polls the schedules that run now and not all
    /// that it has ever linked.
    #[cold]
    fn unregister_idle(&self) {
        // The last reference to an object may be among these, and its end takes the lock: dropped
        // after the guard, which is declared later.
        let mut works: SmallVec<[Arc<dyn OwnerWork>; 4]> = SmallVec::new();
        let mut own_work = self.own_work.lock().unwrap_or_else(PoisonError::into_inner);
        // Tested again under the lock: an object started meanwhile is either seen here or
        // registered afterwards.
        own_work.retain(|work| {
            let Some(work) = work.upgrade() else { return false };
            let is_busy = !work.is_idle();
            works.push(work);
            is_busy
        });
        if own_work.is_empty() {
            // Relaxed: `register` sets the flag under the same lock.
            self.has_own_work.store(0, Ordering::Relaxed);
        }
    }

    /// Allocates memory that other ranks use too.
    pub(crate) fn allocate_shared(&self, bytes: u64) -> Result<Offset, Error> {
        self.end_some();
        Ok(self.with_reclaim(|| self.arena.allocate_zeroed(bytes, 64))?)
    }

    /// As [`allocate_shared`](Self::allocate_shared), when it is the turn of this memory. Takes a
    /// turn if there is too little, and records the shortage for the other ranks.
    pub(crate) fn allocate_in_turn(&self, bytes: u64, turn: &mut Option<Turn>) -> Option<Offset> {
        let memory = &self.memory;
        if memory.admits(turn.as_ref()) {
            let allocate = || self.allocate_shared(bytes).ok();
            let again = || memory.release_reserve(turn.as_ref()).then(allocate).flatten();
            if let Some(at) = allocate().or_else(again) {
                return Some(at);
            }
        }
        // The turn keeps later runs of this rank from taking this memory.
        if turn.is_none() {
            *turn = Some(memory.enqueue(bytes));
        }
        memory.record_shortage();
        None
    }

    /// Keeps what is left of dropped runs until no rank needs it, at most as long as this rank is in
    /// the job.
    pub(crate) fn keep<R>(&self, remnant: Arc<R>)
    where
        R: Remnant + OwnerWork + MemoryHolder + 'static,
    {
        if !remnant.try_end(self) {
            self.memory.add_holder(Arc::downgrade(&remnant) as Weak<dyn MemoryHolder>);
            // Without tasks it only waits for other ranks, and is not polled for that.
            if !remnant.is_idle() {
                self.register(Arc::downgrade(&remnant) as Weak<dyn OwnerWork>);
            }
            self.limbo.push(remnant);
        }
        self.end_some();
    }

    /// Ends some of what no rank needs any more. Called wherever something is given up, so that it
    /// does not accumulate while this rank makes and drops objects.
    pub(crate) fn end_some(&self) {
        self.limbo.try_some(|remnant| remnant.try_end(self));
    }

    /// Ends all that no rank needs any more. Returns whether some is left.
    fn end_all(&self) -> bool {
        self.limbo.try_all(|remnant| remnant.try_end(self));
        !self.limbo.is_empty()
    }

    /// Allocates memory, after freeing that of finished runs if there is too little. The caller
    /// holds no lock of a window.
    pub(crate) fn with_reclaim<T>(
        &self,
        allocate: impl Fn() -> Result<T, ArenaError>,
    ) -> Result<T, ArenaError> {
        allocate().or_else(|error| {
            if !matches!(error, ArenaError::Full { .. }) {
                return Err(error);
            }
            self.reclaim();
            allocate()
        })
    }

    /// Frees the memory of this rank that no rank uses any more. Returns what the release of more
    /// waits for. The caller holds no lock of a window.
    #[cold]
    pub(crate) fn reclaim(&self) -> Pending {
        let shared = if self.end_all() { Pending::Blocked } else { Pending::Nothing };
        shared.max(self.memory.reclaim())
    }

    /// Sets the time after which a wait fails, if this rank is short of memory and every run of it
    /// lacks ranks that are blocked as well: a minute, unless it is set.
    /// For tests: a minute is long.
    #[doc(hidden)]
    pub fn limit_shortage(&self, limit: Duration) {
        self.memory.set_limit(limit);
    }

    /// Starts queued runs by `advance`. A shortage of memory is an error only if none of this
    /// rank's runs will release some, or if for a long time all of them lacked ranks that are blocked
    /// as well.
    pub(crate) fn advance_queued(&self, advance: impl Fn() -> Outcome) -> Outcome {
        let is_short = |outcome: &Outcome| outcome.as_ref().is_err_and(|error| error.is_shortage());
        let outcome = advance();
        if !is_short(&outcome) {
            return outcome;
        }
        self.reclaim();
        // Runs of other windows may have to start before: they have waited longer.
        self.execute_own_work()?;
        let ended = self.memory.ended_turns();
        let pending = self.reclaim();
        let outcome = advance();
        // Another thread may have started a run with the memory that was free: it will release it.
        let pending = match self.memory.ended_turns() == ended {
            true => pending,
            false => Pending::Awaited,
        };
        if is_short(&outcome) && self.memory.may_end_shortage(pending) { Ok(()) } else { outcome }
    }

    /// Returns an error if this rank waits for a run that lacks memory on another rank, which waits
    /// for memory of this one. Called in waits for runs that have begun.
    pub(crate) fn check_shortage(&self) -> Result<(), Error> {
        if self.memory.is_short() { self.memory.check_cycle(self.reclaim()) } else { Ok(()) }
    }

    /// Sweeps this memory too when this rank, or another one of the node, is short of memory.
    pub fn sweep_when_short<S: Swept + 'static>(&self, swept: &Arc<S>) {
        self.memory.add_holder(Arc::downgrade(swept) as Weak<dyn MemoryHolder>);
    }

    /// Returns the arena as runs use it.
    pub(crate) fn memory(&self) -> &Arc<RunMemory> {
        &self.memory
    }

    /// Waits until a rank of this node is short of memory, at most `limit`, and then frees what
    /// this rank can. Returns whether a rank is short.
    pub fn relieve_shortage(&self, limit: Duration) -> bool {
        if !self.memory.is_any_rank_short() {
            self.memory.await_shortage(limit);
        }
        let is_short = self.memory.is_any_rank_short();
        if is_short {
            self.reclaim();
        }
        is_short
    }

    /// Ends the waits of [`relieve_shortage`](Self::relieve_shortage).
    pub fn end_relief(&self) {
        self.memory.wake();
    }

    /// Releases shared memory, which begins with a release line. Its owner frees it after all
    /// `users` have released it.
    pub(crate) fn release_shared(&self, at: Offset, users: u32, is_owner: bool) {
        let Ok(line) = Mapped::<ReleaseLine>::new(self.node.segment(), at) else { return };
        // The last access of this rank. The owner keeps the line mapped and reads the count.
        line.release();
        if is_owner {
            self.limbo.push(Arc::new(DeferredFree { at, users, line }));
        }
    }

    /// Watches the node service: its failure is then reported like a rank's.
    pub fn watch_service(&mut self, service: ProcessHandle) {
        self.service = Some(service);
    }

    /// Returns the job's node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns this rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns this rank's part of the segment.
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns a liveness check of these ranks (numbers in the job) and of the service.
    pub(crate) fn liveness<'a>(&'a self, members: &'a [u32]) -> LivenessCheck<'a> {
        LivenessCheck::new(&self.node, members, self.service.as_ref())
    }

    /// Waits until every rank of the job has joined, at most `limit`.
    ///
    /// # Errors
    /// Returns an error if a rank failed before it joined, or if the limit has passed.
    pub fn wait_for_all(&self, limit: Duration) -> Result<(), Error> {
        let all: Vec<u32> = (0..self.node.ranks()).collect();
        self.node.wait_for_all(&self.liveness(&all), limit)
    }
}

impl Remnant for DeferredFree {
    fn try_end(&self, member: &Member) -> bool {
        // Freed here and not by the last user, because only its owner may change an arena.
        self.is_due() && member.arena.free(self.at).is_ok()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { Exit::Panicked } else { Exit::Left };
        self.node.mark(self.rank, how);
    }
}
