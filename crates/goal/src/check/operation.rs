//! Rules that one operation breaks by itself.

use super::problem::{List, Problem, VertexLocation};
use super::report::Report;
use crate::arithmetic::{Arithmetic, DataType};
use crate::graph::{Access, Block, Blocks, Graph, JoinMode, Memory, Operation, Vertex};
use crate::schedule::ranges::{ByteRange, overlap_between, overlap_within};

/// The block lists of an operation by what it does with them. A list it lacks is empty.
pub(super) struct OperationLists<'a> {
    /// Blocks read.
    pub(super) reads: [(List, &'a [Block]); 2],
    /// Blocks written.
    pub(super) writes: (List, &'a [Block]),
}

impl<'a> OperationLists<'a> {
    pub(super) fn of(operation: &'a Operation) -> Self {
        const NONE: (List, &[Block]) = (List::Data, &[]);
        match operation {
            Operation::Send { data, .. } => {
                OperationLists { reads: [(List::Data, &data.0), NONE], writes: NONE }
            }
            Operation::Receive { data, .. } => {
                OperationLists { reads: [NONE, NONE], writes: (List::Data, &data.0) }
            }
            Operation::Local { left, right, destination, .. } => OperationLists {
                reads: [(List::Left, &left.0), (List::Right, &right.0)],
                writes: (List::Destination, &destination.0),
            },
            Operation::Copy { source, destination } => OperationLists {
                reads: [(List::Source, &source.0), NONE],
                writes: (List::Destination, &destination.0),
            },
            Operation::Timestamp { destination } => OperationLists {
                reads: [NONE, NONE],
                writes: (List::Destination, std::slice::from_ref(destination)),
            },
            Operation::Calc { .. } => OperationLists { reads: [NONE, NONE], writes: NONE },
            Operation::Join { contribution, result, .. } => OperationLists {
                reads: [(List::Contribution, &contribution.0), NONE],
                writes: (List::JoinResult, &result.0),
            },
        }
    }

    /// All lists.
    fn all(&self) -> [(List, &'a [Block]); 3] {
        [self.reads[0], self.reads[1], self.writes]
    }
}

/// Adds what this vertex does wrong on its own.
pub(super) fn check(graph: &Graph, vertex: Vertex, report: &mut Report) {
    let Some(entry) = graph.vertices().get(vertex.index()) else { return };
    let lists = OperationLists::of(&entry.operation);
    let mut inspection = Inspection { graph, vertex, report };
    let mut countable = true;
    for (list, blocks) in lists.all() {
        inspection.bounds(list, blocks);
        if blocks.iter().try_fold(0u64, |sum, block| sum.checked_add(block.length)).is_none() {
            inspection.report(|at| Problem::TooManyBytes { at, list });
            countable = false;
        }
    }
    // Lengths that cannot be summed are compared with nothing.
    if countable {
        inspection.shape(&entry.operation);
    }
    inspection.writes(&lists);
}

struct Inspection<'a> {
    graph: &'a Graph,
    vertex: Vertex,
    report: &'a mut Report,
}

impl Inspection<'_> {
    fn report(&mut self, problem: impl FnOnce(VertexLocation) -> Problem) {
        let graph = self.graph;
        let vertex = self.vertex;
        self.report.add(|| problem(VertexLocation::new(graph, vertex)));
    }

    /// Every block lies within its memory.
    fn bounds(&mut self, list: List, blocks: &[Block]) {
        for block in blocks {
            let limit = match block.memory {
                Memory::Unplaced => continue,
                Memory::Scratchpad => self.graph.scratchpad_bytes(),
                Memory::Buffer(buffer) => match self.graph.buffers().get(buffer as usize) {
                    Some(declaration) => declaration.length,
                    None => {
                        let buffers = self.graph.buffers().len();
                        self.report(|at| Problem::MissingBuffer { at, list, buffer, buffers });
                        continue;
                    }
                },
            };
            if block.offset.checked_add(block.length).is_none_or(|end| end > limit) {
                self.report(|at| Problem::OutOfRange { at, list, block: *block, limit });
            }
        }
    }

    /// Peers exist, lengths agree, arithmetic applies.
    fn shape(&mut self, operation: &Operation) {
        match operation {
            Operation::Send { peer, .. } | Operation::Receive { source: Some(peer), .. } => {
                self.peer(*peer)
            }
            Operation::Receive { source: None, .. } | Operation::Calc { .. } => {}
            Operation::Local { operation, data_type, left, right, destination } => {
                self.same_length(List::Left, left, destination);
                self.same_length(List::Right, right, destination);
                self.applies(*operation, *data_type);
                for (list, blocks) in
                    [(List::Left, left), (List::Right, right), (List::Destination, destination)]
                {
                    self.whole_elements(list, blocks, *data_type);
                }
            }
            Operation::Copy { source, destination } => {
                self.same_length(List::Source, source, destination)
            }
            Operation::Timestamp { destination } if destination.length != 8 => {
                self.report(|at| Problem::TimestampLength { at, found: destination.length });
            }
            Operation::Timestamp { .. } => {}
            Operation::Join { mode, contribution, result } => {
                self.join(*mode, contribution, result)
            }
        }
    }

    fn peer(&mut self, peer: u32) {
        let ranks = self.graph.ranks();
        if peer >= ranks {
            self.report(|at| Problem::Peer { at, peer, ranks });
        }
    }

    fn same_length(&mut self, list: List, blocks: &Blocks, destination: &Blocks) {
        let found = length(blocks);
        let expected = length(destination);
        if found != expected {
            self.report(|at| Problem::LengthsDiffer { at, list, found, expected });
        }
    }

    fn applies(&mut self, operation: Arithmetic, data_type: DataType) {
        if !operation.applies_to(data_type) {
            self.report(|at| Problem::NotApplicable { at, operation, data_type });
        }
    }

    fn whole_elements(&mut self, list: List, blocks: &Blocks, data_type: DataType) {
        let broken = |block: &&Block| !block.length.is_multiple_of(data_type.bytes() as u64);
        if let Some(block) = blocks.0.iter().find(broken) {
            self.report(|at| Problem::BrokenElement { at, list, block: *block, data_type });
        }
    }

    /// A join's lengths are those of its mode; a result may always be left out.
    fn join(&mut self, mode: JoinMode, contribution: &Blocks, result: &Blocks) {
        let ranks = self.graph.ranks();
        let given = length(contribution);
        let found = length(result);
        let mut comes_out = given;
        match mode {
            JoinMode::Barrier => {
                if given > 0 || found > 0 {
                    self.report(|at| Problem::BarrierBytes {
                        at,
                        contribution: given,
                        result: found,
                    });
                }
                return;
            }
            JoinMode::Reduce { operation, data_type } => {
                self.applies(operation, data_type);
                self.whole_elements(List::Contribution, contribution, data_type);
                self.whole_elements(List::JoinResult, result, data_type);
            }
            JoinMode::Gather => match given.checked_mul(u64::from(ranks)) {
                Some(all) => comes_out = all,
                None => {
                    return self.report(|at| Problem::TooManyBytes { at, list: List::JoinResult });
                }
            },
            JoinMode::Exchange => {
                if !given.is_multiple_of(u64::from(ranks)) {
                    self.report(|at| Problem::ExchangeParts { at, contribution: given, ranks });
                }
            }
            JoinMode::Broadcast { root } => {
                if root >= ranks {
                    self.report(|at| Problem::Root { at, root, ranks });
                }
                if root != self.graph.rank() {
                    if given > 0 {
                        self.report(|at| Problem::NotTheRoot { at, root, contribution: given });
                    }
                    // What comes out is known only beside the root's graph.
                    return;
                }
            }
        }
        if found > 0 && found != comes_out {
            self.report(|at| Problem::JoinResult { at, found, expected: comes_out });
        }
    }

    /// Nothing is written twice, where it is read, or where nothing may be written.
    fn writes(&mut self, lists: &OperationLists<'_>) {
        let (written, destination) = lists.writes;
        let input = |block: &&Block| {
            matches!(block.memory, Memory::Buffer(buffer) if block.length > 0
                && self.graph.buffers().get(buffer as usize).is_some_and(|known| known.access == Access::Input))
        };
        if let Some(Block { memory: Memory::Buffer(buffer), .. }) = destination.iter().find(input) {
            self.report(|at| Problem::WriteToInput { at, list: written, buffer: *buffer });
        }
        if destination.len() > 1 && overlap_within(ranges(destination)) {
            self.report(|at| Problem::OverlapWithin { at, list: written });
        }
        for (read, blocks) in lists.reads {
            // A copy onto itself would be allowed by "exactly the same", but there is no use in it
            // and engines copy without regard to overlap.
            let in_place = read != List::Source && same_blocks(blocks, destination);
            if !in_place && overlap_between(ranges(blocks), ranges(destination)) {
                self.report(|at| Problem::OverlapBetween { at, read, written });
            }
        }
    }
}

fn ranges(blocks: &[Block]) -> impl Iterator<Item = ByteRange> {
    blocks.iter().filter_map(ByteRange::of_block)
}

/// Returns `true` if two lists are the same once blocks without bytes, which the compiler drops,
/// are left out.
fn same_blocks(left: &[Block], right: &[Block]) -> bool {
    left.iter().filter(|block| block.length > 0).eq(right.iter().filter(|block| block.length > 0))
}

/// Returns the length of a list with bytes known to fit in 64 bits.
fn length(blocks: &Blocks) -> u64 {
    blocks.bytes().unwrap_or(u64::MAX)
}
