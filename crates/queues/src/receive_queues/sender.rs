//! The sending side: one mapping of the receive queues per process, and a few bytes for each
//! sender.

use super::class::is_half_full;
use super::config::Class;
use super::layout::QueuesLayout;
use crate::cache_line::{CacheLine, CacheLineHeader, CacheLineMessage, CacheLineQueue};
use crate::error::{CreateError, SendError};
use crate::queue::sealed::Protocol;
use crate::sync::{AtomicBool, Ordering};
use shm::event::Event;
use shm::liveness::{ProcessId, ProcessWatch};
use shm::process_table::Entry;
use shm::segment::{Offset, Segment};
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Number of times that a sender reads the descriptor again because it found the ring closed. Only
/// closed receive queues exceed this bound.
const ROUNDS: usize = 1 << 10;

/// Number of messages after which a sender checks that the receiving process is alive.
pub const LIVENESS_INTERVAL: u8 = 128;

/// The receive queues of another process, mapped once for all senders of this process.
#[derive(Debug)]
pub struct RemoteQueues {
    layout: QueuesLayout,
    non_resident: [(CacheLineQueue, u32); 2],
    /// Mapped rings, in the order of the ring offsets. Rings never move.
    rings: Box<[OnceLock<CacheLineQueue>]>,
    segment: Arc<Segment>,
    event: Option<Event>,
    /// Entry of this process in the process table: it keeps the memory allocated.
    entry: Entry,
    owner: ProcessId,
    watch: Mutex<ProcessWatch>,
    /// The receiving process has ended.
    gone: AtomicBool,
}

impl RemoteQueues {
    /// Connects to the receive queues at `offset`. Their memory stays allocated as long as the
    /// returned value.
    ///
    /// # Errors
    /// [`CreateError::NotFound`] if there are none at `offset`, [`CreateError::Closed`],
    /// [`CreateError::TooMany`], [`CreateError::Process`], [`CreateError::Segment`] for an offset
    /// outside the segment.
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<RemoteQueues, CreateError> {
        let (layout, entry) = QueuesLayout::connect(segment, offset)?;
        let non_resident = match layout.open_non_resident(segment) {
            Ok(non_resident) => non_resident,
            Err(error) => {
                layout.processes().detach(&entry);
                return Err(error);
            }
        };
        let non_resident = non_resident.map(|queue| {
            let generation = queue.generation();
            (queue.registered(), generation)
        });
        Ok(RemoteQueues {
            rings: layout.ring_offsets.iter().map(|_| OnceLock::new()).collect(),
            segment: Arc::clone(segment),
            event: None,
            entry,
            owner: layout.object().owner(),
            watch: Mutex::default(),
            gone: AtomicBool::new(false),
            layout,
            non_resident,
        })
    }

    /// Sets the event that senders notify when the receiver
    /// [requests](super::ReceiveQueues::request_event) it.
    #[must_use]
    pub fn with_event(mut self, event: Event) -> RemoteQueues {
        self.event = Some(event);
        self
    }

    /// Opens a sender to one queue and class.
    ///
    /// # Errors
    /// [`CreateError::NoIndex`].
    pub fn open(self: &Arc<Self>, queue: usize, class: Class) -> Result<QueueSender, CreateError> {
        let queues = self.layout.queues.len();
        match u16::try_from(queue) {
            Ok(index) if queue < queues => Ok(QueueSender {
                queues: Arc::clone(self),
                diverted: 0,
                index,
                class,
                countdown: LIVENESS_INTERVAL,
            }),
            _ => Err(CreateError::NoIndex {
                object: "set of receive queues",
                offset: self.layout.offset(),
                count: queues,
                index: queue,
            }),
        }
    }

    fn ring(&self, class: Class, ring: usize) -> Result<&CacheLineQueue, SendError> {
        let half = self.rings.len() / 2;
        let word = self.layout.ring_offset(class, ring).ok_or(SendError::Corrupt)?;
        let known = self.rings.get(class as usize * half + ring).ok_or(SendError::Corrupt)?;
        if let Some(ring) = known.get() {
            return Ok(ring);
        }
        // Relaxed: the Acquire load of the descriptor that names this ring made the offset visible.
        // A ring keeps its offset for good, so threads that map it at the same time store equal
        // values and one of them wins.
        let offset = word.load(Ordering::Relaxed).checked_sub(1).ok_or(SendError::Corrupt)?;
        let found = CacheLineQueue::connect(&self.segment, Offset(offset))
            .map_err(|_| SendError::Corrupt)?;
        Ok(known.get_or_init(|| found.registered()))
    }

    fn gone(&self) -> Result<(), SendError> {
        // Relaxed: the flag publishes no other memory. It changes once, so a stale value only
        // delays the error by one check.
        if self.gone.load(Ordering::Relaxed) {
            Err(SendError::ProcessExited { pid: self.owner.pid() })
        } else {
            Ok(())
        }
    }

    /// Checks whether the receiving process is alive.
    #[cold]
    fn check_owner(&self) -> Result<(), SendError> {
        if self.watch.lock().unwrap_or_else(PoisonError::into_inner).has_ended(self.owner) {
            self.gone.store(true, Ordering::Relaxed);
        }
        self.gone()
    }
}

impl Drop for RemoteQueues {
    fn drop(&mut self) {
        // All senders hold this value, so none of this process uses the memory any more. A process
        // that is killed first stays in the table until the owner finds it dead.
        self.layout.processes().detach(&self.entry);
    }
}

/// A sender to one queue. The messages of one sender are received in order; those of two senders
/// have no order between them.
#[derive(Debug)]
pub struct QueueSender {
    queues: Arc<RemoteQueues>,
    /// The position of the last diverted message plus one; 0 when the sender is direct.
    diverted: u64,
    index: u16,
    class: Class,
    /// Messages until the next liveness check.
    countdown: u8,
}

// The bound in the page of the parent module.
const _: () = assert!(size_of::<QueueSender>() <= 32);

impl QueueSender {
    /// Sends a message if there is space. The queue's index replaces its tag.
    ///
    /// # Errors
    /// [`SendError`]. The message was not sent.
    pub fn try_send(&mut self, message: &CacheLineMessage) -> Result<(), SendError> {
        // Messages into a dead process's queues succeed until they are full. A check every so many
        // messages bounds the number that is lost at the cost of one decrement.
        self.queues.gone()?;
        self.countdown -= 1;
        if self.countdown == 0 {
            self.countdown = LIVENESS_INTERVAL;
            self.queues.check_owner()?;
        }
        match self.attempt(message) {
            Err(SendError::Full) => self.queues.check_owner().and(Err(SendError::Full)),
            other => other,
        }
    }

    fn attempt(&mut self, message: &CacheLineMessage) -> Result<(), SendError> {
        let header = CacheLineHeader { tag: self.index, ..message.header() };
        let message = CacheLineMessage::new(header, message.data()).unwrap_or_default();
        let queue = usize::from(self.index);
        // Order of one sender's messages: after one has gone into the non-resident queue, the next
        // ones follow it there until the receiver has sorted all of them (`is_direct`). Only then
        // does a message go into the ring again, behind them.
        for _ in 0..ROUNDS {
            let state = self.queues.layout.state(queue, self.class);
            if let (Some((ring, generation)), true) = (state.ring, self.is_direct()) {
                let ring = self.queues.ring(self.class, ring)?;
                match CacheLine::try_send(&ring.ring, &message, generation, &()) {
                    // Full: the message goes into the non-resident queue. Closed: the queue was
                    // demoted, and its descriptor names no ring, or another generation, by now.
                    Err(SendError::Full) => {}
                    Err(SendError::Closed) => continue,
                    other => {
                        other?;
                        // After the send and before the wake-up: a receiver that sleeps checks the
                        // bits after its own barrier. A sender killed here leaves the message
                        // without a bit; the receiver restores it after a sleep without a wake-up.
                        self.queues.layout.bits(self.class).announce(queue);
                        self.announce(ring);
                        return Ok(());
                    }
                }
            }
            if state.stopped {
                return Err(SendError::Full);
            }
            // The non-resident queue needs no bit: every receive polls it.
            let (queue, generation) = &self.queues.non_resident[self.class as usize];
            let position = CacheLine::try_send(&queue.ring, &message, *generation, &())?;
            self.diverted = position.wrapping_add(1);
            self.announce(queue);
            return Ok(());
        }
        Err(SendError::Closed)
    }

    /// Sends a message. Blocks while there is no space.
    ///
    /// # Errors
    /// [`SendError::Closed`], [`SendError::ProcessExited`], [`SendError::Corrupt`].
    pub fn send(&mut self, message: &CacheLineMessage) -> Result<(), SendError> {
        // Without a deadline only a result ends the wait.
        self.wait_to_send(message, None)
    }

    /// Sends a message, and blocks at most until `deadline`.
    ///
    /// # Errors
    /// [`SendError::Timeout`], and those of [`QueueSender::send`].
    pub fn send_deadline(
        &mut self,
        message: &CacheLineMessage,
        deadline: Instant,
    ) -> Result<(), SendError> {
        self.wait_to_send(message, Some(deadline))
    }

    /// Sends a message, and blocks at most for `timeout`.
    ///
    /// # Errors
    /// Those of [`QueueSender::send_deadline`].
    pub fn send_timeout(
        &mut self,
        message: &CacheLineMessage,
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.wait_to_send(message, Instant::now().checked_add(timeout))
    }

    fn wait_to_send(
        &mut self,
        message: &CacheLineMessage,
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        match self.try_send(message) {
            Err(SendError::Full) => {
                wait(&mut SendWait { sender: self, message }, SpinPolicy::MESSAGE, deadline)
                    .unwrap_or(Err(SendError::Timeout))
            }
            other => other,
        }
    }

    /// Returns true if all messages of this sender in the non-resident queue are sorted.
    fn is_direct(&mut self) -> bool {
        if self.diverted != 0 {
            // Acquire: pairs with the Release in `ClassQueues::sort`. The ring's tail is then at
            // least the boundary of the diverted messages, so a direct one comes after them.
            let sorted = self.queues.layout.class(self.class).sorted.load(Ordering::Acquire);
            if sorted < self.diverted {
                return false;
            }
            self.diverted = 0;
        }
        true
    }

    /// Wakes the receiver after a send into this ring.
    fn announce(&self, ring: &CacheLineQueue) {
        shm::fence::after_exchange();
        self.queues.layout.arrival().notify();
        if let Some(event) = &self.queues.event {
            self.queues.layout.request().serve(|| is_half_full(ring), || event.notify());
        }
    }
}

/// Wait of a message for space.
struct SendWait<'a> {
    sender: &'a mut QueueSender,
    message: &'a CacheLineMessage,
}

impl Waiter for SendWait<'_> {
    type Output = Result<(), SendError>;

    fn sleeper(&self) -> impl Sleeper {
        self.sender.queues.layout.space(self.sender.class)
    }

    fn poll(&mut self) -> Option<Self::Output> {
        let attempt = self.sender.queues.gone().and_then(|()| self.sender.attempt(self.message));
        Some(attempt).filter(|result| *result != Err(SendError::Full))
    }

    fn check(&mut self) -> Option<Self::Output> {
        // There was no wake-up for a while. The next poll returns the result of this check.
        let _ = self.sender.queues.check_owner();
        None
    }
}
