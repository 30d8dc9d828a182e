//! The receiving side of one class of a hall: sorting, delivery in order, promotion and demotion.

use std::collections::VecDeque;
use std::sync::Arc;

use shm::arena::Arena;

use super::layout::{Class, HallError, Plan, Shape, State};
use crate::lines::ring::POSITION;
use crate::lines::{Sole, WideMessage, WideQueue, WideReceiver};
use crate::refusal::ReceiveError;
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
    message: WideMessage,
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
    queue: WideQueue,
    receiver: WideReceiver<Sole>,
    owner: Option<usize>,
    /// A message that was taken from the ring and has to wait for entries of the overflow list; with its position.
    held: Option<Entry>,
}

// What the module's page says about private memory.
const _: () = assert!(size_of::<Queue>() <= 64 && size_of::<Entry>() <= 64 && size_of::<Ring>() <= 512);

/// The receiver's part of one class.
#[derive(Debug)]
pub(super) struct Side {
    arena: Arc<Arena>,
    plan: Plan,
    class: Class,
    shape: Shape,
    miss: WideQueue,
    misses: WideReceiver<Sole>,
    queues: Box<[Queue]>,
    rings: Vec<Ring>,
    /// A bit for each queue: its overflow list holds something.
    waiting: Box<[u64]>,
    /// Messages of the class so far.
    count: u64,
}

impl Side {
    pub(super) fn new(
        arena: &Arc<Arena>,
        plan: &Plan,
        class: Class,
        miss: WideQueue,
        shape: Shape,
    ) -> Result<Side, HallError> {
        let misses = miss.sole_receiver()?;
        let queues = (0..shape.queues).map(|_| Queue::default()).collect();
        let waiting = vec![0; shape.queues.div_ceil(64)].into();
        let (arena, plan) = (Arc::clone(arena), plan.clone());
        Ok(Side { arena, plan, class, shape, miss, misses, queues, rings: Vec::new(), waiting, count: 0 })
    }

    pub(super) fn is_resident(&self, queue: usize) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.ring.is_some())
    }

    pub(super) fn overflow(&self, queue: usize) -> usize {
        self.queues.get(queue).map_or(0, |queue| queue.overflow.len())
    }

    /// Whether a ring needs another look of its receiver before it can sleep.
    pub(super) fn has_ready_ring(&self, queue: Option<usize>) -> bool {
        let is_asked = |ring: &&Ring| ring.owner.is_some() && queue.is_none_or(|queue| ring.owner == Some(queue));
        self.misses.is_ready() || self.rings.iter().filter(is_asked).any(|ring| ring.receiver.is_ready())
    }

    /// Takes the next message of a queue.
    pub(super) fn try_receive(&mut self, queue: usize) -> Result<Option<WideMessage>, ReceiveError> {
        if queue >= self.queues.len() {
            return Err(ReceiveError::Closed);
        }
        self.sort()?;
        self.deliver(queue)
    }

    /// Takes the next message of the first queue that holds any.
    pub(super) fn try_receive_any(&mut self) -> Result<Option<(usize, WideMessage)>, ReceiveError> {
        self.sort()?;
        let mut from = 0;
        while let Some(queue) = self.first_candidate(from) {
            if let Some(message) = self.deliver(queue)? {
                return Ok(Some((queue, message)));
            }
            from = queue + 1;
        }
        Ok(None)
    }

    /// The first queue from this one on that may hold something.
    fn first_candidate(&self, from: usize) -> Option<usize> {
        let (first, mask) = (from / 64, u64::MAX << (from % 64));
        let mask_of = |word: usize| if word == first { mask } else { u64::MAX };
        let words = self.waiting.iter().enumerate().skip(first);
        let waiting = words
            .map(|(word, bits)| (word, bits & mask_of(word)))
            .find(|(_, bits)| *bits != 0)
            .map(|(word, bits)| 64 * word + bits.trailing_zeros() as usize);
        let is_candidate = |ring: &&Ring| ring.held.is_some() || ring.receiver.is_ready();
        let owners = self.rings.iter().filter(is_candidate).filter_map(|ring| ring.owner);
        owners.chain(waiting).filter(|queue| *queue >= from).min()
    }

    fn deliver(&mut self, queue: usize) -> Result<Option<WideMessage>, ReceiveError> {
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

    /// Takes lines from the miss ring, at most as many as it holds, each into its queue's overflow list.
    fn sort(&mut self) -> Result<(), ReceiveError> {
        let mut sorted = 0;
        while sorted < self.shape.miss_capacity {
            let Some(message) = self.misses.try_receive()? else { break };
            let index = usize::from(message.header().tag);
            if let Some(queue) = self.queues.get_mut(index) {
                let ring = queue.ring.and_then(|ring| self.rings.get(ring));
                // Acquire, and after the message: see "Order" in the page of the module.
                let boundary = ring.map_or(0, |ring| ring.queue.ring.control.tail.position.load(Ordering::Acquire));
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

    /// Takes the next message of a queue in the order of the page of the module, and says whether it came through the ring.
    fn next(&mut self, index: usize) -> Result<Option<(WideMessage, bool)>, ReceiveError> {
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

    /// Makes the bit and the descriptor of a queue say how much its overflow list holds.
    fn settle(&mut self, index: usize) {
        let (Some(queue), Some(bits)) = (self.queues.get_mut(index), self.waiting.get_mut(index / 64)) else { return };
        let (held, bit) = (queue.overflow.len(), 1 << (index % 64));
        *bits = if held == 0 { *bits & !bit } else { *bits | bit };
        let stopped = held >= self.shape.quota || (queue.stopped && held > self.shape.quota / 2);
        if stopped != queue.stopped {
            queue.stopped = stopped;
            self.describe(index);
        }
    }

    /// Writes a queue's descriptor.
    fn describe(&self, index: usize) {
        let Some(queue) = self.queues.get(index) else { return };
        let ring = queue.ring.and_then(|ring| Some((ring, self.rings.get(ring)?.queue.generation())));
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
        queue.recent.checked_shr(((self.count / PERIOD) as u32).wrapping_sub(queue.period)).unwrap_or(0)
    }

    /// Gives a queue a ring if its traffic deserves one.
    fn rebalance(&mut self, index: usize) -> Result<(), ReceiveError> {
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
        let queue = WideQueue::create(&self.arena, self.shape.ring_capacity, None).ok()?;
        let receiver = queue.sole_receiver().ok()?;
        // Relaxed: the descriptor publishes it.
        place.store(queue.offset().0 + 1, Ordering::Relaxed);
        self.rings.push(Ring { queue, receiver, owner: None, held: None });
        Some(number)
    }

    pub(super) fn demote(&mut self, index: usize) -> Result<(), ReceiveError> {
        let Some(number) = self.queues.get(index).and_then(|queue| queue.ring) else { return Ok(()) };
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
                Ok(None) => break Err(ReceiveError::Broken),
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
        if end == Err::<(), _>(ReceiveError::Closed) && self.rings[number].queue.reopen().is_some() {
            self.rings[number].owner = None;
            return Ok(());
        }
        Err(ReceiveError::Broken)
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
