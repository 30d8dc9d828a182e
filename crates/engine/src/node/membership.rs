//! Membership of one rank in a job: its memory, its liveness checks, its own tasks.

use crate::error::{Error, Exit};
use crate::node::Node;
use crate::node::deferred_free::{DeferredFree, ReleaseLine};
use crate::trace::Trace;
use shm::arena::Arena;
use shm::mapped::Mapped;
use shm::process::ProcessHandle;
use shm::segment::Offset;
use shm::sync::{AtomicU32, Ordering};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Membership of one rank in a job.
#[derive(Debug)]
pub struct Member {
    node: Arc<Node>,
    rank: u32,
    arena: Arc<Arena>,
    service: Option<ProcessHandle>,
    deferred_frees: Mutex<Vec<DeferredFree>>,
    /// Objects that may have tasks for this rank.
    own_work: Mutex<Vec<Weak<dyn OwnerWork>>>,
    has_own_work: AtomicU32,
    trace: Option<Arc<Trace>>,
}

/// An object with tasks that only its own rank can execute, in any later call.
pub(crate) trait OwnerWork: Send + Sync + std::fmt::Debug {
    /// Executes the tasks. Returns whether there were any.
    fn progress_own(&self) -> Result<bool, Error>;

    /// Returns whether there will be no task until something is started and registered again.
    fn is_idle(&self) -> bool;
}

impl Member {
    pub(crate) fn new(node: Arc<Node>, rank: u32, arena: Arc<Arena>) -> Self {
        // Sleepers of other processes execute the fence for this process when they need it. If the
        // system does not permit that, this process executes its own fences.
        shm::fence::register();
        Member {
            node,
            rank,
            arena,
            service: None,
            deferred_frees: Mutex::default(),
            own_work: Mutex::default(),
            has_own_work: AtomicU32::new(0),
            trace: None,
        }
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
        own_work.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&work));
        own_work.push(work);
        // Release: pairs with the Acquire in `progress`.
        self.has_own_work.store(1, Ordering::Release);
    }

    /// Returns whether any object is registered.
    pub(crate) fn has_own_work(&self) -> bool {
        self.has_own_work.load(Ordering::Relaxed) != 0
    }

    /// Executes this rank's tasks in all its communicators. Returns whether there were any.
    #[inline]
    pub(crate) fn progress(&self) -> Result<bool, Error> {
        // Acquire: pairs with the Release in `register`.
        if self.has_own_work.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        let (works, listed): (SmallVec<[Arc<dyn OwnerWork>; 4]>, usize) = {
            let own_work = self.own_work.lock().unwrap_or_else(PoisonError::into_inner);
            (own_work.iter().filter_map(Weak::upgrade).collect(), own_work.len())
        };
        let mut did_any = false;
        let mut any_idle = works.len() < listed;
        for work in works {
            did_any |= work.progress_own()?;
            any_idle |= work.is_idle();
        }
        if any_idle {
            self.unregister_idle();
        }
        Ok(did_any)
    }

    /// Unregisters idle objects, so a waiting rank polls the schedules that run now and not all
    /// that it has ever linked.
    #[cold]
    fn unregister_idle(&self) {
        let mut own_work = self.own_work.lock().unwrap_or_else(PoisonError::into_inner);
        // Tested again under the lock: an object started meanwhile is either seen here or
        // registered afterwards.
        own_work.retain(|work| work.upgrade().is_some_and(|work| !work.is_idle()));
        if own_work.is_empty() {
            // Relaxed: `register` sets the flag under the same lock.
            self.has_own_work.store(0, Ordering::Relaxed);
        }
    }

    /// Allocates memory that other ranks use too, after freeing memory that all users have
    /// released.
    pub(crate) fn allocate_shared(&self, bytes: u64) -> Result<Offset, Error> {
        let mut deferred_frees = self.deferred_frees.lock().unwrap_or_else(PoisonError::into_inner);
        deferred_frees
            .retain(|deferred| !deferred.is_due() || self.arena.free(deferred.at).is_err());
        Ok(self.arena.allocate_zeroed(bytes, 64)?)
    }

    /// Releases shared memory, which begins with a release line. Its owner frees it after all
    /// `users` have released it.
    pub(crate) fn release_shared(&self, at: Offset, users: u32, is_owner: bool) {
        let Ok(line) = Mapped::<ReleaseLine>::new(self.node.segment(), at) else { return };
        line.release();
        if is_owner {
            let mut frees = self.deferred_frees.lock().unwrap_or_else(PoisonError::into_inner);
            frees.push(DeferredFree { at, users, line });
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
        LivenessCheck { node: &self.node, members, service: self.service.as_ref() }
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

impl Drop for Member {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { Exit::Panicked } else { Exit::Left };
        self.node.mark(self.rank, how);
    }
}

/// Check for failures that end a wait.
#[derive(Debug)]
pub struct LivenessCheck<'a> {
    node: &'a Node,
    members: &'a [u32],
    service: Option<&'a ProcessHandle>,
}

impl LivenessCheck<'_> {
    /// Checks whether a rank of the communicator, or the service, has failed. `arrived` returns
    /// whether a rank that left in order had done its part before.
    pub(crate) fn check(&self, arrived: impl Fn(u32) -> bool) -> Result<(), Error> {
        if self.node.failures() > 0 {
            // Ranks that left because of this failure are not its cause.
            let cause = self.node.first_failed().and_then(|first| {
                let rank = self.members.iter().position(|member| *member == first)?;
                Some(Error::RankFailed { rank: rank as u32, how: self.node.exit_of(first)? })
            });
            if let Some(cause) = cause {
                return Err(cause);
            }
        }
        // Test the service before ranks that have left: without a service, ranks that noticed first
        // have left.
        if self.service.is_some_and(ProcessHandle::has_exited) {
            return Err(Error::ServiceFailed);
        }
        if self.node.failures() > 0 {
            for (member, rank) in self.members.iter().zip(0..) {
                match self.node.exit_of(*member) {
                    None => {}
                    Some(Exit::Left) if arrived(rank) => {}
                    Some(how) => return Err(Error::RankFailed { rank, how }),
                }
            }
        }
        Ok(())
    }
}
