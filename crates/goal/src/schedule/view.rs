//! A validated schedule in borrowed memory, and the place of its sections.

use super::records::{BlockRecord, BufferRecord, Header, OperationRecord, index_of};

/// A validated schedule in borrowed memory.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleView<'a> {
    pub(super) header: &'a Header,
    pub(super) operations: &'a [OperationRecord],
    pub(super) buffers: &'a [BufferRecord],
    pub(super) blocks: &'a [BlockRecord],
    pub(super) edges: &'a [u32],
    bytes: &'a [u8],
}

impl<'a> ScheduleView<'a> {
    /// Cuts validated bytes into their sections.
    #[inline]
    pub(super) fn divide(bytes: &'a [u8]) -> Self {
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

/// Offsets of the sections. Counts have 32 bits, so that for any header nothing
/// overflows here.
pub(super) struct Sections {
    operations: u64,
    buffers: u64,
    blocks: u64,
    edges: u64,
    /// Bytes of all sections together.
    pub(super) total: u64,
}

#[inline]
pub(super) fn sections(header: &Header) -> Sections {
    let operations = size_of::<Header>() as u64;
    let buffers = operations + 64 * u64::from(header.operation_count);
    let blocks = buffers + 16 * u64::from(header.buffer_count);
    let edges = blocks + 24 * u64::from(header.block_count);
    let total = (edges + 4 * u64::from(header.edge_count)).next_multiple_of(8);
    Sections { operations, buffers, blocks, edges, total }
}
