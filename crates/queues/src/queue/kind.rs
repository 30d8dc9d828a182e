//! Kinds of messages, and their operations on a ring.

/// Result of closing a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// No message will be sent at this position or later; positions count the messages of the
    /// queue since its creation.
    At(u64),
    /// The queue is full. It closes when a message is received, after at most as many messages as
    /// it holds.
    WhenReceived,
}

/// Kind of messages of a queue: [`Express`](crate::express::Express) or
/// [`CacheLine`](crate::cache_line::CacheLine).
pub trait QueueKind: sealed::Protocol + std::fmt::Debug {}

pub(crate) mod sealed {
    use super::Closing;
    use crate::consumers::Consumers;
    use crate::error::{RecvError, SendError};
    use crate::message::ExpressMessage;
    use crate::queue::memory::{MessageSlot, RingMemory};

    /// Operations of a message kind on its ring, private to this crate.
    pub trait Protocol: Sized + 'static {
        /// Contents of a slot.
        type RingSlot: MessageSlot;
        /// Message type.
        type Item: Copy;
        /// Private state of a receiver.
        type ReceiverState: Default + Send + std::fmt::Debug;
        /// Private state of a sender.
        type SendState: Default + Send + Sync + std::fmt::Debug;

        fn try_send(
            ring: &RingMemory<Self::RingSlot>,
            message: &Self::Item,
            generation: u32,
            state: &Self::SendState,
        ) -> Result<u64, SendError>;
        fn try_recv<C: Consumers>(
            ring: &RingMemory<Self::RingSlot>,
            state: &mut Self::ReceiverState,
        ) -> Result<Option<Self::Item>, RecvError>;
        fn try_recv_many<C: Consumers>(
            ring: &RingMemory<Self::RingSlot>,
            state: &mut Self::ReceiverState,
            into: &mut [Self::Item],
        ) -> Result<usize, RecvError>;
        fn is_ready(ring: &RingMemory<Self::RingSlot>) -> bool;
        fn holds(ring: &RingMemory<Self::RingSlot>, count: u64) -> bool;
        fn close(ring: &RingMemory<Self::RingSlot>) -> Closing;
        /// Closes the ring and wakes all that wait for it.
        fn close_for_all(ring: &RingMemory<Self::RingSlot>) -> Closing {
            let closing = Self::close(ring);
            ring.announce_end();
            closing
        }
        fn reopen(ring: &RingMemory<Self::RingSlot>) -> Option<u32>;
        fn generation(ring: &RingMemory<Self::RingSlot>) -> u32;
        fn of_empty(message: ExpressMessage) -> Self::Item;
        /// Recovers slots of killed senders; called when the ring has made no progress for a while.
        fn recover(_ring: &RingMemory<Self::RingSlot>) {}
        /// Registers this process as a sender; returns its number.
        fn enter(_ring: &RingMemory<Self::RingSlot>) -> u8 {
            0
        }
    }
}
