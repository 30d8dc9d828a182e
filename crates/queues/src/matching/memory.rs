//! Shared memory of matched messages: a mailbox for each rank, and a ring for each pair of ranks
//! that has exchanged a message.

use super::line::Line;
use super::ring_list;
use crate::channel::ring::RingWords;
use shm::arena::Arena;
use shm::mapped::{Mapped, MappedSlice};
use shm::object::{CreateError, Label, Object, ObjectHeader};
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use shm::wakeup::Wakeup;
use std::sync::Arc;

/// Lines of a ring: 32 KiB, so that the rings of some ten pairs stay in the caches.
pub(crate) const RING_LINES: u64 = 512;

const WORDS: u64 = size_of::<Line>() as u64 / 8;

shm::shared_lines! {
    /// Mailbox of a rank. Zeroed memory is a mailbox without new rings.
    pub(crate) struct Mailbox {
        /// Wake-up word of all threads of the rank that wait for messages. Senders read it after
        /// each message, so no other word that changes lies in its line.
        wakeup: AtomicU32,
        rings: NewRingsLine,
    }

    /// Rings that the rank has not opened yet.
    struct NewRingsLine {
        first: AtomicU64,
        /// 1 once the rank receives nothing any more and only waits until its messages are read.
        is_draining: AtomicU32,
        /// 1 if the rank must poll its rings also while it waits for something else: an operation
        /// of its own is incomplete, or a sender has found its ring full.
        doorbell: AtomicU32,
    }

    /// Written by the sender.
    struct NoticeLine {
        /// See [`RingWords`].
        notice: AtomicU64,
    }

    /// Written by the receiver.
    struct ConsumedLine {
        /// See [`RingWords`].
        consumed: AtomicU64,
        /// Bytes of credit that the receiver has returned since the creation of the ring.
        returned: AtomicU64,
    }

    /// Header of a ring.
    pub(crate) struct RingHeader {
        label: Label,
        /// Next ring of the list of new rings.
        next: AtomicU64,
        notice: NoticeLine,
        consumed: ConsumedLine,
    }
}

impl ObjectHeader for RingHeader {
    const KIND: u32 = u32::from_be_bytes(*b"mtch");
    const NAME: &'static str = "ring of matched messages";

    fn label(&self) -> &Label {
        &self.label
    }
}

/// Bytes of a mailbox. It lies in zeroed memory that is aligned to 64 bytes.
pub const MAILBOX_BYTES: u64 = size_of::<Mailbox>() as u64;

impl Mailbox {
    /// Returns the wake-up word of the rank's waiting threads.
    #[inline(always)]
    pub(crate) fn wakeup(&self) -> Wakeup<'_> {
        Wakeup::by_store(&self.wakeup)
    }

    /// Marks the rank as one that receives nothing any more.
    pub(crate) fn set_draining(&self) {
        // Relaxed: the mark publishes no memory.
        self.rings.is_draining.store(1, Ordering::Relaxed);
    }

    /// Returns true if the rank receives nothing any more.
    pub(crate) fn is_draining(&self) -> bool {
        self.rings.is_draining.load(Ordering::Relaxed) != 0
    }

    /// Makes the rank poll its rings also while it waits for something else.
    #[inline]
    pub(crate) fn ring_doorbell(&self) {
        let doorbell = &self.rings.doorbell;
        // Relaxed: a rank that polls must not lose its line to senders that wait.
        if doorbell.load(Ordering::Relaxed) == 0 {
            // Release: pairs with the Acquire in `silence_doorbell`: what fills the ring is
            // visible.
            doorbell.store(1, Ordering::Release);
        }
    }

    /// Ends the reason for polls. The rank then polls once more: a sender may have filled its ring
    /// since the last poll.
    pub(crate) fn silence_doorbell(&self) {
        // Acquire: pairs with the Release in `ring_doorbell`. An exchange: the next poll reads the
        // rings after it, and a sender that this poll does not see rings afterwards.
        self.rings.doorbell.swap(0, Ordering::AcqRel);
    }

    /// Returns the offset of the doorbell of the mailbox at `mailbox`.
    pub(crate) fn doorbell_at(mailbox: Offset) -> Offset {
        Offset(mailbox.0 + std::mem::offset_of!(Mailbox, rings.doorbell) as u64)
    }

    /// Returns the error for an offset without mailboxes.
    pub(crate) fn missing(at: Offset) -> CreateError {
        CreateError::NotFound { object: "set of mailboxes", offset: at }
    }

    /// Takes the list of new rings.
    pub(crate) fn take_new_rings(&self) -> u64 {
        ring_list::take_all(&self.rings.first)
    }
}

/// Mapped ring.
#[derive(Debug)]
pub(crate) struct Ring {
    header: Object<RingHeader>,
    slots: MappedSlice<AtomicU64>,
}

impl Ring {
    /// Creates a ring from rank `sender` and adds it to the new rings of its receiver. It stays
    /// allocated as long as the arena: the receiver may read it after the sender has left.
    pub(crate) fn create(
        arena: &Arc<Arena>,
        sender: u32,
        receiver: &Mailbox,
    ) -> Result<Self, CreateError> {
        let bytes = RING_LINES * size_of::<Line>() as u64;
        let (header, slots) = Object::<RingHeader>::create(arena, bytes, sender, |header| {
            header.trailing(0, (RING_LINES * WORDS) as usize)
        })?;
        // A process that is killed before the push leaves a ring that no rank finds, in memory of
        // its own arena.
        ring_list::push(&receiver.rings.first, &header.next, header.offset().0);
        receiver.wakeup().notify();
        Ok(Ring { header, slots })
    }

    /// Opens a ring of the list of new rings. Returns it with the rank of its sender and the next
    /// ring of the list.
    pub(crate) fn open(segment: &Arc<Segment>, at: u64) -> Result<(Self, u32, u64), CreateError> {
        let header = Object::<RingHeader>::find(segment, Offset(at))?;
        let slots = header.trailing(0, (RING_LINES * WORDS) as usize)?;
        let sender = header.parameter();
        // Relaxed: taking the list has acquired it.
        let next = header.next.load(Ordering::Relaxed);
        Ok((Ring { header, slots }, sender, next))
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> RingWords<'_> {
        RingWords {
            slots: &self.slots,
            notice: &self.header.notice.notice,
            consumed: &self.header.consumed.consumed,
        }
    }

    /// Returns the credit that the receiver has returned in all. For the sender.
    pub(crate) fn returned(&self) -> u64 {
        // Relaxed: the number publishes no memory.
        self.header.consumed.returned.load(Ordering::Relaxed)
    }

    /// Publishes the credit returned in all. For the receiver.
    pub(crate) fn publish_returned(&self, bytes: u64) {
        self.header.consumed.returned.store(bytes, Ordering::Relaxed);
    }
}

/// Maps the word that wakes the threads of a rank which wait for messages, for a process that is no
/// rank. It is a [`Wakeup::by_store`].
///
/// # Errors
/// [`CreateError::Segment`] if there are no mailboxes.
pub fn wakeup_word(
    segment: &Arc<Segment>,
    mailboxes: Offset,
    rank: u32,
) -> Result<Mapped<AtomicU32>, CreateError> {
    const _: () = assert!(std::mem::offset_of!(Mailbox, wakeup) == 0);
    Ok(Mapped::new(segment, Offset(mailboxes.0 + u64::from(rank) * MAILBOX_BYTES))?)
}

/// Maps the mailbox at an offset.
pub(crate) fn mailbox(segment: &Arc<Segment>, at: Offset) -> Result<Mapped<Mailbox>, CreateError> {
    Ok(Mapped::new(segment, at)?)
}
