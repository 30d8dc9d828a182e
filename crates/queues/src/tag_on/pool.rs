//! Pools of buffers and the references to them.

use super::marks;
use super::references::{self, Generation};
use super::sizes::{LandingSizes, POOL, pool_bytes, words_bytes};
use crate::cache_line::{CacheLineHeader, CacheLineMessage, CacheLineSender, LINE_DATA, SendError};
use crate::sync::{AtomicU64, Ordering};
use crate::window::{RemoteWindow, WindowError};
use shm::arena::{Arena, Retired};
use shm::mapped::MappedSlice;
use shm::object::{CreateError, Label, Object, ObjectHeader};
use shm::segment::{Offset, Segment};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Largest number of bytes that a header carries itself, beside the reference.
pub const NOTE_BYTES: usize = LINE_DATA - REFERENCE_BYTES;

/// Bytes of a reference: offset of the pool, index and generation of the buffer, length of the
/// data.
pub(super) const REFERENCE_BYTES: usize = 24;

pub(super) const INDEX_BITS: u32 = 24;

shm::shared_lines! {
    /// Description of the pool.
    struct PoolHeader {
        /// Label, with the number of buffers.
        label: Label,
        bytes: AtomicU64,
    }
}

impl ObjectHeader for PoolHeader {
    const KIND: u32 = u32::from_be_bytes(*b"tags");
    const NAME: &'static str = POOL;

    fn label(&self) -> &Label {
        &self.label
    }
}

/// Reason why a Tag-On operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TagOnError {
    /// All buffers are in use.
    #[error(
        "all {buffers} buffers of the pool are referenced: wait until receivers drop some, or \
         create a larger pool"
    )]
    Exhausted {
        /// Number of buffers.
        buffers: u64,
    },
    /// The note does not fit beside the reference.
    #[error("a note of {bytes} bytes does not fit into a header: at most {NOTE_BYTES}")]
    Note {
        /// Length of the note.
        bytes: usize,
    },
    /// 65,535 messages that refer to the buffer are sent and not opened.
    #[error(
        "too many messages that refer to this buffer are in flight: wait until receivers open some"
    )]
    TooMany,
    /// The message does not refer to data, or was opened before.
    #[error("the message refers to no buffer: it has no reference, or was opened before")]
    NoData,
    /// The header could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// There is no such receiver.
    #[error("there is no rank {rank}")]
    NoRank {
        /// The rank.
        rank: u32,
    },
    /// The data do not fit into the buffers on another node.
    #[error("{bytes} bytes do not fit into the buffers on another node, which have {most}")]
    TooLong {
        /// Length of the data.
        bytes: u64,
        /// Size of the buffers.
        most: u64,
    },
    /// The data could not be stored on another node.
    #[error(transparent)]
    Land(#[from] WindowError),
}

/// The mapped buffers of a pool.
#[derive(Clone, Debug)]
pub(super) struct PoolBuffers {
    place: Place,
    pub(super) words: MappedSlice<AtomicU64>,
    /// Size of one buffer.
    pub(super) bytes: u64,
    /// Offset of the first buffer.
    data: Offset,
    /// Words of this receiver (see [`marks`]), for data from another node.
    marks: Option<MappedSlice<AtomicU64>>,
}

/// Owner of the memory of a pool.
#[derive(Clone, Debug)]
enum Place {
    Pool(Object<PoolHeader>),
    /// A window of a rank of this node, in which data from another node lie.
    Window {
        segment: Arc<Segment>,
        _kept: Arc<RemoteWindow>,
    },
}

impl Place {
    fn segment(&self) -> &Arc<Segment> {
        match self {
            Place::Pool(header) => header.segment(),
            Place::Window { segment, .. } => segment,
        }
    }
}

/// A counted reference to a buffer, released on drop.
#[derive(Debug)]
pub(super) struct BufferReference {
    pub(super) buffers: PoolBuffers,
    pub(super) index: u64,
    pub(super) generation: Generation,
    pub(super) length: u64,
}

impl PoolBuffers {
    fn map(header: Object<PoolHeader>) -> Result<Self, CreateError> {
        // Relaxed: the label published it. The memory may have been overwritten since, so both
        // numbers are checked before any range is computed from them.
        let bytes = header.bytes.load(Ordering::Relaxed);
        let count = u64::from(header.parameter());
        let all = pool_bytes(count, bytes)?;
        // Checks the range of all buffers, so that later accesses to one buffer need no check.
        header.segment().bytes_ptr(header.behind_header(0), all)?;
        Ok(PoolBuffers {
            words: header.trailing(0, count as usize)?,
            bytes,
            data: header.behind_header(words_bytes(count)),
            marks: None,
            place: Place::Pool(header),
        })
    }

    /// Maps the buffers that lie from an offset on in a window of this node, for one of its
    /// receivers.
    pub(super) fn in_window(
        segment: &Arc<Segment>,
        window: &Arc<RemoteWindow>,
        at: Offset,
        sizes: LandingSizes,
        receiver: u64,
    ) -> Result<Self, CreateError> {
        segment.bytes_ptr(at, sizes.all()?)?;
        let count = sizes.buffers as usize;
        let marks = Offset(at.0 + sizes.mark(receiver, 0));
        Ok(PoolBuffers {
            words: MappedSlice::new(segment, at, count)?,
            bytes: sizes.bytes,
            data: Offset(at.0 + sizes.data()),
            marks: Some(MappedSlice::new(segment, marks, count + 1)?),
            place: Place::Window { segment: Arc::clone(segment), _kept: Arc::clone(window) },
        })
    }

    /// Returns true if no buffer is referenced.
    fn are_free(&self) -> bool {
        self.words.iter().all(references::is_free)
    }

    /// Stores a mark of this receiver, if it has any.
    pub(super) fn mark(&self, index: u64, value: u64) {
        if let Some(mark) = self.marks.as_ref().and_then(|marks| marks.get(index as usize)) {
            // Release: pairs with the loads of the node service, which the sender's next data
            // follow. All reads of the buffer come before.
            mark.store(value, Ordering::Release);
        }
    }

    /// Stores that this receiver opens no further message.
    pub(super) fn end(&self) {
        self.mark(self.words.len() as u64, marks::ENDED);
    }

    fn offset(&self) -> Offset {
        match &self.place {
            Place::Pool(header) => header.offset(),
            // No buffer that a window holds is sent on.
            Place::Window { .. } => Offset(0),
        }
    }

    /// Returns true if the memory still holds a pool with these buffers.
    pub(super) fn is_current(&self) -> bool {
        match &self.place {
            // Relaxed: the Acquire load of the label precedes it.
            Place::Pool(header) => {
                header.is_labelled() && header.bytes.load(Ordering::Relaxed) == self.bytes
            }
            Place::Window { .. } => true,
        }
    }

    pub(super) fn connect(segment: &Arc<Segment>, at: Offset) -> Result<Self, TagOnError> {
        Object::find(segment, at).and_then(Self::map).map_err(|_| TagOnError::NoData)
    }

    fn offset_of(&self, index: u64) -> Offset {
        Offset(self.data.0 + index * self.bytes.next_multiple_of(64))
    }
}

impl BufferReference {
    fn word(&self) -> &AtomicU64 {
        &self.buffers.words[self.index as usize]
    }

    fn start(&self) -> *mut u8 {
        // `map` has checked the range of all buffers, so that this cannot fail; if it did, the
        // slice made of it is empty.
        let at = self.buffers.offset_of(self.index);
        self.buffers.place.segment().bytes_ptr(at, self.length).unwrap_or(std::ptr::null_mut())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        let start = self.start();
        if start.is_null() {
            return &[];
        }
        // SAFETY: the range lies in the segment, which `self` keeps mapped, and was committed and
        // zeroed when it was allocated. This value counts as a reference, so the buffer is not
        // taken for writing; its owner stopped writing before it sent the reference. Processes of
        // one job trust each other to follow this protocol (see the parent module's page).
        unsafe { std::slice::from_raw_parts(start, self.length as usize) }
    }
}

impl Drop for BufferReference {
    fn drop(&mut self) {
        self.buffers.mark(self.index, marks::released(self.generation));
        // This value counts once; the release fails only if a process has overwritten the
        // segment, or if a sender on another node has seen the mark and freed the buffer since.
        let _ = references::release(self.word(), self.generation);
    }
}

/// A pool of buffers, as its owner sees it.
#[derive(Debug)]
pub struct TagOnPool {
    buffers: PoolBuffers,
    arena: Arc<Arena>,
    /// Index at which the next search begins.
    next: AtomicU64,
}

impl TagOnPool {
    /// Creates `buffers` zeroed buffers of `bytes` bytes.
    ///
    /// # Errors
    /// [`CreateError::Size`], [`CreateError::Arena`].
    pub fn create(arena: &Arc<Arena>, buffers: u64, bytes: u64) -> Result<TagOnPool, CreateError> {
        let all = pool_bytes(buffers, bytes)?;
        let prepare = |header: &Object<PoolHeader>| {
            // Relaxed: the label publishes it.
            header.bytes.store(bytes, Ordering::Relaxed);
            Ok(())
        };
        let (header, ()) = Object::create(arena, all, buffers as u32, prepare)?;
        let buffers = PoolBuffers::map(header)?;
        Ok(TagOnPool { buffers, arena: Arc::clone(arena), next: AtomicU64::new(0) })
    }

    /// Takes a free buffer for writing.
    ///
    /// # Errors
    /// [`TagOnError::Exhausted`].
    pub fn take(&self) -> Result<BufferMut, TagOnError> {
        let count = self.buffers.words.len() as u64;
        // Relaxed: a hint that spreads the searches. The exchange in `references::take` decides.
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for step in 0..count {
            let index = (first.wrapping_add(step)) % count;
            if let Some(generation) = references::take(&self.buffers.words[index as usize]) {
                let length = self.buffers.bytes;
                return Ok(BufferMut(BufferReference {
                    buffers: self.buffers.clone(),
                    index,
                    generation,
                    length,
                }));
            }
        }
        Err(TagOnError::Exhausted { buffers: count })
    }

    /// Returns true if no buffer is referenced.
    pub fn is_idle(&self) -> bool {
        self.buffers.are_free()
    }
}

impl Drop for TagOnPool {
    fn drop(&mut self) {
        if !self.buffers.try_free(&self.arena) {
            self.arena.free_later(Box::new(self.buffers.clone()));
        }
    }
}

impl Retired for PoolBuffers {
    fn try_free(&self, arena: &Arena) -> bool {
        // Without references there is no message that leads to a buffer, and no owner takes one.
        let unused = self.are_free();
        if let Place::Pool(header) = &self.place
            && unused
        {
            header.free(arena);
        }
        unused
    }
}

/// A buffer for writing, referenced by this value alone.
#[derive(Debug)]
pub struct BufferMut(BufferReference);

impl BufferMut {
    /// Ends the writing: the first `length` bytes are the data.
    #[must_use]
    pub fn finish(self, length: u64) -> SharedBuffer {
        let mut held = self.0;
        // The data does not change from here on: `SharedBuffer` has no access for writing, and only
        // it can be sent.
        held.length = held.length.min(length);
        SharedBuffer(held)
    }
}

impl Deref for BufferMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for BufferMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.0.start();
        if start.is_null() {
            return &mut [];
        }
        // SAFETY: as in `BufferReference::bytes`. This value is the buffer's only reference,
        // because a reference is sent only after `finish`, and `&mut self` makes this the only
        // slice.
        unsafe { std::slice::from_raw_parts_mut(start, self.0.length as usize) }
    }
}

/// Data that can be sent to any number of receivers. Dropping it releases the sender's reference.
#[derive(Debug)]
pub struct SharedBuffer(BufferReference);

impl SharedBuffer {
    /// Sends a header with a note of up to [`NOTE_BYTES`] bytes and a reference to the data.
    ///
    /// # Errors
    /// [`TagOnError::Note`], [`TagOnError::Send`], [`TagOnError::TooMany`]: nothing was sent.
    pub fn send(
        &self,
        to: &CacheLineSender,
        header: CacheLineHeader,
        note: &[u8],
    ) -> Result<(), TagOnError> {
        self.send_with(header, note, |message| to.try_send(message))
    }

    /// Sends as [`send`](Self::send) does, and blocks at most for `timeout` while the receive queue
    /// is full.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_timeout(
        &self,
        to: &CacheLineSender,
        header: CacheLineHeader,
        note: &[u8],
        timeout: std::time::Duration,
    ) -> Result<(), TagOnError> {
        // A deadline beyond the range of the clock is as far away as any wait can last.
        let far = std::time::Duration::from_secs(1 << 30);
        let now = std::time::Instant::now();
        self.send_deadline(to, header, note, now + timeout.min(far))
    }

    /// Sends as [`send`](Self::send) does, and blocks until `deadline` while the receive queue is
    /// full.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_deadline(
        &self,
        to: &CacheLineSender,
        header: CacheLineHeader,
        note: &[u8],
        deadline: std::time::Instant,
    ) -> Result<(), TagOnError> {
        self.send_with(header, note, |message| to.send_deadline(message, deadline))
    }

    fn send_with(
        &self,
        header: CacheLineHeader,
        note: &[u8],
        send: impl FnOnce(&CacheLineMessage) -> Result<(), SendError>,
    ) -> Result<(), TagOnError> {
        let held = &self.0;
        let pool = held.buffers.offset().0;
        let reference = [pool, word_of(held.index, held.generation), held.length];
        let message = line(header, reference, note)?;
        // Counted before the message is visible, so that the buffer is not free when it arrives.
        references::send(held.word(), held.generation).map_err(|_| TagOnError::TooMany)?;
        send(&message).inspect_err(|_| {
            // The message was not sent, so no receiver can have opened it: the count is still
            // there. A process killed before this leaves the buffer in use for good.
            let _ = references::take_back(held.word(), held.generation);
        })?;
        Ok(())
    }
}

/// Returns the second word of a reference.
pub(super) fn word_of(index: u64, generation: Generation) -> u64 {
    u64::from(generation) << INDEX_BITS | index
}

/// Composes a message of a reference and a note.
pub(super) fn line(
    header: CacheLineHeader,
    reference: [u64; 3],
    note: &[u8],
) -> Result<CacheLineMessage, TagOnError> {
    let mut line = [0; LINE_DATA];
    for (bytes, word) in line.chunks_exact_mut(8).zip(reference) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let length = REFERENCE_BYTES + note.len();
    let too_long = || TagOnError::Note { bytes: note.len() };
    line.get_mut(REFERENCE_BYTES..length).ok_or_else(too_long)?.copy_from_slice(note);
    CacheLineMessage::new(header, &line[..length]).ok_or_else(too_long)
}

impl Deref for SharedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}
