//! Layout of a channel in the segment.

use std::sync::Arc;

use shm::arena::Arena;
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};
use shm::wakeup::Wakeup;

use super::error::OpenError;
use super::ring::{self, RingWords};
use super::value::Value;
use crate::fence;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use shm::process_table::{End, EndHolder, TakeError};

shm::shared_lines! {
    /// Description of the channel; written when it is created and when an end is taken or released.
    pub(super) struct ChannelLabel {
        /// [`MAGIC`] combined with the type of the values; stored last.
        magic: AtomicU64,
        slots: AtomicU64,
        /// Holders of the ends (see `ends.rs`).
        sender: AtomicU64,
        receiver: AtomicU64,
    }

    /// Written by the sender, in the rare case of an announcement.
    pub(super) struct SenderLine {
        notice: AtomicU64,
    }

    /// Written by the receiver once every quarter of the ring.
    pub(super) struct ReceiverLine {
        consumed: AtomicU64,
    }

    /// Wake-up word of the receiver. The sender loads it with every value, so it has a line of its
    /// own.
    pub(super) struct ReceiverWakeup {
        word: AtomicU32,
    }

    /// Wake-up word of the sender.
    pub(super) struct SenderWakeup {
        word: AtomicU32,
    }

    /// The whole header; the slots follow.
    pub(super) struct ChannelHeader {
        label: ChannelLabel,
        sender: SenderLine,
        receiver: ReceiverLine,
        receiver_wakeup: ReceiverWakeup,
        sender_wakeup: SenderWakeup,
    }
}

/// "channel" in ASCII, one byte left for the type.
const MAGIC: u64 = 0x6368_616e_6e65_6c00;

/// Largest capacity of a channel.
const MAX_VALUES: u64 = 1 << 24;

/// A channel mapped by one of its ends, or by its owner.
#[derive(Debug)]
pub(super) struct ChannelMemory {
    header: Mapped<ChannelHeader>,
    slots: MappedSlice<AtomicU64>,
    offset: Offset,
    count: u64,
}

impl ChannelMemory {
    /// Creates an empty channel for at least `capacity` values.
    pub(super) fn create<T: Value>(arena: &Arena, capacity: u64) -> Result<Self, OpenError> {
        if capacity == 0 || capacity > MAX_VALUES {
            return Err(OpenError::Capacity { capacity, most: MAX_VALUES });
        }
        let mut slots = capacity.next_power_of_two();
        if ring::capacity(slots) < capacity {
            slots *= 2;
        }
        let bytes = size_of::<ChannelHeader>() as u64 + slots * T::WORDS * 8;
        let offset = arena.allocate_zeroed(bytes, 64)?;
        let header = Mapped::<ChannelHeader>::new(arena.segment(), offset)?;
        // Relaxed: the magic number publishes it.
        header.label.slots.store(slots, Ordering::Relaxed);
        // Release: pairs with the Acquire in `open`.
        header.label.magic.store(MAGIC | u64::from(T::KIND), Ordering::Release);
        ChannelMemory::open::<T>(arena.segment(), offset)
    }

    /// Maps the channel at `offset`.
    pub(super) fn open<T: Value>(
        segment: &Arc<Segment>,
        offset: Offset,
    ) -> Result<Self, OpenError> {
        let header = Mapped::<ChannelHeader>::new(segment, offset)?;
        // Acquire: pairs with the Release in `create`.
        let magic = header.label.magic.load(Ordering::Acquire);
        if magic & !0xff != MAGIC {
            return Err(OpenError::NoChannel { offset });
        }
        if magic & 0xff != u64::from(T::KIND) {
            return Err(OpenError::OtherType { offset, asked: T::NAME });
        }
        // Relaxed: the magic number published it. The memory may have been overwritten since, so
        // the value is checked before any range is computed from it.
        let count = header.label.slots.load(Ordering::Relaxed);
        let first = offset
            .plus(size_of::<ChannelHeader>() as u64)
            .ok_or(OpenError::NoChannel { offset })?;
        if !count.is_power_of_two() || count > 2 * MAX_VALUES {
            return Err(OpenError::NoChannel { offset });
        }
        let slots = MappedSlice::new(segment, first, (count * T::WORDS) as usize)?;
        fence::register();
        Ok(ChannelMemory { header, slots, offset, count })
    }

    pub(super) fn offset(&self) -> Offset {
        self.offset
    }

    /// Returns the number of slots of the ring.
    pub(super) fn slots(&self) -> u64 {
        self.count
    }

    #[inline(always)]
    pub(super) fn words(&self) -> RingWords<'_> {
        RingWords {
            slots: &self.slots,
            notice: &self.header.sender.notice,
            consumed: &self.header.receiver.consumed,
        }
    }

    /// Returns the wake-up word on which the holder of `end` sleeps.
    #[inline(always)]
    pub(super) fn wakeup(&self, end: End) -> Wakeup<'_> {
        let word = match end {
            End::Sender => &self.header.sender_wakeup.word,
            End::Receiver => &self.header.receiver_wakeup.word,
        };
        Wakeup::by_store(word)
    }

    /// Returns the word with the holder of `end`.
    pub(super) fn holder_of(&self, end: End) -> EndHolder<'_> {
        match end {
            End::Sender => EndHolder(&self.header.label.sender),
            End::Receiver => EndHolder(&self.header.label.receiver),
        }
    }

    /// Takes `end` for this process, for good.
    pub(super) fn take(&self, end: End) -> Result<(), OpenError> {
        self.holder_of(end).take().map_err(|reason| match reason {
            TakeError::Taken(process) => {
                OpenError::AlreadyOpened { offset: self.offset, end, process }
            }
            TakeError::Unidentified(error) => error.into(),
        })
    }

    /// Withdraws the ends that are still free. A withdrawn end appears as closed to the process at
    /// the other end.
    pub(super) fn withdraw(&self) {
        if self.holder_of(End::Sender).withdraw() {
            // The notice of a sender that closed without sending, as `Producer::finish` stores it.
            self.header.sender.notice.store(1, Ordering::Release);
            self.wakeup(End::Receiver).notify();
        }
        if self.holder_of(End::Receiver).withdraw() {
            self.wakeup(End::Receiver).close();
            self.wakeup(End::Sender).notify();
        }
    }

    /// Erases the label, so that later connects fail.
    pub(super) fn erase(&self) {
        // Relaxed: the arena's next user orders its own stores.
        self.header.label.magic.store(0, Ordering::Relaxed);
    }
}
