//! The compiled form of a graph: one contiguous, relocatable, immutable block of fixed-width
//! records.
//!
//! Everything is little endian and aligned to its size; the whole block is aligned to eight bytes.
//! State that changes during a run (dependency counters, positions in queues) and the result of
//! linking lie elsewhere, so one block serves any number of runs at once and may be mapped
//! read-only. After Schneider et al. 2011, section 2.1 and figure 1: independent operations first,
//! a dependency counter per operation, forward adjacency by offset. Records are emitted in
//! traversal order: every edge points forward, and running a schedule takes only bounded loops.
//!
//! | section | records | bytes each |
//! |---|---|---|
//! | [`Header`] | 1 | 64 |
//! | [`OperationRecord`] | `operation_count` | 64 |
//! | [`BufferRecord`] | `buffer_count` | 16 |
//! | [`BlockRecord`] | `block_count` | 24 |
//! | edges (u32) | `edge_count`, rounded up to an even number | 4 |
//!
//! | byte | header field |
//! |---|---|
//! | 0 | u32 magic, [`MAGIC`] |
//! | 4 | u16 version, [`VERSION`] |
//! | 6 | u16 zero |
//! | 8 | u32 rank; 12: u32 ranks |
//! | 16 | u32 operation_count; 20: u32 independent_count |
//! | 24 | u32 buffer_count; 28: u32 block_count |
//! | 32 | u32 edge_count; 36: u32 sink_count |
//! | 40 | u64 scratchpad_bytes |
//! | 48 | u64 total_bytes |
//! | 56 | u64 checksum: FNV-1a over the block's other 8-byte words |
//!
//! | byte | operation field |
//! |---|---|
//! | 0 | u8 kind, [`Kind`]; 1: u8 arithmetic; 2: u8 data type; 3: u8 flags, [`flags`] |
//! | 4 | u32 dependencies: completion and start edges that lead here |
//! | 8 | u32 peer (join: root of a broadcast); 12: u32 tag |
//! | 16 | u64 bytes sent, received, copied or computed (calc: nanoseconds; join: bytes contributed) |
//! | 24 | u32 first_block, then u32 counts of three consecutive block lists: 28 destination (send, receive: data), 32 left (copy: source; join: contribution), 36 right |
//! | 40 | u32 first_edge; 44: u32 edge_count (until complete); 48: u32 start_edge_count (until started; they follow) |
//! | 52 | u32 ordinal: the k of the matching rule among this rank's sends to, or receives from, the same (peer, tag); the number of a join among this rank's joins |
//! | 56 | u32 vertex: position in vertex order; 60: u8 cpu; 61: u8 nic; 62: u8 join mode; 63: u8 zero |
//!
//! An edge is the byte offset of the operation record it leads to, from the start of the block.
//! Blocks and edges lie in the order of the operations they belong to, none is shared and none is
//! left over.

mod error;
mod validate;
mod written;

pub use error::ScheduleError;

use crate::arithmetic::{Arithmetic, DataType};
use bytemuck::{Pod, Zeroable};

/// The first four bytes: "TWS1".
pub const MAGIC: u32 = u32::from_le_bytes(*b"TWS1");
/// The version of the layout.
pub const VERSION: u16 = 1;

/// The start of a schedule; see the [module](self) for the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[expect(missing_docs, reason = "the module's table documents every field")]
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

/// One operation: one cache line; see the [module](self) for the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[expect(missing_docs, reason = "the module's table documents every field")]
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
}

/// A schedule that owns its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Schedule {
    words: Vec<u64>,
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Schedule")
            .field("header", self.view().header())
            .finish_non_exhaustive()
    }
}

impl Schedule {
    /// Copies and validates bytes from [`as_bytes`](Self::as_bytes).
    ///
    /// # Errors
    /// Returns an error that names the defect and its operation.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ScheduleError> {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        let copied = &bytemuck::cast_slice::<u64, u8>(&words)[..bytes.len()];
        ScheduleView::new(copied)?;
        Ok(Schedule { words })
    }

    /// Puts the sections together and seals them with the checksum; the compiler's last step.
    pub(crate) fn assemble(
        mut header: Header,
        operations: &[OperationRecord],
        buffers: &[BufferRecord],
        blocks: &[BlockRecord],
        edges: &[u32],
    ) -> Result<Self, ScheduleError> {
        let mut bytes = vec![0u8; size_of::<Header>()];
        bytes.extend_from_slice(bytemuck::cast_slice(operations));
        bytes.extend_from_slice(bytemuck::cast_slice(buffers));
        bytes.extend_from_slice(bytemuck::cast_slice(blocks));
        bytes.extend_from_slice(bytemuck::cast_slice(edges));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        header.total_bytes = bytes.len() as u64;
        bytes[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
        header.checksum = checksum(&bytes);
        bytes[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
        Schedule::from_bytes(&bytes)
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }

    /// The records.
    #[inline]
    pub fn view(&self) -> ScheduleView<'_> {
        ScheduleView::divide(self.as_bytes())
    }
}

/// FNV-1a over eight-byte words, the checksum's own word left out. It finds damage, it does not
/// defend against malice.
fn checksum(bytes: &[u8]) -> u64 {
    const CHECKSUM_WORD: usize = 7;
    bytes.chunks_exact(8).enumerate().filter(|(index, _)| *index != CHECKSUM_WORD).fold(
        0xcbf2_9ce4_8422_2325,
        |hash, (_, chunk)| {
            let word = chunk.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3)
        },
    )
}

/// A validated schedule in borrowed memory.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleView<'a> {
    header: &'a Header,
    operations: &'a [OperationRecord],
    buffers: &'a [BufferRecord],
    blocks: &'a [BlockRecord],
    edges: &'a [u32],
    bytes: &'a [u8],
}

impl<'a> ScheduleView<'a> {
    /// Validates bytes where they lie. Everything an engine relies on is checked: codes, ranges,
    /// sums, that every edge leads forward and that the dependency counters are what the edges say.
    ///
    /// # Errors
    /// Returns an error that names the defect.
    pub fn new(bytes: &'a [u8]) -> Result<Self, ScheduleError> {
        if !bytes.as_ptr().cast::<u64>().is_aligned() {
            return Err(ScheduleError::Alignment);
        }
        let found = bytes.len() as u64;
        let Some(head) = bytes.get(..size_of::<Header>()) else {
            return Err(ScheduleError::Length { expected: size_of::<Header>() as u64, found });
        };
        let header: &Header = bytemuck::from_bytes(head);
        if header.magic != MAGIC {
            return Err(ScheduleError::Magic { found: header.magic });
        }
        if header.version != VERSION {
            return Err(ScheduleError::Version { found: header.version });
        }
        if header.total_bytes != found || sections(header).total != found {
            return Err(ScheduleError::Length { expected: header.total_bytes, found });
        }
        let sum = checksum(bytes);
        if sum != header.checksum {
            return Err(ScheduleError::Checksum { expected: header.checksum, found: sum });
        }
        let view = ScheduleView::divide(bytes);
        crate::schedule::validate::validate(&view)?;
        Ok(view)
    }

    /// Cuts validated bytes into their sections.
    #[inline]
    fn divide(bytes: &'a [u8]) -> Self {
        let header: &Header = bytemuck::from_bytes(&bytes[..size_of::<Header>()]);
        let at = sections(header);
        let cut = |from: u64, to: u64| &bytes[from as usize..to as usize];
        ScheduleView {
            header,
            operations: bytemuck::cast_slice(cut(at.operations, at.buffers)),
            buffers: bytemuck::cast_slice(cut(at.buffers, at.blocks)),
            blocks: bytemuck::cast_slice(cut(at.blocks, at.edges)),
            edges: bytemuck::cast_slice(cut(at.edges, at.edges + 4 * u64::from(header.edge_count))),
            bytes,
        }
    }

    /// The header.
    pub fn header(&self) -> &'a Header {
        self.header
    }

    /// All operations, the independent ones first.
    #[inline]
    pub fn operations(&self) -> &'a [OperationRecord] {
        self.operations
    }

    /// The user buffers.
    pub fn buffers(&self) -> &'a [BufferRecord] {
        self.buffers
    }

    /// The whole block.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Destination list (for a send or receive: the data).
    #[inline]
    pub fn destination(&self, record: &OperationRecord) -> &'a [BlockRecord] {
        self.list(record.first_block, record.destination_count)
    }

    /// Left operands; for a copy the source, for a join the contribution.
    #[inline]
    pub fn left(&self, record: &OperationRecord) -> &'a [BlockRecord] {
        self.list(record.first_block + record.destination_count, record.left_count)
    }

    /// Right operands.
    #[inline]
    pub fn right(&self, record: &OperationRecord) -> &'a [BlockRecord] {
        self.list(
            record.first_block + record.destination_count + record.left_count,
            record.right_count,
        )
    }

    #[inline]
    fn list(&self, first: u32, count: u32) -> &'a [BlockRecord] {
        &self.blocks[first as usize..first as usize + count as usize]
    }

    /// The operations that wait for this one's completion.
    #[inline]
    pub fn successors(
        &self,
        record: &OperationRecord,
    ) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.targets(record.first_edge, record.edge_count)
    }

    /// The operations that wait for this one's start.
    #[inline]
    pub fn start_successors(
        &self,
        record: &OperationRecord,
    ) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.targets(record.first_edge + record.edge_count, record.start_edge_count)
    }

    #[inline]
    fn targets(&self, first: u32, count: u32) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        let edges: &'a [u32] = &self.edges[first as usize..first as usize + count as usize];
        edges.iter().map(|offset| index_of(*offset))
    }

    /// The edges as offsets, in the order of the block.
    pub fn edges(&self) -> &'a [u32] {
        self.edges
    }

    /// All block records, in the order of the block.
    pub fn blocks(&self) -> &'a [BlockRecord] {
        self.blocks
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

/// Offsets of the sections. Counts have 32 bits, so that for any header nothing
/// overflows here.
struct Sections {
    operations: u64,
    buffers: u64,
    blocks: u64,
    edges: u64,
    total: u64,
}

#[inline]
fn sections(header: &Header) -> Sections {
    let operations = size_of::<Header>() as u64;
    let buffers = operations + 64 * u64::from(header.operation_count);
    let blocks = buffers + 16 * u64::from(header.buffer_count);
    let edges = blocks + 24 * u64::from(header.block_count);
    let total = (edges + 4 * u64::from(header.edge_count)).next_multiple_of(8);
    Sections { operations, buffers, blocks, edges, total }
}

const _: () = assert!(size_of::<Header>() == 64 && size_of::<OperationRecord>() == 64);
const _: () = assert!(size_of::<BufferRecord>() == 16 && size_of::<BlockRecord>() == 24);
