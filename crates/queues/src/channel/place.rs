//! Where a channel lies, who holds its ends, and when its memory can be given back.

use std::sync::Arc;

use shm::arena::Arena;
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};

use super::error::{End, OpenError};
use super::ring::{self, Words};
use super::value::Value;
use crate::ends::{Mark, NotTaken};
use crate::fence;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::wakeup::Wakeup;

shm::shared_lines! {
    /// What a channel is; written when it is made and when an end is opened or left.
    pub(crate) struct Label {
        /// [`MAGIC`] combined with the type it carries; stored last.
        magic: AtomicU64,
        slots: AtomicU64,
        /// Who holds the ends (see `ends.rs`).
        sender: AtomicU64,
        receiver: AtomicU64,
    }

    /// Written by the sender, and that rarely.
    pub(crate) struct SenderLine {
        notice: AtomicU64,
    }

    /// Written by the receiver once every quarter of the ring.
    pub(crate) struct ReceiverLine {
        consumed: AtomicU64,
    }

    /// What the receiver sleeps on; the sender loads it with every value, so nothing else is
    /// written in this line.
    pub(crate) struct ReceiverBell {
        word: AtomicU32,
    }

    /// What the sender sleeps on.
    pub(crate) struct SenderBell {
        word: AtomicU32,
    }

    /// All of it; the slots follow.
    pub(crate) struct Head {
        label: Label,
        sender: SenderLine,
        receiver: ReceiverLine,
        receiver_bell: ReceiverBell,
        sender_bell: SenderBell,
    }
}

/// "channel" in ASCII, one byte left for the type.
const MAGIC: u64 = 0x6368_616e_6e65_6c00;

/// The most values that a channel can be asked to hold.
pub(crate) const MOST_VALUES: u64 = 1 << 24;

/// A channel as one end of it, or its owner, sees it.
#[derive(Debug)]
pub(crate) struct Place {
    head: Mapped<Head>,
    slots: MappedSlice<AtomicU64>,
    offset: Offset,
    count: u64,
}

impl Place {
    /// Makes an empty channel for at least `capacity` values.
    pub(crate) fn create<T: Value>(arena: &Arena, capacity: u64) -> Result<Place, OpenError> {
        if capacity == 0 || capacity > MOST_VALUES {
            return Err(OpenError::Capacity { capacity, most: MOST_VALUES });
        }
        let mut slots = capacity.next_power_of_two();
        if ring::capacity(slots) < capacity {
            slots *= 2;
        }
        let bytes = size_of::<Head>() as u64 + slots * T::WORDS * 8;
        let offset = arena.allocate_zeroed(bytes, 64)?;
        let head = Mapped::<Head>::new(arena.segment(), offset)?;
        // Relaxed: the magic number publishes it.
        head.label.slots.store(slots, Ordering::Relaxed);
        // Release: pairs with the Acquire in `open`.
        head.label.magic.store(MAGIC | u64::from(T::KIND), Ordering::Release);
        Place::open::<T>(arena.segment(), offset)
    }

    /// Finds the channel at `offset`.
    pub(crate) fn open<T: Value>(
        segment: &Arc<Segment>,
        offset: Offset,
    ) -> Result<Place, OpenError> {
        let head = Mapped::<Head>::new(segment, offset)?;
        // Acquire: pairs with the Release in `create`.
        let magic = head.label.magic.load(Ordering::Acquire);
        if magic & !0xff != MAGIC {
            return Err(OpenError::NoChannel { offset });
        }
        if magic & 0xff != u64::from(T::KIND) {
            return Err(OpenError::OtherType { offset, asked: T::NAME });
        }
        // Relaxed: the magic number published it. Anything may stand there by now, so it is
        // checked.
        let count = head.label.slots.load(Ordering::Relaxed);
        let first = offset.plus(size_of::<Head>() as u64).ok_or(OpenError::NoChannel { offset })?;
        if !count.is_power_of_two() || count > 2 * MOST_VALUES {
            return Err(OpenError::NoChannel { offset });
        }
        let slots = MappedSlice::new(segment, first, (count * T::WORDS) as usize)?;
        fence::register();
        Ok(Place { head, slots, offset, count })
    }

    pub(crate) fn offset(&self) -> Offset {
        self.offset
    }

    /// Slots of the ring.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> Words<'_> {
        Words {
            slots: &self.slots,
            notice: &self.head.sender.notice,
            consumed: &self.head.receiver.consumed,
        }
    }

    /// What the holder of `end` sleeps on.
    #[inline(always)]
    pub(crate) fn wakeup(&self, end: End) -> Wakeup<'_> {
        let word = match end {
            End::Sender => &self.head.sender_bell.word,
            End::Receiver => &self.head.receiver_bell.word,
        };
        Wakeup(word)
    }

    /// Who holds `end`.
    pub(crate) fn mark(&self, end: End) -> Mark<'_> {
        match end {
            End::Sender => Mark(&self.head.label.sender),
            End::Receiver => Mark(&self.head.label.receiver),
        }
    }

    /// Takes `end` for this process, for good.
    pub(crate) fn take(&self, end: End) -> Result<(), OpenError> {
        self.mark(end).take().map_err(|reason| match reason {
            NotTaken::Held(process) => {
                OpenError::AlreadyOpened { offset: self.offset, end, process }
            }
            NotTaken::Nameless(error) => error.into(),
        })
    }
}

/// Who made a channel, and gives its memory back when nobody can touch it any more.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) place: Place,
    pub(crate) arena: Arc<Arena>,
}

impl Owner {
    /// Ends that nobody has opened can be opened no more; whoever holds the other end finds the
    /// channel closed.
    fn withdraw(&self) {
        let place = &self.place;
        if place.mark(End::Sender).withdraw() {
            // As `Producer::finish` of a producer that sent nothing.
            place.head.sender.notice.store(1, Ordering::Release);
            place.wakeup(End::Receiver).wake();
        }
        if place.mark(End::Receiver).withdraw() {
            place.wakeup(End::Receiver).close();
            place.wakeup(End::Sender).wake();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.withdraw();
        if [End::Sender, End::Receiver].into_iter().all(|end| self.place.mark(end).is_free()) {
            // Nobody finds a channel here any more. Relaxed: the arena's next user orders its own
            // stores.
            self.place.head.label.magic.store(0, Ordering::Relaxed);
            // The place came from this arena and is freed once, so that this cannot fail.
            let _ = self.arena.free(self.place.offset);
        }
        // Otherwise the memory stays taken: better than to hand it to somebody while an end still
        // writes there.
    }
}
