//! The receiving end of a Basic ring; the protocol is told in `ring.rs`.

use super::ring::{
    ARRIVALS, ASKS_ARRIVAL, ASKS_HALF_FULL, AWAKE, Bell, CLOSED, CREDIT, Corruption, Geometry,
    IN_SET, INDEX, ONE_REQUEST, RECEIVER, ROOM, RingError, SENDER, SET, SLEEPS, Seen, is_over,
};
use super::stamp::{Header, Stamp};
use super::words::load_bytes;
use crate::bell::Notify;
use crate::sync::{AtomicU64, Ordering, spin_loop};
use std::ops::Deref;
use std::time::Instant;

/// Where a message lies, checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) header: Header,
    pub(crate) bytes: usize,
    position: u64,
}

/// The receiving end. It must be the only one.
#[derive(Debug)]
pub(crate) struct Receiver<M: Deref<Target = [AtomicU64]>, B: Bell> {
    memory: M,
    bell: B,
    geometry: Geometry,
    looks: u32,
    /// The next position to look at.
    head: u64,
    /// The credit that the sender has been told.
    published: u64,
    /// What this end says besides its state: that it is in a set, and what it asks for.
    wishes: u64,
    /// How often it has asked.
    requests: u64,
    /// Whether the other end is to learn that this one has gone.
    open: bool,
}

impl<M: Deref<Target = [AtomicU64]>, B: Bell> Receiver<M, B> {
    /// `None` if the memory is too small for the ring. `position` is 0, or what [`Self::leave`] has
    /// given.
    pub(crate) fn new(
        memory: M,
        geometry: Geometry,
        bell: B,
        looks: u32,
        position: u64,
    ) -> Option<Self> {
        let fits = memory.len() >= geometry.words();
        let head = position;
        fits.then(|| Receiver {
            memory,
            bell,
            geometry,
            looks,
            head,
            published: head,
            wishes: 0,
            requests: 0,
            open: true,
        })
    }

    pub(crate) fn bell_mut(&mut self) -> &mut B {
        &mut self.bell
    }

    pub(crate) fn bell(&self) -> &B {
        &self.bell
    }

    /// Gives the end up without closing it: another receiver goes on at the position given.
    pub(crate) fn leave(&mut self) -> u64 {
        self.publish_credit();
        self.open = false;
        self.head
    }

    /// The words of a message that has been taken and not released.
    pub(crate) fn words(&self, found: &Found) -> &[AtomicU64] {
        let first = self.geometry.stamp(found.position) + 1;
        &self.memory[first..first + found.bytes.div_ceil(8)]
    }

    /// Takes the next message, if there is one.
    pub(crate) fn take(&mut self) -> Result<Option<Found>, RingError> {
        let Some(found) = self.look()? else { return Ok(None) };
        self.head = self.end_of(&found);
        Ok(Some(found))
    }

    /// As [`Self::take`], sleeping until there is one.
    pub(crate) fn take_by(&mut self, deadline: Option<Instant>) -> Result<Found, RingError> {
        loop {
            if let Some(found) = self.take()? {
                return Ok(found);
            }
            self.wait_for_message(deadline)?;
        }
    }

    /// Whether [`Self::take`] would give a message or an error.
    pub(crate) fn is_ready(&self) -> bool {
        !matches!(self.look(), Ok(None))
    }

    /// Takes the next message out, as one whose sender may write to it at any time, and releases
    /// it.
    pub(crate) fn copy_next(&mut self, into: &mut Vec<u8>) -> Result<Option<Header>, RingError> {
        let Some(found) = self.take()? else { return Ok(None) };
        into.clear();
        into.resize(found.bytes, 0);
        load_bytes(self.words(&found), into);
        self.release();
        Ok(Some(found.header))
    }

    /// Gives everything taken back to the sender; tells it when a quarter of the ring has come
    /// together.
    pub(crate) fn release(&mut self) {
        if self.head - self.published >= self.geometry.quarter() {
            self.publish_credit();
        }
    }

    fn publish_credit(&mut self) {
        self.published = self.head;
        // Release: pairs with the Acquire load in `Sender::look_at_credit`; this end's loads of the
        // lines come before.
        self.memory[CREDIT].store(self.head, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // Pairs with the heavy barrier in `Sender::sleep_for_room`.
        self.bell.light();
        if self.memory[SENDER].load(Ordering::Relaxed) != AWAKE {
            // This end alone writes the word. Release: pairs with the Acquire load in
            // `Sender::sleep_for_room`.
            let rung = self.memory[ROOM].load(Ordering::Relaxed).wrapping_add(1);
            self.memory[ROOM].store(rung, Ordering::Release);
            self.bell.ring();
        }
    }

    fn look(&self) -> Result<Option<Found>, RingError> {
        self.look_at(self.head)
    }

    /// The message at a position, every word of it checked. Each word is loaded once: it may be
    /// another one right after.
    #[inline]
    fn look_at(&self, mut position: u64) -> Result<Option<Found>, RingError> {
        loop {
            // Acquire: pairs with the Release store in `Sender::release`.
            let word = self.memory[self.geometry.stamp(position)].load(Ordering::Acquire);
            match Stamp::decode(word, self.geometry.lap(position)) {
                Ok(None) => return Ok(None),
                Ok(Some(Stamp::Message { header, bytes })) => {
                    let lines = self.geometry.lines_of(bytes);
                    if bytes > self.geometry.longest() || lines > self.geometry.before_end(position)
                    {
                        return Err(Corruption::Length { position, bytes }.into());
                    }
                    return Ok(Some(Found { header, bytes, position }));
                }
                Ok(Some(Stamp::Skip { lines })) => {
                    // A second skip in a row would be one from the ring's start, which is too long.
                    if lines != self.geometry.before_end(position)
                        || lines >= self.geometry.quarter().max(1)
                    {
                        return Err(Corruption::Skip { position, lines }.into());
                    }
                    position += lines;
                }
                Ok(Some(Stamp::End)) => return Err(RingError::Closed),
                Err(_) => return Err(Corruption::Stamp { position, word }.into()),
            }
        }
    }

    /// Where the message ends.
    fn end_of(&self, found: &Found) -> u64 {
        found.position + self.geometry.lines_of(found.bytes)
    }

    /// Waits until [`Self::take`] gives a message or an error.
    #[cold]
    pub(crate) fn wait_for_message(&mut self, deadline: Option<Instant>) -> Result<(), RingError> {
        for _ in 0..self.looks {
            if self.is_ready() {
                return Ok(());
            }
            spin_loop();
        }
        let outcome = self.sleep_for_message(deadline);
        self.stir();
        outcome
    }

    fn sleep_for_message(&mut self, deadline: Option<Instant>) -> Result<(), RingError> {
        while let Some(seen) = self.prepare_sleep() {
            if is_over(deadline) {
                return Err(RingError::TimedOut);
            }
            if let Err(interrupted) = self.bell.sleep(seen, deadline) {
                // It may have sent something before it went.
                return if self.is_ready() { Ok(()) } else { Err(interrupted.into()) };
            }
        }
        Ok(())
    }

    /// Says that this end sleeps and looks once more; `None` if there is something after all.
    fn prepare_sleep(&mut self) -> Option<Seen> {
        // Acquire: pairs with the Release store in `Sender::release`: whoever has seen the ring
        // sees the message.
        let word = self.memory[ARRIVALS].load(Ordering::Acquire);
        self.announce_sleep();
        // Pairs with the light barrier in `Sender::release`: either it sees that this end sleeps,
        // or this end its stamp.
        let certain = self.bell.heavy();
        (!self.is_ready()).then_some(Seen { word, certain })
    }

    /// Says that this end sleeps. Before it does, a heavy barrier and a last look are due.
    pub(crate) fn announce_sleep(&self) {
        self.say(SLEEPS);
    }

    /// Says that this end is awake.
    pub(crate) fn stir(&self) {
        self.say(AWAKE);
    }

    fn say(&self, state: u64) {
        // Release: pairs with the Acquire load in `Sender::release`.
        self.memory[RECEIVER].store(state | self.wishes, Ordering::Release);
    }

    /// Asks the sender for an event, once. Gives whether there is a reason for it already, or the
    /// sender may not see the request in time.
    pub(crate) fn ask(&mut self, when: Notify) -> bool {
        if when == Notify::HalfFull {
            // The sender is to count right.
            self.publish_credit();
        }
        self.requests = self.requests.wrapping_add(ONE_REQUEST);
        let bit = if when == Notify::Arrival { ASKS_ARRIVAL } else { ASKS_HALF_FULL };
        self.wishes = self.wishes & IN_SET | self.requests | bit;
        self.stir();
        // Pairs with the light barrier in `Sender::release`, as in `prepare_sleep`.
        let certain = self.bell.heavy();
        let is_so = match when {
            Notify::Arrival => self.is_ready(),
            Notify::HalfFull => self.is_half_full(),
        };
        is_so || !certain
    }

    /// Takes the request back.
    pub(crate) fn ask_for_nothing(&mut self) {
        self.wishes &= IN_SET;
        self.stir();
    }

    fn is_half_full(&self) -> bool {
        let mut end = self.head;
        // No longer than a lap, whatever the memory holds.
        while end - self.head < self.geometry.half()
            && let Ok(Some(found)) = self.look_at(end)
        {
            end = self.end_of(&found);
        }
        end - self.head >= self.geometry.half()
    }

    /// Has the sender announce every message in the poll set of this place; what is there already
    /// the caller announces.
    pub(crate) fn join(&mut self, set: u64, index: u64) {
        // Relaxed, both: the Release store of the state publishes them.
        self.memory[SET].store(set, Ordering::Relaxed);
        self.memory[INDEX].store(index, Ordering::Relaxed);
        self.wishes |= IN_SET;
        self.stir();
        // Pairs with the light barrier in `Sender::release`: it announces what this end does not
        // see after this. Where it is refused, a waiter finds that by looking through its queues.
        self.bell.heavy();
    }
}

impl<M: Deref<Target = [AtomicU64]>, B: Bell> Drop for Receiver<M, B> {
    fn drop(&mut self) {
        if self.open {
            // Relaxed: nothing is published. The sender finds it when it next publishes or finds
            // the ring full.
            self.memory[RECEIVER].store(CLOSED, Ordering::Relaxed);
            self.wake();
        }
    }
}
