//! Configuration of the receive queues of a process.

use shm::process::ProcessError;
use shm::segment::Offset;

use crate::error::CreateError;
use shm::process_table::MAX_PROCESSES;

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
    pub(super) fn check(self) -> Result<(), QueuesError> {
        let QueuesConfig { queues, rings, quota, .. } = self;
        if !(1..=MAX_QUEUES).contains(&queues) || rings > MAX_RINGS || quota == 0 {
            return Err(QueuesError::Config { config: self });
        }
        Ok(())
    }
}

/// Reason why receive queues could not be created, connected to or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueuesError {
    /// The configuration is invalid.
    #[error(
        "receive queues cannot have the configuration {config:?}: take 1 to {MAX_QUEUES} queues, \
         at most {MAX_RINGS} rings, a quota above 0"
    )]
    Config {
        /// Requested configuration.
        config: QueuesConfig,
    },
    /// The offset is not that of receive queues.
    #[error(
        "there are no receive queues at {offset}: use the offset that `ReceiveQueues::offset` \
         returned"
    )]
    NotFound {
        /// Offset of the search.
        offset: Offset,
    },
    /// The index is out of range.
    #[error("the receiver at {offset} has {queues} queues, so none of index {index}")]
    NoQueue {
        /// Offset of the receive queues.
        offset: Offset,
        /// Number of queues.
        queues: usize,
        /// Requested index.
        index: usize,
    },
    /// The receive queues were closed.
    #[error("the receive queues at {offset} are closed")]
    Closed {
        /// Offset of the receive queues.
        offset: Offset,
    },
    /// The largest number of [`super::RemoteQueues`] is connected.
    #[error(
        "the receive queues at {offset} have {MAX_PROCESSES} connected handles, the maximum: share \
         one in a process"
    )]
    TooManyProcesses {
        /// Offset of the receive queues.
        offset: Offset,
    },
    /// The identity of this process is unavailable.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A ring could not be created or found.
    #[error(transparent)]
    Ring(#[from] CreateError),
}
