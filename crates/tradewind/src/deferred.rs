//! Memory of the segment that was dropped while other ranks may still use it: buffers of requests,
//! and queues.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Memory of the segment that outlives its owner: other ranks may still read and write it.
///
/// It is freed by the first [`sweep`](Self::sweep) after the last use.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeferredBuffers(Arc<DeferredList>);

#[derive(Debug, Default)]
struct DeferredList(Mutex<Vec<DeferredFree>>);

/// Memory to drop once nothing uses it. The condition, which may hold the request, is dropped first.
struct DeferredFree {
    is_unused: Box<dyn Fn() -> bool + Send>,
    memory: Box<dyn Any + Send>,
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
        self.lock().push(DeferredFree { is_unused: Box::new(is_unused), memory });
    }

    /// Frees what is unused by now.
    pub(crate) fn sweep(&self) {
        let unused: Vec<_> =
            self.lock().extract_if(.., |deferred| (deferred.is_unused)()).collect();
        // After the unlock: a buffer that other ranks still read adds its memory when it is dropped.
        drop(unused);
    }

    /// A handle for memory that may be held itself.
    pub(crate) fn downgrade(&self) -> WeakDeferredBuffers {
        WeakDeferredBuffers(Arc::downgrade(&self.0))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<DeferredFree>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Drops memory once it is unused: now or in a sweep. If no sweep comes any more, it leaks.
    pub(crate) fn drop_once(
        &self,
        is_unused: impl Fn() -> bool + Send + 'static,
        memory: impl Any + Send,
    ) {
        if is_unused() {
            return;
        }
        match self.0.upgrade() {
            Some(list) => DeferredBuffers(list).hold(is_unused, Box::new(memory)),
            None => std::mem::forget(memory),
        }
    }
}

impl Drop for DeferredList {
    fn drop(&mut self) {
        let list = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for DeferredFree { is_unused, memory } in list.drain(..) {
            if is_unused() {
                // The request in the condition goes before its buffers.
                drop(is_unused);
                drop(memory);
            } else {
                // No sweep comes after this one. Memory that other ranks may still use must not be
                // reused, so it leaks instead.
                std::mem::forget(memory);
            }
        }
    }
}
