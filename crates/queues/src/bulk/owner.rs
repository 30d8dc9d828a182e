//! Lifetime of a link's memory.

use super::memory::LinkMemory;
use shm::arena::Arena;
use std::sync::Arc;

/// Owner of a link's memory. The two ends of a [`pair`](super::pair) share it, so that the last one
/// to go frees the memory.
#[derive(Debug)]
pub(super) struct LinkOwner {
    pub(super) memory: LinkMemory,
    pub(super) arena: Arc<Arena>,
}

impl Drop for LinkOwner {
    fn drop(&mut self) {
        self.memory.retire(&self.arena);
    }
}
