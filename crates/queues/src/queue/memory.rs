//! The ring of a queue in a segment: a line of settings, a line each for tail, head and waiting
//! senders, and the slots.
//!
//! | bytes | written by | read by |
//! |---|---|---|
//! | 0 to 63: layout, poll set, gate, bell, request, Empty message | the maker, and receivers that go to sleep | all |
//! | 64 to 127: tail | senders | senders |
//! | 128 to 191: head | receivers | receivers, and senders that look for room |
//! | 192 to 255: bell of senders that wait for room | senders that wait | receivers |
//! | from 256: slots | senders (and receivers that give back a word) | all |
//! | behind them, in a wide queue: the senders' processes | new senders | whoever looks whether one is dead |
//!
//! In the steady state a message costs a sender, beyond slot and tail, loads of lines that nobody
//! writes: the settings, and its queue's bit and the bell of the poll set if the queue is in one.

use std::sync::Arc;

use shm::arena::Arena;
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};
use shm::shared::Shared;

use crate::bell::{Bell, Request};
use crate::error::{CreateError, MAX_CAPACITY, MIN_CAPACITY};
use crate::event::{Event, Notify};
use crate::one_poll::{PollSet, SetMember};
use crate::order;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::waiting::Ringers;

/// Says in the upper half of the layout word that a ring lies here.
const MAGIC: u64 = 0x7477_7269;

shm::shared_lines! {
    /// What the maker says about the ring, and what receivers ask senders for.
    pub(crate) struct Settings {
        /// [`MAGIC`], the kind of slots, and the capacity's logarithm.
        layout: AtomicU64,
        /// Where the poll set lies that the queue is in, plus 1; 0: in none.
        poll_set: AtomicU64,
        /// Its index there.
        poll_index: AtomicU64,
        /// Generation and closing (see the rings).
        pub(crate) gate: AtomicU32,
        /// Receivers sleep here.
        bell: AtomicU32,
        /// Receivers ask for their eventfd here.
        request: AtomicU32,
        unused: AtomicU32,
        /// The programmable Empty message.
        pub(crate) empty: AtomicU64,
    }

    /// Where senders are.
    pub(crate) struct Tail {
        /// The position to be written next.
        pub(crate) position: AtomicU64,
        /// What senders know of the head.
        pub(crate) hint: AtomicU64,
    }

    /// Where receivers are.
    pub(crate) struct Head {
        /// The position to be received next.
        pub(crate) position: AtomicU64,
        /// How many receivers there are; [`SINGLE`] for one alone.
        receivers: AtomicU32,
    }

    /// Where senders wait.
    pub(crate) struct SendersWaiting {
        bell: AtomicU32,
    }

    /// Everything but the slots.
    pub(crate) struct ControlLines {
        pub(crate) settings: Settings,
        pub(crate) tail: Tail,
        pub(crate) head: Head,
        room: SendersWaiting,
    }
}

const SINGLE: u32 = u32::MAX;

/// What lies in the slots of a ring.
pub trait Slot: Shared {
    /// A number for the layout word.
    const KIND: u8;
    /// For messages.
    const NAME: &'static str;
    /// How many words for the names of processes that send lie behind the slots.
    const SENDERS: usize = 0;
    /// Makes the slot as it is in a new ring.
    fn clear(&self);
}

/// A ring in a segment, kept mapped.
pub struct RingMemory<S: Slot> {
    pub(crate) control: Mapped<ControlLines>,
    pub(crate) slots: MappedSlice<S>,
    pub(crate) senders: MappedSlice<AtomicU64>,
    /// The number of this process among the senders; 0: it has none.
    pub(crate) own: u8,
    member: Option<SetMember>,
    offset: Offset,
}

impl<S: Slot> Clone for RingMemory<S> {
    fn clone(&self) -> Self {
        RingMemory {
            control: self.control.clone(),
            slots: self.slots.clone(),
            senders: self.senders.clone(),
            own: self.own,
            member: self.member.clone(),
            offset: self.offset,
        }
    }
}

/// How many bytes a ring takes.
pub(crate) fn bytes_for<S: Slot>(capacity: usize) -> Result<u64, CreateError> {
    check(capacity)?;
    Ok((size_of::<ControlLines>() + capacity * size_of::<S>() + S::SENDERS * 8) as u64)
}

fn check(capacity: usize) -> Result<(), CreateError> {
    if capacity.is_power_of_two() && (MIN_CAPACITY..=MAX_CAPACITY).contains(&capacity) {
        return Ok(());
    }
    Err(CreateError::Capacity { capacity })
}

fn layout<S: Slot>(capacity: usize) -> u64 {
    MAGIC << 32 | u64::from(S::KIND) << 8 | u64::from(capacity.trailing_zeros())
}

impl<S: Slot> RingMemory<S> {
    /// Makes a ring of a new piece of the arena.
    pub(crate) fn create(
        arena: &Arena,
        capacity: usize,
        member: Option<(&PollSet, usize)>,
    ) -> Result<Self, CreateError> {
        // Two lines at a time are what processors like to fetch.
        let offset = arena.allocate(bytes_for::<S>(capacity)?, 128)?;
        Self::create_at(arena.segment(), offset, capacity, member).inspect_err(|_| {
            // The place came from this arena just now, so that this cannot fail.
            let _ = arena.free(offset);
        })
    }

    /// Makes a ring at a place that is committed and that nobody else uses.
    pub(crate) fn create_at(
        segment: &Arc<Segment>,
        offset: Offset,
        capacity: usize,
        member: Option<(&PollSet, usize)>,
    ) -> Result<Self, CreateError> {
        let ring = Self::map(segment, offset, capacity, None)?;
        let member = member.map(|(set, index)| set.member(index)).transpose()?;
        let ControlLines { settings, tail, head, room } = &*ring.control;
        // Relaxed: the layout word publishes them.
        let place =
            member.as_ref().map_or((0, 0), |member| (member.set().0 + 1, member.index() as u64));
        settings.poll_set.store(place.0, Ordering::Relaxed);
        settings.poll_index.store(place.1, Ordering::Relaxed);
        for word in [&settings.empty, &tail.position, &tail.hint, &head.position] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &settings.gate,
            &settings.bell,
            &settings.request,
            &settings.unused,
            &head.receivers,
            &room.bell,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        ring.slots.iter().for_each(S::clear);
        ring.senders.iter().for_each(|name| name.store(0, Ordering::Relaxed));
        // Release: pairs with the Acquire in `connect`.
        settings.layout.store(layout::<S>(capacity), Ordering::Release);
        Ok(RingMemory { member, ..ring })
    }

    /// Finds the ring that another made at `offset`.
    pub(crate) fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let settings = Mapped::<Settings>::new(segment, offset)?;
        // Acquire: pairs with the Release in `create_at`.
        let found = settings.layout.load(Ordering::Acquire);
        let capacity = 1usize.checked_shl((found & 0xff) as u32).unwrap_or(0);
        if check(capacity).is_err() || found != layout::<S>(capacity) {
            return Err(CreateError::NoQueue { offset, kind: S::NAME });
        }
        let member = match settings.poll_set.load(Ordering::Relaxed).checked_sub(1) {
            None => None,
            Some(place) => {
                let index = usize::try_from(settings.poll_index.load(Ordering::Relaxed))
                    .unwrap_or(usize::MAX);
                Some(PollSet::connect(segment, Offset(place))?.member(index)?)
            }
        };
        Self::map(segment, offset, capacity, member)
    }

    fn map(
        segment: &Arc<Segment>,
        offset: Offset,
        capacity: usize,
        member: Option<SetMember>,
    ) -> Result<Self, CreateError> {
        let bytes = bytes_for::<S>(capacity)?;
        let control = Mapped::new(segment, offset)?;
        let after = Offset(offset.0.saturating_add(size_of::<ControlLines>() as u64));
        let slots = MappedSlice::new(segment, after, capacity)?;
        let after = Offset(after.0.saturating_add((capacity * size_of::<S>()) as u64));
        let senders = MappedSlice::new(segment, after, S::SENDERS)?;
        debug_assert_eq!(
            bytes,
            (size_of_val(&*control) + size_of_val(&*slots) + size_of_val(&*senders)) as u64
        );
        crate::fence::register();
        Ok(RingMemory { control, slots, senders, own: 0, member, offset })
    }

    /// Where the ring lies.
    pub(crate) fn offset(&self) -> Offset {
        self.offset
    }

    /// Where receivers sleep: on the bell of the queue.
    pub(crate) fn bell(&self) -> Bell<'_> {
        Bell(&self.control.settings.bell)
    }

    /// Where senders wait for room.
    pub(crate) fn room(&self) -> Bell<'_> {
        Bell(&self.control.room.bell)
    }

    /// How receivers make room, for those who sleep until there is some.
    pub(crate) fn room_ringers(&self) -> Ringers {
        Ringers::Store
    }

    /// Announces a message that was sent by an exchange just now.
    #[inline(always)]
    pub(crate) fn announce(&self, event: Option<&Event>, is_half_full: impl FnOnce() -> bool) {
        order::settle();
        if let Some(member) = &self.member {
            member.announce(event);
        }
        self.bell().ring();
        if let Some(event) = event {
            Request(&self.control.settings.request).answer(is_half_full, || event.notify());
        }
    }

    /// Tells waiting senders that a receiver has just made room.
    #[inline(always)]
    pub(crate) fn announce_room(&self) {
        crate::fence::light();
        self.room().ring();
    }

    /// Wakes everybody: the queue was closed.
    pub(crate) fn announce_end(&self) {
        fence(Ordering::SeqCst);
        if let Some(member) = &self.member {
            member.announce(None);
        }
        self.bell().ring();
        self.room().ring();
    }

    /// Asks senders to write to the eventfd once.
    pub(crate) fn request_event(&self, when: Option<Notify>) {
        let request = Request(&self.control.settings.request);
        match when {
            Some(when) => request.ask(when),
            None => request.cancel(),
        }
        // Between the request and the caller's look.
        fence(Ordering::SeqCst);
    }

    /// Counts one more receiver.
    pub(crate) fn enter_receiver(&self, sole: bool) -> Result<(), CreateError> {
        let receivers = &self.control.head.receivers;
        let mut seen = receivers.load(Ordering::Relaxed);
        loop {
            let after = match (sole, seen) {
                (true, 0) => SINGLE,
                (false, count) if count < SINGLE - 1 => count + 1,
                _ => return Err(CreateError::Held { offset: self.offset }),
            };
            // Acquire: pairs with the Release of `leave_receiver`: where the former receiver left
            // the head is seen.
            match receivers.compare_exchange_weak(seen, after, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// Counts one receiver less.
    pub(crate) fn leave_receiver(&self, sole: bool) {
        let receivers = &self.control.head.receivers;
        if sole {
            let _ = receivers.compare_exchange(SINGLE, 0, Ordering::AcqRel, Ordering::Relaxed);
        } else {
            let less = |count: u32| if count == SINGLE { None } else { count.checked_sub(1) };
            let _ = receivers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
        }
    }

    /// Forgets receivers that have died without leaving.
    pub(crate) fn forget_receivers(&self) {
        self.control.head.receivers.store(0, Ordering::Release);
    }
}
