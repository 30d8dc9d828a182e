//! What Express queues and wide ones have in common: making and finding them, sending, receiving,
//! waiting and closing.
//!
//! | to | look at once | wait | wait until a deadline |
//! |---|---|---|---|
//! | send | [`Sender::try_send`] | [`Sender::send`] | [`Sender::send_deadline`] |
//! | receive | [`Receiver::try_recv`], [`Receiver::recv_or_empty`] | [`Receiver::recv`] | [`Receiver::recv_deadline`] |
//!
//! To wait is to look some hundred times and then to sleep. See [`crate::express`] and
//! [`crate::cache_line`] for what a message is.

use std::sync::Arc;

use shm::arena::Arena;
use shm::segment::{Offset, Segment};

use crate::error::CreateError;
use crate::message::Message;
use crate::one_poll::PollSet;
use crate::sync::Ordering;
use memory::{RingMemory, Slot};

pub use crate::consumers::{Consumers, Multi, Single};
pub use crate::error::{RecvError, SendError};

macro_rules! debug_by_offset {
    ($name:literal, $($type:tt)+) => {
        impl<$($type)+ {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.debug_struct($name).field("offset", &self.ring.offset()).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) mod memory;
mod receiver;
mod sender;

pub use receiver::Receiver;
pub use sender::Sender;

/// What closing came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// Nothing will ever be sent at this position or after it; positions count the queue's messages
    /// from its beginning.
    At(u64),
    /// The queue is full. It closes when something is received, after at most as many messages as
    /// it holds.
    WhenReceived,
}

/// How messages of one kind lie in a ring.
pub trait Kind: sealed::Protocol {}

pub(crate) mod sealed {
    use super::{Closing, Consumers, Message, RecvError, RingMemory, SendError, Slot};

    /// The operations on a ring; those of `Kind` that are nobody else's business.
    pub trait Protocol: Sized + 'static {
        /// What lies in a slot.
        type Slot: Slot;
        /// What is sent.
        type Message: Copy;
        /// What a receiver remembers.
        type RecvState: Default + Send + std::fmt::Debug;
        /// What a sender remembers.
        type SendState: Default + Send + Sync + std::fmt::Debug;

        fn try_send(
            ring: &RingMemory<Self::Slot>,
            message: &Self::Message,
            generation: u32,
            state: &Self::SendState,
        ) -> Result<u64, SendError>;
        fn try_recv<C: Consumers>(
            ring: &RingMemory<Self::Slot>,
            state: &mut Self::RecvState,
        ) -> Result<Option<Self::Message>, RecvError>;
        fn try_recv_many<C: Consumers>(
            ring: &RingMemory<Self::Slot>,
            state: &mut Self::RecvState,
            into: &mut [Self::Message],
        ) -> Result<usize, RecvError>;
        fn is_ready(ring: &RingMemory<Self::Slot>) -> bool;
        fn holds(ring: &RingMemory<Self::Slot>, count: u64) -> bool;
        fn close(ring: &RingMemory<Self::Slot>) -> Closing;
        fn reopen(ring: &RingMemory<Self::Slot>) -> Option<u32>;
        fn generation(ring: &RingMemory<Self::Slot>) -> u32;
        fn of_empty(message: Message) -> Self::Message;
        /// Looks after a ring in which nothing has moved for a while.
        fn recover(_ring: &RingMemory<Self::Slot>) {}
        /// This process's number among those that send.
        fn enter(_ring: &RingMemory<Self::Slot>) -> u8 {
            0
        }
    }
}

/// A queue in a segment: what its senders and receivers are made from.
pub struct Queue<K: Kind> {
    pub(crate) ring: RingMemory<K::Slot>,
}

impl<K: Kind> Queue<K> {
    /// How many bytes of a segment a queue takes that holds so many messages.
    ///
    /// # Errors
    /// [`CreateError::Capacity`] unless it is a power of two from [`memory::MIN_CAPACITY`] to
    /// [`memory::MAX_CAPACITY`].
    pub fn bytes_for(capacity: usize) -> Result<u64, CreateError> {
        memory::bytes_for::<K::Slot>(capacity)
    }

    /// Makes a queue that holds so many messages of a new piece of the arena, in a poll set if one
    /// is given, there with this index. To take the memory back, free the [offset](Self::offset) in
    /// the arena when nobody uses the queue any more.
    ///
    /// # Errors
    /// Those of [`Queue::bytes_for`], [`Arena::allocate`], and [`CreateError::NoMember`].
    pub fn create(
        arena: &Arena,
        capacity: usize,
        poll: Option<(&PollSet, usize)>,
    ) -> Result<Self, CreateError> {
        Ok(Queue { ring: RingMemory::create(arena, capacity, poll)? })
    }

    /// As [`Queue::create`], at a place that is committed, a multiple of 64 (better 128), and
    /// nobody else's.
    ///
    /// # Errors
    /// Those of [`Queue::create`], and [`CreateError::Segment`] if there is no such place.
    pub fn create_at(
        segment: &Arc<Segment>,
        offset: Offset,
        capacity: usize,
        poll: Option<(&PollSet, usize)>,
    ) -> Result<Self, CreateError> {
        Ok(Queue { ring: RingMemory::create_at(segment, offset, capacity, poll)? })
    }

    /// Finds the queue that another process or thread made at `offset`.
    ///
    /// # Errors
    /// [`CreateError::NoQueue`] if something else lies there, [`CreateError::Segment`] if there is no
    /// such place.
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        Ok(Queue { ring: RingMemory::connect(segment, offset)? })
    }

    /// Where the queue lies: what others attach to.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.ring.offset()
    }

    /// How many messages it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// A sender to the queue as it is now.
    #[must_use]
    pub fn sender(&self) -> Sender<K> {
        self.sender_of(self.generation())
    }

    /// A sender to the queue of this generation; it finds the queue closed if there is another one
    /// in its memory.
    #[must_use]
    pub fn sender_of(&self, generation: u32) -> Sender<K> {
        Sender::of(self.entered().ring, generation)
    }

    /// The queue as this process sends to it.
    pub(crate) fn entered(&self) -> Self {
        let mut ring = self.ring.clone();
        ring.own = K::enter(&ring);
        Queue { ring }
    }

    /// How often the queue's memory was [opened again](Self::reopen).
    #[must_use]
    pub fn generation(&self) -> u32 {
        K::generation(&self.ring)
    }

    /// One of several receivers.
    ///
    /// # Errors
    /// [`CreateError::Held`] while there is a sole receiver.
    pub fn receiver(&self) -> Result<Receiver<K, Multi>, CreateError> {
        self.ring.enter_receiver(false)?;
        Ok(Receiver::of(self.ring.clone()))
    }

    /// The only receiver, which needs no read-modify-write.
    ///
    /// # Errors
    /// [`CreateError::Held`] while there is any receiver.
    pub fn single_receiver(&self) -> Result<Receiver<K, Single>, CreateError> {
        self.ring.enter_receiver(true)?;
        Ok(Receiver::of(self.ring.clone()))
    }

    /// Forgets the receivers of a process that has died, which could not take their leave. No
    /// receiver may be alive.
    pub fn forget_receivers(&self) {
        self.ring.forget_receivers();
    }

    /// Lets nobody send any more; what was sent can still be received. Receivers that have received
    /// it all get [`RecvError::Closed`]. An Express queue that is full closes as soon as
    /// something is received; if it was not closed by then, because a receiver was just at work,
    /// close it again.
    pub fn close(&self) -> Closing {
        let closing = K::close(&self.ring);
        self.ring.announce_end();
        closing
    }

    /// Ends a queue whose receivers have died: senders find it closed at once, also those that wait
    /// for room. What was sent and not received is lost. The memory must not hold another queue
    /// before these senders are gone.
    pub fn retire(&self) {
        // A generation that nobody has been told of. SeqCst: before the look whether anybody waits.
        self.ring.control.settings.gate.fetch_add(2, Ordering::SeqCst);
        self.ring.announce_end();
    }

    /// Opens a closed queue from which everything was received as another queue: senders that were
    /// made before find it closed for ever. Gives the new generation; `None` if the queue is not
    /// closed and empty.
    ///
    /// No receiver may use it meanwhile.
    pub fn reopen(&self) -> Option<u32> {
        K::reopen(&self.ring)
    }
}

impl<K: Kind> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Queue { ring: self.ring.clone() }
    }
}

debug_by_offset!("Queue", K: Kind> std::fmt::Debug for Queue<K>);
