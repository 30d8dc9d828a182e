//! Memory and end of a rank's part of a port.
//!
//! The objects of a rank for a port lie in its part of the segment. Other ranks of the node, and
//! the agent, use them, so a count lies beside them: each of these releases it once, and the rank
//! frees the objects when it is 0. A process that is killed never releases it, and the memory stays
//! in use until the job ends.

use crate::deferred::DeferredBuffers;
use crate::error::Result;
use crate::internode::group::InternodeJob;
use queues::queue::{Queue, QueueKind};
use shm::arena::Arena;
use shm::mapped::Mapped;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Objects of this rank for a port, which are freed with this value.
#[derive(Debug)]
pub(super) struct PortMemory {
    arena: Arc<Arena>,
    objects: Vec<Offset>,
    uses: Mapped<AtomicU64>,
    /// Offset of the count.
    uses_at: Offset,
}

impl PortMemory {
    /// Creates the count, for so many users.
    pub(super) fn create(arena: &Arc<Arena>, users: u64) -> Result<Self> {
        let uses_at = arena.allocate_zeroed(64, 64).map_err(queues::error::CreateError::from)?;
        let mapped = Mapped::<AtomicU64>::new(arena.segment(), uses_at);
        let uses = mapped.map_err(queues::error::CreateError::from)?;
        // Relaxed: other users get the offset in a message.
        uses.store(users, Ordering::Relaxed);
        Ok(PortMemory { arena: Arc::clone(arena), objects: vec![uses_at], uses, uses_at })
    }

    /// Offset of the count of users.
    pub(super) fn uses(&self) -> Offset {
        self.uses_at
    }

    /// Adds an object of this rank.
    pub(super) fn add(&mut self, at: Offset) {
        self.objects.push(at);
    }

    /// Releases the uses of users that never begin.
    pub(super) fn release(&self, users: u64) {
        self.uses.fetch_sub(users, Ordering::Release);
    }

    /// Returns true if the objects are no longer in use.
    fn is_unused(uses: &AtomicU64) -> bool {
        // Acquire: pairs with the Release of each user after its last access.
        uses.load(Ordering::Acquire) == 0
    }
}

impl Drop for PortMemory {
    fn drop(&mut self) {
        for at in self.objects.drain(..) {
            let freed = self.arena.free(at);
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }
}

/// This rank's use of the objects of all ranks of its node for a port. Released with the last of
/// its ends.
#[derive(Debug)]
pub(super) struct PortUse {
    used: Vec<Mapped<AtomicU64>>,
    own: Option<PortMemory>,
    deferred: DeferredBuffers,
}

impl PortUse {
    /// Begins the use of objects with these counts; an offset of 0 is none.
    pub(super) fn begin(
        segment: &Arc<Segment>,
        counts: impl Iterator<Item = Offset>,
        deferred: &DeferredBuffers,
    ) -> Result<Self> {
        let present = counts.filter(|at| *at != Offset(0));
        let used =
            present.map(|at| Mapped::new(segment, at)).collect::<std::result::Result<_, _>>();
        let used = used.map_err(queues::error::CreateError::from)?;
        Ok(PortUse { used, own: None, deferred: deferred.clone() })
    }

    /// Adds the objects of this rank, to be freed after the last use.
    pub(super) fn own(&mut self, memory: PortMemory) {
        self.own = Some(memory);
    }
}

impl Drop for PortUse {
    fn drop(&mut self) {
        for uses in &self.used {
            // Release: pairs with the Acquire of the owner. This rank accesses the objects no more.
            uses.fetch_sub(1, Ordering::Release);
        }
        if let Some(own) = self.own.take() {
            let uses = own.uses.clone();
            self.deferred.hold(move || PortMemory::is_unused(&uses), Box::new(own));
        }
    }
}

/// The agent's part of a port.
#[derive(Clone, Debug)]
pub(super) struct AgentPort {
    pub(super) job: Weak<InternodeJob>,
    pub(super) port: u64,
}

/// The last receiver of a port closes it for senders on other nodes.
#[derive(Debug)]
pub(super) struct ReceiverEnd {
    pub(super) agent: Option<AgentPort>,
    pub(super) _use: Arc<PortUse>,
}

impl Drop for ReceiverEnd {
    fn drop(&mut self) {
        if let Some(AgentPort { job, port }) = &self.agent
            && let Some(job) = job.upgrade()
        {
            job.agent().close_receiver(*port);
        }
    }
}

/// The last receiver of a queue closes it for all senders.
#[derive(Debug)]
pub(super) struct QueueEnd<K: QueueKind> {
    // Declared first: retired while it is in use.
    pub(super) queue: Queue<K>,
    pub(super) _end: ReceiverEnd,
}

impl<K: QueueKind> Drop for QueueEnd<K> {
    fn drop(&mut self) {
        // The senders of this node find it closed, and so does the agent.
        self.queue.retire();
    }
}

/// The last sender of a port ends this rank's sends.
#[derive(Debug)]
pub(super) struct SendersEnd {
    pub(super) agent: Option<AgentPort>,
    pub(super) _use: Arc<PortUse>,
}

impl Drop for SendersEnd {
    fn drop(&mut self) {
        if let Some(AgentPort { job, port }) = &self.agent
            && let Some(job) = job.upgrade()
        {
            job.agent().close_senders(*port);
        }
    }
}
