//! The receiver's side: the pools to which its messages refer.

use super::landing::LandingPlace;
use super::marks;
use super::pool::{BufferReference, INDEX_BITS, PoolBuffers, REFERENCE_BYTES, TagOnError};
use super::references::{self, Generation};
use super::sizes::LandingSizes;
use crate::cache_line::CacheLineMessage;
use crate::window::RemoteWindow;
use shm::object::CreateError;
use shm::segment::{Offset, Segment};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

/// Received data, read in place. Dropping it releases the reference.
#[derive(Debug)]
pub struct ReceivedBuffer(BufferReference);

impl Deref for ReceivedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// The pools that a receiver's messages refer to, mapped at their first use.
#[derive(Debug)]
pub struct TagOnPools {
    segment: Arc<Segment>,
    known: Vec<(u64, PoolBuffers)>,
    /// Buffers in which data from other nodes land, by the first word of references to them.
    landed: HashMap<u64, PoolBuffers>,
}

impl TagOnPools {
    /// Creates an empty cache for messages between processes that share this segment.
    #[must_use]
    pub fn new(segment: &Arc<Segment>) -> Self {
        TagOnPools { segment: Arc::clone(segment), known: Vec::new(), landed: HashMap::new() }
    }

    /// Adds buffers in a window of this node in which the data of a rank of another node land: from
    /// byte `at` of the window on. This is the receiver of that number on the node.
    ///
    /// # Errors
    /// [`CreateError::NotFound`] if the window is on another node, [`CreateError::Segment`] if it
    /// does not lie in the segment, [`CreateError::Size`].
    pub fn add_landing(
        &mut self,
        place: LandingPlace,
        window: &Arc<RemoteWindow>,
        at: u64,
        sizes: LandingSizes,
        receiver: u64,
    ) -> Result<(), CreateError> {
        let missing = CreateError::NotFound { object: "window", offset: window.offset() };
        let memory = window.memory().ok_or(missing)?;
        let at = Offset(memory.0.saturating_add(at));
        let pool = PoolBuffers::in_window(&self.segment, window, at, sizes, receiver)?;
        self.landed.insert(place.word(), pool);
        Ok(())
    }

    /// Ends the receipt: no message is opened any more. Senders on other nodes then free the
    /// buffers of those that were not; data that were opened stay until they are dropped.
    pub fn end(self) {
        self.landed.values().for_each(PoolBuffers::end);
    }

    /// Returns the note of a header.
    #[must_use]
    pub fn note(message: &CacheLineMessage) -> &[u8] {
        message.data().get(REFERENCE_BYTES..).unwrap_or(&[])
    }

    /// Returns the data of a message. Each message can be opened once.
    ///
    /// # Errors
    /// [`TagOnError::NoData`].
    pub fn open(&mut self, message: &CacheLineMessage) -> Result<ReceivedBuffer, TagOnError> {
        let reference = message.data().get(..REFERENCE_BYTES).ok_or(TagOnError::NoData)?;
        let mut words = reference
            .chunks_exact(8)
            .map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        let mut word = || words.next().ok_or(TagOnError::NoData);
        let pool = word()?;
        let reference = word()?;
        let length = word()?;
        let buffers = self.pool(pool)?;
        let index = reference & ((1 << INDEX_BITS) - 1);
        let generation = (reference >> INDEX_BITS) as Generation;
        let word = buffers.words.get(index as usize).ok_or(TagOnError::NoData)?;
        // The generation makes a message about an earlier use of the buffer fail. A second `open`
        // of a message fails, or takes the count of another message.
        if length > buffers.bytes {
            return Err(TagOnError::NoData);
        }
        references::open(word, generation).map_err(|_| TagOnError::NoData)?;
        // No sender frees the buffer before: this receiver has neither released it nor ended.
        buffers.mark(index, marks::opened(generation));
        Ok(ReceivedBuffer(BufferReference { buffers, index, generation, length }))
    }

    fn pool(&mut self, at: u64) -> Result<PoolBuffers, TagOnError> {
        if let Some(landed) = self.landed.get(&at) {
            return Ok(landed.clone());
        }
        if let Some((_, buffers)) = self.known.iter().find(|(known, _)| *known == at) {
            // The memory of a dropped pool no longer has the label, unless a pool with as many
            // buffers has been created there since.
            if buffers.is_current() {
                return Ok(buffers.clone());
            }
            self.known.retain(|(known, _)| *known != at);
        }
        let buffers = PoolBuffers::connect(&self.segment, Offset(at))?;
        self.known.push((at, buffers.clone()));
        Ok(buffers)
    }
}
