//! The exit of a process from a job on several nodes.

use network::backend::{Backend, DrainOutcome};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Waits, when dropped, until the other nodes have received what this rank has sent.
#[derive(Debug)]
pub(super) struct DrainOnExit {
    /// The backends of this process, in the order in which it leaves them.
    backends: Mutex<Vec<Arc<dyn Backend>>>,
    limit: Duration,
}

impl DrainOnExit {
    /// Drains `general` when dropped, for at most `limit`.
    pub(super) fn new(general: Arc<dyn Backend>, limit: Duration) -> Self {
        DrainOnExit { backends: Mutex::new(vec![general]), limit }
    }

    /// The most time for all backends.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Drains another backend before the others. The agent thus comes last: when the last rank of
    /// a node leaves the agent, it waits for what ranks have sent by the other backends, too.
    pub(super) fn drain_first(&self, backend: &Arc<dyn Backend>) {
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        backends.insert(0, Arc::clone(backend));
    }
}

impl Drop for DrainOnExit {
    fn drop(&mut self) {
        // A rank that fails must exit at once, so that the other ranks detect it.
        if std::thread::panicking() {
            return;
        }
        let deadline = Instant::now() + self.limit;
        let backends = self.backends.get_mut().unwrap_or_else(PoisonError::into_inner);
        let general = backends.last().cloned();
        // Only the general backend detects the exits of other ranks.
        let exits = general.as_ref().and_then(|general| general.rank_exits());
        let exits = exits.unwrap_or(&Vec::new);
        for backend in backends.drain(..) {
            // An error means that the node service is gone, which it reports itself.
            if let Ok(DrainOutcome::TimedOut) = backend.drain(deadline, exits) {
                let seconds = self.limit.as_secs_f64();
                log::warn!(
                    "this rank leaves its job with messages that other nodes have not received \
                     within {seconds} s: complete the collectives on all ranks, or allow more time \
                     by TRADEWIND_NODE_TIMEOUT"
                );
                return;
            }
        }
    }
}
