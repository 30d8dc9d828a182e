//! The ends of channels between nodes that the node service holds.
//!
//! ```text
//!  Sender ── ring ──► OutgoingEnd ── bytes ──► IncomingEnd ── ring ──► Receiver
//! ```
//!
//! A channel between nodes has a ring on both, with equal numbers of slots. The node service on the
//! sender's node takes the values out of one ring, as the only receiver; the one on the receiver's
//! node puts them into the other, as the only sender. Values are encoded as their words, in little
//! endian. The node service cannot sleep on a word: its ends [request](OutgoingEnd::request) one
//! notification of its event. It trusts neither ring.

use super::memory::ChannelMemory;
use super::ring::{Consumer, Producer, PutError, RingWords, TakeError};
use crate::request::{self, Requested};
use crate::sync::Ordering;
use shm::object::CreateError;
use shm::process_table::End;
use shm::segment::{Offset, Segment};
use shm::wakeup::Armed;
use std::sync::Arc;

/// The values of the sender, which has closed its end, are all taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

/// The receiving end of the ring of a sender, for a receiver on another node. Closed when it is
/// dropped.
#[derive(Debug)]
pub struct OutgoingEnd {
    consumer: Consumer,
    memory: ChannelMemory,
    words: u64,
    request: Option<Armed>,
}

impl OutgoingEnd {
    /// Connects to the receiving end of the channel at `offset`, of any type and at most so many
    /// slots.
    ///
    /// # Errors
    /// Those of [`Receiver::connect`](super::Receiver::connect).
    pub fn connect(segment: &Arc<Segment>, offset: Offset, most: u64) -> Result<Self, CreateError> {
        let end = End::Receiver;
        let (memory, words) = ChannelMemory::connect_any(segment, offset, end, most)?;
        let consumer = Consumer::new(memory.slots());
        Ok(OutgoingEnd { consumer, memory, words, request: None })
    }

    /// Returns the number of values that the ring of either node holds.
    pub fn slots(&self) -> u64 {
        self.memory.slots()
    }

    /// Returns the number of bytes of a value.
    pub fn value_bytes(&self) -> u64 {
        8 * self.words
    }

    /// Takes up to `most` values and appends their bytes. Returns their number.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn take(&mut self, most: u64, into: &mut Vec<u8>) -> Result<u64, Ended> {
        let before = self.consumer.position();
        let end = match self.words {
            1 => self.take_words::<0>(most, into),
            _ => self.take_words::<7>(most, into),
        };
        let taken = self.consumer.position() - before;
        if self.consumer.is_due_since(before) {
            self.consumer.publish(self.memory.words());
            self.memory.notify_by_service(End::Sender);
        }
        if taken == 0 && end == Err(TakeError::Closed) { Err(Ended) } else { Ok(taken) }
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

    /// Returns true if [`take`](Self::take) has a result.
    pub fn is_ready(&self) -> bool {
        match self.words {
            1 => self.consumer.next::<0>(self.memory.words()).is_there(),
            _ => self.consumer.next::<7>(self.memory.words()).is_there(),
        }
    }

    /// Requests a notification of the node service's event with the next value. The caller then
    /// looks whether the end [is ready](Self::is_ready).
    pub fn request(&mut self) -> Requested {
        request::begin(self.memory.wakeup(End::Receiver), &mut self.request)
    }

    /// Returns true if a notification is requested and there was none.
    pub fn is_requested(&mut self) -> bool {
        request::is_pending(self.memory.wakeup(End::Receiver), &mut self.request)
    }

    /// Withdraws the request.
    pub fn withdraw(&mut self) {
        request::withdraw(self.memory.wakeup(End::Receiver), &mut self.request);
    }
}

impl Drop for OutgoingEnd {
    fn drop(&mut self) {
        self.withdraw();
        self.memory.close_receiver(&self.consumer);
    }
}

/// Reason why values could not be put into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncomingEndError {
    /// They are not whole values.
    #[error("the bytes are no values of this channel")]
    Invalid,
    /// The ring has no space for all of them: their sender has ignored its credit.
    #[error("there are more values than the channel holds")]
    Full,
    /// The receiver has closed its end.
    #[error("the channel is closed")]
    Closed,
    /// A word of the ring is none that a receiver writes.
    #[error("the channel is corrupt")]
    Corrupt,
}

/// The sending end of the ring of a receiver, for a sender on another node. Closed when it is
/// dropped.
#[derive(Debug)]
pub struct IncomingEnd {
    producer: Producer,
    memory: ChannelMemory,
    words: u64,
    request: Option<Armed>,
}

impl IncomingEnd {
    /// Connects to the sending end of the channel at `offset`, of any type and at most so many
    /// slots.
    ///
    /// # Errors
    /// Those of [`Sender::connect`](super::Sender::connect).
    pub fn connect(segment: &Arc<Segment>, offset: Offset, most: u64) -> Result<Self, CreateError> {
        let end = End::Sender;
        let (memory, words) = ChannelMemory::connect_any(segment, offset, end, most)?;
        let producer = Producer::new(memory.slots());
        Ok(IncomingEnd { producer, memory, words, request: None })
    }

    /// Returns the number of values that the ring of either node holds.
    pub fn slots(&self) -> u64 {
        self.memory.slots()
    }

    /// Puts all values into the ring and wakes the receiver.
    ///
    /// # Errors
    /// [`IncomingEndError`]; some of the values may be in the ring.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), IncomingEndError> {
        let (words, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || !(words.len() as u64).is_multiple_of(self.words) {
            return Err(IncomingEndError::Invalid);
        }
        let ring = self.memory.words();
        let outcome = match self.words {
            1 => put_words::<0>(&mut self.producer, ring, words),
            _ => put_words::<7>(&mut self.producer, ring, words),
        };
        let is_closed = self.memory.notify_by_service(End::Receiver);
        match outcome {
            _ if is_closed => Err(IncomingEndError::Closed),
            Err(PutError::Full) => Err(IncomingEndError::Full),
            Err(PutError::Broken) => Err(IncomingEndError::Corrupt),
            Ok(()) => Ok(()),
        }
    }

    /// Returns the number of values of which the receiver has released the slots, since the channel
    /// was opened.
    ///
    /// # Errors
    /// [`IncomingEndError::Closed`], [`IncomingEndError::Corrupt`].
    pub fn released(&self) -> Result<u64, IncomingEndError> {
        if self.memory.wakeup(End::Receiver).is_closed() {
            return Err(IncomingEndError::Closed);
        }
        // Acquire: as in `Producer::load_credit`.
        let released = self.memory.words().consumed.load(Ordering::Acquire);
        if released > self.producer.position() {
            return Err(IncomingEndError::Corrupt);
        }
        Ok(released)
    }

    /// Returns the number of values put in since the channel was opened.
    pub fn position(&self) -> u64 {
        self.producer.position()
    }

    /// Requests a notification of the node service's event when the receiver releases slots. The
    /// caller then looks at [`released`](Self::released).
    pub fn request(&mut self) -> Requested {
        request::begin(self.memory.wakeup(End::Sender), &mut self.request)
    }

    /// Returns true if a notification is requested and there was none.
    pub fn is_requested(&mut self) -> bool {
        request::is_pending(self.memory.wakeup(End::Sender), &mut self.request)
    }
}

impl Drop for IncomingEnd {
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
