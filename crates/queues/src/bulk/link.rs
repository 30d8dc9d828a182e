//! Creation of links.

use super::memory::LinkMemory;
use super::owner::LinkOwner;
use super::receiver::Receiver;
use super::sender::Sender;
use shm::arena::Arena;
use shm::object::CreateError;
use shm::segment::Offset;
use std::sync::Arc;

/// Recommended size of a staging area in bytes: twice a large second-level cache. When the sender
/// reuses a line, the line has then left the receiver's cache; to take it out of that cache would
/// cost four times as much.
pub const DEFAULT_STAGING_BYTES: u64 = 2 << 20;

/// A link as its creator sees it: memory with two ends, to each of which one process connects.
///
/// When the link is dropped, an end that is still free can no longer be connected to. The memory
/// returns to the arena once both ends are closed or their processes dead.
#[derive(Debug)]
pub struct BulkLink {
    owner: Arc<LinkOwner>,
}

impl BulkLink {
    /// Creates a link with a staging area of `staging` bytes, rounded up to a power of two (see
    /// [`DEFAULT_STAGING_BYTES`]).
    ///
    /// # Errors
    /// [`CreateError::Size`], [`CreateError::Arena`].
    pub fn create(arena: &Arc<Arena>, staging: u64) -> Result<Self, CreateError> {
        let memory = LinkMemory::create(arena, staging)?;
        Ok(BulkLink { owner: Arc::new(LinkOwner { memory, arena: Arc::clone(arena) }) })
    }

    /// Returns the offset of the link in the segment, to which both ends connect.
    pub fn offset(&self) -> Offset {
        self.owner.memory.offset()
    }

    /// Returns the number of bytes that the link occupies in the segment.
    pub fn bytes(&self) -> u64 {
        self.owner.memory.footprint()
    }
}

/// Creates a link and connects both ends in this process, for two of its threads.
///
/// # Errors
/// [`CreateError::Size`], [`CreateError::Arena`], [`CreateError::Process`].
pub fn pair(arena: &Arc<Arena>, staging: u64) -> Result<(Sender, Receiver), CreateError> {
    let link = BulkLink::create(arena, staging)?;
    let mut sender = Sender::connect(arena.segment(), link.offset())?;
    let mut receiver = Receiver::connect(arena.segment(), link.offset())?;
    receiver.keep_owner(Arc::clone(&link.owner));
    sender.keep_owner(link.owner);
    Ok((sender, receiver))
}
