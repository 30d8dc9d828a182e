//! Nodes joined by a switch of this process, which loses, duplicates, reorders and damages frames.

mod faults;
mod tap;

pub use faults::{Counts, Faults};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tap::Tap;
use virtual_nodes::{Error, Link, Node, VirtualNodes};

/// Creates nodes joined by a relay without faults. With the same seed, the n-th frame meets the
/// same faults. `mtu` is the size of the largest IP packet in bytes.
///
/// # Errors
/// As [`VirtualNodes::new`]; the relay needs TAP interfaces, too.
pub fn relayed_nodes(count: usize, mtu: u32, seed: u64) -> Result<(VirtualNodes, Relay), Error> {
    let mut relay = None;
    let nodes = VirtualNodes::with_link(count, |nodes| {
        let link = RelayLink::join(nodes, mtu, seed)?;
        relay = Some(Relay { shared: Arc::clone(&link.shared) });
        Ok(Box::new(link))
    })?;
    Ok((nodes, relay.expect("the link was created with the nodes")))
}

/// Control of the switch between relayed nodes.
///
/// Unicast frames are treated as [`Faults`] define and counted. Broadcasts and multicasts pass
/// unchanged and uncounted.
#[derive(Clone, Debug)]
pub struct Relay {
    shared: Arc<Shared>,
}

impl Relay {
    /// Sets the faults of the frames from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.state().fate.faults = faults;
    }

    /// Returns the counts of frames so far.
    pub fn counts(&self) -> Counts {
        self.shared.state().fate.counts
    }
}

/// Relay as the link of virtual nodes: the thread of the switch.
#[derive(Debug)]
struct RelayLink {
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ports: Vec<Tap>,
    state: Mutex<RelayState>,
}

struct RelayState {
    fate: faults::Fate,
    plugged: Vec<bool>,
    ended: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl RelayLink {
    /// Creates each node's interface and starts the switch.
    fn join(nodes: &[Node], mtu: u32, seed: u64) -> Result<Self, Error> {
        let ports: Vec<Tap> = nodes.iter().map(Tap::new).collect::<Result<_, _>>()?;
        for node in nodes {
            let interface = node.interface();
            let address = node.hardware_address_text();
            node.configure(&format!("link set {interface} address {address} mtu {mtu}\n"))?;
        }
        let plugged = vec![true; ports.len()];
        let state = RelayState { fate: faults::Fate::new(seed), plugged, ended: false };
        let shared = Arc::new(Shared { ports, state: Mutex::new(state) });
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::System { what: "making an event", source: errno.into() })?;
        let wake = Arc::new(wake);
        let switch = Switch {
            shared: Arc::clone(&shared),
            wake: Arc::clone(&wake),
            delayed: BinaryHeap::new(),
            next: 0,
        };
        let thread = std::thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || switch.run())
            .map_err(Error::system("starting the relay"))?;
        Ok(RelayLink { shared, wake, thread: Some(thread) })
    }
}

impl Link for RelayLink {
    fn set_carrier(&self, node: usize, up: bool) -> Result<(), Error> {
        self.shared.state().plugged[node] = up;
        self.shared.ports[node].set_carrier(up)
    }

    fn is_forwarding(&self, _node: usize) -> Result<bool, Error> {
        Ok(true)
    }
}

impl Drop for RelayLink {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        // A write fails only if the counter is full, and then the switch wakes up as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // The thread has no result, and its panic has been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Locks the state. A panic elsewhere leaves no partial update in it.
    fn state(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frame to be delivered later. The order is that of due times, then that of arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DelayedFrame {
    due: Instant,
    number: u64,
    port: usize,
    frame: Vec<u8>,
}

struct Switch {
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
    delayed: BinaryHeap<Reverse<DelayedFrame>>,
    next: u64,
}

/// Size of the buffer: larger than any frame.
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
            // A signal interrupts the wait; the loop polls all ports and waits again.
            let _ = poll(&mut descriptors, timeout.as_ref());
            for (from, port) in shared.ports.iter().enumerate() {
                if descriptors[from].revents().is_empty() {
                    continue;
                }
                // The limit keeps one busy port from starving the others.
                for _ in 0..64 {
                    let Some(length) = port.receive(&mut buffer) else { break };
                    self.forward(from, &buffer[..length]);
                }
            }
        }
    }

    /// Forwards a frame to its node. Broadcasts and multicasts, which only the nodes' kernels send,
    /// pass to all nodes without faults.
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
        // The last byte of a node's address is its number plus one.
        let to = usize::from(destination[5]).wrapping_sub(1);
        if to != from && to < self.shared.ports.len() {
            self.treat(from, to, frame);
        }
    }

    /// Applies the faults to a frame and delivers the resulting frames, now or later.
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
            self.delayed.push(Reverse(DelayedFrame {
                due: Instant::now() + delay,
                number: self.next,
                port: to,
                frame,
            }));
            self.next += 1;
        });
    }

    /// Delivers all frames that are due; returns the time until the next one is.
    fn deliver_due(&mut self) -> Option<Duration> {
        loop {
            let wait = self.delayed.peek()?.0.due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                return Some(wait);
            }
            if let Some(Reverse(DelayedFrame { port, frame, .. })) = self.delayed.pop() {
                self.shared.ports[port].send(&frame);
            }
        }
    }
}
