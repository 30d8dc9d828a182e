//! Creation of a link and the lifetime of its memory.

use std::sync::Arc;

use shm::arena::Arena;
use shm::segment::Offset;

use super::error::OpenError;
use super::memory::LinkMemory;
use super::receiver::Receiver;
use super::sender::Sender;
use shm::process_table::End;

/// Recommended size of a staging area in bytes: twice a large second-level cache. When the sender
/// reuses a line, the line has then left the receiver's cache; to take it out of that cache would
/// cost four times as much.
pub const DEFAULT_STAGING_BYTES: u64 = 2 << 20;

/// A link as its creator sees it: memory with two ends, to each of which one process connects.
///
/// When the link is dropped, an end that is still free can no longer be connected to. The memory
/// returns to the arena if both ends are closed or their processes dead; otherwise it stays
/// allocated.
#[derive(Debug)]
pub struct BulkLink {
    owner: Arc<LinkOwner>,
}

/// Owner of a link's memory. The two ends of a [`pair`] share it, so that the last one to go frees
/// the memory.
#[derive(Debug)]
pub(super) struct LinkOwner {
    memory: LinkMemory,
    arena: Arc<Arena>,
}

impl BulkLink {
    /// Creates a link with a staging area of `staging` bytes, rounded up to a power of two (see
    /// [`DEFAULT_STAGING_BYTES`]).
    ///
    /// # Errors
    /// [`OpenError::Staging`], [`OpenError::Arena`].
    pub fn create(arena: &Arc<Arena>, staging: u64) -> Result<Self, OpenError> {
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
/// [`OpenError::Staging`], [`OpenError::Arena`], [`OpenError::Process`].
pub fn pair(arena: &Arc<Arena>, staging: u64) -> Result<(Sender, Receiver), OpenError> {
    let link = BulkLink::create(arena, staging)?;
    let mut sender = Sender::connect(arena.segment(), link.offset())?;
    let mut receiver = Receiver::connect(arena.segment(), link.offset())?;
    receiver.keep_owner(Arc::clone(&link.owner));
    sender.keep_owner(link.owner);
    Ok((sender, receiver))
}

impl Drop for LinkOwner {
    fn drop(&mut self) {
        let ends = [End::Sender, End::Receiver];
        for end in ends {
            // A withdrawn end appears as closed to the process at the other end.
            if self.memory.holder_of(end).withdraw() {
                self.memory.wakeup(end).close();
                self.memory.wakeup(end.other()).notify();
            }
        }
        // Both ends are withdrawn or taken now. A released end stays released, and the end of a
        // dead process stays unused, so no access follows the free below.
        if ends.into_iter().all(|end| self.memory.holder_of(end).is_free()) {
            self.memory.erase();
            // Cannot fail: the memory came from this arena and is freed once.
            let _ = self.arena.free(self.memory.offset());
        }
    }
}
