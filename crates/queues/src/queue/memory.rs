//! Memory of a queue: a line of settings, one line each for tail, head and waiting senders, and the
//! slots.
//!
//! | Bytes | Written by | Read by |
//! |---|---|---|
//! | 0 to 63: layout, poll set, generation word, wake-up word, event request, Empty message | the creator, and receivers that sleep | all |
//! | 64 to 127: tail | senders | senders |
//! | 128 to 191: head | receivers | receivers, and senders that need free space |
//! | 192 to 255: wake-up word and event request of waiting senders | waiting senders | receivers |
//! | from 256: slots | senders (and receivers that release a word) | all |
//! | after them, in a cache-line queue: the senders' processes | new senders | recovery |
//!
//! In the steady state a message costs a sender, besides slot and tail, only loads of lines that no
//! thread writes: the settings, and, for a member of a poll set, its bit and the set's wake-up
//! word.

use crate::error::{CreateError, MAX_CAPACITY, MIN_CAPACITY};
use crate::one_poll::{PollSet, SetMember};
use crate::positions::word_behind;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use shm::arena::Arena;
use shm::event::{Event, EventRequest, Notify};
use shm::mapped::MappedSlice;
use shm::object::{Label, Object, ObjectHeader};
use shm::segment::{Offset, Segment, SegmentReader};
use shm::shared::Shared;
use shm::wakeup::Wakeup;
use std::mem::offset_of;
use std::sync::Arc;

shm::shared_lines! {
    /// Properties of the ring, and requests of receivers to senders.
    pub(crate) struct Settings {
        /// Label of the ring, with the kind of slots and the binary logarithm of the capacity.
        label: Label,
        /// Offset of the poll set of the queue plus 1; 0 for none.
        poll_set: AtomicU64,
        /// Index in the poll set.
        poll_index: AtomicU64,
        /// Generation and closed flag (see the rings).
        pub(crate) generation_word: AtomicU32,
        /// Wake-up word of receivers.
        arrival: AtomicU32,
        /// Event request of receivers.
        request: AtomicU32,
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

    /// Wake-up word of waiting senders, and their event request.
    pub(crate) struct SendersWaiting {
        word: AtomicU32,
        request: AtomicU32,
        /// Position of the receivers from which on the request is due.
        due: AtomicU64,
    }

    /// All lines before the slots.
    pub(crate) struct ControlLines {
        pub(crate) settings: Settings,
        pub(crate) tail: Tail,
        pub(crate) head: Head,
        space: SendersWaiting,
    }
}

impl ObjectHeader for ControlLines {
    const KIND: u32 = u32::from_be_bytes(*b"ring");
    const NAME: &'static str = "queue";
    const IS_QUEUE: bool = true;

    fn label(&self) -> &Label {
        &self.settings.label
    }
}

impl ControlLines {
    /// Reads the capacity, the tail and the head of a ring with slots of this kind, from outside
    /// the job; `None` if the label is that of another object.
    pub(crate) fn observe(
        segment: &SegmentReader,
        at: Offset,
        label: u64,
        kind: u8,
    ) -> Option<[u64; 3]> {
        let parameter = label as u32;
        if label >> 32 != u64::from(Self::KIND) || parameter >> 8 != u32::from(kind) {
            return None;
        }
        let capacity = 1_usize.checked_shl(parameter & 0xff)?;
        let is_valid = (MIN_CAPACITY..=MAX_CAPACITY).contains(&capacity);
        let tail = word_behind(segment, at, offset_of!(ControlLines, tail.position))?;
        let head = word_behind(segment, at, offset_of!(ControlLines, head.position))?;
        is_valid.then_some([capacity as u64, tail, head])
    }
}

const SINGLE: u32 = u32::MAX;

/// Contents of the slots of a ring. Zeroed memory is an empty slot.
pub trait MessageSlot: Shared {
    /// Number in the label.
    const KIND: u8;
    /// Name in error messages.
    const NAME: &'static str;
    /// Number of words after the slots that identify sending processes.
    const SENDERS: usize = 0;
}

/// Ring in a segment that this value keeps mapped.
pub struct RingMemory<S: MessageSlot> {
    pub(crate) control: Object<ControlLines>,
    pub(crate) slots: MappedSlice<S>,
    pub(crate) senders: MappedSlice<AtomicU64>,
    /// Number of this process among the senders; 0 for none.
    pub(crate) own: u8,
    member: Option<SetMember>,
}

impl<S: MessageSlot> Clone for RingMemory<S> {
    fn clone(&self) -> Self {
        RingMemory {
            control: self.control.clone(),
            slots: self.slots.clone(),
            senders: self.senders.clone(),
            own: self.own,
            member: self.member.clone(),
        }
    }
}

/// Returns the size of a ring in bytes.
pub(crate) fn bytes_for<S: MessageSlot>(capacity: usize) -> Result<u64, CreateError> {
    Ok(size_of::<ControlLines>() as u64 + trailing_bytes::<S>(capacity)?)
}

/// Returns the size of slots and senders in bytes.
fn trailing_bytes<S: MessageSlot>(capacity: usize) -> Result<u64, CreateError> {
    if !capacity.is_power_of_two() || !(MIN_CAPACITY..=MAX_CAPACITY).contains(&capacity) {
        return Err(CreateError::Size {
            object: S::NAME,
            requested: capacity as u64,
            unit: "messages",
            limits: "a power of two from 2 to 16777216",
        });
    }
    Ok((capacity * size_of::<S>() + S::SENDERS * 8) as u64)
}

impl<S: MessageSlot> RingMemory<S> {
    /// Creates a ring in new memory of the arena.
    pub(crate) fn create(
        arena: &Arena,
        capacity: usize,
        member: Option<(&PollSet, usize)>,
    ) -> Result<Self, CreateError> {
        let bytes = trailing_bytes::<S>(capacity)?;
        let parameter = u32::from(S::KIND) << 8 | capacity.trailing_zeros();
        let (control, (slots, senders, member)) =
            Object::create(arena, bytes, parameter, |control: &Object<ControlLines>| {
                let member = member.map(|(set, index)| set.member(index)).transpose()?;
                let place = member
                    .as_ref()
                    .map_or((0, 0), |member| (member.set().0 + 1, member.index() as u64));
                // Relaxed: the label publishes both. Zeroed slots are empty.
                control.settings.poll_set.store(place.0, Ordering::Relaxed);
                control.settings.poll_index.store(place.1, Ordering::Relaxed);
                let (slots, senders) = Self::map(control, capacity)?;
                Ok((slots, senders, member))
            })?;
        crate::fence::register();
        Ok(RingMemory { control, slots, senders, own: 0, member })
    }

    /// Connects to a ring at `offset`.
    pub(crate) fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let not_found = CreateError::NotFound { object: S::NAME, offset };
        let control = match Object::<ControlLines>::find(segment, offset) {
            Err(CreateError::NotFound { .. }) => return Err(not_found),
            other => other?,
        };
        // Nothing is trusted before the parameter is one that `create` writes; the mapping then
        // checks that the ring lies in the segment.
        let parameter = control.parameter();
        let capacity = 1usize.checked_shl(parameter & 0xff).unwrap_or(0);
        if parameter >> 8 != u32::from(S::KIND) || trailing_bytes::<S>(capacity).is_err() {
            return Err(not_found);
        }
        // Relaxed: written before the label, and never again.
        let member = match control.settings.poll_set.load(Ordering::Relaxed).checked_sub(1) {
            None => None,
            Some(set) => {
                let index = usize::try_from(control.settings.poll_index.load(Ordering::Relaxed))
                    .unwrap_or(usize::MAX);
                Some(PollSet::connect(segment, Offset(set))?.member(index)?)
            }
        };
        let (slots, senders) = Self::map(&control, capacity)?;
        crate::fence::register();
        Ok(RingMemory { control, slots, senders, own: 0, member })
    }

    /// Maps the slots and the senders.
    fn map(
        control: &Object<ControlLines>,
        capacity: usize,
    ) -> Result<(MappedSlice<S>, MappedSlice<AtomicU64>), CreateError> {
        let slots = control.trailing(0, capacity)?;
        Ok((slots, control.trailing((capacity * size_of::<S>()) as u64, S::SENDERS)?))
    }

    /// Returns the offset of the ring.
    pub(crate) fn offset(&self) -> Offset {
        self.control.offset()
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

    /// Returns the event request of senders that wait for free space: the node
    /// service, which cannot sleep on a word.
    pub(crate) fn space_request(&self) -> EventRequest<'_> {
        EventRequest(&self.control.space.request)
    }

    /// Requests a notification when half of the ring is free, or the receivers have taken as many
    /// messages as half of it holds: other senders may take all the space that they release. The
    /// caller passes a heavy fence and tries once more.
    pub(crate) fn request_space(&self) {
        let head = self.control.head.position.load(Ordering::Relaxed);
        let due = head.wrapping_add(self.slots.len() as u64 / 2);
        // Relaxed: the request publishes it.
        self.control.space.due.store(due, Ordering::Relaxed);
        self.space_request().request(Notify::HalfFull);
    }

    /// Returns true if the receivers have taken enough messages since the request.
    pub(crate) fn is_space_due(&self) -> bool {
        // Relaxed: a receiver that has seen the request sees its position.
        let due = self.control.space.due.load(Ordering::Relaxed);
        let head = self.control.head.position.load(Ordering::Relaxed);
        head.wrapping_sub(due).cast_signed() >= 0
    }

    /// Returns true if the receivers have taken the message at a position.
    #[inline]
    pub(crate) fn is_taken(&self, position: u64) -> bool {
        // Acquire: pairs with the Release of the receiver that advanced the head. It has copied the
        // message before.
        let head = self.control.head.position.load(Ordering::Acquire);
        head.wrapping_sub(position).cast_signed() > 0
    }

    /// Returns true if the queue is closed.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: the bit is set before the wake-ups of the end, and never cleared in a generation.
        self.control.settings.generation_word.load(Ordering::Relaxed) & 1 != 0
    }

    /// Returns true if the queue is closed and has no receiver, so that nothing is taken any more.
    pub(crate) fn is_closed_without_receivers(&self) -> bool {
        let is_closed = self.is_closed();
        // Acquire: pairs with the Release in `leave_receiver`, so that the last head is visible.
        is_closed && self.control.head.receivers.load(Ordering::Acquire) == 0
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
                _ => return Err(CreateError::Held { object: S::NAME, offset: self.offset() }),
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
