//! The ends of flows in the rings of channels between nodes.
//!
//! ```text
//!  Sender ── ring ──► ChannelSource ── bytes ──► ChannelSink ── ring ──► Receiver
//! ```
//!
//! A channel between nodes has a ring on both, with equal numbers of slots. The node service on the
//! sender's node takes the values out of one ring, as the only receiver; the one on the receiver's
//! node puts them into the other, as the only sender. Values are encoded as their words, in little
//! endian. The node service cannot sleep on a word: its ends request one notification of its event.
//! It trusts neither ring.

use super::memory::ChannelMemory;
use super::ring::{Consumer, Producer, PutError, RingWords, TakeError};
use crate::error::RecvError;
use crate::internode::{Announcement, Requested, Sink, SinkError, Source};
use crate::request;
use crate::sync::Ordering;
use shm::object::CreateError;
use shm::process_table::End;
use shm::segment::{Offset, Segment};
use shm::wakeup::Armed;
use std::sync::Arc;

/// The receiving end of the ring of a sender, for a receiver on another node. Closed when it is
/// dropped.
#[derive(Debug)]
pub struct ChannelSource {
    consumer: Consumer,
    memory: ChannelMemory,
    words: u64,
    request: Option<Armed>,
}

impl ChannelSource {
    /// Connects to the receiving end of the channel at `offset`, of any type and with at most so many
    /// bytes of slots.
    ///
    /// # Errors
    /// [`CreateError::Size`] if the slots have more bytes, and those of
    /// [`Receiver::connect`](super::Receiver::connect).
    pub fn connect(segment: &Arc<Segment>, offset: Offset, most: u64) -> Result<Self, CreateError> {
        let end = End::Receiver;
        let (memory, words) = ChannelMemory::connect_any(segment, offset, end, most)?;
        let consumer = Consumer::new(memory.slots());
        Ok(ChannelSource { consumer, memory, words, request: None })
    }

    #[inline]
    fn take_words<const LEAD: usize>(
        &mut self,
        most: u64,
        into: &mut Vec<u8>,
    ) -> Result<(), TakeError> {
        let words = self.memory.words();
        for _ in 0..most {
            let (lead, last) = self.consumer.take::<LEAD>(words)?;
            lead.iter().for_each(|word| into.extend(word.to_le_bytes()));
            into.extend(last.to_le_bytes());
        }
        Ok(())
    }
}

impl Source for ChannelSource {
    fn credit(&self) -> u64 {
        8 * self.words * self.memory.slots()
    }

    fn longest(&self) -> usize {
        8 * self.words as usize
    }

    fn take(&mut self, limit: usize, into: &mut Vec<u8>) -> Result<(), RecvError> {
        let most = (limit / self.longest()) as u64;
        let before = self.consumer.position();
        let end = match self.words {
            1 => self.take_words::<0>(most, into),
            _ => self.take_words::<7>(most, into),
        };
        if self.consumer.is_due_since(before) {
            self.consumer.publish(self.memory.words());
            self.memory.notify_by_service(End::Sender);
        }
        // What was taken before is sent first; the next attempt reports the end.
        let has_ended = self.consumer.position() == before && end == Err(TakeError::Closed);
        if has_ended { Err(RecvError::Closed) } else { Ok(()) }
    }

    fn is_ready(&self) -> bool {
        match self.words {
            1 => self.consumer.next::<0>(self.memory.words()).is_there(),
            _ => self.consumer.next::<7>(self.memory.words()).is_there(),
        }
    }

    /// Does nothing: the sender finds its end closed when this one is dropped.
    fn close(&mut self) {}

    fn request(&mut self) -> Requested {
        request::begin(self.memory.wakeup(End::Receiver), &mut self.request)
    }

    fn is_requested(&mut self) -> bool {
        request::is_pending(self.memory.wakeup(End::Receiver), &mut self.request)
    }

    fn withdraw(&mut self) {
        request::withdraw(self.memory.wakeup(End::Receiver), &mut self.request);
    }

    fn announcement(&self) -> Announcement {
        Announcement::ByMark(self.memory.offset())
    }
}

impl Drop for ChannelSource {
    fn drop(&mut self) {
        self.withdraw();
        self.memory.close_receiver(&self.consumer);
    }
}

/// The sending end of the ring of a receiver, for a sender on another node. Closed when it is
/// dropped.
#[derive(Debug)]
pub struct ChannelSink {
    producer: Producer,
    memory: ChannelMemory,
    words: u64,
    request: Option<Armed>,
}

impl ChannelSink {
    /// Connects to the sending end of the channel at `offset`, of any type and with at most so many
    /// bytes of slots.
    ///
    /// # Errors
    /// [`CreateError::Size`] if the slots have more bytes, and those of
    /// [`Sender::connect`](super::Sender::connect).
    pub fn connect(segment: &Arc<Segment>, offset: Offset, most: u64) -> Result<Self, CreateError> {
        let end = End::Sender;
        let (memory, words) = ChannelMemory::connect_any(segment, offset, end, most)?;
        let producer = Producer::new(memory.slots());
        Ok(ChannelSink { producer, memory, words, request: None })
    }

    /// Returns the number of values of which the receiver has released the slots.
    fn consumed(&self) -> u64 {
        // Acquire: as in `Producer::load_credit`.
        self.memory.words().consumed.load(Ordering::Acquire)
    }
}

impl Sink for ChannelSink {
    fn credit(&self) -> u64 {
        8 * self.words * self.memory.slots()
    }

    /// Puts all values into the ring and wakes the receiver. Some of them may be in the ring after
    /// an error.
    fn put(&mut self, bytes: &[u8]) -> Result<usize, SinkError> {
        let (words, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || !(words.len() as u64).is_multiple_of(self.words) {
            return Err(SinkError::Invalid);
        }
        let ring = self.memory.words();
        let outcome = match self.words {
            1 => put_words::<0>(&mut self.producer, ring, words),
            _ => put_words::<7>(&mut self.producer, ring, words),
        };
        let is_closed = self.memory.notify_by_service(End::Receiver);
        match outcome {
            // The next `released` reports it.
            _ if is_closed => Ok(bytes.len()),
            // There is space for the credit. So the sender has ignored it.
            Err(PutError::Full) => Err(SinkError::Invalid),
            Err(PutError::Broken) => Err(SinkError::Closed),
            Ok(()) => Ok(bytes.len()),
        }
    }

    fn released(&mut self, _: u64) -> Result<u64, SinkError> {
        // First: what is released after the next load is notified of by another request.
        let wakeup = self.memory.wakeup(End::Sender);
        request::is_pending(wakeup, &mut self.request);
        if self.memory.wakeup(End::Receiver).is_closed() {
            return Err(SinkError::Closed);
        }
        let consumed = self.consumed();
        if consumed > self.producer.position() {
            return Err(SinkError::Closed);
        }
        Ok(8 * self.words * consumed)
    }

    fn request(&mut self) -> Requested {
        // A receiver with all slots released has nothing to notify of but its end, which it always
        // does.
        if self.consumed() >= self.producer.position() {
            return Requested::Before;
        }
        request::begin(self.memory.wakeup(End::Sender), &mut self.request)
    }

    fn announcement(&self) -> Announcement {
        Announcement::ByMark(self.memory.offset())
    }
}

impl Drop for ChannelSink {
    fn drop(&mut self) {
        request::withdraw(self.memory.wakeup(End::Sender), &mut self.request);
        self.memory.close_sender(&self.producer, || {});
    }
}

#[inline]
fn put_words<const LEAD: usize>(
    producer: &mut Producer,
    ring: RingWords<'_>,
    words: &[[u8; 8]],
) -> Result<(), PutError> {
    for value in words.chunks_exact(LEAD + 1) {
        let word = |index: usize| u64::from_le_bytes(value[index]);
        producer.put::<LEAD>(ring, std::array::from_fn(word), word(LEAD))?;
    }
    Ok(())
}
