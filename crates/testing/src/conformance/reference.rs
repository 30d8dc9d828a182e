//! Plain sequential evaluator of whole programs, which defines the results of every engine.
//!
//! It sweeps over all ranks in vertex order repeatedly and executes every operation that is ready.
//! Messages are paired beforehand by [`goal::matching`] and wait only for their send; there are no
//! queues, no protocols and no schedules. Receives with wildcards are not supported, since the
//! program does not determine their outcome.

use crate::conformance::engine::{
    Buffers, Capabilities, Engine, Failure, Fault, Round, RoundOutcome,
};
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, apply};
use goal::graph::{Block, Blocks, Edge, Graph, JoinMode, Memory, Operation, Until, Vertex};
use goal::matching::{Endpoint, pair};
use std::collections::HashMap;

/// The reference as an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceEngine;

impl Engine for ReferenceEngine {
    fn name(&self) -> &str {
        "reference"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { wildcards: false, max_ranks: u32::MAX, ..Capabilities::default() }
    }

    fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure> {
        inputs.iter().map(|round| evaluate(program, round)).collect()
    }
}

/// Runs a program once.
///
/// # Errors
/// Messages without a partner or of another length, wildcards, and programs that do not end.
pub fn evaluate(program: &[Graph], inputs: &Round) -> Result<RoundOutcome, Failure> {
    let mut evaluation = Evaluation {
        program,
        memory: program
            .iter()
            .zip(inputs)
            .map(|(graph, buffers)| RankMemory::new(graph, buffers))
            .collect(),
        progress: program
            .iter()
            .map(|graph| vec![Progress::Waiting; graph.vertices().len()])
            .collect(),
        edges: program.iter().map(edges_by_waiting).collect(),
        receives: pair_messages(program)?,
        payloads: HashMap::new(),
        contributions: HashMap::new(),
        clock: 0,
        faults: Vec::new(),
    };
    while evaluation.sweep() {}
    evaluation.stuck()?;
    let buffers = evaluation.memory.into_iter().map(|memory| memory.buffers).collect();
    Ok(RoundOutcome { buffers, faults: evaluation.faults })
}

/// Dependencies of each vertex.
fn edges_by_waiting(graph: &Graph) -> Vec<Vec<Edge>> {
    let mut edges = vec![Vec::new(); graph.vertices().len()];
    graph.edges().iter().for_each(|edge| edges[edge.after.index()].push(*edge));
    edges
}

/// Operation of the whole program: rank and vertex.
type Place = (usize, usize);

/// The receive of every send.
fn pair_messages(program: &[Graph]) -> Result<HashMap<Place, Place>, Failure> {
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    for (rank, graph) in program.iter().enumerate() {
        for (vertex, entry) in graph.vertices().iter().enumerate() {
            let rank = rank as u32;
            let operation = vertex as u32;
            let bytes = |data: &Blocks| data.bytes().unwrap_or(u64::MAX);
            match &entry.operation {
                Operation::Send { data, peer, tag } => {
                    let peer = Some(*peer);
                    let tag = Some(*tag);
                    let bytes = bytes(data);
                    sends.push(Endpoint { rank, operation, peer, tag, bytes });
                }
                Operation::Receive { data, source, tag } => {
                    let peer = *source;
                    let tag = *tag;
                    let bytes = bytes(data);
                    receives.push(Endpoint { rank, operation, peer, tag, bytes });
                }
                _ => {}
            }
        }
    }
    let pairing = pair(&sends, &receives);
    let describe = |end: &Endpoint| program[end.rank as usize].describe(Vertex(end.operation));
    let lonely =
        pairing.open_sends.iter().chain(&pairing.wildcards).chain(&pairing.lonely_receives).next();
    if let Some(end) = lonely {
        return Err(Failure::Other(format!(
            "{} has no partner that the reference could know",
            describe(end)
        )));
    }
    if let Some((send, receive)) =
        pairing.pairs.iter().find(|(send, receive)| send.bytes != receive.bytes)
    {
        return Err(Failure::SizesDiffer(format!("{} and {}", describe(send), describe(receive))));
    }
    let place = |end: &Endpoint| (end.rank as usize, end.operation as usize);
    Ok(pairing.pairs.iter().map(|(send, receive)| (place(send), place(receive))).collect())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    Started,
    Complete,
}

struct Evaluation<'a> {
    program: &'a [Graph],
    memory: Vec<RankMemory>,
    progress: Vec<Vec<Progress>>,
    /// Dependencies by rank and vertex.
    edges: Vec<Vec<Vec<Edge>>>,
    receives: HashMap<Place, Place>,
    /// Messages that were sent, by their receive.
    payloads: HashMap<Place, Vec<u8>>,
    /// Contributions to each join, by the number of the join and rank.
    contributions: HashMap<(usize, usize), Vec<u8>>,
    clock: u64,
    faults: Vec<Fault>,
}

impl Evaluation<'_> {
    /// Executes all ready operations; returns true if there were any.
    fn sweep(&mut self) -> bool {
        let mut progress = false;
        for rank in 0..self.program.len() {
            for vertex in 0..self.program[rank].vertices().len() {
                let place = (rank, vertex);
                if self.progress[rank][vertex] == Progress::Waiting && self.may_start(place) {
                    self.progress[rank][vertex] = Progress::Started;
                    self.start(place);
                    progress = true;
                }
                if self.progress[rank][vertex] == Progress::Started && self.try_finish(place) {
                    self.progress[rank][vertex] = Progress::Complete;
                    progress = true;
                }
            }
        }
        progress
    }

    fn stuck(&self) -> Result<(), Failure> {
        let mut waiting = Vec::new();
        for (rank, graph) in self.program.iter().enumerate() {
            for (vertex, progress) in self.progress[rank].iter().enumerate() {
                if *progress != Progress::Complete {
                    waiting.push(graph.describe(Vertex(vertex as u32)));
                }
            }
        }
        if waiting.is_empty() { Ok(()) } else { Err(Failure::Stuck(waiting.join("; "))) }
    }

    fn may_start(&self, (rank, vertex): Place) -> bool {
        self.edges[rank][vertex].iter().all(|edge| match self.progress[rank][edge.before.index()] {
            Progress::Complete => true,
            Progress::Started => edge.until == Until::Started,
            Progress::Waiting => false,
        })
    }

    /// Executes the local part of an operation.
    fn start(&mut self, place: Place) {
        let (rank, vertex) = place;
        let memory = &mut self.memory[rank];
        match &self.program[rank].vertices()[vertex].operation {
            Operation::Send { data, .. } => {
                let payload = memory.read(data);
                self.payloads.insert(self.receives[&place], payload);
            }
            Operation::Local { operation, data_type, left, right, destination } => {
                let left = memory.read(left);
                let right = memory.read(right);
                let (result, fault) = compute(*operation, *data_type, &left, &right);
                memory.write(destination, &result);
                self.note(fault, place);
            }
            Operation::Copy { source, destination } => {
                let bytes = memory.read(source);
                memory.write(destination, &bytes);
            }
            Operation::Timestamp { destination } => {
                self.clock += 1;
                memory.write(&Blocks::from(*destination), &self.clock.to_le_bytes());
            }
            Operation::Join { contribution, .. } => {
                let contribution = memory.read(contribution);
                self.contributions.insert((self.join_number(place), rank), contribution);
            }
            Operation::Receive { .. } | Operation::Calc { .. } => {}
        }
    }

    /// Returns true if the condition holds for which an operation waits after its start.
    fn try_finish(&mut self, place: Place) -> bool {
        let (rank, vertex) = place;
        match &self.program[rank].vertices()[vertex].operation {
            Operation::Receive { data, .. } => match self.payloads.remove(&place) {
                Some(payload) => {
                    self.memory[rank].write(data, &payload);
                    true
                }
                None => false,
            },
            Operation::Join { mode, result, .. } => match self.meet(place, *mode) {
                Some((bytes, fault)) => {
                    if !result.0.is_empty() {
                        self.memory[rank].write(result, &bytes);
                    }
                    self.note(fault, place);
                    true
                }
                None => false,
            },
            _ => true,
        }
    }

    fn note(&mut self, fault: bool, (rank, vertex): Place) {
        if fault {
            self.faults.push(Fault { rank: rank as u32, vertex: vertex as u32 });
        }
    }

    /// Returns the number of a join among the rank's joins in vertex order.
    fn join_number(&self, (rank, vertex): Place) -> usize {
        let before = &self.program[rank].vertices()[..vertex];
        before.iter().filter(|entry| matches!(entry.operation, Operation::Join { .. })).count()
    }

    /// Returns the result of a join, and true if it divided by zero; `None` while contributions are
    /// missing.
    fn meet(&self, place: Place, mode: JoinMode) -> Option<(Vec<u8>, bool)> {
        let number = self.join_number(place);
        let of = |rank: usize| self.contributions.get(&(number, rank)).cloned();
        if let JoinMode::Broadcast { root } = mode {
            return of(root as usize).map(|bytes| (bytes, false));
        }
        let ranks = self.program.len();
        let all: Vec<Vec<u8>> = (0..ranks).map(of).collect::<Option<_>>()?;
        Some(match mode {
            JoinMode::Barrier | JoinMode::Broadcast { .. } => (Vec::new(), false),
            JoinMode::Gather => (all.concat(), false),
            JoinMode::Exchange => {
                let own = |other: &Vec<u8>| {
                    let part = other.len() / ranks;
                    other[place.0 * part..place.0 * part + part].to_vec()
                };
                (all.iter().flat_map(own).collect(), false)
            }
            JoinMode::Reduce { operation, data_type } => {
                let mut contributions = all.into_iter();
                let first = (contributions.next().unwrap_or_default(), false);
                contributions.fold(first, |(left, before), right| {
                    let (result, fault) = compute(operation, data_type, &left, &right);
                    (result, before | fault)
                })
            }
        })
    }
}

/// Returns left ∘ right, and true if that divided by zero.
fn compute(
    operation: Arithmetic,
    data_type: DataType,
    left: &[u8],
    right: &[u8],
) -> (Vec<u8>, bool) {
    let mut result = vec![0; left.len()];
    let outcome = apply(operation, data_type, left, right, &mut result);
    (result, matches!(outcome, Err(ArithmeticError::DivisionByZero { .. })))
}

struct RankMemory {
    buffers: Buffers,
    scratchpad: Vec<u8>,
}

impl RankMemory {
    fn new(graph: &Graph, buffers: &Buffers) -> Self {
        RankMemory {
            buffers: buffers.clone(),
            scratchpad: vec![0; graph.scratchpad_bytes() as usize],
        }
    }

    fn bytes(&mut self, block: &Block) -> &mut [u8] {
        let memory = match block.memory {
            Memory::Buffer(number) => &mut self.buffers[number as usize],
            Memory::Scratchpad => &mut self.scratchpad,
            Memory::Unplaced => return &mut [],
        };
        &mut memory[block.offset as usize..(block.offset + block.length) as usize]
    }

    fn read(&mut self, blocks: &Blocks) -> Vec<u8> {
        blocks.0.iter().flat_map(|block| self.bytes(block).to_vec()).collect()
    }

    fn write(&mut self, blocks: &Blocks, bytes: &[u8]) {
        let mut position = 0;
        for block in &blocks.0 {
            let target = self.bytes(block);
            target.copy_from_slice(&bytes[position..position + target.len()]);
            position += target.len();
        }
    }
}
