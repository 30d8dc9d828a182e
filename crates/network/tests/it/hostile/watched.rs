//! A transport that shows whether its agent sleeps.

use interpreter::Packet;
use network::error::Error;
use network::transport::frame::{Frame, Route};
use network::transport::memory::Memory;
use network::transport::payloads::{PayloadLocation, Payloads};
use network::transport::{Arrival, Transport};
use std::os::fd::BorrowedFd;
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
    fn node(&self) -> u32 {
        self.memory.node()
    }

    fn nodes(&self) -> u32 {
        self.memory.nodes()
    }

    fn address(&self, node: u32) -> String {
        self.memory.address(node)
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        self.memory.watch(descriptor, number)
    }

    fn send(&mut self, node: u32, frame: Frame) {
        self.memory.send(node, frame);
    }

    fn send_in_place(
        &mut self,
        node: u32,
        route: Route,
        packet: Packet,
        location: PayloadLocation,
        bytes: u64,
    ) {
        self.memory.send_in_place(node, route, packet, location, bytes);
    }

    fn detach(&mut self, location: PayloadLocation, payload: Option<Vec<u8>>) {
        self.memory.detach(location, payload);
    }

    fn flush(&mut self, payloads: &mut dyn Payloads) {
        self.memory.flush(payloads);
    }

    fn queued(&self, node: u32) -> u64 {
        self.memory.queued(node)
    }

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

    fn refused(&self) -> u64 {
        self.memory.refused()
    }
}
