//! Layout of a channel in the segment.

use super::ring::{self, Consumer, Producer, RingWords};
use super::value::{self, Value};
use crate::positions::{Positions, word_behind};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use shm::arena::Arena;
use shm::connecting::Connecting;
use shm::mapped::MappedSlice;
use shm::object::{CreateError, Label, Object, ObjectHeader};
use shm::process_table::{End, EndHolder, Ends};
use shm::segment::{Offset, Segment, SegmentReader};
use shm::wakeup::Wakeup;
use std::mem::offset_of;
use std::sync::Arc;

shm::shared_lines! {
    /// Description of the channel; written when it is created and when an end is taken or released.
    pub(super) struct ChannelDescription {
        /// Label, with the type of the values.
        label: Label,
        slots: AtomicU64,
        ends: Ends,
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
        description: ChannelDescription,
        sender: SenderLine,
        receiver: ReceiverLine,
        receiver_wakeup: ReceiverWakeup,
        sender_wakeup: SenderWakeup,
    }
}

impl ObjectHeader for ChannelHeader {
    const KIND: u32 = u32::from_be_bytes(*b"chan");
    const NAME: &'static str = "channel";
    const IS_QUEUE: bool = true;

    fn label(&self) -> &Label {
        &self.description.label
    }

    fn ends(&self) -> Option<&Ends> {
        Some(&self.description.ends)
    }
}

/// Largest capacity of a channel.
const MAX_VALUES: u64 = 1 << 24;

/// Returns the number of slots of a ring that always holds so many values.
pub(crate) const fn slots_for(capacity: u64) -> u64 {
    let slots = capacity.next_power_of_two();
    // The receiver publishes its position once a quarter of the ring, so a ring cannot always hold
    // as many values as it has slots.
    if ring::capacity(slots) < capacity { 2 * slots } else { slots }
}

/// Reads the positions from outside the job; `None` if the label is that of another object.
pub(crate) fn observe(segment: &SegmentReader, at: Offset, label: u64) -> Option<Positions> {
    let slots = word_behind(segment, at, offset_of!(ChannelHeader, description.slots))?;
    if label >> 32 != u64::from(ChannelHeader::KIND)
        || !slots.is_power_of_two()
        || slots > 2 * MAX_VALUES
    {
        return None;
    }
    let received = word_behind(segment, at, offset_of!(ChannelHeader, receiver.consumed))?;
    Some(Positions { capacity: ring::capacity(slots), sent: None, received })
}

/// A channel mapped by one of its ends, or by its owner.
#[derive(Clone, Debug)]
pub(super) struct ChannelMemory {
    object: Object<ChannelHeader>,
    slots: MappedSlice<AtomicU64>,
    count: u64,
}

impl ChannelMemory {
    /// Creates an empty channel for at least `capacity` values.
    pub(super) fn create<T: Value>(arena: &Arena, capacity: u64) -> Result<Self, CreateError> {
        if capacity == 0 || capacity > MAX_VALUES {
            return Err(CreateError::Size {
                object: ChannelHeader::NAME,
                requested: capacity,
                unit: "values",
                limits: "1 to 16777216",
            });
        }
        let slots = slots_for(capacity);
        let prepare = |object: &Object<ChannelHeader>| {
            // Relaxed: the label publishes it.
            object.description.slots.store(slots, Ordering::Relaxed);
            Ok(())
        };
        Self::map::<T>(Object::create(arena, slots * T::WORDS * 8, T::KIND.into(), prepare)?.0)
    }

    /// Connects `end` of the channel at `offset` to this process, for good.
    pub(super) fn connect<T: Value>(
        segment: &Arc<Segment>,
        offset: Offset,
        end: End,
    ) -> Result<Self, CreateError> {
        Connecting::to(segment, offset)?.take(end, Self::map::<T>)
    }

    /// Connects `end` of the channel at `offset` to this process, for values of any type, if it has
    /// at most so many bytes of slots. Also returns the number of words of a value.
    pub(super) fn connect_any(
        segment: &Arc<Segment>,
        offset: Offset,
        end: End,
        most: u64,
    ) -> Result<(Self, u64), CreateError> {
        Connecting::to(segment, offset)?.take(end, |object: Object<ChannelHeader>| {
            let words = value::words_of_kind(object.parameter());
            let words = words.ok_or_else(|| Object::<ChannelHeader>::not_found(offset))?;
            let memory = Self::map_words(object, words)?;
            let bytes = 8 * words * memory.count;
            if bytes > most {
                return Err(CreateError::Size {
                    object: ChannelHeader::NAME,
                    requested: bytes,
                    unit: "bytes",
                    limits: "at most the memory that is left to its rank",
                });
            }
            Ok((memory, words))
        })
    }

    fn map<T: Value>(object: Object<ChannelHeader>) -> Result<Self, CreateError> {
        if object.parameter() != u32::from(T::KIND) {
            let offset = object.offset();
            let object = ChannelHeader::NAME;
            return Err(CreateError::OtherType { object, offset, requested: T::NAME });
        }
        Self::map_words(object, T::WORDS)
    }

    /// Maps a channel with values of so many words.
    fn map_words(object: Object<ChannelHeader>, words: u64) -> Result<Self, CreateError> {
        // Relaxed: the label published it. The memory may have been overwritten since, so the value
        // is checked before any range is computed from it.
        let count = object.description.slots.load(Ordering::Relaxed);
        if !count.is_power_of_two() || count > 2 * MAX_VALUES {
            return Err(Object::<ChannelHeader>::not_found(object.offset()));
        }
        let slots = object.trailing(0, (count * words) as usize)?;
        crate::fence::register();
        Ok(ChannelMemory { object, slots, count })
    }

    pub(super) fn offset(&self) -> Offset {
        self.object.offset()
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        self.object.segment()
    }

    /// Returns the number of slots of the ring.
    pub(super) fn slots(&self) -> u64 {
        self.count
    }

    #[inline(always)]
    pub(super) fn words(&self) -> RingWords<'_> {
        RingWords {
            slots: &self.slots,
            notice: &self.object.sender.notice,
            consumed: &self.object.receiver.consumed,
        }
    }

    /// Returns the wake-up word on which the holder of `end` sleeps.
    #[inline(always)]
    pub(super) fn wakeup(&self, end: End) -> Wakeup<'_> {
        Wakeup::by_store(self.wakeup_word(end))
    }

    #[inline(always)]
    fn wakeup_word(&self, end: End) -> &AtomicU32 {
        match end {
            End::Sender => &self.object.sender_wakeup.word,
            End::Receiver => &self.object.receiver_wakeup.word,
        }
    }

    /// As [`wakeup`](Self::wakeup). A node service passes a full fence before it notifies, as after
    /// an exchange, so an end that sleeps need not interrupt all processors for its barrier.
    pub(super) fn wakeup_for(&self, end: End, by_service: bool) -> Wakeup<'_> {
        if by_service { Wakeup::by_exchange(self.wakeup_word(end)) } else { self.wakeup(end) }
    }

    /// Notifies the holder of `end` for the node service; returns true if the end is closed.
    pub(super) fn notify_by_service(&self, end: End) -> bool {
        // Pairs with the fence of the sleeper: it sees what the node service has stored, or the
        // load of the word sees the sleeper.
        fence(Ordering::SeqCst);
        self.wakeup(end).notify()
    }

    /// Returns the word with the holder of `end`.
    pub(super) fn holder_of(&self, end: End) -> EndHolder<'_> {
        self.object.description.ends.holder(end)
    }

    /// Withdraws the ends that are still free. A withdrawn end appears as closed to the process at
    /// the other end.
    fn withdraw(&self) {
        // An end is withdrawn by an exchange from free, so it is either withdrawn here or taken by a
        // process, and never both. Its peer then finds it closed, as after a drop.
        if self.holder_of(End::Sender).withdraw() {
            // The notice of a sender that closed without sending, as `Producer::finish` stores it.
            self.object.sender.notice.store(1, Ordering::Release);
            self.notify_by_service(End::Receiver);
        }
        if self.holder_of(End::Receiver).withdraw() {
            self.wakeup(End::Receiver).close();
            self.notify_by_service(End::Sender);
        }
    }

    /// Frees the memory once both ends are closed or their processes dead: until then an end may
    /// write there.
    pub(super) fn retire(&self, arena: &Arena) {
        self.withdraw();
        self.object.retire(arena);
    }

    /// Closes the sending end of this process. `also` wakes a receiver that does not sleep on the
    /// word.
    pub(super) fn close_sender(&self, producer: &Producer, also: impl FnOnce()) {
        // The notice follows all values, so a receiver that sees it has all of them to receive.
        producer.finish(self.words());
        // This process may be a node service: the fence of `notify_by_service`, before a
        // notification with `also`. Without it a receiver that sleeps by exchange could miss the
        // notice.
        fence(Ordering::SeqCst);
        self.wakeup(End::Receiver).notify_also(also);
        // Last: the owner may free the memory from then on.
        self.holder_of(End::Sender).release();
    }

    /// Closes the receiving end of this process.
    pub(super) fn close_receiver(&self, consumer: &Consumer) {
        // The position before the bit: its Release publishes the position. A send that finds the
        // bit with Acquire (`Sender::sent_to_closed`) reads from the position whether its value was
        // taken.
        consumer.publish(self.words());
        // First the bit that every send checks, then the wake-up: a sender that is woken finds the
        // end closed, and one that is about to sleep finds it in its last poll.
        self.wakeup(End::Receiver).close();
        self.notify_by_service(End::Sender);
        // Last: the owner may free the memory from then on.
        self.holder_of(End::Receiver).release();
    }
}
