//! Configuration of the receive queues of a process.

use crate::error::CreateError;

/// Largest number of queues: the range of a message's tag.
pub const MAX_QUEUES: usize = 1 << 16;

/// Largest number of rings per class.
pub const MAX_RINGS: usize = 1 << 15;

/// Class of a message. The classes share no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A request.
    Request = 0,
    /// The answer to a request. Requests never delay it.
    Reply = 1,
}

/// Numbers and capacities of the receive queues of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuesConfig {
    /// Number of queues, from 1 to [`MAX_QUEUES`].
    pub queues: usize,
    /// Number of resident queues per class; at most [`MAX_RINGS`].
    pub rings: usize,
    /// Capacity of a ring in messages: a power of two.
    pub ring_capacity: usize,
    /// Capacity of each non-resident queue in messages: a power of two.
    pub non_resident_capacity: usize,
    /// Length of an overflow list at which the queue's senders are stopped; at least 1.
    pub quota: usize,
}

impl Default for QueuesConfig {
    fn default() -> QueuesConfig {
        QueuesConfig {
            queues: 512,
            rings: 16,
            ring_capacity: 64,
            non_resident_capacity: 256,
            quota: 1024,
        }
    }
}

impl QueuesConfig {
    pub(super) fn check(self) -> Result<(), CreateError> {
        let QueuesConfig { queues, rings, quota, .. } = self;
        let size = |requested: usize, unit, limits| CreateError::Size {
            object: "set of receive queues",
            requested: requested as u64,
            unit,
            limits,
        };
        if !(1..=MAX_QUEUES).contains(&queues) {
            return Err(size(queues, "queues", "1 to 65536"));
        }
        if rings > MAX_RINGS {
            return Err(size(rings, "rings in each class", "at most 32768"));
        }
        if quota == 0 {
            return Err(size(quota, "messages of quota", "at least 1"));
        }
        Ok(())
    }
}
