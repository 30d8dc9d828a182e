//! Express: messages of five bytes, each committed by one atomic operation on one 8-byte word.
//!
//! Any number of threads and processes send through one queue, and any number of threads receive
//! from it, without a lock. Wherever a sender is stopped or dies, it blocks nobody. Messages are
//! received in the order in which they were committed. A full queue refuses ([`SendError::Full`])
//! and loses nothing.
//!
//! Memory: 256 bytes and 8 more a message of the capacity
//! ([`ExpressQueue::bytes_for`](Queue::bytes_for)), and less than 256 bytes in a process for each
//! sender or receiver.
//!
//! After Ang et al. 1996, section 5.1. The bits of a word are those of [`crate::word`].
//!
//! ```
//! use queues::{express::ExpressQueue, handlers::Handlers, name::SourceName, word::Message};
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
//! let sender = ExpressQueue::attach(&segment, queue.offset())?.sender();
//! let me = SourceName::new(7).expect("below 16,384");
//! sender.try_send(&Message::new(me, 3, *b"hello"))?;
//!
//! // A receive always gives a message; the Empty one has a handler that does nothing.
//! let mut handlers = Handlers::<Vec<u8>>::new();
//! handlers.set(3, |text, _source, data| text.extend_from_slice(data));
//! let mut text = Vec::new();
//! for _ in 0..10 {
//!     handlers.dispatch(&mut text, receiver.receive());
//! }
//! assert_eq!(text, b"hello");
//! # Ok(())
//! # }
//! ```

use crate::queue::sealed::Protocol;
use crate::queue::{Kind, Queue, Receiver, Sender};
use crate::ring::{Control, Ring, Slots};
use crate::sync::{AtomicU64, Ordering};
use crate::word::{self, Message};

pub use crate::queue::{Closing, Form, ReceiveError, SendError, Shared, Sole};

mod words;

use words::Words;

/// Messages of one word.
#[derive(Debug, Clone, Copy)]
pub struct Express;

/// A queue of Express messages in a segment.
pub type ExpressQueue = Queue<Express>;

/// Sends Express messages.
pub type ExpressSender = Sender<Express>;

/// Receives Express messages.
pub type ExpressReceiver<F = Shared> = Receiver<Express, F>;

impl Slots for AtomicU64 {
    const KIND: u8 = 1;
    const NAME: &'static str = "Express";

    fn clear(&self) {
        // Relaxed: whoever makes the ring publishes it.
        self.store(word::empty(0), Ordering::Relaxed);
    }
}

#[inline(always)]
fn words(ring: &Ring<AtomicU64>) -> Words<'_> {
    let Control { settings, tail, head, .. } = &*ring.control;
    Words {
        slots: &ring.slots,
        tail: &tail.position,
        room: &tail.hint,
        head: &head.position,
        gate: &settings.gate,
    }
}

impl Kind for Express {}

impl Protocol for Express {
    type Slot = AtomicU64;
    type Message = Message;
    type Looks = ();
    /// The position after its last message.
    type Aim = AtomicU64;

    #[inline(always)]
    fn try_send(
        ring: &Ring<AtomicU64>,
        message: &Message,
        generation: u32,
        next: &AtomicU64,
    ) -> Result<u64, SendError> {
        words(ring).try_send(*message, generation, next)
    }

    #[inline(always)]
    fn try_receive<F: Form>(
        ring: &Ring<AtomicU64>,
        _looks: &mut (),
    ) -> Result<Option<Message>, ReceiveError> {
        words(ring).try_receive::<F>()
    }

    fn try_receive_many<F: Form>(
        ring: &Ring<AtomicU64>,
        _looks: &mut (),
        into: &mut [Message],
    ) -> Result<usize, ReceiveError> {
        words(ring).try_receive_many::<F>(into)
    }

    #[inline]
    fn is_ready(ring: &Ring<AtomicU64>) -> bool {
        words(ring).is_ready()
    }

    fn holds(ring: &Ring<AtomicU64>, count: u64) -> bool {
        words(ring).holds(count)
    }

    fn close(ring: &Ring<AtomicU64>) -> Closing {
        words(ring).close().map_or(Closing::WhenReceived, Closing::At)
    }

    fn reopen(ring: &Ring<AtomicU64>) -> Option<u32> {
        words(ring).reopen()
    }

    fn generation(ring: &Ring<AtomicU64>) -> u32 {
        words(ring).generation()
    }

    fn of_empty(message: Message) -> Message {
        message
    }
}
