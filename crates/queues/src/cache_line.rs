//! Cache-line messages: up to 48 bytes, each in one cache line; also the shared form of Basic.
//!
//! Any number of threads and processes send through one queue, and any number of threads receive
//! from it, without a lock. A sender may compose a message in place
//! ([`CacheLineSender::claim`](Sender::claim)); a receiver copies the message out, so it never
//! occupies a slot. A sender that is stopped or killed while it composes does not block the queue:
//! receivers void its slot, and if the sender resumes, its message is sent again through another
//! slot. A full queue refuses messages ([`SendError::Full`]) and loses none.
//!
//! A process killed while it composes leaves its slot claimed. Other senders detect this within the
//! next sixteen laps of the ring, or when no slot is left, and recover the slot. Recovery covers
//! the first 63 processes that live at the same time and send to the queue; they are identified by
//! process number and start time, and a process's threads end with it. A slot is lost until the
//! queue is created anew if its claimant was none of these, or if the claimant was killed in the
//! few instructions between its claim and its first store and the next claimant was killed there
//! too or the next slot was voided. A lost slot blocks no thread. A sender belongs to the process
//! that created it: after a fork, the child creates its own.
//!
//! The messages of each sender are received in the order of publication. Memory: 768 bytes plus 64
//! for each message of the capacity ([`CacheLineQueue::bytes_for`](Queue::bytes_for)), and less
//! than 256 bytes of private memory for each sender or receiver.
//!
//! After Ang et al. 1996, section 5; their Express messages are smaller.
//!
//! ```
//! use queues::{cache_line::{CacheLineHeader, CacheLineMessage, CacheLineQueue}, id::SourceName};
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arena::new(Arc::clone(&segment), 0..1 << 20)?;
//! let queue = CacheLineQueue::create(&arena, 64, None)?;
//! let mut receiver = queue.receiver()?;
//! let sender = queue.sender();
//!
//! let header = CacheLineHeader { source: SourceName::new(7).expect("below 16,384"), handler: 3, tag: 0 };
//! sender.try_send(&CacheLineMessage::new(header, b"a whole message").expect("at most 48 bytes"))?;
//! let mut claim = sender.claim(header)?;
//! claim.write(0, b"composed ").write(9, b"in place");
//! claim.publish(17)?;
//!
//! assert_eq!(receiver.try_recv()?.expect("the first").data(), b"a whole message");
//! assert_eq!(receiver.try_recv()?.expect("the second").data(), b"composed in place");
//! # Ok(())
//! # }
//! ```

use crate::message::ExpressMessage;
use crate::positions::Positions;
use crate::queue::memory::{ControlLines, MessageSlot, RingMemory};
use crate::queue::sealed::Protocol;
use crate::queue::{Queue, QueueKind, Receiver, Sender};
use crate::slot_ring::{
    Claimed, MAX_SENDERS, POSITION, RecvState, SenderId, SlotMemory, SlotRing, SlotWords,
    is_recovery_due,
};
use crate::sync::{Ordering, fence};
use shm::segment::{Offset, SegmentReader};
use shm::shared::Shared as SharedMemory;

pub use crate::queue::{Closing, Consumers, Multi, RecvError, SendError, Sent, Single};
pub use message::{CacheLineHeader, CacheLineMessage, LINE_DATA};

mod message;
mod senders;
mod slots;

use senders::Senders;
use slots::CacheLineSlot;

/// Protocol of messages of one cache line.
#[derive(Debug, Clone, Copy)]
pub struct CacheLine;

/// Queue of cache-line messages in a segment.
pub type CacheLineQueue = Queue<CacheLine>;

/// Sender of cache-line messages.
pub type CacheLineSender = Sender<CacheLine>;

/// Receiver of cache-line messages.
pub type CacheLineReceiver<C = Multi> = Receiver<CacheLine, C>;

// SAFETY: `repr(C)` with only atomics, which accept every bit pattern and change atomically; no
// address, no `Drop`.
unsafe impl SharedMemory for CacheLineSlot {}

impl MessageSlot for CacheLineSlot {
    const KIND: u8 = 2;
    const NAME: &'static str = "cache-line queue";
    const SENDERS: usize = MAX_SENDERS;
}

impl CacheLineQueue {
    /// Reads the positions from outside the job; `None` if the label is that of another object.
    pub(crate) fn observe(segment: &SegmentReader, at: Offset, label: u64) -> Option<Positions> {
        let kind = CacheLineSlot::KIND;
        let [capacity, tail, received] = ControlLines::observe(segment, at, label, kind)?;
        Some(Positions { capacity, sent: Some(tail & POSITION), received })
    }
}

/// Slots of a queue and the processes that send to it.
#[derive(Debug, Clone, Copy)]
struct QueueSlots<'a> {
    slots: &'a [CacheLineSlot],
    senders: Senders<'a>,
}

impl<'a> SlotMemory<'a> for QueueSlots<'a> {
    #[inline(always)]
    fn count(self) -> u64 {
        self.slots.len() as u64
    }

    #[inline(always)]
    fn slot(self, index: usize) -> SlotWords<'a> {
        self.slots[index].words()
    }

    fn is_dead(self, sender: SenderId) -> bool {
        self.senders.is_dead(sender)
    }
}

#[inline(always)]
fn slot_ring(ring: &RingMemory<CacheLineSlot>) -> SlotRing<'_, QueueSlots<'_>> {
    let ControlLines { settings, tail, head, .. } = &*ring.control;
    SlotRing {
        memory: QueueSlots { slots: &ring.slots, senders: Senders(&ring.senders) },
        tail: &tail.position,
        seen: &tail.hint,
        head: &head.position,
        generation_word: &settings.generation_word,
        own: SenderId::from_bits(ring.own.into()),
    }
}

impl QueueKind for CacheLine {}

/// Handles a refused message.
#[cold]
fn refused(ring: &RingMemory<CacheLineSlot>, why: SendError) {
    if why == SendError::Full && is_recovery_due() {
        recover_if_stuck(ring);
    }
}

#[cold]
fn recover_if_stuck(ring: &RingMemory<CacheLineSlot>) {
    // Any sender may recover: each step is an exchange from a state that names the dead process, so
    // of several recovering threads one takes a slot over and the others fail.
    if slot_ring(ring).recover_if_stuck() {
        // Receivers may not have been notified of voided slots that they can skip.
        fence(Ordering::SeqCst);
        ring.announce(None, || false);
    }
}

impl Protocol for CacheLine {
    type RingSlot = CacheLineSlot;
    type Item = CacheLineMessage;
    type ReceiverState = RecvState;
    type SendState = ();

    #[inline(always)]
    fn try_send(
        ring: &RingMemory<CacheLineSlot>,
        message: &CacheLineMessage,
        generation: u32,
        (): &(),
    ) -> Result<u64, SendError> {
        slot_ring(ring).try_send(message, generation).inspect_err(|&why| refused(ring, why))
    }

    #[inline(always)]
    fn try_recv<C: Consumers>(
        ring: &RingMemory<CacheLineSlot>,
        state: &mut RecvState,
    ) -> Result<Option<CacheLineMessage>, RecvError> {
        slot_ring(ring).try_recv::<C>(state)
    }

    fn try_recv_many<C: Consumers>(
        ring: &RingMemory<CacheLineSlot>,
        state: &mut RecvState,
        into: &mut [CacheLineMessage],
    ) -> Result<usize, RecvError> {
        slot_ring(ring).try_recv_many::<C>(state, into)
    }

    #[inline]
    fn is_ready(ring: &RingMemory<CacheLineSlot>) -> bool {
        slot_ring(ring).is_ready()
    }

    fn holds(ring: &RingMemory<CacheLineSlot>, count: u64) -> bool {
        slot_ring(ring).holds(count)
    }

    fn close(ring: &RingMemory<CacheLineSlot>) -> Closing {
        Closing::At(slot_ring(ring).close())
    }

    fn reopen(ring: &RingMemory<CacheLineSlot>) -> Option<u32> {
        slot_ring(ring).reopen()
    }

    fn recover(ring: &RingMemory<CacheLineSlot>) {
        recover_if_stuck(ring);
    }

    fn generation(ring: &RingMemory<CacheLineSlot>) -> u32 {
        slot_ring(ring).generation()
    }

    fn enter(ring: &RingMemory<CacheLineSlot>) -> u8 {
        let recover = || {
            slot_ring(ring).recover();
        };
        Senders(&ring.senders).enter(recover).number() as u8
    }

    fn of_empty(message: ExpressMessage) -> CacheLineMessage {
        let header =
            CacheLineHeader { source: message.source(), handler: message.handler(), tag: 0 };
        CacheLineMessage::new(header, &message.data()).unwrap_or_default()
    }
}

impl Queue<CacheLine> {
    /// Recovers the slots of senders in ended processes; returns their number. Senders also recover
    /// slots themselves.
    pub fn recover(&self) -> usize {
        let count = slot_ring(&self.ring).recover();
        self.ring.announce_space();
        count
    }
}

impl Sender<CacheLine> {
    /// Claims the next slot to compose a message in place. Dropping the claim abandons it.
    ///
    /// # Errors
    /// [`SendError`].
    #[inline]
    pub fn claim(&self, header: CacheLineHeader) -> Result<Claim<'_>, SendError> {
        let lines = slot_ring(&self.ring);
        let claimed = lines.claim(self.generation).inspect_err(|&why| refused(&self.ring, why))?;
        // Written before the message is composed, which may take any time: from here on the header
        // names this process, should it be killed.
        lines.put_header(claimed, header.pack(0));
        Ok(Claim { sender: self, header, claimed: Some(claimed) })
    }
}

/// Error of publishing a claimed slot: receivers voided it because its sender was slow, and sending
/// the message through another slot failed. The error returns the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the slot was voided because composing took too long, and the message could not be sent again: \
     {reason}"
)]
pub struct PublishError {
    /// Error of sending the message again.
    #[source]
    pub reason: SendError,
    /// Composed message.
    pub message: CacheLineMessage,
}

/// Claimed slot in which a message is composed. Other threads send and receive meanwhile.
#[derive(Debug)]
#[must_use = "a dropped claim sends nothing"]
pub struct Claim<'a> {
    sender: &'a CacheLineSender,
    header: CacheLineHeader,
    /// `None` once published.
    claimed: Option<Claimed>,
}

impl Claim<'_> {
    /// Writes `bytes` at `start`, up to the end of the slot's [`LINE_DATA`] bytes. The initial
    /// contents of a slot are unspecified.
    pub fn write(&mut self, start: usize, bytes: &[u8]) -> &mut Self {
        let Some(claimed) = self.claimed else { return self };
        let lines = slot_ring(&self.sender.ring);
        // Whole words, because the slot consists of atomic words. No other thread writes to them
        // between claim and publication, so load and store need not be one operation.
        for (index, &byte) in (start..LINE_DATA).zip(bytes) {
            let mut word = lines.get(claimed, index / 8).to_le_bytes();
            word[index % 8] = byte;
            lines.put(claimed, index / 8, u64::from_le_bytes(word));
        }
        self
    }

    /// Writes the eight bytes of word `index` (0 to 5), in little-endian order.
    ///
    /// ```
    /// # use queues::cache_line::{CacheLineHeader, CacheLineQueue};
    /// # use shm::{arena::Arena, segment::{Backing, Segment}};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = std::sync::Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// # let queue = CacheLineQueue::create(&Arena::new(segment, 0..1 << 20)?, 64, None)?;
    /// # let sender = queue.sender();
    /// let mut claim = sender.claim(CacheLineHeader::default())?;
    /// claim.write_word(0, u64::from_le_bytes(*b"8 bytes."));
    /// claim.publish(8)?;
    /// assert_eq!(queue.receiver()?.try_recv()?.expect("it").data(), b"8 bytes.");
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn write_word(&mut self, index: usize, word: u64) -> &mut Self {
        if let Some(claimed) = self.claimed
            && index < LINE_DATA / 8
        {
            slot_ring(&self.sender.ring).put(claimed, index, word);
        }
        self
    }

    /// Publishes the slot with its first `length` bytes (at most [`LINE_DATA`]).
    ///
    /// # Errors
    /// [`PublishError`], which returns the message.
    #[inline]
    pub fn publish(mut self, length: usize) -> Result<(), PublishError> {
        let Some(claimed) = self.claimed.take() else { return Ok(()) };
        let lines = slot_ring(&self.sender.ring);
        let length = length.min(LINE_DATA);
        lines.put_header(claimed, self.header.pack(length));
        if lines.publish(claimed).is_ok() {
            self.sender.announce();
            return Ok(());
        }
        self.send_again(claimed)
    }

    #[cold]
    fn send_again(&self, claimed: Claimed) -> Result<(), PublishError> {
        let lines = slot_ring(&self.sender.ring);
        // No thread writes to a voided slot that is not released, so it still holds the message. It
        // is copied before the release and sent after it, in the place of a new message: the order
        // of this sender's messages is that of their publication.
        let message = lines.composed(claimed);
        lines.release(claimed);
        self.sender.ring.announce_space();
        self.sender.try_send(&message).map_err(|reason| PublishError { reason, message })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(claimed) = self.claimed {
            // The slot becomes void, so receivers pass it at once and do not wait for a message.
            slot_ring(&self.sender.ring).abandon(claimed);
            // Receivers waiting for later messages must check again.
            self.sender.announce();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicU32, AtomicU64};
    use std::cell::Cell;

    const SLOTS: usize = 1024;

    /// Slots that count how often one is accessed.
    #[derive(Clone, Copy)]
    struct Counted<'a> {
        slots: &'a [CacheLineSlot],
        accesses: &'a Cell<usize>,
    }

    impl<'a> SlotMemory<'a> for Counted<'a> {
        fn count(self) -> u64 {
            self.slots.len() as u64
        }

        fn slot(self, index: usize) -> SlotWords<'a> {
            self.accesses.set(self.accesses.get() + 1);
            self.slots[index].words()
        }

        fn is_dead(self, _: SenderId) -> bool {
            false
        }
    }

    /// A receiver looks whether an unpublished slot blocks others before it sleeps. The agent of a
    /// node does so several times a turn.
    #[test]
    fn a_look_at_an_empty_ring_reads_one_slot() {
        let slots: Vec<_> = (0..SLOTS).map(|_| CacheLineSlot::of(|| AtomicU64::new(0))).collect();
        let accesses = Cell::new(0);
        let words: [AtomicU64; 3] = Default::default();
        let generation_word = AtomicU32::new(0);
        let ring = SlotRing {
            memory: Counted { slots: &slots, accesses: &accesses },
            tail: &words[0],
            seen: &words[1],
            head: &words[2],
            generation_word: &generation_word,
            own: SenderId::NONE,
        };
        let mut receiver = RecvState::default();
        let message = CacheLineMessage::new(CacheLineHeader::default(), b"one").expect("short");
        for _ in 0..2 * SLOTS {
            accesses.set(0);
            assert!(!ring.is_ready());
            assert_eq!(accesses.get(), 1, "of an empty ring");
            ring.try_send(&message, 0).expect("space");
            assert!(ring.is_ready());
            let received = ring.try_recv::<Single>(&mut receiver).expect("open");
            assert_eq!(received, Some(message));
        }
        let blocking = ring.claim(0).expect("space");
        ring.put_header(blocking, 0);
        assert!(!ring.is_ready(), "nothing follows the slot");
        ring.try_send(&message, 0).expect("space");
        assert!(ring.is_ready(), "the slot blocks a message");
    }
}
