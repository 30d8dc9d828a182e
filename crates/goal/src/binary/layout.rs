//! Numbers of the binary format.

/// The first eight bytes.
pub(super) const MAGIC: u64 = 4223;
/// Offsets in the file count from here.
pub(super) const BASE: u64 = 8;
/// The bytes before the ranks' offsets.
pub(super) const HEADER: usize = 14;
/// The two offsets of a rank.
pub(super) const ENTRY: usize = 16;
/// Bytes of a node.
pub(super) const NODE: usize = 39;
pub(super) const SEND: u8 = 1;
pub(super) const RECEIVE: u8 = 2;
pub(super) const CALC: u8 = 3;
