//! A plain evaluator of all ranks' graphs: any order that the edges allow, chosen at random, one
//! step at a time.
//!
//! An edge that is missing shows as a wrong result in one order or another: bytes are read and
//! written as early or as late as the edges allow, and all memory starts with bytes that no test
//! expects.

use crate::UNTOUCHED;
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Block, Blocks, Graph, JoinMode, Memory, Operation, Until};
use goal::matching::{Endpoint, pair};
use std::collections::HashMap;

/// When a send reads its bytes and completes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// When it starts.
    Eager,
    /// At some time after the receive has started, too.
    Rendezvous,
}

/// A vertex of a rank.
type Place = (usize, usize);

#[derive(Clone, Copy)]
enum Step {
    Start(Place),
    /// The message of this number arrives.
    Arrive(usize),
    /// The rank of this join gets its result.
    Meet(Place),
}

struct Message {
    send: Place,
    receive: Place,
    payload: Option<Vec<u8>>,
}

/// left ∘ right.
pub(crate) type Apply = fn(Arithmetic, DataType, &[u8], &[u8]) -> Vec<u8>;

struct Rank {
    buffers: Vec<Vec<u8>>,
    scratchpad: Vec<u8>,
    missing: Vec<usize>,
    /// For each vertex those that wait for it, and until when.
    waiting: Vec<Vec<(usize, Until)>>,
    started: Vec<bool>,
    completed: Vec<bool>,
}

pub(crate) struct Evaluation<'a> {
    graphs: &'a [Graph],
    protocol: Protocol,
    apply: Apply,
    random: u64,
    ranks: Vec<Rank>,
    messages: Vec<Message>,
    message_of: HashMap<Place, usize>,
    /// The k-th join of every rank.
    matching_joins: Vec<Vec<Place>>,
    possible: Vec<Step>,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(
        graphs: &'a [Graph],
        inputs: &[Vec<u8>],
        protocol: Protocol,
        apply: Apply,
        seed: u64,
    ) -> Self {
        let messages = messages(graphs);
        let ends = messages.iter().enumerate();
        let message_of = ends
            .flat_map(|(index, message)| [(message.send, index), (message.receive, index)])
            .collect();
        let ranks: Vec<Rank> =
            graphs.iter().zip(inputs).map(|(graph, input)| Rank::new(graph, input)).collect();
        let mut possible = Vec::new();
        for (rank, state) in ranks.iter().enumerate() {
            let independent =
                state.missing.iter().enumerate().filter(|(_, missing)| **missing == 0);
            possible.extend(independent.map(|(vertex, _)| Step::Start((rank, vertex))));
        }
        let matching_joins = matching_joins(graphs);
        Evaluation {
            graphs,
            protocol,
            apply,
            random: seed,
            ranks,
            messages,
            message_of,
            matching_joins,
            possible,
        }
    }

    /// Goes on until nothing more is possible. A rank that is held back has not started its run.
    pub(crate) fn run(&mut self, held_back: Option<usize>) {
        loop {
            self.random =
                self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let start = (self.random >> 33) as usize;
            // The first that is allowed from a random place on.
            let allowed = (0..self.possible.len())
                .map(|offset| (start % self.possible.len() + offset) % self.possible.len());
            let index = allowed
                .into_iter()
                .find(|index| !matches!(self.possible[*index], Step::Start((rank, _)) if Some(rank) == held_back));
            let Some(index) = index else { return };
            let step = self.possible.swap_remove(index);
            self.step(step);
        }
    }

    /// Returns true if all operations of a rank have completed.
    pub(crate) fn is_complete(&self, rank: usize) -> bool {
        self.ranks[rank].completed.iter().all(|completed| *completed)
    }

    /// The buffers of all ranks, once everything has completed.
    pub(crate) fn finish(self) -> Vec<Vec<Vec<u8>>> {
        for (rank, state) in self.ranks.iter().enumerate() {
            if let Some(vertex) = state.completed.iter().position(|completed| !completed) {
                let graph = &self.graphs[rank];
                panic!("never completes: {}", graph.describe(goal::graph::Vertex(vertex as u32)));
            }
        }
        self.ranks.into_iter().map(|rank| rank.buffers).collect()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Start(place) => self.start(place),
            Step::Arrive(index) => {
                let send = self.messages[index].send;
                let receive = self.messages[index].receive;
                let payload = self.messages[index].payload.take();
                let bytes = payload.unwrap_or_else(|| self.read(send.0, self.data(send)));
                self.write(receive.0, self.data(receive), &bytes);
                self.complete(receive);
                if self.protocol == Protocol::Rendezvous {
                    self.complete(send);
                }
            }
            Step::Meet(place) => {
                let result = self.meet(place);
                let Operation::Join { result: destination, .. } = self.operation(place) else {
                    unreachable!()
                };
                if !destination.0.is_empty() {
                    self.write(place.0, destination, &result);
                }
                self.complete(place);
            }
        }
    }

    fn start(&mut self, place: Place) {
        self.ranks[place.0].started[place.1] = true;
        self.release(place, Until::Started);
        match self.operation(place) {
            Operation::Send { data, .. } => {
                let index = self.message_of[&place];
                if self.protocol == Protocol::Eager {
                    self.messages[index].payload = Some(self.read(place.0, data));
                    self.complete(place);
                }
                self.both_started(index);
            }
            Operation::Receive { .. } => self.both_started(self.message_of[&place]),
            Operation::Local { operation, data_type, left, right, destination } => {
                let left = self.read(place.0, left);
                let right = self.read(place.0, right);
                let result = (self.apply)(*operation, *data_type, &left, &right);
                self.write(place.0, destination, &result);
                self.complete(place);
            }
            Operation::Copy { source, destination } => {
                let bytes = self.read(place.0, source);
                self.write(place.0, destination, &bytes);
                self.complete(place);
            }
            Operation::Join { mode, .. } => self.joined(place, *mode),
            Operation::Timestamp { .. } | Operation::Calc { .. } => {
                panic!("no collective needs this")
            }
        }
    }

    fn both_started(&mut self, index: usize) {
        let Message { send, receive, .. } = self.messages[index];
        if [send, receive].iter().all(|place| self.ranks[place.0].started[place.1]) {
            self.possible.push(Step::Arrive(index));
        }
    }

    /// Records the arrival of a rank at a join, and completes the ranks that can leave it now.
    fn joined(&mut self, place: Place, mode: JoinMode) {
        let places =
            self.matching_joins.iter().find(|places| places.contains(&place)).unwrap().clone();
        let started = |place: &Place| self.ranks[place.0].started[place.1];
        let leaving: Vec<Place> = match mode {
            JoinMode::Broadcast { root } if !started(&places[root as usize]) => Vec::new(),
            JoinMode::Broadcast { root } if root as usize == place.0 => {
                places.into_iter().filter(started).collect()
            }
            JoinMode::Broadcast { .. } => vec![place],
            _ if places.iter().all(started) => places,
            _ => Vec::new(),
        };
        self.possible.extend(leaving.into_iter().map(Step::Meet));
    }

    /// The result of a join for a rank.
    fn meet(&self, place: Place) -> Vec<u8> {
        let places = self.matching_joins.iter().find(|places| places.contains(&place)).unwrap();
        let contribution = |place: &Place| {
            let Operation::Join { contribution, .. } = self.operation(*place) else {
                unreachable!()
            };
            self.read(place.0, contribution)
        };
        let contributions: Vec<Vec<u8>> = places.iter().map(contribution).collect();
        let Operation::Join { mode, .. } = self.operation(place) else { unreachable!() };
        match *mode {
            JoinMode::Barrier => Vec::new(),
            JoinMode::Gather => contributions.concat(),
            JoinMode::Broadcast { root } => contributions[root as usize].clone(),
            JoinMode::Exchange => {
                let part = contributions[0].len() / contributions.len();
                contributions
                    .iter()
                    .flat_map(|bytes| &bytes[place.0 * part..][..part])
                    .copied()
                    .collect()
            }
            JoinMode::Reduce { operation, data_type } => {
                let fold =
                    |sum: Vec<u8>, next: &Vec<u8>| (self.apply)(operation, data_type, &sum, next);
                contributions[1..].iter().fold(contributions[0].clone(), fold)
            }
        }
    }

    fn complete(&mut self, place: Place) {
        let completed = &mut self.ranks[place.0].completed[place.1];
        assert!(!*completed, "completes twice");
        *completed = true;
        self.release(place, Until::Complete);
    }

    fn release(&mut self, place: Place, until: Until) {
        let (rank, vertex) = place;
        let state = &mut self.ranks[rank];
        for (after, awaited) in &state.waiting[vertex] {
            if *awaited == until {
                state.missing[*after] -= 1;
                if state.missing[*after] == 0 {
                    self.possible.push(Step::Start((rank, *after)));
                }
            }
        }
    }

    fn operation(&self, place: Place) -> &'a Operation {
        &self.graphs[place.0].vertices()[place.1].operation
    }

    fn data(&self, place: Place) -> &'a Blocks {
        match self.operation(place) {
            Operation::Send { data, .. } | Operation::Receive { data, .. } => data,
            other => panic!("not a message: {other:?}"),
        }
    }

    fn read(&self, rank: usize, blocks: &Blocks) -> Vec<u8> {
        let memory = |block: &Block| match block.memory {
            Memory::Buffer(number) => &self.ranks[rank].buffers[number as usize],
            Memory::Scratchpad => &self.ranks[rank].scratchpad,
            Memory::Unplaced => panic!("a block without a place"),
        };
        blocks
            .0
            .iter()
            .flat_map(|block| &memory(block)[block.offset as usize..][..block.length as usize])
            .copied()
            .collect()
    }

    fn write(&mut self, rank: usize, blocks: &Blocks, mut bytes: &[u8]) {
        assert_eq!(blocks.bytes(), Some(bytes.len() as u64), "sizes differ");
        for block in &blocks.0 {
            let memory = match block.memory {
                Memory::Buffer(number) => {
                    let access = self.graphs[rank].buffers()[number as usize].access;
                    assert_ne!(access, Access::Input, "writes the input");
                    &mut self.ranks[rank].buffers[number as usize]
                }
                Memory::Scratchpad => &mut self.ranks[rank].scratchpad,
                Memory::Unplaced => panic!("a block without a place"),
            };
            let (now, later) = bytes.split_at(block.length as usize);
            memory[block.offset as usize..][..now.len()].copy_from_slice(now);
            bytes = later;
        }
    }
}

impl Rank {
    fn new(graph: &Graph, input: &[u8]) -> Self {
        let buffer = |declaration: &goal::graph::BufferDeclaration| match declaration.access {
            Access::Input => {
                assert_eq!(input.len() as u64, declaration.length, "the test's input does not fit");
                input.to_vec()
            }
            _ => vec![UNTOUCHED; declaration.length as usize],
        };
        let count = graph.vertices().len();
        let mut missing = vec![0; count];
        let mut waiting = vec![Vec::new(); count];
        for edge in graph.edges() {
            missing[edge.after.index()] += 1;
            waiting[edge.before.index()].push((edge.after.index(), edge.until));
        }
        Rank {
            buffers: graph.buffers().iter().map(buffer).collect(),
            scratchpad: vec![UNTOUCHED; graph.scratchpad_bytes() as usize],
            missing,
            waiting,
            started: vec![false; count],
            completed: vec![false; count],
        }
    }
}

/// Pairs all sends with all receives; nothing may be left over.
fn messages(graphs: &[Graph]) -> Vec<Message> {
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    for graph in graphs {
        for (vertex, entry) in graph.vertices().iter().enumerate() {
            let endpoint = |peer, tag, data: &Blocks| Endpoint {
                rank: graph.rank(),
                operation: vertex as u32,
                peer,
                tag,
                bytes: data.bytes().unwrap(),
            };
            match &entry.operation {
                Operation::Send { data, peer, tag } => {
                    sends.push(endpoint(Some(*peer), Some(*tag), data))
                }
                Operation::Receive { data, source, tag } => {
                    receives.push(endpoint(*source, *tag, data))
                }
                _ => {}
            }
        }
    }
    let pairing = pair(&sends, &receives);
    assert!(pairing.open_sends.is_empty(), "sent and never received: {:?}", pairing.open_sends);
    assert!(pairing.lonely_receives.is_empty(), "never sent: {:?}", pairing.lonely_receives);
    assert!(pairing.wildcards.is_empty(), "no collective needs wildcards");
    let place = |endpoint: &Endpoint| (endpoint.rank as usize, endpoint.operation as usize);
    pairing
        .pairs
        .iter()
        .map(|(send, receive)| Message {
            send: place(send),
            receive: place(receive),
            payload: None,
        })
        .collect()
}

/// The k-th join of every rank, for every k.
fn matching_joins(graphs: &[Graph]) -> Vec<Vec<Place>> {
    let joins = |(rank, graph): (usize, &Graph)| -> Vec<Place> {
        let vertices = graph.vertices().iter().enumerate();
        vertices
            .filter(|(_, entry)| matches!(entry.operation, Operation::Join { .. }))
            .map(|(vertex, _)| (rank, vertex))
            .collect()
    };
    let joins: Vec<Vec<Place>> = graphs.iter().enumerate().map(joins).collect();
    let count = joins[0].len();
    assert!(joins.iter().all(|list| list.len() == count), "not every rank comes to every join");
    (0..count).map(|k| joins.iter().map(|list| list[k]).collect()).collect()
}
