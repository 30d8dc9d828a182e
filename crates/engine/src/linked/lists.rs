//! Operations on block lists in the segment: copies, local operations and joins.

use crate::error::Error;
use crate::linked::program::LinkedProgram;
use crate::reduction::combine;
use goal::graph::JoinMode;
use goal::join;
use goal::schedule::{BlockRecord, OperationRecord, common_pieces};
use shm::segment::Offset;

/// A block list and the rank that owns its memory.
pub(crate) type BlockList<'a> = (u32, &'a [BlockRecord]);

/// Copies one list to another of equal length.
#[inline]
pub(crate) fn copy(
    program: &LinkedProgram,
    slot: u32,
    (sender, source): BlockList<'_>,
    (receiver, destination): BlockList<'_>,
) -> Result<(), Error> {
    // Frames and bound buffers lie in the segment, so the executing process may be that of a third
    // rank.
    for [from, to] in common_pieces([source, destination]) {
        let source_at = program.place(slot, sender, &from);
        program.memory.copy(source_at, program.place(slot, receiver, &to), from.length)?;
    }
    Ok(())
}

/// Copies a list to contiguous memory.
#[inline]
pub(crate) fn gather(
    program: &LinkedProgram,
    slot: u32,
    (rank, blocks): BlockList<'_>,
    mut to: Offset,
) -> Result<(), Error> {
    for block in blocks {
        program.memory.copy(program.place(slot, rank, block), to, block.length)?;
        to.0 += block.length;
    }
    Ok(())
}

/// Copies contiguous memory to a list.
#[inline]
pub(crate) fn scatter(
    program: &LinkedProgram,
    slot: u32,
    mut from: Offset,
    (rank, blocks): BlockList<'_>,
) -> Result<(), Error> {
    for block in blocks {
        program.memory.copy(from, program.place(slot, rank, block), block.length)?;
        from.0 += block.length;
    }
    Ok(())
}

/// Executes a local operation: destination = left ∘ right. Returns whether an integer was divided
/// by zero.
pub(crate) fn local(
    program: &LinkedProgram,
    slot: u32,
    rank: u32,
    record: &OperationRecord,
) -> Result<bool, Error> {
    let view = program.linked(rank).schedule.view();
    let Some(arithmetic) = record.arithmetic() else { return Ok(false) };
    let mut divided_by_zero = false;
    // Every block has whole elements, so no piece divides an element.
    for piece in common_pieces([view.left(record), view.right(record), view.destination(record)]) {
        let [left, right, destination] = piece.map(|block| program.place(slot, rank, &block));
        let length = piece[2].length;
        divided_by_zero |= combine(&program.memory, arithmetic, left, right, destination, length)?;
    }
    Ok(divided_by_zero)
}

/// Combines the contributions of all ranks to a join and writes every rank's result. Returns whether
/// an integer was divided by zero. All ranks have arrived at the join.
pub(crate) fn join(program: &LinkedProgram, slot: u32, number: u32) -> Result<bool, Error> {
    let operations = &program.linked.joins[number as usize];
    let record = |(rank, operation): (u32, &u32)| {
        &program.linked(rank).schedule.view().operations()[*operation as usize]
    };
    let records: Vec<&OperationRecord> = (0..).zip(operations).map(record).collect();
    let Some(first) = records.first() else { return Ok(false) };
    let contributions = (0..)
        .zip(&records)
        .map(|(rank, record)| read(program, slot, rank, record))
        .collect::<Result<Vec<_>, Error>>()?;
    let contributions: Vec<&[u8]> = contributions.iter().map(Vec::as_slice).collect();
    let mode = first.join_mode();
    let result_of = |rank| join::combine(mode, rank, &contributions).map_err(refused);
    let mut result = result_of(0)?;
    for (rank, record) in (0..).zip(&records) {
        // In all other modes the ranks have the same result.
        if rank > 0 && mode == JoinMode::Exchange {
            result = result_of(rank)?;
        }
        write(program, slot, rank, record, &result.bytes)?;
    }
    Ok(result.divided_by_zero.is_some())
}

/// Returns the error of contributions that cannot be combined, which linked schedules do not have.
#[cold]
fn refused(error: join::JoinError) -> Error {
    Error::Argument {
        what: "a contribution to a join",
        found: error.to_string(),
        expected: "as the schedules of all ranks state".to_owned(),
    }
}

/// Reads a rank's contribution to a join.
fn read(
    program: &LinkedProgram,
    slot: u32,
    rank: u32,
    record: &OperationRecord,
) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; record.bytes as usize];
    let mut rest = bytes.as_mut_slice();
    for block in program.linked(rank).schedule.view().left(record) {
        let (piece, behind) = rest.split_at_mut(block.length as usize);
        program.memory.read(program.place(slot, rank, block), piece)?;
        rest = behind;
    }
    Ok(bytes)
}

/// Writes a rank's result of a join.
fn write(
    program: &LinkedProgram,
    slot: u32,
    rank: u32,
    record: &OperationRecord,
    bytes: &[u8],
) -> Result<(), Error> {
    let mut rest = bytes;
    for block in program.linked(rank).schedule.view().destination(record) {
        let Some((piece, behind)) = rest.split_at_checked(block.length as usize) else { break };
        program.memory.write(program.place(slot, rank, block), piece)?;
        rest = behind;
    }
    Ok(())
}
