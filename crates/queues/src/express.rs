//! Express: messages of five bytes, each committed by one atomic operation on one 8-byte word.
//!
//! Any number of threads and processes send through one queue, and any number of threads receive
//! from it, without a lock. A sender that is stopped or killed, at any instruction, blocks no other
//! thread. Messages are received in the order in which they were committed. A full queue refuses
//! messages ([`SendError::Full`]) and loses none.
//!
//! Memory: 256 bytes plus 8 for each message of the capacity
//! ([`ExpressQueue::bytes_for`](Queue::bytes_for)), and less than 256 bytes of private memory for
//! each sender or receiver.
//!
//! After Ang et al. 1996, section 5.1.
//!
//! ```
//! use queues::{express::{ExpressQueue, ExpressMessage}, handlers::Handlers, id::SourceName};
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arena::new(Arc::clone(&segment), 0..1 << 20)?;
//! let queue = ExpressQueue::create(&arena, 64, None)?;
//! let mut receiver = queue.receiver()?;
//!
//! // Another process would do the same with its own mapping of the segment.
//! let sender = ExpressQueue::connect(&segment, queue.offset())?.sender();
//! let me = SourceName::new(7).expect("below 16,384");
//! sender.try_send(&ExpressMessage::new(me, 3, *b"hello"))?;
//!
//! // `recv_or_empty` always returns a message; the handler of the Empty message does nothing.
//! let mut handlers = Handlers::<Vec<u8>>::new();
//! handlers.set(3, |text, _source, data| text.extend_from_slice(data));
//! let mut text = Vec::new();
//! for _ in 0..10 {
//!     handlers.dispatch(&mut text, receiver.recv_or_empty());
//! }
//! assert_eq!(text, b"hello");
//! # Ok(())
//! # }
//! ```

pub use crate::message::ExpressMessage;
use crate::positions::{Positions, word_behind};
use crate::queue::memory::{ControlLines, MessageSlot, RingMemory};
use crate::queue::sealed::Protocol;
use crate::queue::{Queue, QueueKind, Receiver, Sender};
use crate::sync::AtomicU64;
use shm::segment::{Offset, SegmentReader};

pub use crate::queue::{Closing, Consumers, Multi, RecvError, SendError, Sent, Single};

mod ring;
mod slot;

pub(crate) use ring::RingState;
use ring::WordRing;

/// Protocol of messages of one word.
#[derive(Debug, Clone, Copy)]
pub struct Express;

/// Queue of Express messages in a segment.
pub type ExpressQueue = Queue<Express>;

/// Sender of Express messages.
pub type ExpressSender = Sender<Express>;

/// Receiver of Express messages.
pub type ExpressReceiver<C = Multi> = Receiver<Express, C>;

impl MessageSlot for AtomicU64 {
    const KIND: u8 = 1;
    const NAME: &'static str = "Express queue";
}

impl ExpressQueue {
    /// Reads the positions from outside the job; `None` if the label is that of another object.
    pub(crate) fn observe(segment: &SegmentReader, at: Offset, label: u64) -> Option<Positions> {
        let kind = <AtomicU64 as MessageSlot>::KIND;
        let [capacity, tail, received] = ControlLines::observe(segment, at, label, kind)?;
        // Senders advance the tail once for several messages, so the slots behind it decide, or
        // those behind the head, which may be further.
        let is_written = |position: u64| {
            let skip = size_of::<ControlLines>() + 8 * (position & (capacity - 1)) as usize;
            let word = word_behind(segment, at, skip)?;
            Some(slot::is_full_in(word, position >> capacity.trailing_zeros()))
        };
        let mut sent = tail.max(received);
        for _ in 0..ring::STRIDE.min(capacity) {
            if !is_written(sent)? {
                break;
            }
            sent = sent.wrapping_add(1);
        }
        Some(Positions { capacity, sent: Some(sent), received })
    }
}

#[inline(always)]
pub(crate) fn word_ring(ring: &RingMemory<AtomicU64>) -> WordRing<'_> {
    let ControlLines { settings, tail, head, .. } = &*ring.control;
    WordRing {
        slots: &ring.slots,
        tail: &tail.position,
        free_until: &tail.hint,
        head: &head.position,
        generation_word: &settings.generation_word,
    }
}

impl QueueKind for Express {}

impl Protocol for Express {
    type RingSlot = AtomicU64;
    type Item = ExpressMessage;
    type ReceiverState = ();
    /// Position after the sender's last message.
    type SendState = AtomicU64;

    #[inline(always)]
    fn try_send(
        ring: &RingMemory<AtomicU64>,
        message: &ExpressMessage,
        generation: u32,
        next: &AtomicU64,
    ) -> Result<u64, SendError> {
        word_ring(ring).try_send(*message, generation, next)
    }

    #[inline(always)]
    fn try_recv<C: Consumers>(
        ring: &RingMemory<AtomicU64>,
        _looks: &mut (),
    ) -> Result<Option<ExpressMessage>, RecvError> {
        word_ring(ring).try_recv::<C>()
    }

    fn try_recv_many<C: Consumers>(
        ring: &RingMemory<AtomicU64>,
        _looks: &mut (),
        into: &mut [ExpressMessage],
    ) -> Result<usize, RecvError> {
        word_ring(ring).try_recv_many::<C>(into)
    }

    #[inline]
    fn is_ready(ring: &RingMemory<AtomicU64>) -> bool {
        word_ring(ring).is_ready()
    }

    fn holds(ring: &RingMemory<AtomicU64>, count: u64) -> bool {
        word_ring(ring).holds(count)
    }

    fn close(ring: &RingMemory<AtomicU64>) -> Closing {
        word_ring(ring).close().map_or(Closing::WhenReceived, Closing::At)
    }

    fn reopen(ring: &RingMemory<AtomicU64>) -> Option<u32> {
        word_ring(ring).reopen()
    }

    fn generation(ring: &RingMemory<AtomicU64>) -> u32 {
        word_ring(ring).generation()
    }

    fn of_empty(message: ExpressMessage) -> ExpressMessage {
        message
    }
}
