//! Dependencies between operations that follow from the bytes they use.

use goal::graph::{Block, Blocks, Memory, Vertex};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Last writer and later readers of each byte. Operations are noted in program order; each waits
/// for earlier operations that wrote the bytes it reads or used the bytes it writes, and for no
/// others.
#[derive(Debug, Default)]
pub(crate) struct DataFlow {
    /// The pieces of each memory by their first byte; they cover all of it.
    memories: HashMap<Memory, BTreeMap<u64, Piece>>,
}

/// Bytes that the same operations have used.
#[derive(Clone, Debug)]
struct Piece {
    /// The byte after the last one.
    end: u64,
    writer: Option<Vertex>,
    /// Operations that have read them since.
    readers: Vec<Vertex>,
}

impl DataFlow {
    /// Notes the reads and writes of an operation and returns the operations it must wait for.
    pub(crate) fn note(
        &mut self,
        vertex: Vertex,
        reads: &[&Blocks],
        writes: &Blocks,
    ) -> BTreeSet<Vertex> {
        let mut awaited = BTreeSet::new();
        for block in &writes.0 {
            self.visit(*block, |piece| {
                // A reader has waited for the writer, so waiting for the readers is enough.
                match piece.readers[..] {
                    [] => awaited.extend(piece.writer),
                    _ => awaited.extend(piece.readers.drain(..)),
                }
                piece.writer = Some(vertex);
            });
        }
        for block in reads.iter().flat_map(|blocks| &blocks.0) {
            self.visit(*block, |piece| {
                if piece.writer != Some(vertex) {
                    awaited.extend(piece.writer);
                    if piece.readers.last() != Some(&vertex) {
                        piece.readers.push(vertex);
                    }
                }
            });
        }
        awaited
    }

    /// Calls the function for the pieces that make up the block.
    fn visit(&mut self, block: Block, mut function: impl FnMut(&mut Piece)) {
        let end = block.offset.saturating_add(block.length);
        if block.offset == end {
            return;
        }
        let pieces = self.memories.entry(block.memory).or_insert_with(|| {
            BTreeMap::from([(0, Piece { end: u64::MAX, writer: None, readers: Vec::new() })])
        });
        cut(pieces, block.offset);
        cut(pieces, end);
        for (_, piece) in pieces.range_mut(block.offset..end) {
            function(piece);
        }
    }
}

/// Makes a piece start at this byte.
fn cut(pieces: &mut BTreeMap<u64, Piece>, at: u64) {
    if let Some((start, piece)) = pieces.range_mut(..=at).next_back()
        && *start < at
        && at < piece.end
    {
        let rest = piece.clone();
        piece.end = at;
        pieces.insert(at, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(offset: u64, length: u64) -> Blocks {
        Blocks::from(Block { memory: Memory::Scratchpad, offset, length })
    }

    fn awaited(flow: &mut DataFlow, vertex: u32, reads: &[&Blocks], writes: &Blocks) -> Vec<u32> {
        flow.note(Vertex(vertex), reads, writes).into_iter().map(|vertex| vertex.0).collect()
    }

    #[test]
    fn readers_wait_for_writers_and_writers_for_readers() {
        let mut flow = DataFlow::default();
        let none = Blocks::none();
        assert_eq!(awaited(&mut flow, 0, &[], &block(0, 10)), [] as [u32; 0]);
        assert_eq!(awaited(&mut flow, 1, &[], &block(10, 10)), [] as [u32; 0]);
        assert_eq!(awaited(&mut flow, 2, &[&block(5, 10)], &none), [0, 1]);
        assert_eq!(awaited(&mut flow, 3, &[&block(0, 5)], &none), [0]);
        assert_eq!(
            awaited(&mut flow, 4, &[], &block(4, 2)),
            [2, 3],
            "both have read, and have waited for 0"
        );
        assert_eq!(awaited(&mut flow, 5, &[&block(0, 10)], &none), [0, 4]);
        assert_eq!(awaited(&mut flow, 6, &[], &block(15, 5)), [1], "no reader there");
        assert_eq!(awaited(&mut flow, 7, &[&block(20, 5)], &none), [] as [u32; 0]);
    }

    #[test]
    fn an_operation_in_place_waits_for_those_before_it_and_not_for_itself() {
        let mut flow = DataFlow::default();
        assert_eq!(awaited(&mut flow, 0, &[], &block(0, 8)), [] as [u32; 0]);
        assert_eq!(awaited(&mut flow, 1, &[&block(0, 8), &block(8, 8)], &block(0, 8)), [0]);
        assert_eq!(awaited(&mut flow, 2, &[&block(0, 8)], &block(8, 8)), [1]);
    }
}
