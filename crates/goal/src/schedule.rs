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

mod blocks;
mod error;
pub(crate) mod ranges;
mod records;
mod starts;
mod validate;
mod view;
mod written;

pub use blocks::{CommonPieces, common_pieces};
pub use error::ScheduleError;
pub use records::{
    BlockRecord, BufferRecord, Header, JoinKind, Kind, MAGIC, OperationRecord, SCRATCHPAD, VERSION,
    flags, index_of, offset_of,
};
pub use view::ScheduleView;

use validate::checksum;

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
