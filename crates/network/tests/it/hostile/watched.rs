//! A transport that shows whether its agent sleeps.

use network::error::Error;
use network::transport::memory::Memory;
use network::transport::payloads::Payloads;
use network::transport::{Arrival, Transport};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Sleep of an agent.
#[derive(Debug, Default)]
pub(super) struct Sleep {
    is_long: AtomicBool,
}

impl Sleep {
    /// Returns true while the agent sleeps until something arrives. One that looks again after a
    /// millisecond does not count.
    pub(super) fn is_long(&self) -> bool {
        self.is_long.load(Ordering::Relaxed)
    }
}

/// The transport.
#[derive(Debug)]
pub(super) struct Watched {
    memory: Memory,
    sleep: Arc<Sleep>,
}

impl Watched {
    pub(super) fn new(memory: Memory) -> (Self, Arc<Sleep>) {
        let sleep = Arc::new(Sleep::default());
        (Watched { memory, sleep: Arc::clone(&sleep) }, sleep)
    }
}

impl Transport for Watched {
    crate::forwarding::forward_but_waits!(memory);

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        let is_long = timeout.is_none_or(|timeout| timeout >= Duration::from_millis(10));
        self.sleep.is_long.store(is_long, Ordering::Relaxed);
        let waited = self.memory.wait(timeout, payloads, arrivals);
        self.sleep.is_long.store(false, Ordering::Relaxed);
        waited
    }
}
