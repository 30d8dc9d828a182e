//! Memory of the segment that was dropped while other ranks may still use it: buffers of requests,
//! and queues.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory of the segment that outlives its owner: other ranks may still read and write it.
///
/// It is freed by the first [`sweep`](Self::sweep) after the last use.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeferredBuffers(Arc<DeferredList>);

#[derive(Debug, Default)]
struct DeferredList(Mutex<Vec<DeferredFree>>);

/// Memory to drop once nothing uses it.
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
        self.lock().retain(|deferred| !(deferred.is_unused)());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<DeferredFree>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeferredList {
    fn drop(&mut self) {
        let list = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for DeferredFree { is_unused, memory } in list.drain(..) {
            if !is_unused() {
                // No sweep comes after this one. Memory that other ranks may still write must not
                // be reused, so it leaks instead.
                std::mem::forget(memory);
            }
        }
    }
}
