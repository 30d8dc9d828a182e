//! The memory of a run: user buffers and scratchpad, and what operations do to their blocks.

use crate::external::Lent;
use goal::arithmetic::{
    Arithmetic, ArithmeticError, DataType, apply, apply_in_place_left, apply_in_place_right,
};
use goal::schedule::BlockRecord;

/// The user buffers in their order, then the scratchpad.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Nothing for buffers that lie elsewhere.
    spaces: Vec<Vec<u8>>,
    scratchpad: usize,
    /// Buffers that lie elsewhere, by number. Nothing is computed on them.
    external: Lent,
}

/// A range of bytes within one buffer or the scratchpad.
#[derive(Clone, Copy)]
struct Place {
    space: usize,
    start: usize,
    length: usize,
}

impl Place {
    fn end(self) -> usize {
        self.start + self.length
    }

    fn overlaps(self, other: Place) -> bool {
        self.space == other.space && self.start < other.end() && other.start < self.end()
    }
}

impl Memory {
    /// Joins buffers, whose lengths the caller has compared with the schedule, and scratchpad.
    pub(crate) fn new(mut buffers: Vec<Vec<u8>>, scratchpad: Vec<u8>, external: Lent) -> Self {
        let number = buffers.len();
        buffers.push(scratchpad);
        Memory { spaces: buffers, scratchpad: number, external }
    }

    /// Takes buffers and scratchpad apart again.
    pub(crate) fn into_parts(mut self) -> (Vec<Vec<u8>>, Vec<u8>) {
        let scratchpad = self.spaces.pop().unwrap_or_default();
        (self.spaces, scratchpad)
    }

    /// Appends the bytes of all blocks.
    pub(crate) fn gather(&self, blocks: &[BlockRecord], into: &mut Vec<u8>) {
        for block in blocks {
            let place = self.place(block);
            match self.external.iter().find(|(space, _)| *space == place.space) {
                Some((_, buffer)) => buffer.read(block.offset..block.offset + block.length, into),
                None => into.extend_from_slice(self.bytes(place)),
            }
        }
    }

    /// Writes bytes, as many as the blocks hold, to the blocks.
    pub(crate) fn scatter(&mut self, blocks: &[BlockRecord], mut bytes: &[u8]) {
        for block in blocks {
            let place = self.place(block);
            let (part, rest) = bytes.split_at(place.length);
            match self.external.iter_mut().find(|(space, _)| *space == place.space) {
                Some((_, buffer)) => buffer.write(block.offset, part),
                None => self.spaces[place.space][place.start..place.end()].copy_from_slice(part),
            }
            bytes = rest;
        }
    }

    /// Copies as many bytes as both lists hold.
    pub(crate) fn copy(&mut self, source: &[BlockRecord], destination: &[BlockRecord]) {
        // Single blocks are what nearly every operation has.
        if let ([source], [destination]) = (source, destination) {
            return self.transfer(self.place(source), self.place(destination));
        }
        let (mut source, mut destination) = (Cursor::new(source), Cursor::new(destination));
        loop {
            let length = source.rest().min(destination.rest());
            if length == 0 {
                return;
            }
            let (from, to) = (source.take(self, length), destination.take(self, length));
            self.transfer(from, to);
        }
    }

    /// Copies between two places of the same length.
    #[inline(always)]
    fn transfer(&mut self, from: Place, to: Place) {
        if from.space == to.space {
            self.spaces[to.space].copy_within(from.start..from.end(), to.start);
        } else {
            let (outside, target) = self.around(to);
            target.copy_from_slice(outside.find(from));
        }
    }

    /// Computes destination = left ∘ right over three lists that are equally long and hold whole
    /// elements. Gives the first element that was divided by zero.
    #[inline]
    pub(crate) fn local(
        &mut self,
        operation: Arithmetic,
        data_type: DataType,
        [left, right, destination]: [&[BlockRecord]; 3],
    ) -> Option<u64> {
        if let ([left], [right], [destination]) = (left, right, destination) {
            let places = [self.place(left), self.place(right), self.place(destination)];
            return self.combine(operation, data_type, places);
        }
        let mut lists = [Cursor::new(left), Cursor::new(right), Cursor::new(destination)];
        let (mut done, mut divided_by_zero) = (0u64, None);
        loop {
            let length = lists[0].rest().min(lists[1].rest()).min(lists[2].rest());
            if length == 0 {
                return divided_by_zero;
            }
            let places = [
                lists[0].take(self, length),
                lists[1].take(self, length),
                lists[2].take(self, length),
            ];
            let found = self.combine(operation, data_type, places);
            divided_by_zero = divided_by_zero.or(found.map(|element| done + element));
            done += length / data_type.bytes() as u64;
        }
    }

    /// The same for one block of each.
    #[inline(always)]
    fn combine(
        &mut self,
        operation: Arithmetic,
        data_type: DataType,
        [left, right, destination]: [Place; 3],
    ) -> Option<u64> {
        // In a valid schedule, an operand that overlaps the destination is the destination.
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
            (true, true) => {
                let (left, right) = (self.bytes(left).to_vec(), self.bytes(right).to_vec());
                apply(operation, data_type, &left, &right, self.around(destination).1)
            }
        };
        // Lengths and types were validated with the schedule, so that nothing else can go wrong.
        match outcome {
            Err(ArithmeticError::DivisionByZero { element }) => Some(element as u64),
            _ => None,
        }
    }

    fn bytes(&self, place: Place) -> &[u8] {
        &self.spaces[place.space][place.start..place.end()]
    }

    /// Divides memory into the destination and everything else.
    #[inline]
    fn around(&mut self, destination: Place) -> (Outside<'_>, &mut [u8]) {
        let (spaces_before, spaces) = self.spaces.split_at_mut(destination.space);
        let (space, spaces_after) = spaces.split_at_mut(1);
        let (before, rest) = space[0].split_at_mut(destination.start);
        let (target, after) = rest.split_at_mut(destination.length);
        (Outside { spaces_before, spaces_after, before, after, destination }, target)
    }

    #[inline(always)]
    fn place(&self, block: &BlockRecord) -> Place {
        // The scratchpad's number in a record is greater than that of any buffer.
        let space = (block.memory as usize).min(self.scratchpad);
        Place { space, start: block.offset as usize, length: block.length as usize }
    }
}

/// All memory but the destination of an operation.
struct Outside<'a> {
    spaces_before: &'a [Vec<u8>],
    spaces_after: &'a [Vec<u8>],
    before: &'a [u8],
    after: &'a [u8],
    destination: Place,
}

impl<'a> Outside<'a> {
    /// The bytes of a place that does not overlap the destination.
    #[inline(always)]
    fn find(&self, place: Place) -> &'a [u8] {
        let destination = self.destination;
        if place.space < destination.space {
            &self.spaces_before[place.space][place.start..place.end()]
        } else if place.space > destination.space {
            &self.spaces_after[place.space - destination.space - 1][place.start..place.end()]
        } else if place.start < destination.start {
            &self.before[place.start..place.end()]
        } else {
            let start = place.start - destination.end();
            &self.after[start..start + place.length]
        }
    }
}

/// A position in a list of blocks, whose bytes count as one sequence.
struct Cursor<'a> {
    blocks: &'a [BlockRecord],
    used: u64,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn new(blocks: &'a [BlockRecord]) -> Self {
        Cursor { blocks, used: 0 }
    }

    /// Bytes from here to the end of the block this is in; 0 at the end of the list.
    #[inline]
    fn rest(&mut self) -> u64 {
        while let [first, others @ ..] = self.blocks {
            if self.used < first.length {
                return first.length - self.used;
            }
            (self.blocks, self.used) = (others, 0);
        }
        0
    }

    /// The next `length` bytes, of which there are not more than [`rest`](Self::rest).
    #[inline]
    fn take(&mut self, memory: &Memory, length: u64) -> Place {
        let mut place = memory.place(&self.blocks[0]);
        place.start += self.used as usize;
        place.length = length as usize;
        self.used += length;
        place
    }
}
