//! The fixed-width records of a schedule, as they lie in memory.

use crate::arithmetic::{Arithmetic, DataType};
use crate::graph::JoinMode;
use bytemuck::{Pod, Zeroable};

/// The first four bytes: "TWS1".
pub const MAGIC: u32 = u32::from_le_bytes(*b"TWS1");
/// The version of the layout.
pub const VERSION: u16 = 1;

/// The start of a schedule; see [`schedule`](crate::schedule) for the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[expect(missing_docs, reason = "the table of the module `schedule` documents every field")]
pub struct Header {
    pub magic: u32,
    pub version: u16,
    pub reserved: u16,
    pub rank: u32,
    pub ranks: u32,
    pub operation_count: u32,
    pub independent_count: u32,
    pub buffer_count: u32,
    pub block_count: u32,
    pub edge_count: u32,
    pub sink_count: u32,
    pub scratchpad_bytes: u64,
    pub total_bytes: u64,
    pub checksum: u64,
}

/// One operation: one cache line; see [`schedule`](crate::schedule) for the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[expect(missing_docs, reason = "the table of the module `schedule` documents every field")]
pub struct OperationRecord {
    pub kind: u8,
    pub arithmetic: u8,
    pub data_type: u8,
    pub flags: u8,
    pub dependencies: u32,
    pub peer: u32,
    pub tag: u32,
    pub bytes: u64,
    pub first_block: u32,
    pub destination_count: u32,
    pub left_count: u32,
    pub right_count: u32,
    pub first_edge: u32,
    pub edge_count: u32,
    pub start_edge_count: u32,
    pub ordinal: u32,
    pub vertex: u32,
    pub cpu: u8,
    pub nic: u8,
    pub join_mode: u8,
    pub reserved: u8,
}

/// A user buffer: what a run does with it ([`Access`](crate::graph::Access) as a number) and its
/// length.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct BufferRecord {
    /// [`Access`](crate::graph::Access) as a number.
    pub access: u32,
    /// Zero.
    pub reserved: u32,
    /// Length in bytes.
    pub length: u64,
}

/// The number of the scratchpad in [`BlockRecord::memory`]; user buffers have their own numbers.
pub const SCRATCHPAD: u32 = u32::MAX;

/// A range of bytes in a user buffer or the scratchpad.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct BlockRecord {
    /// The number of a user buffer, or [`SCRATCHPAD`].
    pub memory: u32,
    /// Zero.
    pub reserved: u32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// Kind of an operation record.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are the cases of graph::Operation")]
pub enum Kind {
    Send = 1,
    Receive = 2,
    Calc = 3,
    Local = 4,
    Copy = 5,
    Timestamp = 6,
    Join = 7,
}

impl Kind {
    /// The kind of this number.
    pub fn from_u8(number: u8) -> Option<Kind> {
        use Kind::*;
        [Send, Receive, Calc, Local, Copy, Timestamp, Join]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// Combination of a join, as a number in [`OperationRecord::join_mode`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are the cases of graph::JoinMode")]
pub enum JoinKind {
    Barrier = 0,
    Reduce = 1,
    Gather = 2,
    Exchange = 3,
    Broadcast = 4,
}

impl JoinKind {
    /// The kind of this number.
    pub fn from_u8(number: u8) -> Option<JoinKind> {
        use JoinKind::*;
        [Barrier, Reduce, Gather, Exchange, Broadcast]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// Bits of [`OperationRecord::flags`].
pub mod flags {
    /// The receive takes messages from any rank.
    pub const ANY_SOURCE: u8 = 1;
    /// The receive takes messages of any tag.
    pub const ANY_TAG: u8 = 2;
    /// No operation waits for the completion of this one: a run is complete when all of these are.
    pub const SINK: u8 = 4;
}

impl OperationRecord {
    /// Returns the kind. The record is from a validated schedule, so the number is one of the
    /// kinds; an unknown number, which only a record made by hand can hold, reads as `Calc`.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.kind {
            1 => Kind::Send,
            2 => Kind::Receive,
            4 => Kind::Local,
            5 => Kind::Copy,
            6 => Kind::Timestamp,
            7 => Kind::Join,
            _ => Kind::Calc,
        }
    }

    /// The rank this send goes to, or this receive takes from (`None`: any).
    #[inline]
    pub fn peer(&self) -> Option<u32> {
        (self.flags & flags::ANY_SOURCE == 0).then_some(self.peer)
    }

    /// The tag (`None`: any).
    #[inline]
    pub fn tag(&self) -> Option<u32> {
        (self.flags & flags::ANY_TAG == 0).then_some(self.tag)
    }

    /// Returns `true` if no operation waits for its completion.
    #[inline]
    pub fn is_sink(&self) -> bool {
        self.flags & flags::SINK != 0
    }

    /// Operation and element type of a local operation or a reducing join.
    pub fn arithmetic(&self) -> Option<(Arithmetic, DataType)> {
        Some((Arithmetic::from_u8(self.arithmetic)?, DataType::from_u8(self.data_type)?))
    }

    /// Returns the mode of a join. The record is from a validated schedule, so its codes are known;
    /// unknown codes, which only a record made by hand can hold, read as a barrier.
    pub fn join_mode(&self) -> JoinMode {
        match (JoinKind::from_u8(self.join_mode), self.arithmetic()) {
            (Some(JoinKind::Reduce), Some((operation, data_type))) => {
                JoinMode::Reduce { operation, data_type }
            }
            (Some(JoinKind::Gather), _) => JoinMode::Gather,
            (Some(JoinKind::Exchange), _) => JoinMode::Exchange,
            (Some(JoinKind::Broadcast), _) => JoinMode::Broadcast { root: self.peer },
            _ => JoinMode::Barrier,
        }
    }
}

/// The byte offset of an operation record.
pub fn offset_of(operation: u32) -> Option<u32> {
    operation
        .checked_mul(size_of::<OperationRecord>() as u32)?
        .checked_add(size_of::<Header>() as u32)
}

/// Returns the operation with its record at this offset.
#[inline]
pub fn index_of(offset: u32) -> u32 {
    offset.wrapping_sub(size_of::<Header>() as u32) / size_of::<OperationRecord>() as u32
}

const _: () = assert!(size_of::<Header>() == 64 && size_of::<OperationRecord>() == 64);
const _: () = assert!(size_of::<BufferRecord>() == 16 && size_of::<BlockRecord>() == 24);
