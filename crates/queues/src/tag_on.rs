//! Tag-On: a wide Express message and, with it, data that already lies in the segment.
//!
//! The header travels through a [wide queue](crate::cache_line); the data stays where it is and is only
//! referred to. So a multicast moves the data once, whoever the receivers are: they read the same
//! bytes in place. A receiver takes the header first, like any other message, and the data when it
//! wants to ([`TagOnPools::open`]). The buffer is free again when the last receiver has let go, in
//! whatever order they do.
//!
//! Any number of threads take buffers from one pool, without a lock. Memory: 64 bytes, and for each
//! buffer its bytes and 8 more. A receiver that dies keeps what it holds and what lies in its
//! queue; [`TagOnPool::is_idle`] tells its owner whether anybody holds anything.
//!
//! After Ang et al. 1996, section 5.2. Only between processes of one job: a receiver reads memory
//! that its sender could change.
//!
//! ```
//! use queues::{cache_line::{CacheLineHeader, CacheLineQueue}, tag_on::{TagOnPool, TagOnPools}};
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
//! let queues = [CacheLineQueue::create(&arena, 8, None)?, CacheLineQueue::create(&arena, 8, None)?];
//! let pool = TagOnPool::create(&arena, 4, 65536)?;
//!
//! let mut draft = pool.take()?;
//! draft[..5].copy_from_slice(b"hello");
//! let data = draft.finish(5);
//! for queue in &queues {
//!     data.send(&queue.sender(), CacheLineHeader::default(), b"a greeting")?;
//! }
//! drop(data);
//!
//! // Another process does the same with its own mapping of the segment.
//! let mut pools = TagOnPools::new(&segment);
//! for queue in &queues {
//!     let message = queue.receiver()?.try_receive()?.expect("it was sent");
//!     assert_eq!(TagOnPools::note(&message), b"a greeting");
//!     assert_eq!(&pools.open(&message)?[..], b"hello");
//! }
//! assert!(pool.is_idle(), "both have let go");
//! # Ok(())
//! # }
//! ```

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use shm::arena::{Arena, ArenaError};
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment, SegmentError};

use crate::cache_line::{CacheLineHeader, CacheLineMessage, CacheLineSender, LINE_DATA, SendError};
use crate::sync::{AtomicU64, Ordering};
use holds::Generation;

mod holds;

/// Bytes that a header carries itself, beside the reference.
pub const NOTE_BYTES: usize = LINE_DATA - REFERENCE_BYTES;

/// The largest number of buffers of a pool.
pub const MOST_BUFFERS: u64 = 1 << 20;

/// Where the pool lies, which buffer and generation, how many bytes.
const REFERENCE_BYTES: usize = 24;

const INDEX_BITS: u32 = 24;

/// Says that a pool lies here; "tag-on" in letters.
const MAGIC: u64 = 0x6e6f_2d67_6174_0001;

shm::shared_lines! {
    /// What the maker says about the pool.
    struct Head {
        magic: AtomicU64,
        buffers: AtomicU64,
        bytes: AtomicU64,
    }
}

/// What can go wrong with data that is tagged on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TagOnError {
    /// A pool of no buffers, or of too many, or too large.
    #[error(
        "a pool of {buffers} buffers of {bytes} bytes cannot be made: take 1 to {MOST_BUFFERS} buffers of at least a byte"
    )]
    Size {
        /// How many were asked for.
        buffers: u64,
        /// Of how many bytes each.
        bytes: u64,
    },
    /// All buffers are held.
    #[error(
        "all {buffers} buffers of the pool are held by messages that nobody has let go of: wait, or make the pool larger"
    )]
    Exhausted {
        /// How many there are.
        buffers: u64,
    },
    /// The note does not fit beside the reference.
    #[error("a note of {bytes} bytes does not fit into a header: at most {NOTE_BYTES}")]
    Note {
        /// Its length.
        bytes: usize,
    },
    /// The data was sent 65,535 times and opened by nobody.
    #[error(
        "too many messages that refer to this buffer are under way: wait until some are opened"
    )]
    TooMany,
    /// The message does not refer to data, or not any more: it was opened before.
    #[error("the message refers to no data that is held: it has none, or was opened before")]
    NoData,
    /// The receive queue refused the header.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The segment has no such place.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// No memory is left.
    #[error(transparent)]
    Arena(#[from] ArenaError),
}

/// Buffers that messages refer to, as any process sees them.
#[derive(Clone, Debug)]
struct Buffers {
    segment: Arc<Segment>,
    head: Mapped<Head>,
    words: MappedSlice<AtomicU64>,
    /// Of one buffer.
    bytes: u64,
    /// Where the first buffer lies.
    data: Offset,
}

/// A place in a pool that is held.
#[derive(Debug)]
struct Held {
    buffers: Buffers,
    index: u64,
    generation: Generation,
    length: u64,
}

fn words_bytes(count: u64) -> u64 {
    (8 * count).next_multiple_of(64)
}

fn pool_bytes(count: u64, bytes: u64) -> Option<u64> {
    let each = bytes.checked_next_multiple_of(64)?;
    each.checked_mul(count)?.checked_add(64 + words_bytes(count))
}

impl Buffers {
    fn map(
        segment: &Arc<Segment>,
        at: Offset,
        count: u64,
        bytes: u64,
    ) -> Result<Self, SegmentError> {
        let data = Offset(at.0.saturating_add(64 + words_bytes(count)));
        // The whole of the data, so that no buffer needs a check of its own later.
        segment.bytes_ptr(data, bytes.next_multiple_of(64).saturating_mul(count))?;
        Ok(Buffers {
            segment: Arc::clone(segment),
            head: Mapped::new(segment, at)?,
            words: MappedSlice::new(segment, Offset(at.0 + 64), count as usize)?,
            bytes,
            data,
        })
    }

    fn attach(segment: &Arc<Segment>, at: Offset) -> Result<Self, TagOnError> {
        let head = Mapped::<Head>::new(segment, at).map_err(|_| TagOnError::NoData)?;
        // Acquire: pairs with the Release in `TagOnPool::create`.
        let is_pool = head.magic.load(Ordering::Acquire) == MAGIC;
        let (count, bytes) =
            (head.buffers.load(Ordering::Relaxed), head.bytes.load(Ordering::Relaxed));
        if !is_pool || count > MOST_BUFFERS || pool_bytes(count, bytes).is_none() {
            return Err(TagOnError::NoData);
        }
        Ok(Buffers::map(segment, at, count, bytes)?)
    }

    fn place(&self, index: u64) -> Offset {
        Offset(self.data.0 + index * self.bytes.next_multiple_of(64))
    }
}

impl Held {
    fn word(&self) -> &AtomicU64 {
        &self.buffers.words[self.index as usize]
    }

    fn start(&self) -> *mut u8 {
        // `map` has checked the range of all buffers, so that this cannot fail; if it did, the
        // slice made of it is empty.
        let place = self.buffers.place(self.index);
        self.buffers.segment.bytes_ptr(place, self.length).unwrap_or(std::ptr::null_mut())
    }

    fn bytes(&self) -> &[u8] {
        let start = self.start();
        if start.is_null() {
            return &[];
        }
        // SAFETY: the range lies in the segment, which `self` keeps mapped, and was committed and
        // zeroed when it was allocated. The buffer is held by this value, so that nobody takes it
        // to write it; its owner stopped writing before it sent the reference. Processes of one job
        // keep to that (see the module's page).
        unsafe { std::slice::from_raw_parts(start, self.length as usize) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Held once by this value; another count can only be the work of a process that writes over
        // the segment.
        let _ = holds::release(self.word(), self.generation);
    }
}

/// Buffers for data that is tagged on, as their owner sees them.
#[derive(Debug)]
pub struct TagOnPool {
    buffers: Buffers,
    arena: Arc<Arena>,
    /// Where the next search begins.
    next: AtomicU64,
}

impl TagOnPool {
    /// Makes `buffers` zeroed buffers of `bytes` bytes.
    ///
    /// # Errors
    /// [`TagOnError::Size`], [`TagOnError::Arena`].
    pub fn create(arena: &Arc<Arena>, buffers: u64, bytes: u64) -> Result<TagOnPool, TagOnError> {
        let size = pool_bytes(buffers, bytes)
            .filter(|_| bytes > 0 && (1..=MOST_BUFFERS).contains(&buffers));
        let at = arena.allocate_zeroed(size.ok_or(TagOnError::Size { buffers, bytes })?, 64)?;
        let mapped = Buffers::map(arena.segment(), at, buffers, bytes)?;
        mapped.head.buffers.store(buffers, Ordering::Relaxed);
        mapped.head.bytes.store(bytes, Ordering::Relaxed);
        // Release: pairs with the Acquire in `Buffers::attach`.
        mapped.head.magic.store(MAGIC, Ordering::Release);
        Ok(TagOnPool { buffers: mapped, arena: Arc::clone(arena), next: AtomicU64::new(0) })
    }

    /// Takes a free buffer to be filled.
    ///
    /// # Errors
    /// [`TagOnError::Exhausted`].
    pub fn take(&self) -> Result<Draft, TagOnError> {
        let count = self.buffers.words.len() as u64;
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for step in 0..count {
            let index = (first.wrapping_add(step)) % count;
            if let Some(generation) = holds::take(&self.buffers.words[index as usize]) {
                let length = self.buffers.bytes;
                return Ok(Draft(Held {
                    buffers: self.buffers.clone(),
                    index,
                    generation,
                    length,
                }));
            }
        }
        Err(TagOnError::Exhausted { buffers: count })
    }

    /// Whether nobody holds any buffer.
    pub fn is_idle(&self) -> bool {
        self.buffers.words.iter().all(holds::is_free)
    }
}

impl Drop for TagOnPool {
    fn drop(&mut self) {
        if self.is_idle() {
            self.buffers.head.magic.store(0, Ordering::Relaxed);
            // The place came from this arena and is freed once, so that this cannot fail. A pool
            // that somebody still reads from is given up for good.
            let _ = self.arena.free(Offset(
                self.buffers.data.0 - 64 - words_bytes(self.buffers.words.len() as u64),
            ));
        }
    }
}

/// A buffer to be filled, all of it its owner's.
#[derive(Debug)]
pub struct Draft(Held);

impl Draft {
    /// Ends the filling: the first `length` bytes are the data.
    #[must_use]
    pub fn finish(self, length: u64) -> Data {
        let mut held = self.0;
        held.length = held.length.min(length);
        Data(held)
    }
}

impl Deref for Draft {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.0.start();
        if start.is_null() {
            return &mut [];
        }
        // SAFETY: as in `Held::bytes`; this value is the buffer's only holder, because no reference
        // to a draft is ever sent, and `&mut self` makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(start, self.0.length as usize) }
    }
}

/// Data that can be sent to any number of receivers. Dropping it lets go of the sender's own hold.
#[derive(Debug)]
pub struct Data(Held);

impl Data {
    /// Sends a header with a note of up to [`NOTE_BYTES`] bytes; the data goes with it.
    ///
    /// # Errors
    /// [`TagOnError::Note`], [`TagOnError::Send`], [`TagOnError::TooMany`]: nothing was sent.
    pub fn send(
        &self,
        to: &CacheLineSender,
        header: CacheLineHeader,
        note: &[u8],
    ) -> Result<(), TagOnError> {
        self.send_by(header, note, |message| to.try_send(message))
    }

    /// As [`send`](Self::send), waiting for room in the receive queue until `deadline`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_until(
        &self,
        to: &CacheLineSender,
        header: CacheLineHeader,
        note: &[u8],
        deadline: std::time::Instant,
    ) -> Result<(), TagOnError> {
        self.send_by(header, note, |message| to.send_until(message, deadline))
    }

    fn send_by(
        &self,
        header: CacheLineHeader,
        note: &[u8],
        send: impl FnOnce(&CacheLineMessage) -> Result<(), SendError>,
    ) -> Result<(), TagOnError> {
        let held = &self.0;
        let place = held.buffers.data.0 - 64 - words_bytes(held.buffers.words.len() as u64);
        let mut line = [0; LINE_DATA];
        for (bytes, word) in line.chunks_exact_mut(8).zip([
            place,
            u64::from(held.generation) << INDEX_BITS | held.index,
            held.length,
        ]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let length = REFERENCE_BYTES + note.len();
        line.get_mut(REFERENCE_BYTES..length)
            .ok_or(TagOnError::Note { bytes: note.len() })?
            .copy_from_slice(note);
        let message = CacheLineMessage::new(header, &line[..length])
            .ok_or(TagOnError::Note { bytes: note.len() })?;
        // Held for the receiver before it can see the message.
        holds::send(held.word(), held.generation).map_err(|_| TagOnError::TooMany)?;
        send(&message).inspect_err(|_| {
            let _ = holds::take_back(held.word(), held.generation);
        })?;
        Ok(())
    }
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Received data, read in place. Dropping it lets go.
#[derive(Debug)]
pub struct TaggedOn(Held);

impl Deref for TaggedOn {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// The pools that a receiver's messages refer to, found as they come.
#[derive(Debug)]
pub struct TagOnPools {
    segment: Arc<Segment>,
    known: Vec<(u64, Buffers)>,
}

impl TagOnPools {
    /// For messages between processes that share this segment.
    #[must_use]
    pub fn new(segment: &Arc<Segment>) -> Self {
        TagOnPools { segment: Arc::clone(segment), known: Vec::new() }
    }

    /// The note of a header.
    #[must_use]
    pub fn note(message: &CacheLineMessage) -> &[u8] {
        message.data().get(REFERENCE_BYTES..).unwrap_or(&[])
    }

    /// The data of a message: each message can be opened once.
    ///
    /// # Errors
    /// [`TagOnError::NoData`], [`TagOnError::Segment`].
    pub fn open(&mut self, message: &CacheLineMessage) -> Result<TaggedOn, TagOnError> {
        let reference = message.data().get(..REFERENCE_BYTES).ok_or(TagOnError::NoData)?;
        let mut words = reference
            .chunks_exact(8)
            .map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        let (Some(place), Some(reference), Some(length)) =
            (words.next(), words.next(), words.next())
        else {
            return Err(TagOnError::NoData);
        };
        let buffers = self.pool(place)?;
        let (index, generation) =
            (reference & ((1 << INDEX_BITS) - 1), (reference >> INDEX_BITS) as Generation);
        let word = buffers.words.get(index as usize).ok_or(TagOnError::NoData)?;
        if length > buffers.bytes || holds::open(word, generation).is_err() {
            return Err(TagOnError::NoData);
        }
        Ok(TaggedOn(Held { buffers, index, generation, length }))
    }

    fn pool(&mut self, place: u64) -> Result<Buffers, TagOnError> {
        if let Some((_, buffers)) = self.known.iter().find(|(known, _)| *known == place) {
            // A pool that was dropped, and whose place serves another purpose, has another magic
            // number.
            if buffers.head.magic.load(Ordering::Acquire) == MAGIC {
                return Ok(buffers.clone());
            }
            self.known.retain(|(known, _)| *known != place);
        }
        let buffers = Buffers::attach(&self.segment, Offset(place))?;
        self.known.push((place, buffers.clone()));
        Ok(buffers)
    }
}
