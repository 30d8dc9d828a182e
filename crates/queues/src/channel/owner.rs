//! Lifetime of a channel's memory.

use super::memory::ChannelMemory;
use shm::arena::Arena;
use std::sync::Arc;

/// Owner of a channel's memory. The two ends of a [`pair`](super::pair) share it, so that the last
/// one to go frees the memory.
#[derive(Debug)]
pub(super) struct ChannelOwner {
    pub(super) memory: ChannelMemory,
    pub(super) arena: Arc<Arena>,
}

impl Drop for ChannelOwner {
    fn drop(&mut self) {
        self.memory.retire(&self.arena);
    }
}
