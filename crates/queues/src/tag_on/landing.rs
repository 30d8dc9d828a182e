//! Data of a multicast to another node.
//!
//! The ranks of a node have windows with buffers for the data of each rank of another node. That
//! rank alone takes them: it stores the data and the number of receivers, and then sends the
//! headers. The receivers, all on the node of the window, release the buffer as one of a pool. So
//! data are stored once for a node, by commands that its carrier executes, and are complete when a
//! header arrives.

use super::pool::{TagOnError, line, pool_bytes, word_of, words_bytes};
use super::references::{self, Generation};
use crate::cache_line::{CacheLineHeader, CacheLineMessage};
use crate::window::RemoteWindow;
use goal::arithmetic::Arithmetic;
use shm::object::CreateError;
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

/// Buffers in a window of another node for the data of this rank.
#[derive(Debug)]
pub struct LandingPool {
    place: LandingPlace,
    window: Arc<RemoteWindow>,
    /// Byte of the window at which they begin.
    at: u64,
    count: u64,
    bytes: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    /// How often each buffer was taken.
    generations: Vec<Generation>,
    /// Index at which the next search begins.
    next: usize,
}

/// Data that lie on another node, for so many receivers as were asked for.
#[derive(Debug)]
pub struct Landed<'a> {
    pool: &'a LandingPool,
    index: u64,
    generation: Generation,
    length: u64,
}

impl LandingPool {
    /// Returns the number of bytes of a window that so many buffers of so many bytes each take.
    ///
    /// # Errors
    /// [`CreateError::Size`].
    pub fn bytes_for((count, bytes): (u64, u64)) -> Result<u64, CreateError> {
        pool_bytes(count, bytes)
    }

    /// Uses so many buffers of so many bytes each from byte `at` of a window on. No other value may
    /// use them.
    #[must_use]
    pub fn new(
        place: LandingPlace,
        window: Arc<RemoteWindow>,
        at: u64,
        (count, bytes): (u64, u64),
    ) -> Self {
        let taken = Mutex::new(Taken { generations: vec![0; count as usize], next: 0 });
        LandingPool { place, window, at, count, bytes, taken }
    }

    /// Stores data for so many receivers, at most 65,535, if a buffer is free. Takes three round
    /// trips.
    ///
    /// # Errors
    /// [`TagOnError::Exhausted`], [`TagOnError::Land`], [`TagOnError::TooMany`],
    /// [`TagOnError::TooLong`].
    pub fn land(&self, data: &[u8], receivers: usize) -> Result<Landed<'_>, TagOnError> {
        let receivers = u16::try_from(receivers).map_err(|_| TagOnError::TooMany)?;
        let (length, most) = (data.len() as u64, self.bytes);
        if length > most {
            return Err(TagOnError::TooLong { bytes: length, most });
        }
        let (index, generation) = self.take()?;
        let start = words_bytes(self.count) + index * self.bytes.next_multiple_of(64);
        self.window.put(self.at + start, data)?;
        // Behind the data. Both are complete before a header is sent.
        self.window.put_value(self.word_at(index), references::word(generation, 0, receivers))?;
        Ok(Landed { pool: self, index, generation, length })
    }

    /// Takes a free buffer.
    fn take(&self) -> Result<(u64, Generation), TagOnError> {
        for _ in 0..self.count {
            let (index, last) = {
                let mut taken = self.taken();
                let index = taken.next;
                taken.next = (index + 1) % taken.generations.len();
                (index, taken.generations[index])
            };
            let generation = last.wrapping_add(1);
            let free = references::word(last, 0, 0);
            let new = references::word(generation, 1, 0);
            let word = self.word_at(index as u64);
            // Fails while receivers hold it, and if another thread takes it.
            if self.window.compare_exchange_value(word, free, new)? == free {
                self.taken().generations[index] = generation;
                return Ok((index as u64, generation));
            }
        }
        Err(TagOnError::Exhausted { buffers: self.count })
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
    pub fn take_back(&self) -> Result<(), TagOnError> {
        let one_less = references::word(0, 0, 1).wrapping_neg();
        let word = self.pool.word_at(self.index);
        self.pool.window.accumulate_value(Arithmetic::Add, word, one_less)?;
        Ok(())
    }
}
