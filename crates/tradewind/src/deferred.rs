//! Buffers of requests that were dropped before their collective was complete.

use engine::Request as NodeRequest;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers of the segment that outlive their request: other ranks may still read and write them.
///
/// They are freed by the first [`sweep`](Self::sweep) after their collective is complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeferredBuffers(Arc<DeferredList>);

#[derive(Debug, Default)]
struct DeferredList(Mutex<Vec<DeferredFree>>);

/// A collective and the buffers to drop once it is complete.
struct DeferredFree {
    pending: NodeRequest,
    buffers: Box<dyn Any + Send>,
}

impl std::fmt::Debug for DeferredFree {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DeferredFree").finish_non_exhaustive()
    }
}

impl DeferredBuffers {
    /// Holds buffers until their collective is complete.
    pub(crate) fn hold(&self, pending: NodeRequest, buffers: Box<dyn Any + Send>) {
        self.lock().push(DeferredFree { pending, buffers });
    }

    /// Frees the buffers of collectives that are complete by now.
    pub(crate) fn sweep(&self) {
        self.lock().retain(|deferred| !matches!(deferred.pending.test(), Ok(true)));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<DeferredFree>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeferredList {
    fn drop(&mut self) {
        let list = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for DeferredFree { pending, buffers } in list.drain(..) {
            if !pending.is_complete() {
                // No sweep comes after this one. Memory that other ranks may still write must not
                // be reused, so it leaks instead.
                std::mem::forget(buffers);
            }
        }
    }
}
