//! The protocol of a Basic ring between one sender and one receiver: loads, stores and barriers, no read-modify-write.
//!
//! The ring is a row of cache lines ("transmit and receive queues consist of a cacheable message buffer region", Ang et
//! al. 1996, section 2.2). There are no shared pointers that a message has to move: the first word of a message's first
//! line, its [`Stamp`], tells that it is there. So a message of one line costs the transfer of one line.
//!
//! - **Publishing.** The sender writes the data and the stamps of all messages of a batch but the first with plain stores,
//!   and then the first one's stamp with a release store: that one store publishes the whole batch.
//! - **Long messages** fill several lines, one after the other, without stamps between: their bytes lie side by side. A
//!   message that does not fit before the ring's end begins at its start, and a skip stamp says so. Data where a stamp
//!   will be looked for could be taken for one; the sender keeps books of such lines and clears the next one before it
//!   publishes. For that, and for the end stamp, one line always stays free.
//! - **Credits.** The receiver publishes its position whenever a quarter of the ring has been released. With messages of
//!   at most a quarter, a sender finds room as soon as the receiver has drained the ring, published or not: at most a
//!   quarter is unpublished, less than a quarter is skipped, one line stays free.
//! - **Sleeping.** Each end has a word in which it says that it sleeps, which the other reads after it has published; a
//!   barrier on either side makes sure that one of them sees the other (store, barrier, load, on both sides).
//!
//! The receiver believes nothing: it loads a stamp once, checks it, and [`Receiver::copy_next`] takes the data out before
//! anybody looks at it. The sender believes nothing either: a credit that cannot be is an error.

use super::stamp::{Header, MAX_BYTES, Stamp};
use crate::sync::{AtomicU64, Ordering, spin_loop};
use std::ops::Deref;
use std::time::Instant;

/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = 8;
/// Words before the first line: a pair of lines for each end, because processors fetch lines in pairs.
pub(crate) const HEAD_WORDS: usize = 4 * LINE_WORDS;
/// The fewest lines of a ring.
pub(crate) const MIN_LINES: u64 = 4;
/// The most lines of a ring: a quarter of it is the longest message that a stamp can announce.
pub(crate) const MAX_LINES: u64 = 1 << 16;

/// Written by the sender: changes when a sleeping receiver is to look.
pub(crate) const ARRIVALS: usize = 0;
/// Written by the sender: how it is (one of the states below).
const SENDER: usize = 1;
/// Written by the receiver: all positions before this one are released.
const CREDIT: usize = 2 * LINE_WORDS;
/// Written by the receiver: how it is.
const RECEIVER: usize = 2 * LINE_WORDS + 1;
/// Written by the receiver: changes when a sleeping sender is to look.
pub(crate) const ROOM: usize = 2 * LINE_WORDS + 2;

/// States of an end.
const AWAKE: u64 = 0;
const SLEEPS: u64 = 1;
const CLOSED: u64 = 2;

/// How one end sleeps and how it wakes the other.
pub(crate) trait Bell {
    /// Keeps a publishing store before the look at whether the other end sleeps. Pairs with the other end's
    /// [`Self::heavy`].
    fn light(&self);
    /// Keeps the store that says "I sleep" before the last look at what the other end has published; gives whether the
    /// other end is sure to see it.
    fn heavy(&self) -> bool;
    /// Sleeps until the other end rings, the deadline is over, or for no reason; not at all if this end's word is not
    /// what was seen any more.
    fn sleep(&self, seen: Seen, deadline: Option<Instant>) -> Result<(), Interrupted>;
    /// Wakes the other end; its word has just been changed.
    fn ring(&self);
    /// Looks, without sleeping, whether the other end is there.
    fn check(&self) -> Result<(), Interrupted> {
        Ok(())
    }
}

/// What an end saw before it went to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The value of the word that the other end changes when it rings.
    pub(crate) word: u64,
    /// Whether the other end is sure to ring. If not, the sleep must be short.
    pub(crate) certain: bool,
}

/// The other end will not ring any more; the [`Bell`] knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupted;

/// Something in the ring that the other end of it would never write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// A line begins with a word that is no stamp.
    #[error("the line at position {position} begins with {word:#018x}, which no sender writes")]
    Stamp {
        /// Which line, counted from the beginning of time.
        position: u64,
        /// What stood there.
        word: u64,
    },
    /// A message longer than messages of this ring are, or one that leaves the ring.
    #[error("the message at position {position} says that it has {bytes} bytes: it cannot, there")]
    Length {
        /// Which line.
        position: u64,
        /// The length announced.
        bytes: usize,
    },
    /// A skip that does not lead to the ring's start.
    #[error("the line at position {position} skips {lines} lines: not to the ring's start")]
    Skip {
        /// Which line.
        position: u64,
        /// How many.
        lines: u64,
    },
    /// The receiver says that it has released what was never sent, or takes back what it has released.
    #[error("the receiver's position is {credit}: it must lie between {known} and {tail}")]
    Credit {
        /// What it says.
        credit: u64,
        /// What it said before.
        known: u64,
        /// Up to where messages have been sent.
        tail: u64,
    },
    /// A source name that this sender has not been given.
    #[error("a message says that it comes from {found}: this sender is {expected}")]
    Source {
        /// The name in the message.
        found: u16,
        /// The sender's name.
        expected: u16,
    },
}

/// Why an operation on a ring cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingError {
    Corrupt(Corruption),
    /// The other end has been closed.
    Closed,
    Oversized {
        bytes: usize,
        most: usize,
    },
    TimedOut,
    Interrupted,
}

impl From<Corruption> for RingError {
    fn from(corruption: Corruption) -> Self {
        RingError::Corrupt(corruption)
    }
}

impl From<Interrupted> for RingError {
    fn from(_: Interrupted) -> Self {
        RingError::Interrupted
    }
}

/// Where things lie in a ring of so many lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    shift: u32,
}

impl Geometry {
    /// `None` unless `lines` is a power of two from [`MIN_LINES`] to [`MAX_LINES`].
    pub(crate) fn new(lines: u64) -> Option<Self> {
        let fits = lines.is_power_of_two() && (MIN_LINES..=MAX_LINES).contains(&lines);
        fits.then(|| Geometry { shift: lines.trailing_zeros() })
    }

    pub(crate) fn lines(self) -> u64 {
        1 << self.shift
    }

    /// Words of the whole ring.
    pub(crate) fn words(self) -> usize {
        HEAD_WORDS + (LINE_WORDS << self.shift)
    }

    fn lap(self, position: u64) -> u64 {
        position >> self.shift
    }

    fn index(self, position: u64) -> u64 {
        position & (self.lines() - 1)
    }

    /// The word with the stamp of this position.
    fn stamp(self, position: u64) -> usize {
        HEAD_WORDS + self.index(position) as usize * LINE_WORDS
    }

    /// Lines from this position to the ring's end.
    fn before_end(self, position: u64) -> u64 {
        self.lines() - self.index(position)
    }

    /// The most lines of a message.
    fn quarter(self) -> u64 {
        self.lines() / 4
    }

    /// The longest message in bytes.
    pub(crate) fn longest(self) -> usize {
        (self.quarter() as usize * LINE_WORDS * 8 - 8).min(MAX_BYTES)
    }

    /// Lines of a message of so many bytes.
    fn lines_of(self, bytes: usize) -> u64 {
        // The stamp takes the place of eight bytes.
        (bytes + 8).div_ceil(LINE_WORDS * 8) as u64
    }
}

/// Where a message can be composed: at the sender's tail.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: usize,
    /// Lines up to the ring's end that are left out.
    skipped: u64,
}

/// The sending end. It must be the only one.
#[derive(Debug)]
pub(crate) struct Sender<M: Deref<Target = [AtomicU64]>, B: Bell> {
    memory: M,
    bell: B,
    geometry: Geometry,
    /// How often a full ring is looked at before sleeping.
    looks: u32,
    /// The next position to write to.
    tail: u64,
    /// Position and stamp of the first message that is composed and not published.
    batch: Option<(u64, u64)>,
    /// Up to where the receiver is known to have released.
    credit: u64,
    /// One bit a line: its first word is data, or a stamp older than the lap before.
    unstamped: Box<[u64]>,
    closed: bool,
}

impl<M: Deref<Target = [AtomicU64]>, B: Bell> Sender<M, B> {
    /// `None` if the memory is too small for the ring. The memory is zero, and no other sender is at it.
    pub(crate) fn new(memory: M, geometry: Geometry, bell: B, looks: u32) -> Option<Self> {
        let unstamped = vec![0; geometry.lines().div_ceil(64) as usize].into();
        let closed = false;
        (memory.len() >= geometry.words()).then(|| Sender {
            memory,
            bell,
            geometry,
            looks,
            tail: 0,
            batch: None,
            credit: 0,
            unstamped,
            closed,
        })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn bell_mut(&mut self) -> &mut B {
        &mut self.bell
    }

    pub(crate) fn bell(&self) -> &B {
        &self.bell
    }

    /// Starts a message where [`Self::room_for`] or [`Self::wait_for_room`] has found room.
    pub(crate) fn compose(&mut self, header: Header, room: Room) -> Composing<'_, M, B> {
        // Here and not when it is finished: one that is given up has left its data there all the same.
        for line in 1..self.geometry.lines_of(room.bytes) {
            self.set_unstamped(self.tail + room.skipped + line, true);
        }
        Composing { sender: self, header, room }
    }

    /// Where a message of this length can be composed; `None` if there is no room.
    pub(crate) fn room_for(&mut self, bytes: usize) -> Result<Option<Room>, RingError> {
        let most = self.geometry.longest();
        if bytes > most {
            return Err(RingError::Oversized { bytes, most });
        }
        if self.closed {
            return Err(RingError::Closed);
        }
        let (lines, left) = (self.geometry.lines_of(bytes), self.geometry.before_end(self.tail));
        let skipped = if lines > left { left } else { 0 };
        // One line stays free: the next stamp's place is cleared, and the end stamp needs one.
        let end = self.tail + skipped + lines + 1;
        if end - self.credit > self.geometry.lines() {
            self.look_at_credit()?;
        }
        Ok((end - self.credit <= self.geometry.lines()).then_some(Room { bytes, skipped }))
    }

    fn look_at_credit(&mut self) -> Result<(), RingError> {
        if self.memory[RECEIVER].load(Ordering::Relaxed) == CLOSED {
            self.closed = true;
            return Err(RingError::Closed);
        }
        // Acquire: pairs with the Release store of `Receiver::publish_credit`; the receiver has read the lines before it.
        let credit = self.memory[CREDIT].load(Ordering::Acquire);
        if credit.wrapping_sub(self.credit) > self.tail - self.credit {
            return Err(Corruption::Credit { credit, known: self.credit, tail: self.tail }.into());
        }
        self.credit = credit;
        Ok(())
    }

    /// As [`Self::room_for`], sleeping until there is room. What is composed and not published is published before.
    pub(crate) fn wait_for_room(&mut self, bytes: usize, deadline: Option<Instant>) -> Result<Room, RingError> {
        if let Some(room) = self.room_for(bytes)? {
            return Ok(room);
        }
        // What is not published will never be released.
        self.publish();
        for _ in 0..self.looks {
            if let Some(room) = self.room_for(bytes)? {
                return Ok(room);
            }
            spin_loop();
        }
        let outcome = self.sleep_for_room(bytes, deadline);
        self.memory[SENDER].store(AWAKE, Ordering::Relaxed);
        outcome
    }

    #[cold]
    fn sleep_for_room(&mut self, bytes: usize, deadline: Option<Instant>) -> Result<Room, RingError> {
        loop {
            // Acquire: pairs with the Release store of `Receiver::wake`: whoever has seen the ring sees the credit.
            let word = self.memory[ROOM].load(Ordering::Acquire);
            self.memory[SENDER].store(SLEEPS, Ordering::Relaxed);
            // Pairs with the light barrier in `Receiver::wake`: either it sees that this end sleeps, or this end sees its
            // credit.
            let seen = Seen { word, certain: self.bell.heavy() };
            if let Some(room) = self.room_for(bytes)? {
                return Ok(room);
            }
            if is_over(deadline) {
                return Err(RingError::TimedOut);
            }
            if self.bell.sleep(seen, deadline).is_err() {
                return self.room_for(bytes)?.ok_or(RingError::Interrupted);
            }
        }
    }

    /// Makes everything that has been composed visible, by one store.
    pub(crate) fn publish(&mut self) {
        let Some((position, stamp)) = self.batch.take() else { return };
        self.clear_next();
        self.release(position, stamp);
    }

    /// The receiver will look for a stamp at the tail. If data stands there, it must not find it.
    fn clear_next(&mut self) {
        if self.set_unstamped(self.tail, false) {
            // Relaxed: ordered before the release store that publishes; the receiver looks here only after it saw that.
            self.memory[self.geometry.stamp(self.tail)].store(0, Ordering::Relaxed);
        }
    }

    fn release(&mut self, position: u64, stamp: u64) {
        // Release: pairs with the Acquire load in `Receiver::look`.
        self.memory[self.geometry.stamp(position)].store(stamp, Ordering::Release);
        // Pairs with the heavy barrier in `Receiver::prepare_sleep`: either it sees the stamp, or this end sees that it
        // sleeps.
        self.bell.light();
        match self.memory[RECEIVER].load(Ordering::Relaxed) {
            AWAKE => {}
            CLOSED => self.closed = true,
            _ => {
                // This end alone writes the word. Release: pairs with the Acquire load in `Receiver::prepare_sleep`.
                let rung = self.memory[ARRIVALS].load(Ordering::Relaxed).wrapping_add(1);
                self.memory[ARRIVALS].store(rung, Ordering::Release);
                self.bell.ring();
            }
        }
    }

    /// Writes the stamp of the line at the tail, or keeps it back if it is to publish a batch.
    fn stamp(&mut self, stamp: Stamp) {
        let (position, word) = (self.tail, stamp.encode(self.geometry.lap(self.tail)));
        self.set_unstamped(position, false);
        match self.batch {
            // Relaxed: published by the store of the batch's first stamp.
            Some(_) => self.memory[self.geometry.stamp(position)].store(word, Ordering::Relaxed),
            None => self.batch = Some((position, word)),
        }
    }

    /// Notes whether a line's first word is none of this lap's stamps; gives what was noted before.
    fn set_unstamped(&mut self, position: u64, unstamped: bool) -> bool {
        let index = self.geometry.index(position);
        let (word, bit) = (&mut self.unstamped[(index / 64) as usize], 1 << (index % 64));
        let before = *word & bit != 0;
        *word = if unstamped { *word | bit } else { *word & !bit };
        before
    }
}

impl<M: Deref<Target = [AtomicU64]>, B: Bell> Drop for Sender<M, B> {
    /// What is composed is published, and then the end.
    fn drop(&mut self) {
        // The line at the tail is always free, see `room_for`.
        self.stamp(Stamp::End);
        if let Some((position, stamp)) = self.batch.take() {
            self.release(position, stamp);
        }
    }
}

/// A message that is being composed, in place. Dropped before it is finished, it has never been.
#[derive(Debug)]
pub(crate) struct Composing<'a, M: Deref<Target = [AtomicU64]>, B: Bell> {
    sender: &'a mut Sender<M, B>,
    header: Header,
    room: Room,
}

impl<M: Deref<Target = [AtomicU64]>, B: Bell> Composing<'_, M, B> {
    pub(crate) fn bytes(&self) -> usize {
        self.room.bytes
    }

    /// The words of the message. Until it is published they are the sender's.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let geometry = self.sender.geometry;
        let first = geometry.stamp(self.sender.tail + self.room.skipped) + 1;
        &self.sender.memory[first..first + self.room.bytes.div_ceil(8)]
    }

    /// Adds the message to the batch.
    pub(crate) fn finish(self) {
        let (sender, Room { bytes, skipped }) = (self.sender, self.room);
        if skipped > 0 {
            sender.stamp(Stamp::Skip { lines: skipped });
            // The others keep a stamp of an earlier lap.
            for line in 1..skipped {
                sender.set_unstamped(sender.tail + line, true);
            }
            sender.tail += skipped;
        }
        sender.stamp(Stamp::Message { header: self.header, bytes });
        sender.tail += sender.geometry.lines_of(bytes);
    }
}

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
    /// Whether the other end is to learn that this one has gone.
    open: bool,
}

impl<M: Deref<Target = [AtomicU64]>, B: Bell> Receiver<M, B> {
    /// `None` if the memory is too small for the ring. `position` is 0, or what [`Self::into_position`] has given.
    pub(crate) fn new(memory: M, geometry: Geometry, bell: B, looks: u32, position: u64) -> Option<Self> {
        let fits = memory.len() >= geometry.words();
        fits.then(|| Receiver { memory, bell, geometry, looks, head: position, published: position, open: true })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn bell_mut(&mut self) -> &mut B {
        &mut self.bell
    }

    pub(crate) fn bell(&self) -> &B {
        &self.bell
    }

    /// Gives the end up without closing it: another receiver goes on at this position.
    pub(crate) fn into_position(mut self) -> u64 {
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
        self.head = found.position + self.geometry.lines_of(found.bytes);
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
    pub(crate) fn is_ready(&mut self) -> bool {
        !matches!(self.look(), Ok(None))
    }

    /// Takes the next message out, as one whose sender may write to it at any time, and releases it.
    pub(crate) fn copy_next(&mut self, into: &mut Vec<u8>) -> Result<Option<Header>, RingError> {
        let Some(found) = self.take()? else { return Ok(None) };
        into.clear();
        into.resize(found.bytes, 0);
        load_bytes(self.words(&found), 0, into);
        self.release();
        Ok(Some(found.header))
    }

    /// Gives everything taken back to the sender; tells it when a quarter of the ring has come together.
    pub(crate) fn release(&mut self) {
        if self.head - self.published >= self.geometry.quarter() {
            self.publish_credit();
        }
    }

    fn publish_credit(&mut self) {
        self.published = self.head;
        // Release: pairs with the Acquire load in `Sender::look_at_credit`; this end's loads of the lines come before.
        self.memory[CREDIT].store(self.head, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // Pairs with the heavy barrier in `Sender::sleep_for_room`.
        self.bell.light();
        if self.memory[SENDER].load(Ordering::Relaxed) != AWAKE {
            // This end alone writes the word. Release: pairs with the Acquire load in `Sender::sleep_for_room`.
            let rung = self.memory[ROOM].load(Ordering::Relaxed).wrapping_add(1);
            self.memory[ROOM].store(rung, Ordering::Release);
            self.bell.ring();
        }
    }

    /// The message at the head, every word of it checked. Each word is loaded once: it may be another one right after.
    #[inline]
    fn look(&mut self) -> Result<Option<Found>, RingError> {
        loop {
            let position = self.head;
            // Acquire: pairs with the Release store in `Sender::release`.
            let word = self.memory[self.geometry.stamp(position)].load(Ordering::Acquire);
            match Stamp::decode(word, self.geometry.lap(position)) {
                Ok(None) => return Ok(None),
                Ok(Some(Stamp::Message { header, bytes })) => {
                    let lines = self.geometry.lines_of(bytes);
                    if bytes > self.geometry.longest() || lines > self.geometry.before_end(position) {
                        return Err(Corruption::Length { position, bytes }.into());
                    }
                    return Ok(Some(Found { header, bytes, position }));
                }
                Ok(Some(Stamp::Skip { lines })) => {
                    // A second skip in a row would be one from the ring's start, which is too long.
                    if lines != self.geometry.before_end(position) || lines >= self.geometry.quarter().max(1) {
                        return Err(Corruption::Skip { position, lines }.into());
                    }
                    self.head += lines;
                }
                Ok(Some(Stamp::End)) => return Err(RingError::Closed),
                Err(_) => return Err(Corruption::Stamp { position, word }.into()),
            }
        }
    }

    #[cold]
    fn wait_for_message(&mut self, deadline: Option<Instant>) -> Result<(), RingError> {
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

    /// Says that this end sleeps and looks once more; `None` if there is something after all. Whoever sleeps on several
    /// rings prepares all of them. [`Self::stir`] takes it back.
    pub(crate) fn prepare_sleep(&mut self) -> Option<Seen> {
        // Acquire: pairs with the Release store in `Sender::release`: whoever has seen the ring sees the message.
        let word = self.memory[ARRIVALS].load(Ordering::Acquire);
        self.memory[RECEIVER].store(SLEEPS, Ordering::Relaxed);
        // Pairs with the light barrier in `Sender::release`: either it sees that this end sleeps, or this end its stamp.
        let certain = self.bell.heavy();
        (!self.is_ready()).then_some(Seen { word, certain })
    }

    /// Says that this end is awake.
    pub(crate) fn stir(&self) {
        self.memory[RECEIVER].store(AWAKE, Ordering::Relaxed);
    }
}

impl<M: Deref<Target = [AtomicU64]>, B: Bell> Drop for Receiver<M, B> {
    fn drop(&mut self) {
        if self.open {
            // Relaxed: nothing is published. The sender finds it when it next publishes or finds the ring full.
            self.memory[RECEIVER].store(CLOSED, Ordering::Relaxed);
            self.wake();
        }
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Copies `bytes` into words from byte `offset` on. What lies beyond the words is left out.
pub(crate) fn store_bytes(words: &[AtomicU64], offset: usize, bytes: &[u8]) {
    let mut words = words.iter().skip(offset / 8);
    let (first, rest) = bytes.split_at(bytes.len().min((8 - offset % 8) % 8));
    if !first.is_empty() {
        let Some(word) = words.next() else { return };
        store_some(word, offset % 8, first);
    }
    let (whole, last) = rest.as_chunks::<8>();
    for (chunk, word) in whole.iter().zip(words.by_ref()) {
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if let (false, Some(word)) = (last.is_empty(), words.next()) {
        store_some(word, 0, last);
    }
}

/// Writes a few bytes of a word that nobody else writes.
fn store_some(word: &AtomicU64, offset: usize, bytes: &[u8]) {
    let mut merged = word.load(Ordering::Relaxed).to_ne_bytes();
    merged[offset..offset + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(merged), Ordering::Relaxed);
}

/// Copies words from byte `offset` on into `bytes`. What would come from beyond the words stays as it is.
pub(crate) fn load_bytes(words: &[AtomicU64], offset: usize, bytes: &mut [u8]) {
    let mut words = words.iter().skip(offset / 8);
    let (first, rest) = {
        let length = bytes.len().min((8 - offset % 8) % 8);
        bytes.split_at_mut(length)
    };
    if !first.is_empty() {
        let Some(word) = words.next() else { return };
        let start = offset % 8;
        first.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[start..start + first.len()]);
    }
    let (whole, last) = rest.as_chunks_mut::<8>();
    for (chunk, word) in whole.iter_mut().zip(words.by_ref()) {
        *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if let (false, Some(word)) = (last.is_empty(), words.next()) {
        last.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..last.len()]);
    }
}
