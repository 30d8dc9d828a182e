//! Nodes joined by a switch of our own that treats frames badly.

mod faults;

use crate::error::Error;
use crate::node::{INTERFACE, Node};
use crate::tap::Tap;
pub use faults::{Counts, Faults};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A switch between the nodes, on a thread of this process.
///
/// It treats frames as [`Faults`] say, which may change at any time, and counts what it did. With
/// the same seed the n-th frame has the same fate. Broadcasts and multicasts are neither maltreated
/// nor counted.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ports: Vec<Tap>,
    state: Mutex<State>,
}

struct State {
    fate: faults::Fate,
    plugged: Vec<bool>,
    ended: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl Relay {
    /// Makes each node's interface and switches between them.
    pub(crate) fn join(nodes: &[Node], mtu: u32, seed: u64) -> Result<Self, Error> {
        let ports: Vec<Tap> = nodes
            .iter()
            .map(|node| Tap::new(&node.namespace, INTERFACE))
            .collect::<Result<_, _>>()?;
        for node in nodes {
            let address = node.hardware_address_text();
            node.configure(&format!("link set {INTERFACE} address {address} mtu {mtu}\n"))?;
        }
        let state =
            State { fate: faults::Fate::new(seed), plugged: vec![true; ports.len()], ended: false };
        let shared = Arc::new(Shared { ports, state: Mutex::new(state) });
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::System { what: "making an event", source: errno.into() })?;
        let wake = Arc::new(wake);
        let switch = Switch {
            shared: Arc::clone(&shared),
            wake: Arc::clone(&wake),
            held: BinaryHeap::new(),
            next: 0,
        };
        let thread = std::thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || switch.run())
            .map_err(Error::system("starting the relay"))?;
        Ok(Relay { shared, wake, thread: Some(thread) })
    }

    /// From now on, frames are treated so.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.state().fate.faults = faults;
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.shared.state().fate.counts
    }

    pub(crate) fn set_port(&self, node: usize, up: bool) -> Result<(), Error> {
        self.shared.state().plugged[node] = up;
        self.shared.ports[node].set_carrier(up)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        // A counter that is full wakes, too.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It has no result; its panic has been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// A panic elsewhere leaves nothing half done here.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A frame on its way. The earliest comes first, and of several the one that was held back first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due: Instant,
    number: u64,
    port: usize,
    frame: Vec<u8>,
}

struct Switch {
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
    held: BinaryHeap<Reverse<Held>>,
    next: u64,
}

/// Larger than any frame.
const FRAME: usize = 1 << 16;

impl Switch {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let wake = Arc::clone(&self.wake);
        let mut descriptors: Vec<PollFd> =
            shared.ports.iter().map(|port| PollFd::new(port, PollFlags::IN)).collect();
        descriptors.push(PollFd::new(&*wake, PollFlags::IN));
        let mut buffer = vec![0; FRAME];
        while !shared.state().ended {
            let timeout = self.deliver_due().map(|wait| Timespec {
                tv_sec: wait.as_secs() as i64,
                tv_nsec: i64::from(wait.subsec_nanos()),
            });
            // Interrupted by a signal, it looks around and waits again.
            let _ = poll(&mut descriptors, timeout.as_ref());
            for (from, port) in shared.ports.iter().enumerate() {
                if descriptors[from].revents().is_empty() {
                    continue;
                }
                // One after another, but not without end: others wait, too.
                for _ in 0..64 {
                    let Some(length) = port.receive(&mut buffer) else { break };
                    self.forward(from, &buffer[..length]);
                }
            }
        }
    }

    /// Sends on a frame to its node. What is for all arrives as it is: that is the nodes' own
    /// housekeeping.
    fn forward(&mut self, from: usize, frame: &[u8]) {
        let Some(destination) = frame.get(..6) else { return };
        if destination[0] & 1 == 1 {
            let state = self.shared.state();
            for (to, port) in self.shared.ports.iter().enumerate().filter(|(to, _)| *to != from) {
                if state.plugged[from] && state.plugged[to] {
                    port.send(frame);
                }
            }
            return;
        }
        // The last byte of a node's address is its number, from 1.
        let to = usize::from(destination[5]).wrapping_sub(1);
        if to != from && to < self.shared.ports.len() {
            self.treat(from, to, frame);
        }
    }

    fn treat(&mut self, from: usize, to: usize, frame: &[u8]) {
        let mut state = self.shared.state();
        if !(state.plugged[from] && state.plugged[to]) {
            state.fate.counts.unplugged += 1;
            return;
        }
        state.fate.of(frame, |frame, delay| {
            if delay.is_zero() {
                return self.shared.ports[to].send(&frame);
            }
            self.held.push(Reverse(Held {
                due: Instant::now() + delay,
                number: self.next,
                port: to,
                frame,
            }));
            self.next += 1;
        });
    }

    /// Lets everything arrive whose time has come; says how long it is until the next.
    fn deliver_due(&mut self) -> Option<Duration> {
        loop {
            let wait = self.held.peek()?.0.due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                return Some(wait);
            }
            if let Some(Reverse(Held { port, frame, .. })) = self.held.pop() {
                self.shared.ports[port].send(&frame);
            }
        }
    }
}
