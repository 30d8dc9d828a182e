//! The receiving end of a channel.

use super::memory::ChannelMemory;
use super::other_node::{self, OtherNode};
use super::owner::ChannelOwner;
use super::ring::{Consumer, TakeError};
use super::value::{self, Value};
use crate::error::RecvError;
use shm::liveness::ProcessWatch;
use shm::object::CreateError;
use shm::process_table::End;
use shm::published_wait::Wait;
use shm::segment::{Offset, Segment};
use shm::wait::{PeerWaitError, SpinPolicy};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The receiving end. Used by one thread at a time.
#[derive(Debug)]
pub struct Receiver<T: Value> {
    consumer: Consumer,
    memory: ChannelMemory,
    watch: ProcessWatch,
    carries: PhantomData<Cell<T>>,
    /// The sender's node, if it is another one.
    other: Option<OtherNode>,
    /// Dropped after the end was closed (see `drop`).
    owner: Option<Arc<ChannelOwner>>,
}

impl<T: Value> Receiver<T> {
    /// Connects to the receiving end of the channel at `offset`. That is possible once.
    ///
    /// # Errors
    /// [`CreateError::NotFound`], [`CreateError::OtherType`], [`CreateError::Taken`],
    /// [`CreateError::Segment`], [`CreateError::Process`].
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let memory = ChannelMemory::connect::<T>(segment, offset, End::Receiver)?;
        let consumer = Consumer::new(memory.slots());
        let watch = ProcessWatch::default();
        Ok(Receiver { consumer, memory, watch, carries: PhantomData, other: None, owner: None })
    }

    pub(super) fn set_other(&mut self, other: OtherNode) {
        self.other = Some(other);
    }

    /// Keeps the channel's memory allocated as long as this end.
    pub(super) fn keep_owner(&mut self, owner: Arc<ChannelOwner>) {
        self.owner = Some(owner);
    }

    /// Receives the next value if it has arrived.
    ///
    /// # Errors
    /// [`RecvError::Empty`], [`RecvError::Closed`].
    #[inline]
    pub fn try_recv(&mut self) -> Result<T, RecvError> {
        match take(&mut self.consumer, &self.memory, self.other.as_ref()) {
            Ok(value) => Ok(value),
            Err(TakeError::Empty) => Err(RecvError::Empty),
            Err(TakeError::Closed) => Err(self.closed()),
        }
    }

    #[cold]
    fn closed(&self) -> RecvError {
        match other_node::failed(self.other.as_ref()) {
            Some(exit) => exit.into(),
            None => RecvError::Closed,
        }
    }

    /// Receives the next value. Blocks until it has arrived: spins briefly, then sleeps.
    ///
    /// # Errors
    /// [`RecvError::Closed`], [`RecvError::ProcessExited`]; [`RecvError::RankExited`] from a channel
    /// between nodes.
    #[inline]
    pub fn recv(&mut self) -> Result<T, RecvError> {
        self.spin();
        match take(&mut self.consumer, &self.memory, self.other.as_ref()) {
            Ok(value) => Ok(value),
            Err(_) => self.wait_to_recv(None),
        }
    }

    /// Receives the next value as [`Receiver::recv`] does, and blocks at most for `timeout`.
    ///
    /// # Errors
    /// [`RecvError::Timeout`] and those of [`Receiver::recv`].
    #[inline]
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<T, RecvError> {
        self.spin();
        match take(&mut self.consumer, &self.memory, self.other.as_ref()) {
            Ok(value) => Ok(value),
            Err(_) => self.wait_to_recv(Instant::now().checked_add(timeout)),
        }
    }

    /// Receives the next value as [`Receiver::recv`] does, and blocks at most until `deadline`.
    ///
    /// # Errors
    /// [`RecvError::Timeout`] and those of [`Receiver::recv`].
    #[inline]
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<T, RecvError> {
        self.spin();
        match take(&mut self.consumer, &self.memory, self.other.as_ref()) {
            Ok(value) => Ok(value),
            Err(_) => self.wait_to_recv(Some(deadline)),
        }
    }

    /// Polls for a value that is about to arrive. Must stay inlined: after the arrival only the
    /// exit of this loop delays the use of the value.
    #[inline(always)]
    fn spin(&self) {
        // The node service may need this thread's core to bring the value.
        if self.other.is_some() {
            return;
        }
        let next = value::next::<T>(&self.consumer, self.memory.words());
        // Two loads a turn, of lines that only the sender writes. `take` decides afterwards, so a
        // value that arrives after the last turn is not missed.
        for _ in 0..SpinPolicy::CHANNEL.eager {
            if next.is_there() {
                break;
            }
        }
    }

    fn wait_to_recv(&mut self, deadline: Option<Instant>) -> Result<T, RecvError> {
        let memory = &self.memory;
        let other = self.other.as_ref();
        let consumer = &mut self.consumer;
        let next = value::next::<T>(consumer, memory.words());
        let poll = || {
            if !next.is_there() {
                return None;
            }
            match take(consumer, memory, other) {
                Ok(value) => Some(Ok(value)),
                Err(TakeError::Empty) => None,
                Err(TakeError::Closed) => Some(Err(())),
            }
        };
        // The sender stores the value before it loads this end's wake-up word. A sender that is
        // killed in between leaves the value in the slot, and the poll after the sleep finds it.
        let holder = memory.holder_of(End::Sender);
        let wakeup = memory.wakeup_for(End::Receiver, other.is_some());
        let subject = Wait::QueueMessage { queue: memory.offset() };
        match other_node::wait(other, wakeup, &mut self.watch, holder, deadline, subject, poll) {
            Ok(received) => received.map_err(|()| self.closed()),
            Err(PeerWaitError::Timeout) => Err(RecvError::Timeout),
            Err(PeerWaitError::PeerExited(pid)) => match other_node::failed(self.other.as_ref()) {
                Some(exit) => Err(exit.into()),
                None => Err(RecvError::ProcessExited { pid }),
            },
        }
    }

    /// Returns the offset of the channel.
    pub fn channel(&self) -> Offset {
        self.memory.offset()
    }
}

/// Takes a value out of the ring. Publishes the freed slots once every quarter of the ring.
#[inline(always)]
fn take<T: Value>(
    consumer: &mut Consumer,
    memory: &ChannelMemory,
    other: Option<&OtherNode>,
) -> Result<T, TakeError> {
    let value = value::take(consumer, memory.words())?;
    if consumer.is_due() {
        consumer.publish(memory.words());
        memory.wakeup(End::Sender).notify_also(|| other_node::notify(other, memory.offset()));
    }
    Ok(value)
}

impl<T: Value> Drop for Receiver<T> {
    /// Closes the end. Sends of values that were not taken fail from now on; a sender that waits is
    /// woken.
    fn drop(&mut self) {
        self.memory.close_receiver(&self.consumer);
        // Always: a node service that awaits no space has not registered as a sleeper.
        other_node::notify(self.other.as_ref(), self.memory.offset());
    }
}
