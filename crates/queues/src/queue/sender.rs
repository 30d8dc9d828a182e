//! Sending end of a queue.

use super::kind::QueueKind;
use super::memory::RingMemory;
use crate::error::SendError;
use shm::event::Event;
use shm::liveness::{PeerExit, RankLiveness, RankWatch};
use shm::published_wait::Wait;
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sender to a queue. Any number of threads may share a sender or use clones of it.
pub struct Sender<K: QueueKind> {
    pub(crate) ring: RingMemory<K::RingSlot>,
    pub(crate) generation: u32,
    state: K::SendState,
    event: Option<Event>,
    /// The receiver of the ring is the node service, with that event.
    leads_to_node_service: bool,
    watched: RankWatch,
}

impl<K: QueueKind> Sender<K> {
    pub(super) fn of(ring: RingMemory<K::RingSlot>, generation: u32) -> Self {
        Sender {
            ring,
            generation,
            state: K::SendState::default(),
            event: None,
            leads_to_node_service: false,
            watched: RankWatch::default(),
        }
    }

    /// Sets the receiver's event, which this sender notifies on request, also on behalf of the poll
    /// set of the queue. A sender to another node notifies the node service instead,
    /// which receives from it, so this changes nothing there.
    #[must_use]
    pub fn with_event(self, event: Event) -> Self {
        if self.leads_to_node_service { self } else { Sender { event: Some(event), ..self } }
    }

    /// Sets the event of the node service, which receives what this sender sends to another node.
    #[must_use]
    pub fn to_node_service(self, event: Event) -> Self {
        Sender { event: Some(event), leads_to_node_service: true, ..self }
    }

    /// Adds a liveness check: waiting for free space ends when it reports that the receiver has
    /// left or failed. The check is dropped with the last clone of the sender.
    #[must_use]
    pub fn watching(self, receiver: Arc<dyn RankLiveness>) -> Self {
        Sender { watched: self.watched.and(receiver), ..self }
    }

    /// Sends a message if there is free space.
    ///
    /// # Errors
    /// [`SendError`]; the message was not sent.
    #[inline]
    pub fn try_send(&self, message: &K::Item) -> Result<(), SendError> {
        // A sender killed between these two steps leaves a message that was not announced. Receivers
        // that poll find it; one that sleeps finds it after a slice at the latest.
        K::try_send(&self.ring, message, self.generation, &self.state)?;
        self.announce();
        Ok(())
    }

    /// Sends a message, waiting for free space.
    ///
    /// # Errors
    /// [`SendError::Closed`], [`SendError::Corrupt`], [`SendError::RankExited`],
    /// [`SendError::NodeServiceEnded`].
    #[inline]
    pub fn send(&self, message: &K::Item) -> Result<(), SendError> {
        match self.try_send(message) {
            Err(SendError::Full) => self.send_later(message, None),
            other => other,
        }
    }

    /// Sends a message, waiting for free space for at most `timeout`.
    ///
    /// # Errors
    /// Those of [`Sender::send_deadline`].
    #[inline]
    pub fn send_timeout(&self, message: &K::Item, timeout: Duration) -> Result<(), SendError> {
        match self.try_send(message) {
            Err(SendError::Full) => self.send_later(message, Instant::now().checked_add(timeout)),
            other => other,
        }
    }

    /// Sends a message, waiting for free space until `deadline` at the latest.
    ///
    /// # Errors
    /// [`SendError::Timeout`], [`SendError::Closed`], [`SendError::Corrupt`],
    /// [`SendError::RankExited`], [`SendError::NodeServiceEnded`].
    #[inline]
    pub fn send_deadline(&self, message: &K::Item, deadline: Instant) -> Result<(), SendError> {
        match self.try_send(message) {
            Err(SendError::Full) => self.send_later(message, Some(deadline)),
            other => other,
        }
    }

    /// Sends a message if there is free space, as [`try_send`](Self::try_send) does, and returns its
    /// place in the queue, by which this sender finds out whether a receiver has taken it.
    ///
    /// A message to another node counts as taken when the node service has taken it.
    ///
    /// # Errors
    /// [`SendError`]; the message was not sent.
    ///
    /// ```
    /// use queues::{express::{ExpressMessage, ExpressQueue}, id::SourceName};
    /// # use shm::{arena::Arena, segment::{Backing, Segment}};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = std::sync::Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// # let queue = ExpressQueue::create(&Arena::new(segment, 0..1 << 20)?, 64, None)?;
    /// # let sender = queue.sender();
    /// # let mut receiver = queue.receiver()?;
    /// let sent = sender.try_send_tracked(&ExpressMessage::default())?;
    /// assert!(!sender.is_taken(sent));
    /// receiver.try_recv()?;
    /// assert!(sender.wait_taken(sent, None)?);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn try_send_tracked(&self, message: &K::Item) -> Result<Sent, SendError> {
        let position = K::try_send(&self.ring, message, self.generation, &self.state)?;
        self.announce();
        Ok(Sent { position })
    }

    /// Returns true if a receiver has taken a message of this sender, or of a clone of it.
    #[inline]
    pub fn is_taken(&self, sent: Sent) -> bool {
        self.ring.is_taken(sent.position)
    }

    /// Waits until a receiver has taken a message of this sender, until `deadline` at the latest.
    /// Returns whether one has.
    ///
    /// # Errors
    /// [`SendError::Closed`] if the queue is closed and has no receiver, [`SendError::RankExited`],
    /// [`SendError::NodeServiceEnded`]: no receiver takes the message any more.
    pub fn wait_taken(&self, sent: Sent, deadline: Option<Instant>) -> Result<bool, SendError> {
        let taken = wait(&mut Taken { sender: self, sent }, SpinPolicy::MESSAGE, deadline);
        taken.unwrap_or(Ok(())).map(|()| self.is_taken(sent))
    }

    /// Returns true if the queue is closed.
    pub fn is_closed(&self) -> bool {
        K::generation(&self.ring) != self.generation || self.ring.is_closed()
    }

    /// Returns the exit of the receiver that ends waits for free space; `None` if there is none.
    pub fn exited(&self) -> Option<PeerExit> {
        self.watched.exited()
    }

    #[cold]
    fn send_later(&self, message: &K::Item, deadline: Option<Instant>) -> Result<(), SendError> {
        // Without a deadline the wait ends only with a result.
        wait(&mut Later { sender: self, message }, SpinPolicy::MESSAGE, deadline)
            .unwrap_or(Err(SendError::Timeout))
    }

    /// Notifies receivers of the message just published.
    #[inline(always)]
    pub(crate) fn announce(&self) {
        self.ring.announce(self.event.as_ref(), || {
            K::holds(&self.ring, self.ring.slots.len() as u64 / 2)
        });
    }
}

/// Place of a message in its queue, of [`Sender::try_send_tracked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    position: u64,
}

/// Message waiting for a receiver.
struct Taken<'a, K: QueueKind> {
    sender: &'a Sender<K>,
    sent: Sent,
}

impl<K: QueueKind> Waiter for Taken<'_, K> {
    type Output = Result<(), SendError>;

    fn sleeper(&self) -> impl Sleeper {
        // Receivers announce the space of every message that they take.
        self.sender.ring.space()
    }

    fn poll(&mut self) -> Option<Self::Output> {
        let Taken { sender, sent } = self;
        if sender.is_taken(*sent) {
            return Some(Ok(()));
        }
        let is_over = K::generation(&sender.ring) != sender.generation
            || sender.ring.is_closed_without_receivers();
        // The last action of a receiver that has left may have been to take it.
        is_over.then(|| if sender.is_taken(*sent) { Ok(()) } else { Err(SendError::Closed) })
    }

    fn check(&mut self) -> Option<Self::Output> {
        let exit = self.sender.watched.exited()?;
        // As in `Later`.
        Some(self.poll().unwrap_or(Err(exit.into())))
    }

    fn describe(&self) -> Wait {
        Wait::QueueSpace { queue: self.sender.ring.offset() }
    }
}

/// Message waiting for free space.
struct Later<'a, K: QueueKind> {
    sender: &'a Sender<K>,
    message: &'a K::Item,
}

impl<K: QueueKind> Waiter for Later<'_, K> {
    type Output = Result<(), SendError>;

    fn sleeper(&self) -> impl Sleeper {
        self.sender.ring.space()
    }

    fn poll(&mut self) -> Option<Self::Output> {
        Some(self.sender.try_send(self.message)).filter(|result| *result != Err(SendError::Full))
    }

    fn check(&mut self) -> Option<Self::Output> {
        K::recover(&self.sender.ring);
        let exit = self.sender.watched.exited()?;
        // Its last action may have been to release a slot. The message is then sent, although no
        // receiver is left.
        Some(self.poll().unwrap_or(Err(exit.into())))
    }

    fn describe(&self) -> Wait {
        Wait::QueueSpace { queue: self.sender.ring.offset() }
    }
}

impl<K: QueueKind> Clone for Sender<K> {
    fn clone(&self) -> Self {
        Sender {
            event: self.event.clone(),
            leads_to_node_service: self.leads_to_node_service,
            watched: self.watched.clone(),
            ..Sender::of(self.ring.clone(), self.generation)
        }
    }
}

debug_by_offset!("Sender", K: QueueKind> std::fmt::Debug for Sender<K>);
