//! The receiving side of one class of a hall: sorting, delivery in order, promotion and demotion.

use std::collections::VecDeque;
use std::sync::Arc;

use super::layout::{Class, HallError, Plan, Shape, State};
use super::memory::Memory;
use crate::cache_line::ring::POSITION;
use crate::cache_line::{CacheLine, CacheLineMessage, CacheLineQueue, CacheLineReceiver, Single};
use crate::error::RecvError;
use crate::poll_set::{Members, Poller};
use crate::queue::sealed::Protocol;
use crate::sync::{Ordering, fence};

/// So many recent messages through the miss ring give a queue a ring.
pub const PROMOTE: u32 = 8;

/// After so many messages of a class, what counts as recent is halved.
pub const PERIOD: u64 = 1024;

/// How often a demotion looks at lines that were claimed and not published; some looks void one.
const LOOKS: usize = 1 << 22;

/// A message in overflow, and the ring position that it comes before.
#[derive(Debug)]
struct Entry {
    boundary: u64,
    message: CacheLineMessage,
}

#[derive(Debug, Default)]
struct Queue {
    overflow: VecDeque<Entry>,
    ring: Option<usize>,
    stopped: bool,
    /// Recent messages, as of this period.
    recent: u32,
    period: u32,
}

#[derive(Debug)]
struct Ring {
    queue: CacheLineQueue,
    receiver: CacheLineReceiver<Single>,
    owner: Option<usize>,
    /// A message that was taken from the ring and has to wait for entries of the overflow list;
    /// with its position.
    held: Option<Entry>,
}

// What the module's page says about private memory.
const _: () =
    assert!(size_of::<Queue>() <= 64 && size_of::<Entry>() <= 64 && size_of::<Ring>() <= 512);

/// How far the receiver of a queue is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// The end of the miss ring: what was sent through it so far lies before.
    pub(crate) misses: u64,
    /// Everything before this position of the miss ring is in the overflow lists.
    pub(crate) sorted: u64,
    /// Nothing that was sent lies in the miss ring.
    pub(crate) is_sorted: bool,
    /// How many messages at most the queue gives before one that would be sent now, besides those
    /// in the miss ring.
    pub(crate) backlog: u64,
    /// Nothing that was sent lies in the queue.
    pub(crate) is_empty: bool,
}

/// The receiver's part of one class.
#[derive(Debug)]
pub(super) struct Side {
    memory: Arc<Memory>,
    plan: Plan,
    class: Class,
    shape: Shape,
    miss: CacheLineQueue,
    misses: CacheLineReceiver<Single>,
    queues: Box<[Queue]>,
    rings: Vec<Ring>,
    poller: Poller,
    /// Messages of the class so far.
    count: u64,
    /// Looks at rings and lists so far.
    pub(super) looks: u64,
    /// What a look found out that has not been told yet.
    failed: Option<RecvError>,
}

impl Side {
    pub(super) fn new(
        memory: &Arc<Memory>,
        plan: &Plan,
        class: Class,
        miss: CacheLineQueue,
        shape: Shape,
    ) -> Result<Side, HallError> {
        Ok(Side {
            memory: Arc::clone(memory),
            plan: plan.clone(),
            class,
            shape,
            misses: miss.single_receiver()?,
            miss,
            queues: (0..shape.queues).map(|_| Queue::default()).collect(),
            rings: Vec::new(),
            poller: Poller::default(),
            count: 0,
            looks: 0,
            failed: None,
        })
    }

    pub(super) fn is_resident(&self, queue: usize) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.ring.is_some())
    }

    pub(super) fn overflow(&self, queue: usize) -> usize {
        self.queues.get(queue).map_or(0, |queue| queue.overflow.len())
    }

    /// Whether a queue needs another look of its receiver before it can sleep.
    pub(super) fn is_queue_ready(&self, index: usize) -> bool {
        let Some(queue) = self.queues.get(index) else { return false };
        let is_ready = |ring: &Ring| ring.held.is_some() || ring.receiver.is_ready();
        !queue.overflow.is_empty()
            || queue.ring.and_then(|ring| self.rings.get(ring)).is_some_and(is_ready)
    }

    /// Whether the miss ring needs another look.
    pub(super) fn is_miss_ready(&self) -> bool {
        self.misses.is_ready()
    }

    pub(super) fn progress(&self, index: usize) -> Progress {
        // Acquire: what was sent before its sender said so elsewhere lies before these.
        let bounds = |queue: &CacheLineQueue| {
            let control = &queue.ring.control;
            let tail = control.tail.position.load(Ordering::Acquire) & POSITION;
            (control.head.position.load(Ordering::Relaxed), tail)
        };
        let (sorted, misses) = bounds(&self.miss);
        let in_ring = self.queues.get(index).and_then(|queue| self.rings.get(queue.ring?)).map_or(
            0,
            |ring| {
                let (head, tail) = bounds(&ring.queue);
                tail.saturating_sub(head) + u64::from(ring.held.is_some())
            },
        );
        let backlog = in_ring + self.overflow(index) as u64;
        let (is_sorted, is_empty) = (!self.is_miss_ready(), !self.is_queue_ready(index));
        Progress { misses, sorted, is_sorted, backlog, is_empty }
    }

    /// Whether anything does.
    pub(super) fn is_ready(&mut self, plan: &Plan) -> bool {
        let poller = self.poller.clone();
        self.is_miss_ready() || poller.is_any_ready(plan.bits(self.class), None, self)
    }

    /// Whether a ring is half full, or an overflow list has half of its quota.
    pub(super) fn is_half_full(&self) -> bool {
        is_half_full(&self.miss)
            || self.rings.iter().any(|ring| is_half_full(&ring.queue))
            || self.queues.iter().any(|queue| 2 * queue.overflow.len() >= self.shape.quota)
    }

    /// Sets the bits of queues whose senders have died before they could.
    pub(super) fn survey(&self) {
        let ready =
            self.rings.iter().filter(|ring| ring.receiver.is_ready()).filter_map(|ring| ring.owner);
        ready.for_each(|queue| self.plan.bits(self.class).announce(queue));
    }

    /// Takes the next message of a queue.
    pub(super) fn try_receive(
        &mut self,
        queue: usize,
    ) -> Result<Option<CacheLineMessage>, RecvError> {
        if queue >= self.queues.len() {
            return Err(RecvError::Closed);
        }
        self.sort()?;
        self.deliver(queue)
    }

    /// Takes the next message of the first queue that holds any. Looks at the miss ring, and at the
    /// queues whose bit is set until one of them gives something.
    pub(super) fn try_receive_any(
        &mut self,
        plan: &Plan,
    ) -> Result<Option<(usize, CacheLineMessage)>, RecvError> {
        self.sort()?;
        let mut poller = self.poller.clone();
        let found = poller.poll(plan.bits(self.class), None, self);
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
        // Between the room and the look whether a sender waits for it.
        fence(Ordering::SeqCst);
        self.plan.room(self.class).ring();
        Ok(Some(message))
    }

    /// Takes lines from the miss ring, at most as many as it holds, each into its queue's overflow
    /// list.
    fn sort(&mut self) -> Result<(), RecvError> {
        let mut sorted = 0;
        self.looks += 1;
        while sorted < self.shape.miss_capacity {
            let Some(message) = self.misses.try_receive()? else { break };
            let index = usize::from(message.header().tag);
            if let Some(queue) = self.queues.get_mut(index) {
                let ring = queue.ring.and_then(|ring| self.rings.get(ring));
                // Acquire, and after the message: see "Order" in the page of the module.
                let boundary = ring.map_or(0, |ring| {
                    ring.queue.ring.control.tail.position.load(Ordering::Acquire)
                });
                queue.overflow.push_back(Entry { boundary: boundary & POSITION, message });
                self.settle(index);
                self.count_message(index);
            }
            // Release: pairs with the Acquire in `Destination::is_direct`. The head is only ours.
            let head = self.miss.ring.control.head.position.load(Ordering::Relaxed);
            self.plan.class(self.class).sorted.store(head, Ordering::Release);
            self.rebalance(index)?;
            sorted += 1;
        }
        if sorted != 0 {
            fence(Ordering::SeqCst);
            self.plan.room(self.class).ring();
        }
        Ok(())
    }

    /// Takes the next message of a queue in the order of the page of the module, and says whether
    /// it came through the ring.
    fn next(&mut self, index: usize) -> Result<Option<(CacheLineMessage, bool)>, RecvError> {
        let Some(queue) = self.queues.get_mut(index) else { return Ok(None) };
        let front = queue.overflow.front().map(|entry| entry.boundary);
        let Some(ring) = queue.ring.and_then(|ring| self.rings.get_mut(ring)) else {
            return Ok(queue.overflow.pop_front().map(|entry| (entry.message, false)));
        };
        let head = || ring.queue.ring.control.head.position.load(Ordering::Relaxed);
        if ring.held.is_none() && front.is_none_or(|boundary| boundary > head()) {
            // The only receiver: the message was the last before the head.
            let taken = ring.receiver.try_receive()?;
            ring.held = taken.map(|message| Entry { boundary: head().wrapping_sub(1), message });
        }
        let comes_first = match (&ring.held, front) {
            (_, None) => false,
            (Some(held), Some(boundary)) => boundary <= held.boundary,
            // What is claimed below the boundary and not published is not by the entry's sender.
            (None, Some(boundary)) => boundary <= head() || !ring.receiver.is_ready(),
        };
        if comes_first {
            return Ok(queue.overflow.pop_front().map(|entry| (entry.message, false)));
        }
        Ok(ring.held.take().map(|entry| (entry.message, true)))
    }

    /// Makes the bit and the descriptor of a queue say how much its overflow list holds. The bit is
    /// cleared when the queue is found empty.
    fn settle(&mut self, index: usize) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        let held = queue.overflow.len();
        if held != 0 {
            self.plan.bits(self.class).announce(index);
        }
        let stopped = held >= self.shape.quota || (queue.stopped && held > self.shape.quota / 2);
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
        self.plan.set_state(index, self.class, State { ring, stopped: queue.stopped });
    }

    fn count_message(&mut self, index: usize) {
        self.count += 1;
        let recent = self.recent(index);
        if let Some(queue) = self.queues.get_mut(index) {
            (queue.recent, queue.period) = (recent.saturating_add(1), (self.count / PERIOD) as u32);
        }
    }

    fn recent(&self, index: usize) -> u32 {
        let Some(queue) = self.queues.get(index) else { return 0 };
        queue
            .recent
            .checked_shr(((self.count / PERIOD) as u32).wrapping_sub(queue.period))
            .unwrap_or(0)
    }

    /// Gives a queue a ring if its traffic deserves one.
    fn rebalance(&mut self, index: usize) -> Result<(), RecvError> {
        let recent = self.recent(index);
        if recent < PROMOTE || self.is_resident(index) || self.promote(index) {
            return Ok(());
        }
        let owners = self.rings.iter().filter_map(|ring| ring.owner);
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
        let Some(number) = free.or_else(|| self.make_ring()) else { return false };
        self.rings[number].owner = Some(index);
        let queue = &mut self.queues[index];
        // All of it comes before anything that the ring will hold.
        queue.overflow.iter_mut().for_each(|entry| entry.boundary = 0);
        queue.ring = Some(number);
        self.describe(index);
        true
    }

    /// Makes one more ring. `None` if there are as many as there may be, or there is no memory.
    fn make_ring(&mut self) -> Option<usize> {
        let number = self.rings.len();
        let place = self.plan.place(self.class, number).filter(|_| number < self.shape.rings)?;
        let queue = self.memory.ring(self.shape.ring_capacity).ok()?;
        let receiver = queue.single_receiver().ok()?;
        // Relaxed: the descriptor publishes it.
        place.store(queue.offset().0 + 1, Ordering::Relaxed);
        self.rings.push(Ring { queue, receiver, owner: None, held: None });
        Some(number)
    }

    pub(super) fn demote(&mut self, index: usize) -> Result<(), RecvError> {
        let Some(number) = self.queues.get(index).and_then(|queue| queue.ring) else {
            return Ok(());
        };
        // First the descriptor: a sender that finds the ring closed reads there that it is gone.
        let stopped = self.queues[index].stopped;
        self.plan.set_state(index, self.class, State { ring: None, stopped });
        self.rings[number].queue.close();
        let mut in_order = VecDeque::new();
        let mut looks = 0;
        let end = loop {
            match self.next(index) {
                Ok(Some((message, _))) => in_order.push_back(Entry { boundary: 0, message }),
                Ok(None) if looks < LOOKS => looks += 1,
                Ok(None) => break Err(RecvError::Broken),
                Err(why) => break Err(why),
            }
        };
        let queue = &mut self.queues[index];
        queue.ring = None;
        // What comes behind all of the ring.
        queue.overflow.iter_mut().for_each(|entry| entry.boundary = 0);
        in_order.append(&mut queue.overflow);
        queue.overflow = in_order;
        self.settle(index);
        if end == Err::<(), _>(RecvError::Closed) && self.rings[number].queue.reopen().is_some() {
            self.rings[number].owner = None;
            return Ok(());
        }
        Err(RecvError::Broken)
    }
}

/// Whether a ring holds half of what it can.
pub(super) fn is_half_full(queue: &CacheLineQueue) -> bool {
    CacheLine::holds(&queue.ring, queue.capacity() as u64 / 2)
}

impl Members for Side {
    type Item = CacheLineMessage;

    fn take(&mut self, index: usize) -> Option<CacheLineMessage> {
        self.looks += 1;
        self.deliver(index).unwrap_or_else(|why| {
            self.failed = Some(why);
            None
        })
    }

    fn is_ready(&mut self, index: usize) -> bool {
        self.looks += 1;
        self.is_queue_ready(index)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.miss.close();
        self.rings.iter().for_each(|ring| {
            ring.queue.close();
        });
        fence(Ordering::SeqCst);
        self.plan.room(self.class).ring();
    }
}
