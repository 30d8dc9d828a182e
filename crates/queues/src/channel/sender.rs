//! The sending end of a channel.

use super::memory::ChannelMemory;
use super::other_node::{self, OtherNode};
use super::owner::ChannelOwner;
use super::ring::{Producer, PutError};
use super::value::{self, Value};
use crate::error::SendError;
use shm::liveness::ProcessWatch;
use shm::object::CreateError;
use shm::process_table::End;
use shm::published_wait::Wait;
use shm::segment::{Offset, Segment};
use shm::wait::PeerWaitError;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The sending end. Used by one thread at a time.
#[derive(Debug)]
pub struct Sender<T: Value> {
    producer: Producer,
    memory: ChannelMemory,
    watch: ProcessWatch,
    carries: PhantomData<Cell<T>>,
    /// The receiver's node, if it is another one.
    other: Option<OtherNode>,
    /// Dropped after the end was closed (see `drop`).
    owner: Option<Arc<ChannelOwner>>,
}

/// Outcome of a wait for space.
enum Put {
    /// The value lies in the ring.
    Sent,
    /// The value lies in the ring, and the receiver's end is closed.
    InClosedRing,
    /// The ring is full, and the receiver's end is closed.
    Refused,
}

impl<T: Value> Sender<T> {
    /// Connects to the sending end of the channel at `offset`. That is possible once.
    ///
    /// # Errors
    /// [`CreateError::NotFound`], [`CreateError::OtherType`], [`CreateError::Taken`],
    /// [`CreateError::Segment`], [`CreateError::Process`].
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let memory = ChannelMemory::connect::<T>(segment, offset, End::Sender)?;
        let producer = Producer::new(memory.slots());
        let watch = ProcessWatch::default();
        Ok(Sender { producer, memory, watch, carries: PhantomData, other: None, owner: None })
    }

    pub(super) fn set_other(&mut self, other: OtherNode) {
        self.other = Some(other);
    }

    /// Keeps the channel's memory allocated as long as this end.
    pub(super) fn keep_owner(&mut self, owner: Arc<ChannelOwner>) {
        self.owner = Some(owner);
    }

    /// Sends a value if the channel has space.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::Closed`], [`SendError::Corrupt`].
    #[inline]
    pub fn try_send(&mut self, value: T) -> Result<(), SendError> {
        match value::put(value, &mut self.producer, self.memory.words()) {
            // One load of a line that only a sleeping or closing receiver writes.
            Ok(()) if self.notify() => self.sent_to_closed(),
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Sends a value. Blocks while the channel is full: spins briefly, then sleeps.
    ///
    /// # Errors
    /// [`SendError::Closed`], [`SendError::ProcessExited`], [`SendError::Corrupt`];
    /// [`SendError::RankExited`] from a channel between nodes.
    #[inline]
    pub fn send(&mut self, value: T) -> Result<(), SendError> {
        match self.try_send(value) {
            Err(SendError::Full) => self.wait_to_send(value, None),
            other => other,
        }
    }

    /// Sends a value as [`Sender::send`] does, and blocks at most for `timeout`.
    ///
    /// # Errors
    /// [`SendError::Timeout`] and those of [`Sender::send`].
    #[inline]
    pub fn send_timeout(&mut self, value: T, timeout: Duration) -> Result<(), SendError> {
        match self.try_send(value) {
            Err(SendError::Full) => self.wait_to_send(value, Instant::now().checked_add(timeout)),
            other => other,
        }
    }

    /// Sends a value as [`Sender::send`] does, and blocks at most until `deadline`.
    ///
    /// # Errors
    /// [`SendError::Timeout`] and those of [`Sender::send`].
    #[inline]
    pub fn send_deadline(&mut self, value: T, deadline: Instant) -> Result<(), SendError> {
        match self.try_send(value) {
            Err(SendError::Full) => self.wait_to_send(value, Some(deadline)),
            other => other,
        }
    }

    /// Wakes the receiver; returns true if its end is closed.
    #[inline(always)]
    fn notify(&self) -> bool {
        let also = || other_node::notify(self.other.as_ref(), self.memory.offset());
        self.memory.wakeup(End::Receiver).notify_also(also)
    }

    /// Returns the outcome of a send that has put its value into the ring and then found the
    /// receiver closed. The receiver may have taken the value before it closed its end.
    #[cold]
    fn sent_to_closed(&self) -> Result<(), SendError> {
        // With Acquire, unlike the load in `notify`: the position that the receiver published
        // before it closed its end is visible.
        let is_final = self.memory.wakeup(End::Receiver).is_closed();
        let is_taken = is_final && self.producer.is_taken(self.memory.words());
        if is_taken { Ok(()) } else { Err(self.closed()) }
    }

    #[cold]
    fn closed(&self) -> SendError {
        match other_node::failed(self.other.as_ref()) {
            Some(exit) => exit.into(),
            None => SendError::Closed,
        }
    }

    #[cold]
    fn wait_to_send(&mut self, value: T, deadline: Option<Instant>) -> Result<(), SendError> {
        let memory = &self.memory;
        let other = self.other.as_ref();
        let producer = &mut self.producer;
        let receiver = memory.wakeup(End::Receiver);
        // A closed end counts only when the ring is full: as long as there is space, the value is
        // stored first, and `notify` reports the closed end by the load that it makes anyway.
        let poll = || match value::put(value, producer, memory.words()) {
            Err(PutError::Full) => receiver.is_closed().then_some(Ok(Put::Refused)),
            Err(PutError::Broken) => Some(Err(SendError::Corrupt)),
            Ok(()) if receiver.notify_also(|| other_node::notify(other, memory.offset())) => {
                Some(Ok(Put::InClosedRing))
            }
            Ok(()) => Some(Ok(Put::Sent)),
        };
        let holder = memory.holder_of(End::Receiver);
        let wakeup = memory.wakeup_for(End::Sender, other.is_some());
        let subject = Wait::QueueSpace { queue: memory.offset() };
        match other_node::wait(other, wakeup, &mut self.watch, holder, deadline, subject, poll) {
            Ok(Ok(Put::Sent)) => Ok(()),
            Ok(Ok(Put::InClosedRing)) => self.sent_to_closed(),
            Ok(Ok(Put::Refused)) => Err(self.closed()),
            Ok(Err(error)) => Err(error),
            Err(PeerWaitError::Timeout) => Err(SendError::Timeout),
            Err(PeerWaitError::PeerExited(pid)) => match other_node::failed(self.other.as_ref()) {
                Some(exit) => Err(exit.into()),
                None => Err(SendError::ProcessExited { pid }),
            },
        }
    }

    #[cold]
    fn failed(&self, error: PutError) -> SendError {
        match error {
            PutError::Full if self.memory.wakeup(End::Receiver).is_closed() => self.closed(),
            PutError::Full => SendError::Full,
            PutError::Broken => SendError::Corrupt,
        }
    }

    /// Returns the offset of the channel.
    pub fn channel(&self) -> Offset {
        self.memory.offset()
    }
}

impl<T: Value> Drop for Sender<T> {
    /// Closes the end. The receiver gets all sent values and then [`super::RecvError::Closed`].
    fn drop(&mut self) {
        let also = || other_node::notify(self.other.as_ref(), self.memory.offset());
        self.memory.close_sender(&self.producer, also);
    }
}
