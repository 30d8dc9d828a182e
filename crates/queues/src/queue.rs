//! Queues of small messages: creation, sending, receiving, waiting and closing, for Express and
//! cache-line messages alike.
//!
//! | Operation | Never waits | Waits | Waits for a limited time |
//! |---|---|---|---|
//! | send | [`Sender::try_send`] | [`Sender::send`] | [`Sender::send_timeout`], [`Sender::send_deadline`] |
//! | receive | [`Receiver::try_recv`], [`Receiver::recv_or_empty`] | [`Receiver::recv`] | [`Receiver::recv_timeout`], [`Receiver::recv_deadline`] |
//!
//! A waiting thread polls some hundred times and then sleeps. [`crate::express`] and
//! [`crate::cache_line`] define the messages.

use crate::error::CreateError;
use crate::one_poll::PollSet;
use crate::sync::Ordering;
use memory::RingMemory;
use shm::arena::Arena;
use shm::segment::{Offset, Segment};
use std::sync::Arc;

pub use crate::consumers::{Consumers, Multi, Single};
pub use crate::error::{RecvError, SendError};

macro_rules! debug_by_offset {
    ($name:literal, $($type:tt)+) => {
        impl<$($type)+ {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter
                    .debug_struct($name)
                    .field("offset", &self.ring.offset())
                    .finish_non_exhaustive()
            }
        }
    };
}

mod flow;
mod kind;
pub(crate) mod memory;
mod receiver;
mod sender;

pub(crate) use kind::sealed;
pub use kind::{Closing, QueueKind};
pub use receiver::Receiver;
pub use sender::{Sender, Sent};

/// Queue in a segment, from which senders and receivers are created.
pub struct Queue<K: QueueKind> {
    pub(crate) ring: RingMemory<K::RingSlot>,
}

impl<K: QueueKind> Queue<K> {
    /// Returns the size in bytes of a queue for `capacity` messages.
    ///
    /// # Errors
    /// [`CreateError::Size`] unless it is a power of two from [`MIN_CAPACITY`](crate::error::MIN_CAPACITY) to
    /// [`MAX_CAPACITY`](crate::error::MAX_CAPACITY).
    pub fn bytes_for(capacity: usize) -> Result<u64, CreateError> {
        memory::bytes_for::<K::RingSlot>(capacity)
    }

    /// Creates a queue for `capacity` messages in new memory of the arena, optionally as the member
    /// of a poll set with the given index. To release the memory, free the [offset](Self::offset)
    /// in the arena once no process uses the queue any more.
    ///
    /// # Errors
    /// Those of [`Queue::bytes_for`], [`Arena::allocate`], and [`CreateError::NoIndex`].
    pub fn create(
        arena: &Arena,
        capacity: usize,
        poll: Option<(&PollSet, usize)>,
    ) -> Result<Self, CreateError> {
        Ok(Queue { ring: RingMemory::create(arena, capacity, poll)? })
    }

    /// Connects to the queue that another process or thread created at `offset`.
    ///
    /// # Errors
    /// [`CreateError::NotFound`] if something else lies there, [`CreateError::Segment`] if there is
    /// no such place.
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        Ok(Queue { ring: RingMemory::connect(segment, offset)? })
    }

    /// Returns the offset of the queue, to which other processes connect.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.ring.offset()
    }

    /// Returns the capacity in messages.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// Creates a sender to the queue in its current generation.
    #[must_use]
    pub fn sender(&self) -> Sender<K> {
        self.sender_of(self.generation())
    }

    /// Creates a sender to the queue of this generation. It finds the queue closed if its memory
    /// has been reopened as another queue.
    #[must_use]
    pub fn sender_of(&self, generation: u32) -> Sender<K> {
        Sender::of(self.registered().ring, generation)
    }

    /// Returns the queue with this process registered as a sender.
    pub(crate) fn registered(&self) -> Self {
        let mut ring = self.ring.clone();
        ring.own = K::enter(&ring);
        Queue { ring }
    }

    /// Returns how often the memory of the queue was [reopened](Self::reopen).
    #[must_use]
    pub fn generation(&self) -> u32 {
        K::generation(&self.ring)
    }

    /// Creates one of several receivers.
    ///
    /// # Errors
    /// [`CreateError::Held`] while a single receiver exists.
    pub fn receiver(&self) -> Result<Receiver<K, Multi>, CreateError> {
        self.ring.enter_receiver(false)?;
        Ok(Receiver::of(self.ring.clone()))
    }

    /// Creates the single receiver, which needs no read-modify-write.
    ///
    /// # Errors
    /// [`CreateError::Held`] while any receiver exists.
    pub fn single_receiver(&self) -> Result<Receiver<K, Single>, CreateError> {
        self.ring.enter_receiver(true)?;
        Ok(Receiver::of(self.ring.clone()))
    }

    /// Unregisters the receivers of a process that was killed. No receiver may be alive.
    pub fn forget_receivers(&self) {
        self.ring.forget_receivers();
    }

    /// Closes the queue to senders. Messages already sent can still be received; after the last of
    /// them, receivers return [`RecvError::Closed`]. A full Express queue closes as soon as a
    /// message is received; if a receiver was active at that moment and the queue is still open,
    /// close it again.
    pub fn close(&self) -> Closing {
        K::close_for_all(&self.ring)
    }

    /// Closes a queue after its receivers were killed. All senders, also waiting ones, find it
    /// closed at once. Messages not yet received are lost. The memory must not be reused for
    /// another queue while these senders exist.
    pub fn retire(&self) {
        // Advances to a generation of which no sender exists. SeqCst: precedes the check for
        // waiting senders.
        // Every send compares the generation after it has loaded the tail, so no message of an older
        // sender is committed from here on.
        self.ring.control.settings.generation_word.fetch_add(2, Ordering::SeqCst);
        self.ring.announce_end();
    }

    /// Reopens a closed and drained queue as another queue; existing senders continue to find it
    /// closed. Returns the new generation; `None` if the queue is not closed and empty.
    ///
    /// No receiver may use the queue during the call.
    pub fn reopen(&self) -> Option<u32> {
        K::reopen(&self.ring)
    }
}

impl<K: QueueKind> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Queue { ring: self.ring.clone() }
    }
}

debug_by_offset!("Queue", K: QueueKind> std::fmt::Debug for Queue<K>);
