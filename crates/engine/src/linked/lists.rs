//! Moving and combining bytes along block lists.

use crate::error::Error;
use crate::flat::chunks::combine;
use crate::linked::program::Program;
use goal::arithmetic::{Arithmetic, DataType};
use goal::schedule::{BlockRecord, JoinKind, OperationRecord};
use shm::segment::Offset;

/// A rank's block list.
pub(crate) type List<'a> = (u32, &'a [BlockRecord]);

/// A position within a list, handed out in contiguous pieces.
struct Cursor<'a> {
    program: &'a Program,
    slot: u32,
    rank: u32,
    blocks: &'a [BlockRecord],
    within: u64,
}

impl<'a> Cursor<'a> {
    fn new(program: &'a Program, slot: u32, (rank, blocks): List<'a>) -> Self {
        Cursor { program, slot, rank, blocks, within: 0 }
    }

    /// The contiguous bytes from here, at least one; `None` at the end.
    #[inline]
    fn piece(&mut self) -> Option<(Offset, u64)> {
        loop {
            let block = self.blocks.first()?;
            if self.within < block.length {
                let place = self.program.place(self.slot, self.rank, block);
                return Some((
                    Offset(place.0.wrapping_add(self.within)),
                    block.length - self.within,
                ));
            }
            self.blocks = &self.blocks[1..];
            self.within = 0;
        }
    }

    #[inline]
    fn skip(&mut self, mut bytes: u64) {
        while let Some(block) = self.blocks.first() {
            let left = block.length - self.within;
            if bytes < left {
                self.within += bytes;
                return;
            }
            bytes -= left;
            self.blocks = &self.blocks[1..];
            self.within = 0;
        }
    }
}

/// Copies one list to another of equal length.
#[inline]
pub(crate) fn copy(
    program: &Program,
    slot: u32,
    from: List<'_>,
    to: List<'_>,
) -> Result<(), Error> {
    let (mut from, mut to) = (Cursor::new(program, slot, from), Cursor::new(program, slot, to));
    while let (Some((source, there)), Some((target, here))) = (from.piece(), to.piece()) {
        let length = there.min(here);
        program.memory.copy(source, target, length)?;
        from.skip(length);
        to.skip(length);
    }
    Ok(())
}

/// Copies a list to contiguous memory.
#[inline]
pub(crate) fn gather(
    program: &Program,
    slot: u32,
    from: List<'_>,
    mut to: Offset,
) -> Result<(), Error> {
    for block in from.1 {
        program.memory.copy(program.place(slot, from.0, block), to, block.length)?;
        to.0 += block.length;
    }
    Ok(())
}

/// Copies contiguous memory to a list.
#[inline]
pub(crate) fn scatter(
    program: &Program,
    slot: u32,
    mut from: Offset,
    to: List<'_>,
) -> Result<(), Error> {
    for block in to.1 {
        program.memory.copy(from, program.place(slot, to.0, block), block.length)?;
        from.0 += block.length;
    }
    Ok(())
}

/// Runs a local operation; true when it divided an integer by zero.
pub(crate) fn local(
    program: &Program,
    slot: u32,
    rank: u32,
    record: &OperationRecord,
) -> Result<bool, Error> {
    let view = program.linked(rank).schedule.view();
    let Some(arithmetic) = record.arithmetic() else { return Ok(false) };
    let lists = [view.left(record), view.right(record), view.destination(record)];
    combine_lists(program, slot, arithmetic, lists.map(|list| (rank, list)))
}

/// destination = left ∘ right over lists of equal length; true when an integer was divided by zero.
fn combine_lists(
    program: &Program,
    slot: u32,
    arithmetic: (Arithmetic, DataType),
    lists: [List<'_>; 3],
) -> Result<bool, Error> {
    let mut cursors = lists.map(|list| Cursor::new(program, slot, list));
    let mut failed = false;
    // Every block holds whole elements, so no piece cuts one.
    while let [Some(left), Some(right), Some(destination)] = cursors.each_mut().map(Cursor::piece) {
        let length = left.1.min(right.1).min(destination.1);
        failed |= combine(&program.memory, arithmetic, left.0, right.0, destination.0, length)?;
        cursors.iter_mut().for_each(|cursor| cursor.skip(length));
    }
    Ok(failed)
}

/// Combines all contributions of a join and puts every rank's result in its place; true when an
/// integer was divided by zero. All ranks have come.
pub(crate) fn join(program: &Program, slot: u32, join: u32) -> Result<bool, Error> {
    let operations = &program.linked.joins[join as usize];
    let ends: Vec<(u32, &OperationRecord)> = (0..)
        .zip(operations)
        .map(|(rank, operation)| {
            (
                rank,
                &program.linked.ranks[rank as usize].schedule.view().operations()
                    [*operation as usize],
            )
        })
        .collect();
    let Some((_, first)) = ends.first() else { return Ok(false) };
    match JoinKind::from_u8(first.join_mode) {
        Some(JoinKind::Reduce) => reduce(program, slot, &ends, first),
        Some(mode) => {
            let contributions = ends
                .iter()
                .map(|end| read(program, slot, end))
                .collect::<Result<Vec<_>, Error>>()?;
            for (rank, record) in &ends {
                let result = result_of(mode, &contributions, *rank, first.peer);
                write(program, slot, *rank, record, &result)?;
            }
            Ok(false)
        }
        None => Ok(false),
    }
}

fn result_of(mode: JoinKind, contributions: &[Vec<u8>], rank: u32, root: u32) -> Vec<u8> {
    match mode {
        JoinKind::Gather => contributions.concat(),
        JoinKind::Exchange => {
            let part = contributions.first().map_or(0, Vec::len) / contributions.len().max(1);
            let from = part * rank as usize;
            contributions.iter().flat_map(|bytes| &bytes[from..from + part]).copied().collect()
        }
        JoinKind::Broadcast => contributions.get(root as usize).cloned().unwrap_or_default(),
        JoinKind::Barrier | JoinKind::Reduce => Vec::new(),
    }
}

/// Folds from the left in rank order.
fn reduce(
    program: &Program,
    slot: u32,
    ends: &[(u32, &OperationRecord)],
    first: &OperationRecord,
) -> Result<bool, Error> {
    let Some((operation, data_type)) = first.arithmetic() else { return Ok(false) };
    let mut failed = false;
    let mut result = read(program, slot, &ends[0])?;
    for end in &ends[1..] {
        let next = read(program, slot, end)?;
        failed |= goal::arithmetic::apply_in_place_left(operation, data_type, &mut result, &next)
            .is_err();
    }
    for (rank, record) in ends {
        write(program, slot, *rank, record, &result)?;
    }
    Ok(failed)
}

fn read(
    program: &Program,
    slot: u32,
    (rank, record): &(u32, &OperationRecord),
) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; record.bytes as usize];
    let mut rest = bytes.as_mut_slice();
    for block in program.linked(*rank).schedule.view().left(record) {
        let (piece, behind) = rest.split_at_mut(block.length as usize);
        program.memory.read(program.place(slot, *rank, block), piece)?;
        rest = behind;
    }
    Ok(bytes)
}

fn write(
    program: &Program,
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
