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
pub trait Kind: sealed::Protocol {}

pub(crate) mod sealed {
    use super::Closing;
    use crate::consumers::Consumers;
    use crate::error::{RecvError, SendError};
    use crate::message::Message;
    use crate::queue::memory::{RingMemory, Slot};

    /// Operations of a message kind on its ring, private to this crate.
    pub trait Protocol: Sized + 'static {
        /// Contents of a slot.
        type Slot: Slot;
        /// Message type.
        type Message: Copy;
        /// Private state of a receiver.
        type RecvState: Default + Send + std::fmt::Debug;
        /// Private state of a sender.
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
        /// Recovers slots of killed senders; called when the ring has made no progress for a while.
        fn recover(_ring: &RingMemory<Self::Slot>) {}
        /// Registers this process as a sender; returns its number.
        fn enter(_ring: &RingMemory<Self::Slot>) -> u8 {
            0
        }
    }
}
