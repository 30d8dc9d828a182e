//! The ends of flows between nodes, and those of queues with senders on another node.
//!
//! ```text
//!  Sender ── outgoing queue ──► Source ── bytes ──► Sink ── queue ──► Receiver
//! ```
//!
//! Ranks of different nodes exchange collectives, matched messages and *flows*. A flow is bytes in
//! order, from a [`Source`] in the memory of the senders' node to a [`Sink`] in that of the receiver,
//! with credit that the receiver grants, and an end at either side.
//!
//! A queue of the sender's node stands for the one of the receiver, and senders see no difference.
//! The node service is its only receiver ([`outgoing`]), and one more sender of the receiver's
//! queue on the other node ([`incoming`]). So it is with Basic rings ([`outgoing_basic`],
//! [`incoming_basic`]), and with [append buffers](crate::append). Messages are encoded here, so
//! that the node service need not distinguish kinds of queues. It trusts neither the memory of the
//! queues, which ranks may damage, nor the bytes from another node.

mod append;
mod basic;
mod ends;

use crate::cache_line::{CacheLine, CacheLineMessage, LINE_DATA};
use crate::error::{CreateError, RecvError, SendError};
use crate::express::{Express, ExpressMessage, RingState, word_ring};
use crate::queue::memory::RingMemory;
use crate::queue::{Queue, QueueKind, Receiver, Sender, Single, sealed::Protocol};
use shm::segment::{Offset, Segment};
use std::fmt::Debug;
use std::sync::Arc;

/// Messages that are taken at once, into the stack: a queue without messages takes no memory of
/// the node service.
const BATCH: usize = 128;

pub use crate::request::Requested;
pub use basic::{incoming_basic, outgoing_basic};
pub use ends::{
    Announcement, MAX_BASIC_LINES, MAX_MESSAGE, MAX_RECORD_BYTES, QUEUE_CREDIT, Sink, SinkError,
    Source,
};

/// Opens the receiving end of the outgoing queue at an offset, of any kind.
///
/// # Errors
/// [`CreateError::NotFound`] if there is none, [`CreateError::Held`] if it has a receiver already.
pub fn outgoing(segment: &Arc<Segment>, at: Offset) -> Result<Box<dyn Source>, CreateError> {
    if let Ok(queue) = Queue::<Express>::connect(segment, at) {
        return Ok(Box::new(QueueSource::new(&queue)?));
    }
    match Queue::<CacheLine>::connect(segment, at) {
        Ok(queue) => Ok(Box::new(QueueSource::new(&queue)?)),
        Err(_) => append::outgoing(segment, at),
    }
}

/// Opens a sending end of the queue at an offset, of any kind.
///
/// # Errors
/// [`CreateError::NotFound`] if there is none.
pub fn incoming(segment: &Arc<Segment>, at: Offset) -> Result<Box<dyn Sink>, CreateError> {
    if let Ok(queue) = Queue::<Express>::connect(segment, at) {
        return Ok(Box::new(QueueSink { sender: queue.sender() }));
    }
    match Queue::<CacheLine>::connect(segment, at) {
        Ok(queue) => Ok(Box::new(QueueSink { sender: queue.sender() })),
        Err(_) => append::incoming(segment, at),
    }
}

/// A kind of message that is carried between nodes.
trait Carried: QueueKind + Protocol<Item: Send + Debug> {
    /// Longest encoding.
    const MOST: usize;

    /// Appends a message: a multiple of 8 bytes.
    fn encode(message: &Self::Item, into: &mut Vec<u8>);

    /// Reads the first message, and the number of its bytes; `None` if there is no whole one.
    fn decode(bytes: &[u8]) -> Option<(Self::Item, usize)>;

    /// Returns the state of the ring, for its only receiver.
    fn state(ring: &RingMemory<Self::RingSlot>) -> RingState {
        if Self::is_ready(ring) { RingState::Ready } else { RingState::Empty }
    }
}

impl Carried for Express {
    const MOST: usize = 8;

    #[inline]
    fn state(ring: &RingMemory<Self::RingSlot>) -> RingState {
        word_ring(ring).state()
    }

    #[inline]
    fn encode(message: &ExpressMessage, into: &mut Vec<u8>) {
        into.extend_from_slice(&message.to_bits().to_le_bytes());
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Option<(ExpressMessage, usize)> {
        let word = bytes.first_chunk()?;
        Some((ExpressMessage::from_bits(u64::from_le_bytes(*word)), 8))
    }
}

impl Carried for CacheLine {
    const MOST: usize = 8 + LINE_DATA;

    fn encode(message: &CacheLineMessage, into: &mut Vec<u8>) {
        let data = message.data();
        into.extend_from_slice(&message.header().pack(data.len()).to_le_bytes());
        into.extend_from_slice(data);
        into.resize(into.len().next_multiple_of(8), 0);
    }

    fn decode(bytes: &[u8]) -> Option<(CacheLineMessage, usize)> {
        use crate::cache_line::CacheLineHeader as Header;
        let (word, rest) = bytes.split_first_chunk()?;
        let word = u64::from_le_bytes(*word);
        let length = Header::length(word);
        // The length is that of another node: it is compared with the bytes that have arrived, and
        // `new` refuses more than a line holds.
        let message = CacheLineMessage::new(Header::unpack(word), rest.get(..length)?)?;
        Some((message, 8 + length.next_multiple_of(8)))
    }
}

#[derive(Debug)]
struct QueueSource<K: Carried> {
    receiver: Receiver<K, Single>,
    queue: Queue<K>,
}

impl<K: Carried> QueueSource<K> {
    fn new(queue: &Queue<K>) -> Result<Self, CreateError> {
        Ok(QueueSource { receiver: queue.single_receiver()?, queue: queue.clone() })
    }
}

impl<K: Carried> Source for QueueSource<K> {
    fn take(&mut self, limit: usize, into: &mut Vec<u8>) -> Result<(), RecvError> {
        let end = into.len() + limit;
        let mut messages = [K::of_empty(ExpressMessage::default()); BATCH];
        loop {
            // As many as surely fit: a message that was taken cannot be put back.
            let most = ((end - into.len()) / K::MOST).min(BATCH);
            if most == 0 {
                return Ok(());
            }
            let taken = match self.receiver.try_recv_many(&mut messages[..most]) {
                // What was taken before is sent first; the next attempt reports the error.
                Err(_) if end - into.len() < limit => return Ok(()),
                taken => taken?,
            };
            // `into` begins a record, which is a multiple of 8 bytes long, and so are all messages.
            messages[..taken].iter().for_each(|message| K::encode(message, into));
            // No message comes from a damaged ring either; it would count as empty for ever.
            if taken == 0 && K::state(&self.queue.ring) == RingState::Damaged {
                return Err(RecvError::Corrupt);
            }
            if taken < most {
                return Ok(());
            }
        }
    }

    fn is_ready(&self) -> bool {
        K::state(&self.queue.ring) != RingState::Empty
    }

    fn longest(&self) -> usize {
        K::MOST
    }

    fn close(&mut self) {
        self.queue.retire();
    }
}

#[derive(Debug)]
struct QueueSink<K: Carried> {
    sender: Sender<K>,
}

impl<K: Carried> Sink for QueueSink<K> {
    fn put(&mut self, bytes: &[u8]) -> Result<usize, SinkError> {
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            let (message, length) = K::decode(rest).ok_or(SinkError::Invalid)?;
            match self.sender.try_send(&message) {
                Ok(()) => sent += length,
                Err(SendError::Full) => break,
                // It takes nothing any more.
                Err(_) => return Ok(bytes.len()),
            }
        }
        Ok(sent)
    }

    fn request(&mut self) -> Requested {
        self.sender.ring.request_space();
        Requested::Renewed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_line::CacheLineHeader;
    use crate::id::SourceName;
    use crate::remote_waits::NoWaits;
    use proptest::prelude::*;
    use shm::event::Event;

    #[test]
    fn a_request_for_space_is_served_while_other_senders_fill_the_queue() {
        let segment = Segment::create(1 << 16, shm::segment::Backing::Memory).expect("memory");
        let segment = Arc::new(segment);
        let arena = shm::arena::Arena::new(Arc::clone(&segment), 64..1 << 16).expect("inside");
        let queue = Queue::<Express>::create(&arena, 16, None).expect("memory");
        let event = Event::new().expect("a descriptor");
        let receiver = queue.receiver().expect("the first");
        let mut receiver = receiver.with_remote_senders(event.clone(), Arc::new(NoWaits));
        let mut service = incoming(&segment, queue.offset()).expect("it is there");
        let other = queue.sender();
        let fill = || while other.try_send(&ExpressMessage::default()).is_ok() {};
        fill();
        for _ in 0..3 {
            assert_eq!(service.request(), Requested::Renewed);
            shm::fence::heavy();
            assert_eq!(service.put(&[0; 8]), Ok(0));
            let taken = (1..).find(|_| {
                receiver.try_recv().expect("open").expect("it is full");
                fill();
                event.clear()
            });
            assert_eq!(taken, Some(8), "half of the ring");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn messages_survive(source in 0..1_u16 << 14, handler: u8, tag: u16, word: [u8; 5],
                            data in proptest::collection::vec(any::<u8>(), 0..=48)) {
            let source = SourceName::new(source).expect("14 bits");
            let mut bytes = Vec::new();
            let short = ExpressMessage::new(source, handler, word);
            Express::encode(&short, &mut bytes);
            prop_assert_eq!(Express::decode(&bytes), Some((short, 8)));
            bytes.clear();
            let header = CacheLineHeader { source, handler, tag };
            let line = CacheLineMessage::new(header, &data).expect("48 bytes");
            CacheLine::encode(&line, &mut bytes);
            prop_assert!(bytes.len() <= CacheLine::MOST && bytes.len() % 8 == 0);
            prop_assert_eq!(CacheLine::decode(&bytes), Some((line, bytes.len())));
            bytes.pop();
            prop_assert!(CacheLine::decode(&bytes).is_none_or(|(_, length)| length > bytes.len()));
        }
    }
}
