//! Validation of a schedule's bytes before any engine runs them.

use super::error::ScheduleError;
use super::ranges::{ByteRange, overlap_between, overlap_within};
use super::records::{
    BlockRecord, Header, JoinKind, Kind, MAGIC, OperationRecord, SCRATCHPAD, VERSION, flags,
    index_of, offset_of,
};
use super::view::{ScheduleView, sections};
use crate::arithmetic::{Arithmetic, DataType};
use crate::graph::Access;
use std::collections::HashMap;

impl<'a> ScheduleView<'a> {
    /// Validates bytes where they lie. Everything an engine relies on is checked: codes, ranges,
    /// sums, that every edge leads forward and that the dependency counters agree with the edges.
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
        validate(&view)?;
        Ok(view)
    }
}

/// FNV-1a over eight-byte words, the checksum's own word left out. It finds damage, it does not
/// defend against malice.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    const CHECKSUM_WORD: usize = 7;
    bytes.chunks_exact(8).enumerate().filter(|(index, _)| *index != CHECKSUM_WORD).fold(
        0xcbf2_9ce4_8422_2325,
        |hash, (_, chunk)| {
            let word = chunk.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3)
        },
    )
}

/// Checks every record against the others.
fn validate(view: &ScheduleView<'_>) -> Result<(), ScheduleError> {
    let header = view.header;
    let fail = |what| Err(ScheduleError::Header { what });
    if header.ranks == 0 || header.rank >= header.ranks {
        return fail("the rank is not one of its ranks");
    }
    if header.independent_count > header.operation_count {
        return fail("more independent operations than operations");
    }
    if view.buffers.iter().any(|buffer| buffer.access > 2) {
        return fail("a buffer's access has an unknown code");
    }
    let mut dependencies = vec![0u32; view.operations.len()];
    let mut sinks = 0;
    let mut next_block = 0;
    let mut next_edge = 0;
    for (index, record) in view.operations.iter().enumerate() {
        let fail = |what| ScheduleError::Operation { operation: index as u32, what };
        // Lists that lie one behind the other are walked in linear time; shared ones could take
        // quadratic.
        if u64::from(record.first_block) != next_block || u64::from(record.first_edge) != next_edge
        {
            return Err(fail(
                "its blocks or edges do not begin where those of the operation before it end",
            ));
        }
        next_block += [record.destination_count, record.left_count, record.right_count]
            .map(u64::from)
            .iter()
            .sum::<u64>();
        next_edge += u64::from(record.edge_count) + u64::from(record.start_edge_count);
        check_codes(record, header.ranks).map_err(fail)?;
        check_blocks(view, record).map_err(fail)?;
        check_writes(view, record).map_err(fail)?;
        count_edges(view, index, record, &mut dependencies).map_err(fail)?;
        sinks += u32::from(record.is_sink());
    }
    if next_block != u64::from(header.block_count) || next_edge != u64::from(header.edge_count) {
        return fail("blocks or edges belong to no operation");
    }
    if sinks != header.sink_count {
        return fail("the number of sinks is not what the operations say");
    }
    check_numbering(view)?;
    for (index, (record, counted)) in view.operations.iter().zip(&dependencies).enumerate() {
        let fail = |what| Err(ScheduleError::Operation { operation: index as u32, what });
        if record.dependencies != *counted {
            return fail("the dependency counter is not the number of edges that lead here");
        }
        if (record.dependencies == 0) != ((index as u32) < header.independent_count) {
            return fail("independent operations do not come first");
        }
    }
    Ok(())
}

fn check_codes(record: &OperationRecord, ranks: u32) -> Result<(), &'static str> {
    let kind = Kind::from_u8(record.kind).ok_or("unknown kind")?;
    let wild = record.flags & (flags::ANY_SOURCE | flags::ANY_TAG) != 0;
    if wild && kind != Kind::Receive {
        return Err("only a receive may have a wildcard");
    }
    if record.flags & !(flags::ANY_SOURCE | flags::ANY_TAG | flags::SINK) != 0 {
        return Err("unknown flags");
    }
    let named = matches!(kind, Kind::Send) || (kind == Kind::Receive && record.peer().is_some());
    if named && record.peer >= ranks {
        return Err("the peer is not one of the ranks");
    }
    let join = if kind == Kind::Join {
        Some(JoinKind::from_u8(record.join_mode).ok_or("unknown join mode")?)
    } else {
        None
    };
    if join == Some(JoinKind::Broadcast) && record.peer >= ranks {
        return Err("the root is not one of the ranks");
    }
    if kind == Kind::Local || join == Some(JoinKind::Reduce) {
        let operation =
            Arithmetic::from_u8(record.arithmetic).ok_or("unknown arithmetic operation")?;
        let data_type = DataType::from_u8(record.data_type).ok_or("unknown data type")?;
        if !operation.applies_to(data_type) {
            return Err("the arithmetic operation does not apply to the data type");
        }
    }
    Ok(())
}

fn check_blocks(view: &ScheduleView<'_>, record: &OperationRecord) -> Result<(), &'static str> {
    let lists = [record.destination_count, record.left_count, record.right_count];
    let end = lists.iter().try_fold(record.first_block, |sum, count| sum.checked_add(*count));
    if end.is_none_or(|end| end as usize > view.blocks.len()) {
        return Err("block lists reach beyond the blocks");
    }
    let sum = |list: &[BlockRecord]| -> Result<u64, &'static str> {
        list.iter().try_fold(0u64, |sum, block| {
            let limit = if block.memory == SCRATCHPAD {
                view.header.scratchpad_bytes
            } else {
                view.buffers
                    .get(block.memory as usize)
                    .ok_or("a block names a buffer that does not exist")?
                    .length
            };
            let end =
                block.offset.checked_add(block.length).ok_or("a block is longer than memory")?;
            if end > limit {
                return Err("a block reaches beyond its memory");
            }
            sum.checked_add(block.length).ok_or("a list is longer than memory")
        })
    };
    let destination = sum(view.destination(record))?;
    let left = sum(view.left(record))?;
    let right = sum(view.right(record))?;
    let whole = |data_type: u8| {
        let element = DataType::from_u8(data_type).map_or(1, |data_type| data_type.bytes() as u64);
        let blocks = &view.blocks[record.first_block as usize..end.unwrap_or(0) as usize];
        blocks.iter().all(|block| block.length.is_multiple_of(element))
    };
    let consistent = match record.kind() {
        Kind::Send | Kind::Receive => destination == record.bytes && left == 0 && right == 0,
        Kind::Copy => destination == record.bytes && left == record.bytes && right == 0,
        Kind::Local => {
            destination == record.bytes
                && left == record.bytes
                && right == record.bytes
                && whole(record.data_type)
        }
        Kind::Timestamp => destination == 8 && record.destination_count == 1 && record.bytes == 8,
        Kind::Calc => destination == 0 && left == 0 && right == 0,
        Kind::Join => {
            left == record.bytes && right == 0 && join_fits(view, record, destination, &whole)
        }
    };
    if consistent { Ok(()) } else { Err("the lengths of its block lists contradict each other") }
}

/// Returns `true` if a join's result has the length of its mode; no result is always allowed.
fn join_fits(
    view: &ScheduleView<'_>,
    record: &OperationRecord,
    result: u64,
    whole: &dyn Fn(u8) -> bool,
) -> bool {
    let ranks = u64::from(view.header.ranks);
    match JoinKind::from_u8(record.join_mode) {
        Some(JoinKind::Barrier) => record.bytes == 0 && result == 0,
        Some(JoinKind::Reduce) => {
            (result == 0 || result == record.bytes) && whole(record.data_type)
        }
        Some(JoinKind::Gather) => result == 0 || Some(result) == record.bytes.checked_mul(ranks),
        Some(JoinKind::Exchange) => {
            (result == 0 || result == record.bytes) && record.bytes.is_multiple_of(ranks)
        }
        Some(JoinKind::Broadcast) if view.header.rank == record.peer => {
            result == 0 || result == record.bytes
        }
        Some(JoinKind::Broadcast) => record.bytes == 0,
        None => false,
    }
}

/// Nothing is written to what is only read, and nothing is read and written at once except by a
/// local operation or a join in place: engines rely on it when they turn blocks into slices.
fn check_writes(view: &ScheduleView<'_>, record: &OperationRecord) -> Result<(), &'static str> {
    if record.kind() == Kind::Send {
        return Ok(());
    }
    let destination = view.destination(record);
    let is_input = |block: &BlockRecord| {
        view.buffers
            .get(block.memory as usize)
            .is_some_and(|buffer| buffer.access == Access::Input as u32)
    };
    if destination.iter().any(|block| block.length > 0 && is_input(block)) {
        return Err("it writes to an input buffer");
    }
    let ranges = |blocks| <[BlockRecord]>::iter(blocks).filter_map(ByteRange::of_record);
    if destination.len() > 1 && overlap_within(ranges(destination)) {
        return Err("the blocks of its destination overlap");
    }
    for operand in [view.left(record), view.right(record)] {
        let in_place = record.kind() != Kind::Copy && operand == destination;
        if !in_place && overlap_between(ranges(operand), ranges(destination)) {
            return Err("its destination overlaps what it reads");
        }
    }
    Ok(())
}

/// Every operation is one vertex, and ordinals follow the matching rule.
fn check_numbering(view: &ScheduleView<'_>) -> Result<(), ScheduleError> {
    let fail = |operation: usize, what| {
        Err(ScheduleError::Operation { operation: operation as u32, what })
    };
    let mut operation_of = vec![None; view.operations.len()];
    for (index, record) in view.operations.iter().enumerate() {
        match operation_of.get_mut(record.vertex as usize) {
            Some(place @ None) => *place = Some(index),
            _ => return fail(index, "its vertex number is taken or too large"),
        }
    }
    let mut counts: HashMap<(Kind, u32, u32), u32> = HashMap::new();
    for index in operation_of.into_iter().flatten() {
        let record = &view.operations[index];
        let group = match (record.kind(), record.peer(), record.tag()) {
            (kind @ (Kind::Send | Kind::Receive), Some(peer), Some(tag)) => Some((kind, peer, tag)),
            (Kind::Join, ..) => Some((Kind::Join, 0, 0)),
            _ => None,
        };
        let expected = group.map_or(0, |group| {
            let count = counts.entry(group).or_insert(0);
            *count += 1;
            *count - 1
        });
        if record.ordinal != expected {
            return fail(
                index,
                "its ordinal is not its place among the operations it is counted with",
            );
        }
    }
    Ok(())
}

fn count_edges(
    view: &ScheduleView<'_>,
    index: usize,
    record: &OperationRecord,
    dependencies: &mut [u32],
) -> Result<(), &'static str> {
    let count = u64::from(record.edge_count) + u64::from(record.start_edge_count);
    let end = u64::from(record.first_edge) + count;
    if end > view.edges.len() as u64 {
        return Err("edges reach beyond the edge list");
    }
    if (record.edge_count == 0) != record.is_sink() {
        return Err("the sink flag contradicts the edges");
    }
    for offset in &view.edges[record.first_edge as usize..end as usize] {
        let target = index_of(*offset) as usize;
        if offset_of(target as u32) != Some(*offset) || target >= dependencies.len() {
            return Err("an edge leads to no operation");
        }
        if target <= index {
            return Err("an edge leads backwards");
        }
        dependencies[target] += 1;
    }
    Ok(())
}
