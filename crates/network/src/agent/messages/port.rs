//! A rank's side of its messages with ranks on other nodes.

use super::area::{Area, Ring};
use crate::agent::shared_region::SharedRegion;
use crate::agent::submission_ring::SubmissionRing;
use crate::transport::records::messages::{HEAD_BYTES, Head, MAX_BYTES};
use queues::remote_waits::RemoteWaits;
use shm::process::ProcessHandle;
use shm::segment::Offset;
use shm::sync::{Ordering, fence};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Longest record that is composed before it is copied.
const COMPOSED: usize = 256;

/// A rank's side of its rings. One thread at a time uses it.
#[derive(Debug)]
pub struct MessagePort {
    region: Arc<SharedRegion>,
    area: Area,
    notifier: OwnedFd,
    /// The agent's process, if it is another one.
    service: Option<Arc<ProcessHandle>>,
    /// Bytes put into the send ring, and the part that is published.
    sent: u64,
    published: u64,
    /// The agent's last known count of bytes taken from it.
    drained: u64,
    /// Number of the agent's sleep for which it was notified last.
    notified: u64,
    /// Bytes taken from the receive ring, and the part that is published.
    taken: u64,
    returned: u64,
    /// The last known count of bytes put into it.
    delivered: u64,
    /// Number of the agent's wait for space for which it was notified last.
    notified_space: u64,
    /// The record at the start of the receive ring.
    current: Option<Head>,
    is_damaged: bool,
}

impl MessagePort {
    pub(crate) fn new(
        region: Arc<SharedRegion>,
        area: Area,
        notifier: OwnedFd,
        service: Option<Arc<ProcessHandle>>,
    ) -> Self {
        MessagePort {
            region,
            area,
            notifier,
            service,
            sent: 0,
            published: 0,
            drained: 0,
            notified: 0,
            taken: 0,
            returned: 0,
            delivered: 0,
            notified_space: 0,
            current: None,
            is_damaged: false,
        }
    }

    /// Returns true if the send ring has space for so many bytes of records. Otherwise the agent
    /// wakes this rank's waiting threads when it has taken something.
    #[inline]
    pub fn has_space(&mut self, bytes: u64) -> bool {
        let send_ring = self.area.send_ring.bytes();
        if self.sent + bytes - self.drained <= send_ring {
            return true;
        }
        let mut has_space = || {
            // Acquire: pairs with the Release of the router, which has copied the bytes before it.
            // A count that no router writes permits nothing more than damaged messages.
            self.drained = self.area.header.router.drained.load(Ordering::Acquire).min(self.sent);
            self.sent + bytes - self.drained <= send_ring
        };
        if has_space() {
            return true;
        }
        self.area.header.port.needs_space.store(1, Ordering::Relaxed);
        // Pairs with the fence of the router between its count and its look at the request: it sees
        // the request, or its count is visible here.
        fence(Ordering::SeqCst);
        has_space()
    }

    /// Puts a record for a rank into the send ring; false if there is no space. `bytes` has at most
    /// [`MAX_BYTES`]. The agent gets it with the next [`publish`](Self::publish).
    #[inline]
    pub fn put(&mut self, head: Head, bytes: &[u8]) -> bool {
        let length = head.record_bytes();
        if bytes.len() != head.bytes || bytes.len() > MAX_BYTES || !self.has_space(length) {
            return false;
        }
        if length as usize <= COMPOSED {
            // One copy, because each has a price of its own.
            let mut record = [0; COMPOSED];
            record[..HEAD_BYTES].copy_from_slice(&head.encode());
            record[HEAD_BYTES..HEAD_BYTES + bytes.len()].copy_from_slice(bytes);
            self.area.send_ring.write(self.sent, &record[..length as usize]);
        } else {
            self.area.send_ring.write(self.sent, &head.encode());
            write_padded(&self.area.send_ring, self.sent + HEAD_BYTES as u64, bytes);
        }
        self.sent += length;
        true
    }

    /// Publishes what was put into the send ring, and notifies the agent if it sleeps.
    #[inline]
    pub fn publish(&mut self) {
        if self.published == self.sent {
            return;
        }
        self.published = self.sent;
        let ring = SubmissionRing {
            tail: &self.area.header.port.sent,
            head: &self.area.header.router.drained,
            epoch: self.region.epoch(),
        };
        if ring.publish(self.sent, &mut self.notified) {
            self.notify();
        }
    }

    #[cold]
    fn notify(&self) {
        // The counter is full only after more notifications than there are sleeps.
        let _ = rustix::io::write(&self.notifier, &1u64.to_ne_bytes());
    }

    /// Returns the head of the first record of the receive ring, until it is
    /// [released](Self::release).
    #[inline]
    pub fn first(&mut self) -> Option<Head> {
        if self.current.is_some() {
            return self.current;
        }
        if self.taken == self.delivered {
            // Acquire: pairs with the Release of the router, which has written the records before.
            self.delivered = self.area.header.router.delivered.load(Ordering::Acquire);
            if self.taken == self.delivered {
                return None;
            }
        }
        let available = self.delivered.wrapping_sub(self.taken);
        let mut encoded = [0; HEAD_BYTES];
        self.area.receive_ring.read(self.taken, &mut encoded);
        let head = Head::decode(&encoded).filter(|head| {
            available <= self.area.receive_ring.bytes() && head.record_bytes() <= available
        });
        // The agent writes whole records only; this process may have damaged its own memory.
        self.is_damaged |= head.is_none();
        self.current = head;
        head
    }

    /// Reads bytes of the first record, from byte `at` on.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let fits = self.current.is_some_and(|head| at + into.len() <= head.bytes);
        debug_assert!(fits, "the bytes belong to the record");
        if fits {
            self.area.receive_ring.read(self.taken + (HEAD_BYTES + at) as u64, into);
        }
    }

    /// Removes the first record from the receive ring.
    #[inline]
    pub fn release(&mut self) {
        let Some(head) = self.current.take() else { return };
        self.taken += head.record_bytes();
        let pending = self.taken - self.returned;
        // Relaxed: a hint; `return_space` orders the count and the next look.
        let is_needed = self.area.header.router.needs_space.load(Ordering::Relaxed);
        if pending >= self.area.receive_ring.bytes() / 8 || is_needed != 0 {
            self.return_space();
        }
    }

    /// Returns the space of the records that were taken to the agent.
    fn return_space(&mut self) {
        self.returned = self.taken;
        // Release: pairs with the Acquire of the router. The records have been read.
        self.area.header.port.taken.store(self.taken, Ordering::Release);
        // Pairs with the fence of the router between its request and its look at the count.
        fence(Ordering::SeqCst);
        let wait = self.area.header.router.needs_space.load(Ordering::Relaxed);
        if wait != 0 && std::mem::replace(&mut self.notified_space, wait) != wait {
            self.notify();
        }
    }

    /// Returns true if nothing can be sent or received any more: the agent has ended, or the memory
    /// that it shares with this rank is damaged.
    pub fn has_failed(&self) -> bool {
        self.is_damaged
            || self.region.has_ended()
            || self.service.as_ref().is_some_and(|service| service.has_exited())
    }

    /// Returns the count of waiting threads, for [`WaitMark`].
    pub fn wait_mark(&self) -> WaitMark {
        WaitMark::new(Arc::clone(&self.region))
    }
}

/// Writes bytes and fills the last word.
fn write_padded(ring: &Ring, position: u64, bytes: &[u8]) {
    let (whole, rest) = bytes.split_at(bytes.len() / 8 * 8);
    ring.write(position, whole);
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        ring.write(position + whole.len() as u64, &last);
    }
}

/// Marks threads of the rank as waiting: while all ranks of a node wait, the agent polls.
#[derive(Clone, Debug)]
pub struct WaitMark {
    region: Arc<SharedRegion>,
}

impl WaitMark {
    pub(crate) fn new(region: Arc<SharedRegion>) -> Self {
        WaitMark { region }
    }
}

impl RemoteWaits for WaitMark {
    fn begin(&self) {
        // Relaxed: a hint for the agent, which orders nothing.
        self.region.waits().fetch_add(1, Ordering::Relaxed);
        self.region.waiting().fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.region.waiting().fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a thread that begins or ends to poll: the agent does not sleep at once after something
    /// for it.
    fn set_polling(&self, is_polling: bool) {
        // Relaxed: as in `begin`.
        if is_polling {
            self.region.polling().fetch_add(1, Ordering::Relaxed);
        } else {
            self.region.polling().fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns true if the agent ran last on the core of this thread: to poll would keep the agent
    /// from it.
    fn shares_core(&self) -> bool {
        // Relaxed: as in `begin`.
        self.region.core().load(Ordering::Relaxed) == rustix::thread::sched_getcpu() as u32
    }

    fn mark(&self, at: Offset) {
        self.region.marks().set(at);
    }
}
