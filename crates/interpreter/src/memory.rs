//! Memory of a run: user buffers and scratchpad, and the operations on their blocks.

use crate::external::{BorrowedBuffers, Incoming, Outgoing};
use goal::arithmetic::{
    Arithmetic, ArithmeticError, DataType, apply, apply_in_place_left, apply_in_place_right,
};
use goal::schedule::{BlockRecord, common_pieces};
use std::ops::Range;

/// Bytes of a piece of a long copy, or of a computation on borrowed buffers.
const PIECE: usize = 16 << 10;

/// The user buffers in their order, then the scratchpad.
#[derive(Debug, Default)]
pub(crate) struct RunMemory {
    /// Empty for borrowed buffers.
    spaces: Vec<Vec<u8>>,
    scratchpad: usize,
    /// Borrowed buffers, by number.
    external: BorrowedBuffers,
}

/// A range of bytes within one buffer or the scratchpad.
#[derive(Clone, Copy)]
struct MemoryRange {
    space: usize,
    start: usize,
    length: usize,
}

impl MemoryRange {
    fn end(self) -> usize {
        self.start + self.length
    }

    /// A part of the range, counted from its start.
    fn part(self, part: Range<usize>) -> MemoryRange {
        MemoryRange { start: self.start + part.start, length: part.len(), ..self }
    }

    fn overlaps(self, other: MemoryRange) -> bool {
        self.space == other.space && self.start < other.end() && other.start < self.end()
    }
}

impl RunMemory {
    /// Combines buffers and scratchpad. The caller has compared the buffers' lengths with the
    /// schedule.
    pub(crate) fn new(
        mut buffers: Vec<Vec<u8>>,
        scratchpad: Vec<u8>,
        external: BorrowedBuffers,
    ) -> Self {
        let number = buffers.len();
        buffers.push(scratchpad);
        RunMemory { spaces: buffers, scratchpad: number, external }
    }

    /// Returns the buffers and the scratchpad.
    pub(crate) fn into_parts(mut self) -> (Vec<Vec<u8>>, Vec<u8>) {
        let scratchpad = self.spaces.pop().unwrap_or_default();
        (self.spaces, scratchpad)
    }

    /// Appends the bytes of all blocks.
    pub(crate) fn gather(&self, blocks: &[BlockRecord], into: &mut Vec<u8>) {
        for block in blocks {
            self.append(self.range(block), into);
        }
    }

    /// Returns the memory of a block from which a message is sent.
    pub(crate) fn outgoing(&self, block: &BlockRecord) -> Outgoing<'_> {
        let range = self.range(block);
        if self.is_external(range) {
            return Outgoing::Borrowed(range.space, range.start as u64..range.end() as u64);
        }
        Outgoing::Own(self.bytes(range))
    }

    /// Returns the memory of a block to which a message is received.
    pub(crate) fn incoming(&mut self, block: &BlockRecord) -> Incoming<'_> {
        let range = self.range(block);
        if self.is_external(range) {
            return Incoming::Borrowed(range.space, range.start as u64..range.end() as u64);
        }
        Incoming::Own(&mut self.spaces[range.space][range.start..range.end()])
    }

    fn is_external(&self, range: MemoryRange) -> bool {
        self.external.iter().any(|(space, _)| *space == range.space)
    }

    /// Appends the bytes of a range.
    fn append(&self, range: MemoryRange, into: &mut Vec<u8>) {
        match self.external.iter().find(|(space, _)| *space == range.space) {
            Some((_, buffer)) => buffer.read(range.start as u64..range.end() as u64, into),
            None => into.extend_from_slice(self.bytes(range)),
        }
    }

    /// Writes `bytes` to a range of the same length.
    fn write(&mut self, range: MemoryRange, bytes: &[u8]) {
        match self.external.iter_mut().find(|(space, _)| *space == range.space) {
            Some((_, buffer)) => buffer.write(range.start as u64, bytes),
            None => self.spaces[range.space][range.start..range.end()].copy_from_slice(bytes),
        }
    }

    /// Writes `bytes` to the blocks, which have the same total length.
    pub(crate) fn scatter(&mut self, blocks: &[BlockRecord], mut bytes: &[u8]) {
        for block in blocks {
            let range = self.range(block);
            let (part, rest) = bytes.split_at(range.length);
            self.write(range, part);
            bytes = rest;
        }
    }

    /// Copies as many bytes as both lists contain.
    pub(crate) fn copy(&mut self, source: &[BlockRecord], destination: &[BlockRecord]) {
        // Nearly every operation has single blocks.
        if let ([source], [destination]) = (source, destination) {
            return self.transfer(self.range(source), self.range(destination));
        }
        for [source, destination] in common_pieces([source, destination]) {
            self.transfer(self.range(&source), self.range(&destination));
        }
    }

    /// Copies between two ranges of equal length.
    #[inline(always)]
    fn transfer(&mut self, from: MemoryRange, to: MemoryRange) {
        if !self.external.is_empty() && self.transfer_external(from, to) {
            return;
        }
        // Two slices of one allocation, one of them mutable, cannot be borrowed; `copy_within`
        // needs one borrow.
        if from.space == to.space {
            self.spaces[to.space].copy_within(from.start..from.end(), to.start);
        } else {
            let (outside, target) = self.around(to);
            target.copy_from_slice(outside.find(from));
        }
    }

    /// Copies between two ranges if one of them lies in a borrowed buffer; false if none does.
    fn transfer_external(&mut self, from: MemoryRange, to: MemoryRange) -> bool {
        if !self.is_external(from) && !self.is_external(to) {
            return false;
        }
        // Through memory of this process, because each side may be a buffer that offers copies
        // only, in pieces that stay in the cache. The ranges of a valid schedule do not overlap.
        let mut bytes = Vec::with_capacity(from.length.min(PIECE));
        let mut done = 0;
        while done < from.length {
            let end = from.length.min(done + PIECE);
            bytes.clear();
            self.append(from.part(done..end), &mut bytes);
            self.write(to.part(done..end), &bytes);
            done = end;
        }
        true
    }

    /// Computes destination = left ∘ right over three lists of equal length, in blocks of whole
    /// elements. Returns the first element that was divided by zero.
    #[inline]
    pub(crate) fn local(
        &mut self,
        operation: Arithmetic,
        data_type: DataType,
        [left, right, destination]: [&[BlockRecord]; 3],
    ) -> Option<u64> {
        if let ([left], [right], [destination]) = (left, right, destination) {
            let ranges = [self.range(left), self.range(right), self.range(destination)];
            return self.combine(operation, data_type, ranges);
        }
        let mut done = 0u64;
        let mut divided_by_zero = None;
        for [left, right, destination] in common_pieces([left, right, destination]) {
            let ranges = [self.range(&left), self.range(&right), self.range(&destination)];
            let found = self.combine(operation, data_type, ranges);
            divided_by_zero = divided_by_zero.or(found.map(|element| done + element));
            done += destination.length / data_type.bytes() as u64;
        }
        divided_by_zero
    }

    #[inline(always)]
    fn combine(
        &mut self,
        operation: Arithmetic,
        data_type: DataType,
        [left, right, destination]: [MemoryRange; 3],
    ) -> Option<u64> {
        if !self.external.is_empty()
            && [left, right, destination].iter().any(|range| self.is_external(*range))
        {
            return self.combine_external(operation, data_type, [left, right, destination]);
        }
        // In a valid schedule, an operand that overlaps the destination is the destination.
        // The arms differ in the slices that exist at once: a destination that is also an operand
        // is borrowed once, mutably.
        let outcome = match (left.overlaps(destination), right.overlaps(destination)) {
            (false, false) => {
                let (outside, target) = self.around(destination);
                apply(operation, data_type, outside.find(left), outside.find(right), target)
            }
            (true, false) => {
                let (outside, target) = self.around(destination);
                apply_in_place_left(operation, data_type, target, outside.find(right))
            }
            (false, true) => {
                let (outside, target) = self.around(destination);
                apply_in_place_right(operation, data_type, outside.find(left), target)
            }
            // All three are the same bytes, so no operand can be borrowed beside the destination.
            (true, true) => {
                let left = self.bytes(left).to_vec();
                let right = self.bytes(right).to_vec();
                apply(operation, data_type, &left, &right, self.around(destination).1)
            }
        };
        // Lengths and types were validated with the schedule, so no other error is possible.
        match outcome {
            Err(ArithmeticError::DivisionByZero { element }) => Some(element as u64),
            _ => None,
        }
    }

    /// Computes on borrowed buffers, in pieces that stay in the cache. Returns the first element
    /// that was divided by zero.
    fn combine_external(
        &mut self,
        operation: Arithmetic,
        data_type: DataType,
        [left, right, destination]: [MemoryRange; 3],
    ) -> Option<u64> {
        // Whole elements in every piece, so `done` is a multiple of an element below.
        let piece = PIECE / data_type.bytes() * data_type.bytes();
        let mut first = Vec::with_capacity(destination.length.min(piece));
        let mut second = Vec::with_capacity(destination.length.min(piece));
        let mut divided_by_zero = None;
        let mut done = 0;
        while done < destination.length {
            let end = destination.length.min(done + piece);
            first.clear();
            self.append(left.part(done..end), &mut first);
            second.clear();
            self.append(right.part(done..end), &mut second);
            // As in `combine`.
            if let Err(ArithmeticError::DivisionByZero { element }) =
                apply_in_place_left(operation, data_type, &mut first, &second)
            {
                divided_by_zero =
                    divided_by_zero.or(Some((done / data_type.bytes() + element) as u64));
            }
            // An operand that overlaps the destination is the destination, so later pieces of the
            // operands are unchanged.
            self.write(destination.part(done..end), &first);
            done = end;
        }
        divided_by_zero
    }

    fn bytes(&self, range: MemoryRange) -> &[u8] {
        &self.spaces[range.space][range.start..range.end()]
    }

    /// Splits memory into the destination and the rest.
    #[inline]
    fn around(&mut self, destination: MemoryRange) -> (Outside<'_>, &mut [u8]) {
        let (spaces_before, spaces) = self.spaces.split_at_mut(destination.space);
        let (space, spaces_after) = spaces.split_at_mut(1);
        let (before, rest) = space[0].split_at_mut(destination.start);
        let (target, after) = rest.split_at_mut(destination.length);
        (Outside { spaces_before, spaces_after, before, after, destination }, target)
    }

    #[inline(always)]
    fn range(&self, block: &BlockRecord) -> MemoryRange {
        // The scratchpad's number in a record is greater than that of any buffer.
        let space = (block.memory as usize).min(self.scratchpad);
        MemoryRange { space, start: block.offset as usize, length: block.length as usize }
    }
}

/// All memory except the destination of an operation.
struct Outside<'a> {
    spaces_before: &'a [Vec<u8>],
    spaces_after: &'a [Vec<u8>],
    before: &'a [u8],
    after: &'a [u8],
    destination: MemoryRange,
}

impl<'a> Outside<'a> {
    /// Returns the bytes of a range that does not overlap the destination.
    #[inline(always)]
    fn find(&self, range: MemoryRange) -> &'a [u8] {
        let destination = self.destination;
        if range.space < destination.space {
            &self.spaces_before[range.space][range.start..range.end()]
        } else if range.space > destination.space {
            &self.spaces_after[range.space - destination.space - 1][range.start..range.end()]
        } else if range.start < destination.start {
            &self.before[range.start..range.end()]
        } else {
            let start = range.start - destination.end();
            &self.after[start..start + range.length]
        }
    }
}
