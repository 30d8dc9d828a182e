//! Data of a multicast to another node.
//!
//! The ranks of a node have windows with buffers for the data of each rank of another node. That
//! rank alone takes them: it stores the data and the number of receivers, and then sends the
//! headers. The receivers, all on the node of the window, release the buffer as one of a pool. So
//! data are stored once for a node, by commands that its service executes, and are complete when a
//! header arrives.

use super::marks;
use super::pool::{TagOnError, line, word_of};
use super::references::{self, Generation};
use super::sizes::LandingSizes;
use crate::cache_line::{CacheLineHeader, CacheLineMessage};
use crate::window::RemoteWindow;
use goal::arithmetic::Arithmetic;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bit of the first word of a reference to landed data; without it the word is an offset.
const LANDED: u64 = 1 << 63;

/// Name of the buffers for the data of one rank in the window of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LandingPlace {
    /// The rank that sends.
    pub from: u32,
    /// The rank that owns the window, below 2³¹.
    pub at: u32,
}

impl LandingPlace {
    pub(super) fn word(self) -> u64 {
        LANDED | u64::from(self.at) << 32 | u64::from(self.from)
    }
}

/// State of a receiver on another node, as far as its rank and its queue show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverState {
    /// It may receive.
    Receives,
    /// Its queue is closed; it may still read what it has opened.
    Closed,
    /// Its process has ended.
    Failed,
}

/// Buffers in a window of another node for the data of this rank.
#[derive(Debug)]
pub struct LandingPool {
    place: LandingPlace,
    window: Arc<RemoteWindow>,
    /// Byte of the window at which they begin.
    at: u64,
    sizes: LandingSizes,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    buffers: Vec<TakenBuffer>,
    /// Index at which the next search begins.
    next: usize,
}

#[derive(Clone, Debug, Default)]
struct TakenBuffer {
    /// Number of times that it was taken.
    generation: Generation,
    /// Receivers to which its headers were sent; none before that.
    receivers: Vec<u32>,
}

/// Data that lie on another node, for the receivers that were asked for.
#[derive(Debug)]
pub struct Landed<'a> {
    pool: &'a LandingPool,
    index: u64,
    generation: Generation,
    length: u64,
    receivers: Vec<u32>,
}

impl LandingPool {
    /// Uses the buffers from byte `at` of a window on. No other value may use them.
    #[must_use]
    pub fn new(
        place: LandingPlace,
        window: Arc<RemoteWindow>,
        at: u64,
        sizes: LandingSizes,
    ) -> Self {
        let buffers = vec![TakenBuffer::default(); sizes.buffers as usize];
        let taken = Mutex::new(Taken { buffers, next: 0 });
        LandingPool { place, window, at, sizes, taken }
    }

    /// Stores data for receivers, at most 65,535 different ones, if a buffer is free. Takes three
    /// round trips.
    ///
    /// # Errors
    /// [`TagOnError::Exhausted`], [`TagOnError::Land`], [`TagOnError::TooMany`],
    /// [`TagOnError::TooLong`].
    pub fn land(&self, data: &[u8], receivers: Vec<u32>) -> Result<Landed<'_>, TagOnError> {
        let in_flight = u16::try_from(receivers.len()).map_err(|_| TagOnError::TooMany)?;
        let length = data.len() as u64;
        let most = self.sizes.bytes;
        if length > most {
            return Err(TagOnError::TooLong { bytes: length, most });
        }
        let (index, generation) = self.take()?;
        let start = self.sizes.data() + index * most.next_multiple_of(64);
        self.window.put(self.at + start, data)?;
        // Behind the data. Both are complete before a header is sent.
        self.window.put_value(self.word_at(index), references::word(generation, 0, in_flight))?;
        Ok(Landed { pool: self, index, generation, length, receivers })
    }

    /// Takes a free buffer.
    fn take(&self) -> Result<(u64, Generation), TagOnError> {
        let count = self.sizes.buffers as usize;
        let first = {
            let mut taken = self.taken();
            let first = taken.next;
            taken.next = (first + 1) % count;
            first
        };
        // From one start, so that each buffer is tried whatever other threads take.
        for step in 0..count {
            let index = (first + step) % count;
            let last = self.taken().buffers[index].generation;
            let generation = last.wrapping_add(1);
            let free = references::word(last, 0, 0);
            let new = references::word(generation, 1, 0);
            let word = self.word_at(index as u64);
            // Fails while receivers hold it, and if another thread takes it.
            if self.window.compare_exchange_value(word, free, new)? == free {
                self.taken().buffers[index] = TakenBuffer { generation, receivers: Vec::new() };
                return Ok((index as u64, generation));
            }
        }
        Err(TagOnError::Exhausted { buffers: self.sizes.buffers })
    }

    /// Frees the buffers that no receiver references any more, although they are counted: each of
    /// their receivers has released them, has failed, or has ended without opening its message.
    ///
    /// # Errors
    /// [`TagOnError::Land`].
    pub fn reclaim(&self, state: impl Fn(u32) -> ReceiverState) -> Result<(), TagOnError> {
        for index in 0..self.sizes.buffers {
            let TakenBuffer { generation, receivers } =
                self.taken().buffers[index as usize].clone();
            // Otherwise every count is released in time.
            if receivers.iter().all(|one| state(*one) == ReceiverState::Receives) {
                continue;
            }
            let mut is_free = true;
            for receiver in receivers {
                is_free = is_free && self.is_done(receiver, state(receiver), index, generation)?;
            }
            if !is_free {
                continue;
            }
            // No receiver changes the counts any more: a release that follows its mark finds
            // another generation or no count, and leaves the word unchanged.
            let word = self.word_at(index);
            let counted = self.window.get_value::<u64>(word)?;
            if references::generation(counted) == generation {
                let free = references::word(generation, 0, 0);
                self.window.compare_exchange_value(word, counted, free)?;
            }
        }
        Ok(())
    }

    /// Returns true if a receiver does not reference a buffer of a generation, now or later.
    fn is_done(
        &self,
        receiver: u32,
        state: ReceiverState,
        index: u64,
        generation: Generation,
    ) -> Result<bool, TagOnError> {
        let mark =
            |index| self.window.get_value::<u64>(self.at + self.sizes.mark(receiver.into(), index));
        if state == ReceiverState::Failed {
            return Ok(true);
        }
        // Before the mark of the buffer, which does not become that of an opened one then.
        let has_ended = mark(self.sizes.buffers)? == marks::ENDED;
        let mark = mark(index)?;
        let is_opened = mark == marks::opened(generation);
        Ok(mark == marks::released(generation) || has_ended && !is_opened)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word_at(&self, index: u64) -> u64 {
        self.at + 8 * index
    }
}

impl Landed<'_> {
    /// Composes the message for one of the receivers.
    ///
    /// # Errors
    /// [`TagOnError::Note`].
    pub fn message(
        &self,
        header: CacheLineHeader,
        note: &[u8],
    ) -> Result<CacheLineMessage, TagOnError> {
        let reference = word_of(self.index, self.generation);
        line(header, [self.pool.place.word(), reference, self.length], note)
    }

    /// Uncounts a receiver to which no message was sent.
    ///
    /// # Errors
    /// [`TagOnError::Land`].
    pub fn take_back(&mut self, receiver: u32) -> Result<(), TagOnError> {
        // Of a failed call it is unknown whether it was executed; the window has ended then.
        self.receivers.retain(|one| *one != receiver);
        let one_less = references::word(0, 0, 1).wrapping_neg();
        let word = self.pool.word_at(self.index);
        self.pool.window.accumulate_value(Arithmetic::Add, word, one_less)?;
        Ok(())
    }
}

impl Drop for Landed<'_> {
    fn drop(&mut self) {
        let mut taken = self.pool.taken();
        let buffer = &mut taken.buffers[self.index as usize];
        // The receivers may have released the buffer, and another thread have taken it.
        if buffer.generation == self.generation {
            buffer.receivers = std::mem::take(&mut self.receivers);
        }
    }
}
