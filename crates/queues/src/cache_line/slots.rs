//! Cache-line messages in slots of one cache line: a message costs the transfer of one slot.

use super::message::{CacheLineMessage, LINE_DATA, WORDS};
use crate::consumers::Consumers;
use crate::error::{RecvError, SendError};
use crate::slot_ring::{Claimed, RecvState, SlotMemory, SlotRing, SlotWords};
use crate::sync::{AtomicU64, Ordering};

/// Slot of a ring. Zeroed memory is an empty slot.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CacheLineSlot {
    state: AtomicU64,
    header: AtomicU64,
    data: [AtomicU64; WORDS],
}

impl CacheLineSlot {
    /// Creates a slot from zero words.
    #[allow(dead_code, reason = "for the loom models; in a segment slots are mapped, not created")]
    pub(crate) fn of(word: impl Fn() -> AtomicU64) -> CacheLineSlot {
        CacheLineSlot { state: word(), header: word(), data: std::array::from_fn(|_| word()) }
    }

    /// Returns the words of the slot.
    #[inline(always)]
    pub(crate) fn words(&self) -> SlotWords<'_> {
        SlotWords { state: &self.state, header: &self.header, data: &self.data }
    }
}

/// Copies the message of a slot. The result is arbitrary if a sender writes to the slot meanwhile.
#[inline(always)]
fn copy(slot: SlotWords<'_>) -> CacheLineMessage {
    let header = slot.header.load(Ordering::Relaxed);
    let mut data = [0; LINE_DATA];
    for (bytes, word) in data.chunks_exact_mut(8).zip(slot.data) {
        // Relaxed: the receiver loaded the state with Acquire before, and advances the head with
        // Release afterwards.
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    CacheLineMessage::copied(header, data)
}

impl<'a, M: SlotMemory<'a>> SlotRing<'a, M> {
    /// Sends a message and returns its position.
    #[inline]
    pub(crate) fn try_send(
        &self,
        message: &CacheLineMessage,
        generation: u32,
    ) -> Result<u64, SendError> {
        self.try_send_with(generation, |ring, claimed| ring.write(claimed, message))
    }

    /// Receives the next message if there is one.
    #[inline]
    pub(crate) fn try_recv<C: Consumers>(
        &self,
        receiver: &mut RecvState,
    ) -> Result<Option<CacheLineMessage>, RecvError> {
        self.try_recv_with::<C, _>(receiver, copy)
    }

    /// Receives up to `into.len()` messages with one exchange; returns their number.
    pub(crate) fn try_recv_many<C: Consumers>(
        &self,
        receiver: &mut RecvState,
        into: &mut [CacheLineMessage],
    ) -> Result<usize, RecvError> {
        self.try_recv_many_with::<C, _>(receiver, into, copy)
    }

    /// Writes a whole message into a claimed slot.
    #[inline(always)]
    pub(crate) fn write(&self, claimed: Claimed, message: &CacheLineMessage) {
        self.put_header(claimed, message.header_word());
        for index in 0..message.length().div_ceil(8) {
            self.put(claimed, index, message.word(index));
        }
    }

    /// Writes one word of a claimed slot.
    #[inline]
    pub(crate) fn put(&self, claimed: Claimed, index: usize, word: u64) {
        // Relaxed: the publication orders it.
        self.slot(claimed.position).data[index].store(word, Ordering::Relaxed);
    }

    /// Reads one word of a claimed slot.
    #[inline]
    pub(crate) fn get(&self, claimed: Claimed, index: usize) -> u64 {
        self.slot(claimed.position).data[index].load(Ordering::Relaxed)
    }

    /// Returns the message composed in a claimed slot.
    #[cold]
    pub(crate) fn composed(&self, claimed: Claimed) -> CacheLineMessage {
        copy(self.slot(claimed.position))
    }
}
