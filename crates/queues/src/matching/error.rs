//! Errors of matched messages.

use shm::object::CreateError;

/// Failed send or receive of a matched message. Ranks are those of the node, unless stated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MatchError {
    /// The message is longer than the buffer of its receive; its beginning is in the buffer.
    #[error("the message of rank {from} has {sent} bytes, the buffer of its receive {capacity}")]
    Truncated {
        /// The sender.
        from: u32,
        /// Length of the message in bytes.
        sent: u64,
        /// Length of the buffer in bytes.
        capacity: u64,
    },
    /// The rank that the operation waits for has left or failed.
    #[error("rank {rank} of this node has left or failed")]
    RankExited {
        /// The rank.
        rank: u32,
    },
    /// The operation is not complete at its deadline.
    #[error("not complete before the deadline")]
    Timeout,
    /// The memory of the ring from or to a rank holds what neither end writes.
    #[error("the ring between this rank and rank {rank} of this node is corrupt")]
    Corrupt {
        /// The rank.
        rank: u32,
    },
    /// The sender has forgotten the request of a send and freed its buffer.
    #[error("rank {rank} of this node has freed the buffer of a message before it was read")]
    Lost {
        /// Rank of the sender.
        rank: u32,
    },
    /// There is no memory for a ring.
    #[error(transparent)]
    Create(#[from] CreateError),
}
