//! Conversion of a plan to the graphs of all ranks.

use super::plan::{ExtraEdge, Plan, Step};
use crate::conformance::engine::{Buffers, Round};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Block, Blocks, Graph, JoinMode, Memory, Operation, Until, Vertex};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Random program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Graphs of all ranks.
    pub graphs: Vec<Graph>,
    /// Buffers at the start of every round.
    pub inputs: Vec<Round>,
}

/// Number of slots of each kind of memory of a rank.
const INPUT: usize = 4;
const IN_OUT: usize = 6;
const OUTPUT: usize = 4;
const SCRATCHPAD: usize = 6;

/// Returns the program of a plan.
pub fn lay_out(plan: &Plan) -> Program {
    let mut ranks: Vec<RankDraft> = (0..plan.ranks).map(|_| RankDraft::new(plan.slot)).collect();
    for (number, step) in plan.steps.iter().enumerate() {
        add(plan, &mut ranks, number, step);
    }
    let graphs = (0..).zip(&ranks).map(|(rank, draft)| draft.graph(plan, rank)).collect();
    let inputs = (0..plan.rounds)
        .map(|round| (0..plan.ranks).map(|rank| bytes(plan, round, rank)).collect())
        .collect();
    Program { graphs, inputs }
}

/// Returns the buffers of a rank at the start of a round.
fn bytes(plan: &Plan, round: u64, rank: u32) -> Buffers {
    let buffer = |number: u32, slots: usize| {
        let length = slots * plan.slot as usize;
        let mut state = mix((plan.seed, round, rank, number)) | 1;
        let step = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..length).map(step).collect()
    };
    vec![buffer(0, INPUT), buffer(1, IN_OUT), buffer(2, OUTPUT)]
}

fn mix(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Adds a step to its ranks; a step without usable memory is left out.
fn add(plan: &Plan, ranks: &mut [RankDraft], number: usize, step: &Step) {
    let select = |rank: u32| (rank % plan.ranks) as usize;
    match step {
        Step::Message { from, to, tag, length, memory, edges } => {
            let from = select(*from);
            let to = select(*to);
            let length = length % (3 * plan.slot + 1);
            let count = length.div_ceil(plan.slot).max(1) as usize;
            let Some(source) = ranks[from].readable(count, memory[0], &[]) else { return };
            // For a message to itself: the receive must not write the memory that the send of the
            // same step reads, since neither waits for the other.
            let avoid = if from == to { source.clone() } else { Vec::new() };
            let Some(target) = ranks[to].writable(count + 1, memory[1], &avoid) else { return };
            let data = ranks[from].cover(&source, length, plan.slot);
            let into = ranks[to].cover(&target, length, 1 + u64::from(memory[1]) % plan.slot);
            let peer = to as u32;
            let tag = *tag;
            let uses = Uses { reads: &source, writes: &[], whole: false };
            let send = Operation::Send { data, peer, tag };
            let before = ranks[to].drafts.len();
            ranks[from].add(
                send,
                Some((Group::Send(peer, tag), number)),
                uses,
                &edges[0],
                usize::MAX,
            );
            let receive =
                Operation::Receive { data: into, source: Some(from as u32), tag: Some(tag) };
            let uses = Uses { reads: &[], writes: &target, whole: false };
            // The receive must not wait for the send of this very step, which may wait for it.
            let limit = if from == to { before } else { usize::MAX };
            ranks[to].add(
                receive,
                Some((Group::Receive(from as u32, tag), number)),
                uses,
                &edges[1],
                limit,
            );
        }
        Step::Local { rank, operation, data_type, in_place, double, memory, edges } => {
            let draft = &mut ranks[select(*rank)];
            let count = if *double { 2 } else { 1 };
            let (operation, data_type) = allowed(*operation, *data_type);
            let Some(target) = draft.writable(count, memory[2], &[]) else { return };
            let fits = |slots: &Vec<usize>| slots.iter().all(|slot| draft.slots[*slot].may_read());
            let [mut left, mut right] =
                [0, 1].map(|side| draft.readable(count, memory[side], &target));
            match in_place {
                1 if fits(&target) => left = Some(target.clone()),
                2 if fits(&target) => right = Some(target.clone()),
                _ => {}
            }
            let (Some(left), Some(right)) = (left, right) else { return };
            let whole = |slots: &[usize]| draft.cover(slots, count as u64 * plan.slot, plan.slot);
            let operation = Operation::Local {
                operation,
                data_type,
                left: whole(&left),
                right: whole(&right),
                destination: whole(&target),
            };
            let reads = [left, right].concat();
            draft.add(
                operation,
                None,
                Uses { reads: &reads, writes: &target, whole: true },
                edges,
                usize::MAX,
            );
        }
        Step::Copy { rank, length, memory, edges } => {
            let draft = &mut ranks[select(*rank)];
            let length = length % (2 * plan.slot + 1);
            let count = length.div_ceil(plan.slot).max(1) as usize;
            let Some(target) = draft.writable(count + 1, memory[1], &[]) else { return };
            let Some(source) = draft.readable(count, memory[0], &target) else { return };
            let operation = Operation::Copy {
                source: draft.cover(&source, length, plan.slot),
                destination: draft.cover(&target, length, 1 + u64::from(memory[0]) % plan.slot),
            };
            draft.add(
                operation,
                None,
                Uses { reads: &source, writes: &target, whole: false },
                edges,
                usize::MAX,
            );
        }
        Step::Calc { rank, nanoseconds, edges } => {
            let operation = Operation::Calc { nanoseconds: *nanoseconds };
            ranks[select(*rank)].add(operation, None, Uses::default(), edges, usize::MAX);
        }
        Step::Join { .. } => add_join(plan, ranks, number, step),
    }
}

fn add_join(plan: &Plan, ranks: &mut [RankDraft], number: usize, step: &Step) {
    let Step::Join { mode, operation, data_type, memory, edges } = step else { return };
    let all = u64::from(plan.ranks);
    let (operation, data_type) = allowed(*operation, *data_type);
    // Contribution and result in bytes; both fit a slot, which holds eight bytes for each rank.
    let (mode, contribution, result) = match mode % 5 {
        0 => (JoinMode::Barrier, 0, 0),
        1 => (JoinMode::Reduce { operation, data_type }, plan.slot, plan.slot),
        2 => (JoinMode::Gather, 8, 8 * all),
        3 => (JoinMode::Exchange, 8 * all, 8 * all),
        _ => (JoinMode::Broadcast { root: mode / 5 % plan.ranks }, plan.slot, plan.slot),
    };
    let choices: Option<Vec<_>> = ranks
        .iter()
        .map(|draft| {
            let target = draft.writable(1, memory / 7, &[])?;
            Some((draft.readable(1, *memory, &target)?, target))
        })
        .collect();
    for (rank, (source, target)) in choices.into_iter().flatten().enumerate() {
        // Only the root contributes to a broadcast. Some ranks, the root included, take no
        // result.
        let only_receives = matches!(mode, JoinMode::Broadcast { root } if root as usize != rank);
        let contributed = if only_receives { 0 } else { contribution };
        let takes = if (*memory as usize + rank).is_multiple_of(5) { 0 } else { result };
        let draft = &mut ranks[rank];
        let contribution = draft.cover(&source, contributed, plan.slot);
        let result = draft.cover(&target, takes, plan.slot);
        let uses = Uses { reads: &source, writes: &target, whole: takes == plan.slot };
        let join = Operation::Join { mode, contribution, result };
        draft.add(join, Some((Group::Join, number)), uses, edges, usize::MAX);
    }
}

/// Returns the operation and its type with two exceptions. Addition replaces integer division,
/// since engines may report a division by zero in different rounds. The last operation of the type
/// replaces one that does not apply to it.
fn allowed(operation: Arithmetic, data_type: DataType) -> (Arithmetic, DataType) {
    let operation = match operation {
        Arithmetic::Divide if !data_type.is_float() => Arithmetic::Add,
        other => other,
    };
    let applies = |one: &Arithmetic| one.applies_to(data_type);
    let last = Arithmetic::ALL.into_iter().rfind(applies).unwrap_or(operation);
    (if applies(&operation) { operation } else { last }, data_type)
}

/// Key by which operations are paired in vertex order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    Send(u32, u32),
    Receive(u32, u32),
    Join,
}

/// Slots that an operation uses.
#[derive(Clone, Copy, Default)]
struct Uses<'a> {
    reads: &'a [usize],
    writes: &'a [usize],
    /// True if every byte of the slots it writes is written.
    whole: bool,
}

/// Vertex without a position in vertex order.
struct Draft {
    operation: Operation,
    /// Key of its pairing, and the number of its step.
    group: Option<(Group, usize)>,
}

/// Unit of memory, and the operations that used it last.
struct Slot {
    block: Block,
    access: Option<Access>,
    /// True if all of its bytes are defined: those of a scratchpad are not until they are written.
    known: bool,
    writer: Option<usize>,
    readers: Vec<usize>,
}

impl Slot {
    fn may_read(&self) -> bool {
        self.known && self.access != Some(Access::Output)
    }

    fn may_write(&self) -> bool {
        self.access != Some(Access::Input)
    }
}

/// Graph of a rank under construction.
struct RankDraft {
    slots: Vec<Slot>,
    drafts: Vec<Draft>,
    edges: Vec<(usize, usize, Until)>,
}

impl RankDraft {
    fn new(slot: u64) -> Self {
        let kinds = [
            (Some(Access::Input), INPUT),
            (Some(Access::InOut), IN_OUT),
            (Some(Access::Output), OUTPUT),
            (None, SCRATCHPAD),
        ];
        let slots = (0..).zip(kinds).flat_map(|(number, (access, count))| {
            let memory = if access.is_some() { Memory::Buffer(number) } else { Memory::Scratchpad };
            (0..count as u64).map(move |index| Slot {
                block: Block { memory, offset: index * slot, length: slot },
                access,
                known: access.is_some(),
                writer: None,
                readers: Vec::new(),
            })
        });
        RankDraft { slots: slots.collect(), drafts: Vec::new(), edges: Vec::new() }
    }

    /// Returns this number of distinct readable slots, none of them in the list to avoid.
    fn readable(&self, count: usize, selector: u32, avoid: &[usize]) -> Option<Vec<usize>> {
        self.choose(count, selector, |number, slot| slot.may_read() && !avoid.contains(&number))
    }

    /// Returns this number of distinct writable slots, none of them in the list to avoid.
    fn writable(&self, count: usize, selector: u32, avoid: &[usize]) -> Option<Vec<usize>> {
        self.choose(count, selector, |number, slot| slot.may_write() && !avoid.contains(&number))
    }

    fn choose(
        &self,
        count: usize,
        selector: u32,
        admits: impl Fn(usize, &Slot) -> bool,
    ) -> Option<Vec<usize>> {
        let mut candidates: Vec<usize> =
            (0..self.slots.len()).filter(|number| admits(*number, &self.slots[*number])).collect();
        let mut selector = selector as usize;
        (0..count)
            .map(|_| {
                (!candidates.is_empty()).then(|| {
                    let chosen = candidates.remove(selector % candidates.len());
                    selector /= 2;
                    chosen
                })
            })
            .collect()
    }

    /// Returns the first `length` bytes of slots; the first block has at most `first` bytes.
    fn cover(&self, slots: &[usize], length: u64, first: u64) -> Blocks {
        let mut left = length;
        let mut most = first;
        let mut blocks = Vec::new();
        for slot in slots {
            let block = self.slots[*slot].block;
            let take = left.min(most).min(block.length);
            if take > 0 {
                // At the end of the slot, so that offsets differ from one list to another.
                blocks.push(block.part(block.length - take, take));
            }
            left -= take;
            most = u64::MAX;
        }
        Blocks(blocks)
    }

    /// Adds a vertex with the edges that its use of memory requires, and random ones. Random edges
    /// lead from operations before `limit` only.
    fn add(
        &mut self,
        operation: Operation,
        group: Option<(Group, usize)>,
        uses: Uses<'_>,
        extra: &[ExtraEdge],
        limit: usize,
    ) {
        let vertex = self.drafts.len();
        let mut before: Vec<usize> = Vec::new();
        for slot in uses.reads {
            before.extend(self.slots[*slot].writer);
        }
        for slot in uses.writes {
            before.extend(self.slots[*slot].writer);
            before.extend(&self.slots[*slot].readers);
        }
        let mut edges: Vec<_> =
            before.into_iter().map(|before| (vertex, before, Until::Complete)).collect();
        let earlier = vertex.min(limit) as u32;
        for edge in extra.iter().filter(|_| earlier > 0) {
            let until = if edge.started { Until::Started } else { Until::Complete };
            edges.push((vertex, (edge.before % earlier) as usize, until));
        }
        for edge in edges {
            if !self.edges.contains(&edge) {
                self.edges.push(edge);
            }
        }
        for slot in uses.reads {
            self.slots[*slot].readers.push(vertex);
        }
        for slot in uses.writes {
            let slot = &mut self.slots[*slot];
            slot.readers.clear();
            slot.writer = Some(vertex);
            slot.known |= uses.whole;
        }
        self.drafts.push(Draft { operation, group });
    }

    /// Returns the graph with shuffled vertices.
    fn graph(&self, plan: &Plan, rank: u32) -> Graph {
        let mut graph = Graph::new(rank, plan.ranks);
        for (access, slots) in
            [(Access::Input, INPUT), (Access::InOut, IN_OUT), (Access::Output, OUTPUT)]
        {
            graph.buffer(access, slots as u64 * plan.slot);
        }
        graph.scratchpad(SCRATCHPAD as u64 * plan.slot);
        let mut vertices = vec![Vertex(0); self.drafts.len()];
        for draft in self.order(plan, rank) {
            vertices[draft] = graph.add(self.drafts[draft].operation.clone());
        }
        for (after, before, until) in &self.edges {
            match until {
                Until::Complete => graph.requires(vertices[*after], vertices[*before]),
                Until::Started => graph.irequires(vertices[*after], vertices[*before]),
            }
        }
        graph
    }

    /// Returns a random order of the drafts. Drafts with the same key stay in the order of their
    /// steps, which is the same on all ranks.
    fn order(&self, plan: &Plan, rank: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.drafts.len()).collect();
        if plan.shuffle == 0 {
            return order;
        }
        order.sort_by_key(|draft| mix((plan.shuffle, rank, draft)));
        let mut places: HashMap<Group, Vec<usize>> = HashMap::new();
        for (place, draft) in order.iter().enumerate() {
            if let Some((group, _)) = self.drafts[*draft].group {
                places.entry(group).or_default().push(place);
            }
        }
        for places in places.values() {
            let mut members: Vec<usize> = places.iter().map(|place| order[*place]).collect();
            members.sort_by_key(|draft| {
                self.drafts[*draft].group.map(|(_, step)| mix((plan.shuffle, step)))
            });
            for (place, draft) in places.iter().zip(members) {
                order[*place] = draft;
            }
        }
        order
    }
}
