//! Operations that use the same bytes without an order between them.
//!
//! An operation comes after another only if the other has completed before it starts: if a path of
//! edges leads from the other to it, and the first edge waits for completion (behind that, waiting
//! for a start is enough). This relation is transitive, so it suffices to go through the operations
//! in an order that the edges allow and to compare each with the last writer of its bytes and, if
//! it writes, with those that have read them since: were any two others unordered, so would be two
//! of these.

use super::digraph::Digraph;
use super::operation::OperationLists;
use super::problem::{Problem, VertexLocation};
use super::report::Report;
use super::usage::{Earlier, ReaderSets, Usage};
use crate::graph::{Block, Graph, Memory, Vertex};
use crate::schedule::SCRATCHPAD;
use crate::schedule::ranges::ByteRange;
use std::collections::{BTreeSet, HashMap};

/// Largest number of pairs reported for one rank; one mistake shows in many pairs.
const REPORTED: usize = 32;
/// Largest number of pairs counted; their number can grow with the square of the graph.
const COUNTED: usize = 10_000;

/// Adds every pair of operations that may run at the same time, use the same bytes and write them.
pub(super) fn check(graph: &Graph, digraph: &Digraph, order: &[usize], report: &mut Report) {
    let mut position = vec![0usize; order.len()];
    for (index, vertex) in order.iter().enumerate() {
        position[*vertex] = index;
    }
    let sets = demands(graph, order, &position);
    let mut pairs = BTreeSet::new();
    let mut search = RaceSearch::new(digraph, order, position);
    for (members, targets) in sets {
        search.add(&members, &targets, &mut pairs);
    }
    search.run(&mut pairs);
    for (first, second) in pairs.iter().take(REPORTED) {
        report.add(|| unordered(graph, *first, *second));
    }
    if let Some(left_out @ 1..) = pairs.len().checked_sub(REPORTED) {
        report.add(|| Problem::MoreUnordered { rank: graph.rank(), left_out });
    }
}

/// Sets of operations, and those that must come after all of the set.
type Demands = Vec<(Vec<usize>, Vec<usize>)>;

/// Required order of operations that use the same bytes; in the order of the sets' earliest
/// members.
fn demands(graph: &Graph, order: &[usize], position: &[usize]) -> Demands {
    let mut memories: HashMap<u32, Usage> = HashMap::new();
    for entry in graph.vertices() {
        // Bytes that are only read need no order.
        for range in
            OperationLists::of(&entry.operation).writes.1.iter().filter_map(ByteRange::of_block)
        {
            memories.entry(range.memory).or_default();
        }
    }
    let mut sets = ReaderSets::default();
    let mut demands: HashMap<Earlier, Vec<usize>> = HashMap::new();
    for vertex in order.iter().copied() {
        let mut note = |earlier: Earlier| {
            // All notes of a vertex come in a row, so the last target shows whether it is noted.
            let targets = demands.entry(earlier).or_default();
            if targets.last() != Some(&vertex) {
                targets.push(vertex);
            }
        };
        let lists = OperationLists::of(&graph.vertices()[vertex].operation);
        for range in
            lists.reads.iter().flat_map(|(_, blocks)| blocks.iter()).filter_map(ByteRange::of_block)
        {
            if let Some(usage) = memories.get_mut(&range.memory) {
                usage.read(range.start..range.end, vertex, &mut sets, &mut note);
            }
        }
        for range in lists.writes.1.iter().filter_map(ByteRange::of_block) {
            if let Some(usage) = memories.get_mut(&range.memory) {
                usage.write(range.start..range.end, vertex, &sets, &mut note);
            }
        }
    }
    let mut demands: Demands = demands
        .into_iter()
        .map(|(earlier, targets)| match earlier {
            Earlier::Writer(writer) => (vec![writer], targets),
            Earlier::Readers(set) => (sets.members(set).collect(), targets),
        })
        .collect();
    // A map has no order, and a report must be the same in every run. Sets that begin close to each
    // other come next to each other: a pass of the search then covers a short part of the order.
    demands.sort_by_cached_key(|(members, targets)| {
        (
            members.iter().map(|member| position[*member]).min(),
            targets.first().map(|target| position[*target]),
        )
    });
    demands
}

/// Answers "does this come after that?" for 64 earlier operations in one pass over the part of the
/// graph between them.
struct RaceSearch<'a> {
    digraph: &'a Digraph,
    order: &'a [usize],
    position: Vec<usize>,
    /// For each vertex the sources that it comes after, as bits; zero between passes.
    after: Vec<u64>,
    /// The operations for the next pass, with their bits.
    sources: Vec<usize>,
    bit: HashMap<usize, u32>,
    /// Sources, and what must come after all of them.
    questions: Vec<(u64, usize)>,
}

impl<'a> RaceSearch<'a> {
    fn new(digraph: &'a Digraph, order: &'a [usize], position: Vec<usize>) -> Self {
        let sources = Vec::new();
        let bit = HashMap::new();
        let questions = Vec::new();
        RaceSearch {
            digraph,
            order,
            position,
            after: vec![0; order.len()],
            sources,
            bit,
            questions,
        }
    }

    /// Notes the question whether all targets come after all members; the next pass answers it.
    fn add(
        &mut self,
        members: &[usize],
        targets: &[usize],
        unordered: &mut BTreeSet<(usize, usize)>,
    ) {
        let mut members = members.iter().copied().peekable();
        while members.peek().is_some() {
            if self.sources.len() == 64 {
                self.run(unordered);
            }
            // A set of more members than there are free bits is divided: each part is a question of
            // its own, and the targets come after all members if they come after those of each
            // part.
            let mut mask = 0u64;
            while let Some(member) = members.peek().copied() {
                let bit = match self.bit.get(&member) {
                    Some(bit) => *bit,
                    None if self.sources.len() == 64 => break,
                    None => {
                        self.sources.push(member);
                        self.bit.insert(member, self.sources.len() as u32 - 1);
                        self.sources.len() as u32 - 1
                    }
                };
                mask |= 1 << bit;
                members.next();
            }
            self.questions.extend(targets.iter().map(|target| (mask, *target)));
        }
    }

    /// One pass: sets the bit of each source in every vertex after it, and records the pairs
    /// without a path.
    fn run(&mut self, unordered: &mut BTreeSet<(usize, usize)>) {
        let low = self.sources.iter().map(|source| self.position[*source]).min();
        let high = self.questions.iter().map(|(_, target)| self.position[*target]).max();
        // Every arc leads forward in `order`: a path from a source to a target visits no vertex
        // before the first source or behind the last target.
        let between = self.order.get(low.unwrap_or(0)..=high.unwrap_or(0)).unwrap_or_default();
        for vertex in between.iter().copied() {
            // In `order`, all arcs to this vertex have been followed, so its bits are final. Its
            // own bit passes along an arc only if the arc waits for completion. Behind that, an arc
            // that waits for the start is enough: the start of this vertex comes after the
            // completion of the sources in `started`.
            let started = self.after[vertex];
            let completed = started | self.bit.get(&vertex).map_or(0, |bit| 1 << bit);
            if completed == 0 {
                continue;
            }
            for arc in self.digraph.arcs(vertex) {
                self.after[arc.to] |= if arc.until_complete { completed } else { started };
            }
        }
        for (mask, target) in self.questions.drain(..) {
            let mut missing = mask & !self.after[target];
            while missing != 0 {
                let source = self.sources[missing.trailing_zeros() as usize];
                // Bounds memory and time for a graph without edges.
                if unordered.len() < COUNTED {
                    unordered.insert((source.min(target), source.max(target)));
                }
                missing &= missing - 1;
            }
        }
        // Arcs lead beyond the last target, too.
        for vertex in between.iter().copied() {
            self.after[vertex] = 0;
            for arc in self.digraph.arcs(vertex) {
                self.after[arc.to] = 0;
            }
        }
        self.sources.clear();
        self.bit.clear();
    }
}

/// The message, with bytes that both use and at least one writes.
fn unordered(graph: &Graph, first: usize, second: usize) -> Problem {
    let ranges = |vertex: usize| -> (Vec<ByteRange>, Vec<ByteRange>) {
        let lists = OperationLists::of(&graph.vertices()[vertex].operation);
        let reads = lists
            .reads
            .iter()
            .flat_map(|(_, blocks)| blocks.iter())
            .filter_map(ByteRange::of_block)
            .collect();
        (reads, lists.writes.1.iter().filter_map(ByteRange::of_block).collect())
    };
    let common = |left: &[ByteRange], right: &[ByteRange]| {
        left.iter().find_map(|left| right.iter().find_map(|right| left.common(*right)))
    };
    let ((first_reads, first_writes), (second_reads, second_writes)) =
        (ranges(first), ranges(second));
    let both = common(&first_writes, &second_writes);
    let one = common(&first_writes, &second_reads).or_else(|| common(&first_reads, &second_writes));
    let block = both.or(one).map_or(Block::unplaced(0), |range| Block {
        memory: if range.memory == SCRATCHPAD {
            Memory::Scratchpad
        } else {
            Memory::Buffer(range.memory)
        },
        offset: range.start,
        length: range.end - range.start,
    });
    Problem::Unordered {
        first: VertexLocation::new(graph, Vertex(first as u32)),
        second: VertexLocation::new(graph, Vertex(second as u32)),
        block,
        both_write: both.is_some(),
    }
}
