//! The receiving side of one class: sorting, delivery in order, promotion and demotion. The page of
//! the parent module explains the order that this file keeps.

use super::config::{Class, QueuesConfig};
use super::layout::{QueueState, QueuesLayout};
use super::memory::QueuesMemory;
use crate::cache_line::{CacheLine, CacheLineMessage, CacheLineQueue, CacheLineReceiver, Single};
use crate::error::{CreateError, RecvError};
use crate::one_poll::bits::{Members, Poller};
use crate::queue::sealed::Protocol;
use crate::slot_ring::POSITION;
use crate::sync::{Ordering, fence};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of recent messages through the non-resident queue that make a queue resident.
pub const PROMOTION_MESSAGES: u32 = 8;

/// Number of messages of a class after which counts of recent messages are halved.
pub const DECAY_MESSAGES: u64 = 1024;

/// Number of polls for which a demotion waits for slots that are claimed and not published. A slot
/// is voided after fewer polls, so only a corrupt ring exceeds this bound.
const MAX_POLLS: usize = 1 << 22;

/// A message in overflow, and the ring position before which it is delivered.
#[derive(Debug)]
struct OverflowEntry {
    boundary: u64,
    message: CacheLineMessage,
}

#[derive(Debug, Default)]
struct QueueRecord {
    overflow: VecDeque<OverflowEntry>,
    ring: Option<usize>,
    stopped: bool,
    /// Number of recent messages, as of `period`.
    recent: u32,
    period: u32,
}

#[derive(Debug)]
struct ResidentRing {
    queue: CacheLineQueue,
    receiver: CacheLineReceiver<Single>,
    owner: Option<usize>,
    /// A message taken from the ring that waits for entries of the overflow list, with its
    /// position.
    pending: Option<OverflowEntry>,
}

// The bounds on private memory in the page of the parent module.
const _: () = assert!(
    size_of::<QueueRecord>() <= 64
        && size_of::<OverflowEntry>() <= 64
        && size_of::<ResidentRing>() <= 512
);

/// The receiver's state of one class.
#[derive(Debug)]
pub(super) struct ClassQueues {
    memory: Arc<QueuesMemory>,
    layout: QueuesLayout,
    class: Class,
    config: QueuesConfig,
    non_resident: CacheLineQueue,
    non_resident_receiver: CacheLineReceiver<Single>,
    queues: Box<[QueueRecord]>,
    rings: Vec<ResidentRing>,
    poller: Poller,
    /// Number of messages of the class so far.
    count: u64,
    /// Number of polls of rings and lists so far.
    pub(super) polls: u64,
    /// Error of a poll that has not been returned yet.
    failed: Option<RecvError>,
}

impl ClassQueues {
    pub(super) fn new(
        memory: &Arc<QueuesMemory>,
        layout: &QueuesLayout,
        class: Class,
        non_resident: CacheLineQueue,
        config: QueuesConfig,
    ) -> Result<ClassQueues, CreateError> {
        Ok(ClassQueues {
            memory: Arc::clone(memory),
            layout: layout.clone(),
            class,
            config,
            non_resident_receiver: non_resident.single_receiver()?,
            non_resident,
            queues: (0..config.queues).map(|_| QueueRecord::default()).collect(),
            rings: Vec::new(),
            poller: Poller::default(),
            count: 0,
            polls: 0,
            failed: None,
        })
    }

    pub(super) fn is_resident(&self, queue: usize) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.ring.is_some())
    }

    pub(super) fn overflow(&self, queue: usize) -> usize {
        self.queues.get(queue).map_or(0, |queue| queue.overflow.len())
    }

    /// Returns true if a queue has to be polled again before its receiver can sleep.
    pub(super) fn is_queue_ready(&self, index: usize) -> bool {
        let Some(queue) = self.queues.get(index) else { return false };
        let is_ready = |ring: &ResidentRing| ring.pending.is_some() || ring.receiver.is_ready();
        !queue.overflow.is_empty()
            || queue.ring.and_then(|ring| self.rings.get(ring)).is_some_and(is_ready)
    }

    /// Returns true if the non-resident queue has to be polled again.
    pub(super) fn is_non_resident_ready(&self) -> bool {
        self.non_resident_receiver.is_ready()
    }

    /// Returns true if the non-resident queue or any queue has to be polled again.
    pub(super) fn is_ready(&mut self, layout: &QueuesLayout) -> bool {
        let poller = self.poller.clone();
        self.is_non_resident_ready() || poller.is_any_ready(layout.bits(self.class), None, self)
    }

    /// Returns true if a ring is half full, or an overflow list has half of its quota.
    pub(super) fn is_half_full(&self) -> bool {
        is_half_full(&self.non_resident)
            || self.rings.iter().any(|ring| is_half_full(&ring.queue))
            || self.queues.iter().any(|queue| 2 * queue.overflow.len() >= self.config.quota)
    }

    /// Sets the bits of queues with messages of senders that died between the send and the bit.
    pub(super) fn restore_bits(&self) {
        let ready =
            self.rings.iter().filter(|ring| ring.receiver.is_ready()).filter_map(|ring| ring.owner);
        ready.for_each(|queue| self.layout.bits(self.class).announce(queue));
    }

    /// Receives the next message of a queue.
    pub(super) fn try_recv(&mut self, queue: usize) -> Result<Option<CacheLineMessage>, RecvError> {
        if queue >= self.queues.len() {
            return Err(RecvError::Closed);
        }
        self.sort()?;
        self.deliver(queue)
    }

    /// Receives the next message of the first queue that has one. Polls the non-resident queue, and
    /// the queues with a set bit until one of them returns a message.
    pub(super) fn try_recv_any(
        &mut self,
        layout: &QueuesLayout,
    ) -> Result<Option<(usize, CacheLineMessage)>, RecvError> {
        self.sort()?;
        let mut poller = self.poller.clone();
        let found = poller.poll(layout.bits(self.class), None, self);
        self.poller = poller;
        match self.failed.take() {
            Some(why) => Err(why),
            None => Ok(found),
        }
    }

    fn deliver(&mut self, queue: usize) -> Result<Option<CacheLineMessage>, RecvError> {
        let Some((message, was_direct)) = self.next(queue)? else { return Ok(None) };
        if was_direct {
            self.count_message(queue);
        }
        self.settle(queue);
        // A sender either sees the freed slot or is woken here.
        self.layout.space(self.class).notify();
        Ok(Some(message))
    }

    /// Moves messages from the non-resident queue into the overflow lists of their queues, at most
    /// as many as its capacity.
    fn sort(&mut self) -> Result<(), RecvError> {
        let mut sorted = 0;
        self.polls += 1;
        while sorted < self.config.non_resident_capacity {
            let Some(message) = self.non_resident_receiver.try_recv()? else { break };
            let index = usize::from(message.header().tag);
            if let Some(queue) = self.queues.get_mut(index) {
                let ring = queue.ring.and_then(|ring| self.rings.get(ring));
                // Acquire, and after the message was read: the tail is then past every earlier
                // direct message of the same sender (see "Order").
                let boundary = ring.map_or(0, |ring| {
                    ring.queue.ring.control.tail.position.load(Ordering::Acquire)
                });
                queue.overflow.push_back(OverflowEntry { boundary: boundary & POSITION, message });
                self.settle(index);
                self.count_message(index);
            }
            // Release: pairs with the Acquire in `QueueSender::is_direct`. Only this receiver moves
            // the head, so Relaxed suffices for its load.
            let head = self.non_resident.ring.control.head.position.load(Ordering::Relaxed);
            self.layout.class(self.class).sorted.store(head, Ordering::Release);
            self.rebalance(index)?;
            sorted += 1;
        }
        // Each sorted message has freed a slot of the non-resident queue. One wake-up serves all of
        // them.
        if sorted != 0 {
            self.layout.space(self.class).notify();
        }
        Ok(())
    }

    /// Takes the next message of a queue in the order of the parent module's page, and returns
    /// whether it came through the ring.
    fn next(&mut self, index: usize) -> Result<Option<(CacheLineMessage, bool)>, RecvError> {
        let Some(queue) = self.queues.get_mut(index) else { return Ok(None) };
        let front = queue.overflow.front().map(|entry| entry.boundary);
        let Some(ring) = queue.ring.and_then(|ring| self.rings.get_mut(ring)) else {
            return Ok(queue.overflow.pop_front().map(|entry| (entry.message, false)));
        };
        let head = || ring.queue.ring.control.head.position.load(Ordering::Relaxed);
        if ring.pending.is_none() && front.is_none_or(|boundary| boundary > head()) {
            // This is the only receiver, so the message was the one before the new head.
            let taken = ring.receiver.try_recv()?;
            ring.pending =
                taken.map(|message| OverflowEntry { boundary: head().wrapping_sub(1), message });
        }
        let comes_first = match (&ring.pending, front) {
            (_, None) => false,
            (Some(pending), Some(boundary)) => boundary <= pending.boundary,
            // A slot below the boundary that is claimed and not published belongs to another
            // sender: the entry's sender published all its earlier messages. So the entry need not
            // wait.
            (None, Some(boundary)) => boundary <= head() || !ring.receiver.is_ready(),
        };
        if comes_first {
            return Ok(queue.overflow.pop_front().map(|entry| (entry.message, false)));
        }
        Ok(ring.pending.take().map(|entry| (entry.message, true)))
    }

    /// Updates the bit and the descriptor of a queue after a change of its overflow list. The bit
    /// is cleared later, when a poll finds the queue empty.
    fn settle(&mut self, index: usize) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        let length = queue.overflow.len();
        if length != 0 {
            self.layout.bits(self.class).announce(index);
        }
        // Two thresholds: a queue at its quota admits messages again when half of the quota is
        // left, so the descriptor does not change with every message.
        let stopped =
            length >= self.config.quota || (queue.stopped && length > self.config.quota / 2);
        if stopped != queue.stopped {
            queue.stopped = stopped;
            self.describe(index);
        }
    }

    /// Writes a queue's descriptor.
    fn describe(&self, index: usize) {
        let Some(queue) = self.queues.get(index) else { return };
        let ring =
            queue.ring.and_then(|ring| Some((ring, self.rings.get(ring)?.queue.generation())));
        self.layout.set_state(index, self.class, QueueState { ring, stopped: queue.stopped });
    }

    fn count_message(&mut self, index: usize) {
        self.count += 1;
        let recent = self.recent(index);
        if let Some(queue) = self.queues.get_mut(index) {
            (queue.recent, queue.period) =
                (recent.saturating_add(1), (self.count / DECAY_MESSAGES) as u32);
        }
    }

    fn recent(&self, index: usize) -> u32 {
        let Some(queue) = self.queues.get(index) else { return 0 };
        queue
            .recent
            .checked_shr(((self.count / DECAY_MESSAGES) as u32).wrapping_sub(queue.period))
            .unwrap_or(0)
    }

    /// Makes a queue resident if it has enough recent messages.
    fn rebalance(&mut self, index: usize) -> Result<(), RecvError> {
        let recent = self.recent(index);
        if recent < PROMOTION_MESSAGES || self.is_resident(index) || self.promote(index) {
            return Ok(());
        }
        let owners = self.rings.iter().filter_map(|ring| ring.owner);
        // All rings are in use. The owner with the fewest recent messages gives way only to a queue
        // with more than twice as many, so two queues do not exchange a ring again and again.
        let Some(least) = owners.min_by_key(|owner| self.recent(*owner)) else { return Ok(()) };
        if self.recent(least) < recent / 2 {
            self.demote(least)?;
            self.promote(index);
        }
        Ok(())
    }

    pub(super) fn promote(&mut self, index: usize) -> bool {
        if index >= self.queues.len() {
            return false;
        }
        if self.is_resident(index) {
            return true;
        }
        let free = self.rings.iter().position(|ring| ring.owner.is_none());
        let Some(number) = free.or_else(|| self.create_ring()) else { return false };
        // The ring is empty: it is new, or `demote` has reopened it after it was drained.
        self.rings[number].owner = Some(index);
        let queue = &mut self.queues[index];
        // Everything in the list comes before the first message in the ring.
        queue.overflow.iter_mut().for_each(|entry| entry.boundary = 0);
        queue.ring = Some(number);
        self.describe(index);
        true
    }

    /// Creates one more ring. Returns `None` if the class has all its rings, or there is no memory.
    fn create_ring(&mut self) -> Option<usize> {
        let number = self.rings.len();
        let offset =
            self.layout.ring_offset(self.class, number).filter(|_| number < self.config.rings)?;
        let queue = self.memory.create_ring(self.config.ring_capacity).ok()?;
        let receiver = queue.single_receiver().ok()?;
        // Relaxed: the descriptor publishes it.
        offset.store(queue.offset().0 + 1, Ordering::Relaxed);
        self.rings.push(ResidentRing { queue, receiver, owner: None, pending: None });
        Some(number)
    }

    pub(super) fn demote(&mut self, index: usize) -> Result<(), RecvError> {
        let Some(number) = self.queues.get(index).and_then(|queue| queue.ring) else {
            return Ok(());
        };
        // First the descriptor: a sender that finds the ring closed reads the descriptor again and
        // must not find the same ring there.
        let stopped = self.queues[index].stopped;
        self.layout.set_state(index, self.class, QueueState { ring: None, stopped });
        // Sends that claimed a slot before are still published or voided. `next` returns them all
        // before it reports the end.
        self.rings[number].queue.close();
        let mut in_order = VecDeque::new();
        let mut polls = 0;
        let end = loop {
            match self.next(index) {
                Ok(Some((message, _))) => {
                    in_order.push_back(OverflowEntry { boundary: 0, message })
                }
                Ok(None) if polls < MAX_POLLS => polls += 1,
                Ok(None) => break Err(RecvError::Corrupt),
                Err(why) => break Err(why),
            }
        };
        let queue = &mut self.queues[index];
        queue.ring = None;
        // These entries come behind all messages of the ring.
        queue.overflow.iter_mut().for_each(|entry| entry.boundary = 0);
        in_order.append(&mut queue.overflow);
        queue.overflow = in_order;
        self.settle(index);
        // A ring that has not ended properly keeps its owner: no other queue gets it.
        if end == Err::<(), _>(RecvError::Closed) && self.rings[number].queue.reopen().is_some() {
            self.rings[number].owner = None;
            return Ok(());
        }
        Err(RecvError::Corrupt)
    }
}

/// Returns true if a ring is at least half full.
pub(super) fn is_half_full(queue: &CacheLineQueue) -> bool {
    CacheLine::holds(&queue.ring, queue.capacity() as u64 / 2)
}

impl Members for ClassQueues {
    type Item = CacheLineMessage;

    fn take(&mut self, index: usize) -> Option<CacheLineMessage> {
        self.polls += 1;
        self.deliver(index).unwrap_or_else(|why| {
            // `Members::take` has no error. `try_recv_any` returns this one after the poll.
            self.failed = Some(why);
            None
        })
    }

    fn is_ready(&mut self, index: usize) -> bool {
        self.polls += 1;
        self.is_queue_ready(index)
    }
}

impl Drop for ClassQueues {
    fn drop(&mut self) {
        self.non_resident.close();
        self.rings.iter().for_each(|ring| {
            ring.queue.close();
        });
        // Orders the closed rings before the load of the wake-up word: a sender that sleeps later
        // finds them closed in its last poll.
        fence(Ordering::SeqCst);
        self.layout.space(self.class).notify();
    }
}
