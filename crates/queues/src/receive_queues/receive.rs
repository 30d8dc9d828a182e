//! The receiving process's side of all its queues.

use super::class::ClassQueues;
use super::config::{Class, QueuesConfig};
use super::layout::QueuesLayout;
use super::memory::QueuesMemory;
#[cfg(doc)]
use super::sender::RemoteQueues;
use crate::cache_line::CacheLineMessage;
use crate::error::{CreateError, RecvError};
use crate::sync::{Ordering, fence};
use shm::arena::Arena;
#[cfg(doc)]
use shm::event::Event;
use shm::event::Notify;
use shm::segment::Offset;
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A received message and its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Index of the queue.
    pub queue: usize,
    /// Class of the queue.
    pub class: Class,
    /// The message; its tag is the index of the queue.
    pub message: CacheLineMessage,
}

/// The receiving end of all queues. Dropping it closes them. The memory returns to the arena if no
/// living process has a [`RemoteQueues`]; otherwise it stays allocated ([`ReceiveQueues::close`]
/// can free it later).
#[derive(Debug)]
pub struct ReceiveQueues {
    layout: QueuesLayout,
    classes: [ClassQueues; 2],
    memory: Arc<QueuesMemory>,
}

/// Memory of closed queues that other processes may still access.
#[derive(Debug)]
pub struct DeferredFree {
    memory: Arc<QueuesMemory>,
}

impl DeferredFree {
    /// Frees the memory if no living process has a [`RemoteQueues`] any more.
    ///
    /// # Errors
    /// Itself, to try again later. Its drop tries once more; then the memory stays allocated.
    pub fn free(self) -> Result<(), DeferredFree> {
        if self.memory.try_free() { Ok(()) } else { Err(self) }
    }
}

impl ReceiveQueues {
    /// Creates queues of this configuration. Their rings are allocated from the same arena later.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create(arena: &Arc<Arena>, config: QueuesConfig) -> Result<ReceiveQueues, CreateError> {
        let memory = Arc::new(QueuesMemory::new(arena));
        let (layout, [request, reply]) = memory.create_layout(config)?;
        let class =
            |class, non_resident| ClassQueues::new(&memory, &layout, class, non_resident, config);
        let classes = [class(Class::Request, request)?, class(Class::Reply, reply)?];
        Ok(ReceiveQueues { layout, classes, memory })
    }

    /// Closes the queues and frees their memory if no living process has a [`RemoteQueues`].
    /// Messages that were not received are lost.
    ///
    /// # Errors
    /// [`DeferredFree`] if a living process has one.
    pub fn close(self) -> Result<(), DeferredFree> {
        let memory = Arc::clone(&self.memory);
        // Closes the rings and wakes the senders that wait, which then find them closed.
        drop(self);
        DeferredFree { memory }.free()
    }

    /// Returns the offset of the queues in the segment, to which senders connect.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.layout.offset()
    }

    fn class(&mut self, class: Class) -> &mut ClassQueues {
        &mut self.classes[class as usize]
    }

    /// Receives the next message of one queue, if there is one.
    ///
    /// # Errors
    /// [`RecvError::Corrupt`]; [`RecvError::Closed`] if there is no such queue.
    pub fn try_recv(
        &mut self,
        queue: usize,
        class: Class,
    ) -> Result<Option<CacheLineMessage>, RecvError> {
        self.class(class).try_recv(queue)
    }

    /// Receives the next message of one queue. Blocks until there is one.
    ///
    /// # Errors
    /// Those of [`ReceiveQueues::try_recv`].
    pub fn recv(&mut self, queue: usize, class: Class) -> Result<CacheLineMessage, RecvError> {
        loop {
            if let Some(message) =
                wait(&mut QueueWait { queues: self, queue, class }, SpinPolicy::MESSAGE, None)
                    .transpose()?
            {
                return Ok(message);
            }
        }
    }

    /// Receives as [`ReceiveQueues::recv`] does, and returns `None` at the deadline.
    ///
    /// # Errors
    /// Those of [`ReceiveQueues::try_recv`].
    pub fn recv_deadline(
        &mut self,
        queue: usize,
        class: Class,
        deadline: Instant,
    ) -> Result<Option<CacheLineMessage>, RecvError> {
        wait(&mut QueueWait { queues: self, queue, class }, SpinPolicy::MESSAGE, Some(deadline))
            .transpose()
    }

    /// Receives as [`ReceiveQueues::recv`] does, and returns `None` after `timeout`.
    ///
    /// # Errors
    /// Those of [`ReceiveQueues::try_recv`].
    pub fn recv_timeout(
        &mut self,
        queue: usize,
        class: Class,
        timeout: Duration,
    ) -> Result<Option<CacheLineMessage>, RecvError> {
        let deadline = Instant::now().checked_add(timeout);
        wait(&mut QueueWait { queues: self, queue, class }, SpinPolicy::MESSAGE, deadline)
            .transpose()
    }

    /// Receives the next message of the first queue that has one: replies before requests, then by
    /// index.
    ///
    /// # Errors
    /// [`RecvError::Corrupt`].
    pub fn try_recv_any(&mut self) -> Result<Option<Received>, RecvError> {
        for class in [Class::Reply, Class::Request] {
            // Replies first: a program that waits for one before it serves requests cannot be
            // blocked by a stream of requests.
            if let Some((queue, message)) =
                self.classes[class as usize].try_recv_any(&self.layout)?
            {
                return Ok(Some(Received { queue, class, message }));
            }
        }
        Ok(None)
    }

    /// Receives the next message of any queue, in the order of [`ReceiveQueues::try_recv_any`].
    /// Blocks until there is one.
    ///
    /// # Errors
    /// [`RecvError::Corrupt`].
    pub fn recv_any(&mut self) -> Result<Received, RecvError> {
        loop {
            if let Some(received) =
                wait(&mut AnyWait(self), SpinPolicy::MESSAGE, None).transpose()?
            {
                return Ok(received);
            }
        }
    }

    /// Requests one notification of the senders' [`Event`] ([`RemoteQueues::with_event`]): when a
    /// message arrives, or when a ring or a non-resident queue is half full. Returns true if that
    /// is already so, or if an overflow list has half of its quota; then receive first.
    pub fn request_event(&mut self, when: Notify) -> bool {
        self.layout.request().request(when);
        // Orders the request before the polls: a sender either sees the request, or its message is
        // seen here.
        fence(Ordering::SeqCst);
        match when {
            Notify::Arrival => self.is_ready(),
            Notify::HalfFull => self.classes.iter().any(ClassQueues::is_half_full),
        }
    }

    /// Cancels the request of [`ReceiveQueues::request_event`].
    pub fn cancel_event_request(&mut self) {
        self.layout.request().cancel();
    }

    fn is_ready(&mut self) -> bool {
        self.classes.iter_mut().any(|class| class.is_ready(&self.layout))
    }

    /// Returns true if a queue of a class, or the non-resident queue, has to be polled again before
    /// its receiver can sleep.
    pub(crate) fn needs_poll(&self, queue: usize, class: Class) -> bool {
        let class = &self.classes[class as usize];
        // Also for a wait on one queue: its next message may lie in the non-resident queue,
        // unsorted.
        class.is_non_resident_ready() || class.is_queue_ready(queue)
    }

    /// Returns the number of polls of a ring or an overflow list so far, a measure of the cost of
    /// receiving.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.classes.iter().map(|class| class.polls).sum()
    }

    /// Makes a queue resident if a ring is free, or there is memory for one. Returns true if the
    /// queue is resident then.
    pub fn promote(&mut self, queue: usize, class: Class) -> bool {
        self.class(class).promote(queue)
    }

    /// Makes a queue non-resident.
    ///
    /// # Errors
    /// [`RecvError::Corrupt`]; the ring and its contents are then lost.
    pub fn demote(&mut self, queue: usize, class: Class) -> Result<(), RecvError> {
        self.class(class).demote(queue)
    }

    /// Returns true if a queue is resident.
    #[must_use]
    pub fn is_resident(&self, queue: usize, class: Class) -> bool {
        self.classes[class as usize].is_resident(queue)
    }

    /// Returns the number of messages in a queue's overflow list.
    #[must_use]
    pub fn overflow(&self, queue: usize, class: Class) -> usize {
        self.classes[class as usize].overflow(queue)
    }
}

/// Wait for a message of one queue.
struct QueueWait<'a> {
    queues: &'a mut ReceiveQueues,
    queue: usize,
    class: Class,
}

impl Waiter for QueueWait<'_> {
    type Output = Result<CacheLineMessage, RecvError>;

    fn sleeper(&self) -> impl Sleeper {
        self.queues.layout.arrival()
    }

    fn poll(&mut self) -> Option<Self::Output> {
        self.queues.try_recv(self.queue, self.class).transpose()
    }

    fn must_poll(&mut self) -> bool {
        self.queues.needs_poll(self.queue, self.class)
    }
}

/// Wait for a message of any queue.
struct AnyWait<'a>(&'a mut ReceiveQueues);

impl Waiter for AnyWait<'_> {
    type Output = Result<Received, RecvError>;

    fn sleeper(&self) -> impl Sleeper {
        self.0.layout.arrival()
    }

    fn poll(&mut self) -> Option<Self::Output> {
        self.0.try_recv_any().transpose()
    }

    fn must_poll(&mut self) -> bool {
        self.0.is_ready()
    }

    fn check(&mut self) -> Option<Self::Output> {
        // A sender may have died between its send and the bit; the poll that follows relies on
        // bits.
        self.0.classes.iter().for_each(ClassQueues::restore_bits);
        None
    }
}
