//! Memory of the segment that was dropped while other ranks may still use it: buffers of requests,
//! inputs that are still read, and queues.

use engine::Swept;
use engine::node::membership::Member;
use shm::limbo::Limbo;
use shm::owned::OwnedBytes;
use std::any::Any;
use std::sync::{Arc, Weak};

/// Memory of the segment that outlives its owner: other ranks may still read and write it.
///
/// It is freed by a [`sweep`](Self::sweep) after the last use.
#[derive(Clone, Debug)]
pub(crate) struct DeferredBuffers(Arc<DeferredList>);

#[derive(Debug, Default)]
struct DeferredList(Limbo<DeferredFree>);

/// Memory to drop once nothing uses it. The condition, which may hold the request, is dropped first.
struct DeferredFree {
    is_unused: Box<dyn Fn() -> bool + Send>,
    memory: DeferredMemory,
}

enum DeferredMemory {
    Bytes(OwnedBytes),
    Object(Box<dyn Any + Send>),
}

impl DeferredMemory {
    /// Leaves the memory allocated. Bytes release their handle of the segment. The parts of an
    /// object free themselves, so it keeps its handle.
    fn abandon(self) {
        match self {
            DeferredMemory::Bytes(bytes) => bytes.abandon(),
            DeferredMemory::Object(object) => std::mem::forget(object),
        }
    }
}

impl std::fmt::Debug for DeferredFree {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DeferredFree").finish_non_exhaustive()
    }
}

impl DeferredBuffers {
    /// Holds memory until it is unused.
    pub(crate) fn hold(
        &self,
        is_unused: impl Fn() -> bool + Send + 'static,
        memory: Box<dyn Any + Send>,
    ) {
        self.push(Box::new(is_unused), DeferredMemory::Object(memory));
        self.sweep();
    }

    fn push(&self, is_unused: Box<dyn Fn() -> bool + Send>, memory: DeferredMemory) {
        self.0.0.push(DeferredFree { is_unused, memory });
    }

    /// An empty list of a rank, which is also swept when a rank of the node is short of memory.
    pub(crate) fn of(member: &Member) -> Self {
        let list = Arc::default();
        member.sweep_when_short(&list);
        DeferredBuffers(list)
    }

    /// Frees some of what is unused by now.
    pub(crate) fn sweep(&self) {
        self.0.0.try_some(|deferred| (deferred.is_unused)());
    }

    /// Frees all that is unused by now.
    pub(crate) fn sweep_all(&self) {
        self.0.0.try_all(|deferred| (deferred.is_unused)());
    }

    /// A handle for memory that may be held itself.
    pub(crate) fn downgrade(&self) -> WeakDeferredBuffers {
        WeakDeferredBuffers(Arc::downgrade(&self.0))
    }
}

impl Swept for DeferredList {
    fn sweep(&self) {
        // Not the requests: their tests execute operations, and the caller may hold a lock.
        self.0.try_all(|deferred| {
            matches!(deferred.memory, DeferredMemory::Bytes(_)) && (deferred.is_unused)()
        });
    }
}

/// As [`DeferredBuffers`], without keeping the list.
#[derive(Clone, Debug)]
pub(crate) struct WeakDeferredBuffers(Weak<DeferredList>);

impl WeakDeferredBuffers {
    /// Frees what is unused by now.
    pub(crate) fn sweep(&self) {
        if let Some(list) = self.0.upgrade() {
            DeferredBuffers(list).sweep();
        }
    }

    /// Frees bytes once they are unused: now or in a sweep. If no sweep comes any more, they stay
    /// allocated.
    pub(crate) fn free_once(
        &self,
        is_unused: impl Fn() -> bool + Send + 'static,
        bytes: OwnedBytes,
    ) {
        if is_unused() {
            return;
        }
        let memory = DeferredMemory::Bytes(bytes);
        match self.0.upgrade() {
            Some(list) => DeferredBuffers(list).push(Box::new(is_unused), memory),
            None => memory.abandon(),
        }
    }
}

impl Drop for DeferredList {
    fn drop(&mut self) {
        for DeferredFree { is_unused, memory } in self.0.take() {
            if is_unused() {
                // The request in the condition goes before its buffers.
                drop(is_unused);
                drop(memory);
            } else {
                // No sweep comes after this one. Memory that other ranks may still use must not be
                // reused, so it stays allocated instead.
                memory.abandon();
            }
        }
    }
}
