//! Memory of a queue: a line of settings, one line each for tail, head and waiting senders, and the
//! slots.
//!
//! | Bytes | Written by | Read by |
//! |---|---|---|
//! | 0 to 63: layout, poll set, gate, wake-up word, event request, Empty message | the creator, and receivers that sleep | all |
//! | 64 to 127: tail | senders | senders |
//! | 128 to 191: head | receivers | receivers, and senders that need free space |
//! | 192 to 255: wake-up word of waiting senders | waiting senders | receivers |
//! | from 256: slots | senders (and receivers that release a word) | all |
//! | after them, in a cache-line queue: the senders' processes | new senders | recovery |
//!
//! In the steady state a message costs a sender, besides slot and tail, only loads of lines that no
//! thread writes: the settings, and, for a member of a poll set, its bit and the set's wake-up
//! word.

use std::sync::Arc;

use shm::arena::Arena;
use shm::event::{Event, EventRequest, Notify};
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};
use shm::shared::Shared;
use shm::wakeup::Wakeup;

use crate::error::{CreateError, MAX_CAPACITY, MIN_CAPACITY};
use crate::one_poll::{PollSet, SetMember};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Magic number in the upper half of the layout word.
const MAGIC: u64 = 0x7477_7269;

shm::shared_lines! {
    /// Properties of the ring, and requests of receivers to senders.
    pub(crate) struct Settings {
        /// [`MAGIC`], the kind of slots, and the binary logarithm of the capacity.
        layout: AtomicU64,
        /// Offset of the poll set of the queue plus 1; 0 for none.
        poll_set: AtomicU64,
        /// Index in the poll set.
        poll_index: AtomicU64,
        /// Generation and closed flag (see the rings).
        pub(crate) gate: AtomicU32,
        /// Wake-up word of receivers.
        arrival: AtomicU32,
        /// Event request of receivers.
        request: AtomicU32,
        unused: AtomicU32,
        /// Programmable Empty message.
        pub(crate) empty: AtomicU64,
    }

    /// Position of the senders.
    pub(crate) struct Tail {
        /// Next position to write.
        pub(crate) position: AtomicU64,
        /// Last value of the head that senders saw.
        pub(crate) hint: AtomicU64,
    }

    /// Position of the receivers.
    pub(crate) struct Head {
        /// Next position to receive.
        pub(crate) position: AtomicU64,
        /// Number of receivers; [`SINGLE`] for a single receiver.
        receivers: AtomicU32,
    }

    /// Wake-up word of waiting senders.
    pub(crate) struct SendersWaiting {
        word: AtomicU32,
    }

    /// All lines before the slots.
    pub(crate) struct ControlLines {
        pub(crate) settings: Settings,
        pub(crate) tail: Tail,
        pub(crate) head: Head,
        space: SendersWaiting,
    }
}

const SINGLE: u32 = u32::MAX;

/// Contents of the slots of a ring.
pub trait Slot: Shared {
    /// Number in the layout word.
    const KIND: u8;
    /// Name in error messages.
    const NAME: &'static str;
    /// Number of words after the slots that identify sending processes.
    const SENDERS: usize = 0;
    /// Initialises the slot.
    fn clear(&self);
}

/// Ring in a segment that this value keeps mapped.
pub struct RingMemory<S: Slot> {
    pub(crate) control: Mapped<ControlLines>,
    pub(crate) slots: MappedSlice<S>,
    pub(crate) senders: MappedSlice<AtomicU64>,
    /// Number of this process among the senders; 0 for none.
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

/// Returns the size of a ring in bytes.
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
    /// Creates a ring in new memory of the arena.
    pub(crate) fn create(
        arena: &Arena,
        capacity: usize,
        member: Option<(&PollSet, usize)>,
    ) -> Result<Self, CreateError> {
        // Processors fetch lines in aligned pairs.
        let offset = arena.allocate(bytes_for::<S>(capacity)?, 128)?;
        Self::create_at(arena.segment(), offset, capacity, member).inspect_err(|_| {
            // Cannot fail: the memory came from this arena.
            let _ = arena.free(offset);
        })
    }

    /// Creates a ring in committed memory that nothing else uses.
    pub(crate) fn create_at(
        segment: &Arc<Segment>,
        offset: Offset,
        capacity: usize,
        member: Option<(&PollSet, usize)>,
    ) -> Result<Self, CreateError> {
        let ring = Self::map(segment, offset, capacity, None)?;
        let member = member.map(|(set, index)| set.member(index)).transpose()?;
        let ControlLines { settings, tail, head, space } = &*ring.control;
        // Relaxed, all stores below: the Release store of the layout word publishes them.
        let place =
            member.as_ref().map_or((0, 0), |member| (member.set().0 + 1, member.index() as u64));
        settings.poll_set.store(place.0, Ordering::Relaxed);
        settings.poll_index.store(place.1, Ordering::Relaxed);
        for word in [&settings.empty, &tail.position, &tail.hint, &head.position] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &settings.gate,
            &settings.arrival,
            &settings.request,
            &settings.unused,
            &head.receivers,
            &space.word,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        ring.slots.iter().for_each(S::clear);
        ring.senders.iter().for_each(|name| name.store(0, Ordering::Relaxed));
        // Release: pairs with the Acquire in `connect`. The layout word is the last store, so a
        // process that finds it also finds an empty ring.
        settings.layout.store(layout::<S>(capacity), Ordering::Release);
        Ok(RingMemory { member, ..ring })
    }

    /// Connects to a ring at `offset`.
    pub(crate) fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let settings = Mapped::<Settings>::new(segment, offset)?;
        // Acquire: pairs with the Release in `create_at`. Nothing is trusted before the word equals
        // the layout of a valid capacity; the mapping then checks that the ring lies in the
        // segment.
        let found = settings.layout.load(Ordering::Acquire);
        let capacity = 1usize.checked_shl((found & 0xff) as u32).unwrap_or(0);
        if check(capacity).is_err() || found != layout::<S>(capacity) {
            return Err(CreateError::NoQueue { offset, kind: S::NAME });
        }
        // Relaxed: written before the layout word, and never again.
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

    /// Returns the offset of the ring.
    pub(crate) fn offset(&self) -> Offset {
        self.offset
    }

    /// Returns the wake-up word of receivers.
    pub(crate) fn arrival(&self) -> Wakeup<'_> {
        Wakeup::by_exchange(&self.control.settings.arrival)
    }

    /// Returns the wake-up word of senders that wait for free space. Receivers publish it with a
    /// plain store, which costs them no fence: the sleeping sender pays for the barrier.
    pub(crate) fn space(&self) -> Wakeup<'_> {
        Wakeup::by_store(&self.control.space.word)
    }

    /// Notifies receivers of a message just published by an exchange.
    #[inline(always)]
    pub(crate) fn announce(&self, event: Option<&Event>, is_half_full: impl FnOnce() -> bool) {
        // The exchange that published the message was SeqCst, so it precedes the loads below; a
        // receiver sets its bit or request, passes a fence and polls once more. One of the two sees
        // the other's write.
        shm::fence::after_exchange();
        // The bit of the set comes before the wake-ups: a woken receiver finds it set.
        if let Some(member) = &self.member {
            member.announce(event);
        }
        self.arrival().notify();
        if let Some(event) = event {
            EventRequest(&self.control.settings.request).serve(is_half_full, || event.notify());
        }
    }

    /// Notifies waiting senders of free space.
    #[inline(always)]
    pub(crate) fn announce_space(&self) {
        self.space().notify();
    }

    /// Wakes all senders and receivers after the queue was closed.
    pub(crate) fn announce_end(&self) {
        // Orders the closing store before the loads of the wake-up words: a thread that sleeps
        // later finds the queue closed in its last poll.
        fence(Ordering::SeqCst);
        if let Some(member) = &self.member {
            member.announce(None);
        }
        self.arrival().notify();
        self.space().notify();
    }

    /// Sets or cancels the request for one event notification.
    pub(crate) fn request_event(&self, when: Option<Notify>) {
        let request = EventRequest(&self.control.settings.request);
        match when {
            Some(when) => request.request(when),
            None => request.cancel(),
        }
        // Orders the request before the caller's check of the condition. Pairs with the exchange of
        // senders: either they see the request, or the caller sees their message.
        fence(Ordering::SeqCst);
    }

    /// Registers a receiver.
    pub(crate) fn enter_receiver(&self, sole: bool) -> Result<(), CreateError> {
        let receivers = &self.control.head.receivers;
        let mut seen = receivers.load(Ordering::Relaxed);
        loop {
            let after = match (sole, seen) {
                (true, 0) => SINGLE,
                (false, count) if count < SINGLE - 1 => count + 1,
                _ => return Err(CreateError::Held { offset: self.offset }),
            };
            // Acquire: pairs with the Release in `leave_receiver`, so that the head of the former
            // receiver is visible.
            match receivers.compare_exchange_weak(seen, after, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// Unregisters a receiver.
    pub(crate) fn leave_receiver(&self, sole: bool) {
        let receivers = &self.control.head.receivers;
        if sole {
            // Fails only if `forget_receivers` was called for this receiver, and then nothing is
            // left to do. Release: pairs with the Acquire in `enter_receiver`.
            let _ = receivers.compare_exchange(SINGLE, 0, Ordering::AcqRel, Ordering::Relaxed);
        } else {
            // A count of 0 or `SINGLE` belongs to later receivers and stays as it is.
            let less = |count: u32| if count == SINGLE { None } else { count.checked_sub(1) };
            let _ = receivers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
        }
    }

    /// Unregisters receivers that were killed.
    pub(crate) fn forget_receivers(&self) {
        // No receiver is alive, so the store competes with none. Release: pairs with the Acquire in
        // `enter_receiver`.
        self.control.head.receivers.store(0, Ordering::Release);
    }
}
