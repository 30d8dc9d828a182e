//! Default lengths that decide how messages are delivered, in bytes: the only place in the
//! workspace that states them.

/// Longest message that is sent before its receive is posted, between ranks of a node. A longer
/// message waits for its receive and is copied once.
pub const EAGER_ON_NODE: u64 = 4 << 10;

/// Longest message that is sent before its receive is posted, between nodes. A rendezvous costs two
/// more wake-ups of node services, which takes longer than the transfer of half a megabyte.
pub const EAGER_BETWEEN_NODES: u64 = 512 << 10;

/// Longest user buffer that is always copied through memory shared with the other ranks, even if
/// the buffer lies in the segment: a copy of a few lines costs less than an agreement on the
/// buffer's place. Other ranks may write to such memory before its rank has started the run.
pub const STAGED: u64 = 8 << 10;
