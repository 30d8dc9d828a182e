//! The parts that the ranks have written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::BufRead;
use std::path::Path;
use tradewind::profile::{self, Call, Event, Message, Operation, Program, Record};

/// Everything that all ranks have written.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// By communicator, program and rank.
    pub(super) programs: HashMap<(u64, u64, u32), Program>,
    pub(super) events: Vec<Event>,
    /// With the rank that called.
    pub(super) calls: Vec<(u32, Call)>,
    /// Number of ranks of the job, as far as known.
    pub(super) ranks: u32,
    /// All numbers that they contain: parts that disagree are of several jobs.
    pub(super) sizes: BTreeSet<u32>,
    /// Ranks that have written nothing.
    pub(super) missing: Vec<u32>,
    /// Numbers of events that exceeded the capacity of their rank, by rank.
    pub(super) dropped: BTreeMap<u32, u64>,
    /// Numbers of lines that cannot be read, by rank.
    pub(super) unreadable: BTreeMap<u32, u64>,
}

impl Parts {
    /// Reads the parts of this number of ranks, or of the number in the parts.
    pub(super) fn read(directory: &Path, ranks: u32) -> Self {
        let mut parts = Parts { ranks, ..Parts::default() };
        let mut rank = 0;
        while rank < parts.ranks {
            match std::fs::File::open(profile::part(directory, rank)) {
                Ok(file) => parts.add(rank, std::io::BufReader::new(file)),
                Err(_) => parts.missing.push(rank),
            }
            rank += 1;
        }
        parts.pair_messages();
        parts
    }

    /// Finds the other ends of messages that were not linked when the profile was written.
    fn pair_messages(&mut self) {
        let mut receives = HashMap::new();
        for ((communicator, program, rank), known) in &self.programs {
            for (operation, message) in messages(known, "recv") {
                receives.insert((*communicator, *program, *rank, message), operation);
            }
        }
        for ((communicator, program, rank), known) in &mut self.programs {
            let sends: Vec<_> = messages(known, "send").collect();
            for (operation, message) in sends {
                let there = Message { peer: *rank, ..message };
                let partner = receives.get(&(*communicator, *program, message.peer, there));
                known.operations[operation as usize].partner =
                    partner.map(|receive| (message.peer, *receive));
            }
        }
    }

    fn add(&mut self, rank: u32, file: impl BufRead) {
        for line in file.split(b'\n') {
            // A rank that was killed may have left half a line.
            match line.map(|line| serde_json::from_slice(&line)) {
                Ok(Ok(Record::Rank { ranks, dropped, .. })) => {
                    self.sizes.insert(ranks);
                    self.ranks = self.ranks.max(ranks);
                    if dropped > 0 {
                        *self.dropped.entry(rank).or_default() += dropped;
                    }
                }
                Ok(Ok(Record::Program(program))) => {
                    self.programs
                        .insert((program.communicator, program.program, program.rank), program);
                }
                Ok(Ok(Record::Event(event))) => self.events.push(event),
                Ok(Ok(Record::Call(call))) => self.calls.push((rank, call)),
                Ok(Err(_)) => *self.unreadable.entry(rank).or_default() += 1,
                Err(_) => {
                    *self.unreadable.entry(rank).or_default() += 1;
                    return;
                }
            }
        }
    }

    /// The program that an event belongs to.
    pub(super) fn program(&self, event: &Event) -> Option<&Program> {
        self.programs.get(&(event.communicator, event.program, event.rank))
    }

    /// The operation that an event belongs to.
    pub(super) fn operation(&self, event: &Event) -> Option<&Operation> {
        self.program(event)?.operations.get(event.operation as usize)
    }
}

/// The messages of a program with an unknown other end, with their operations.
fn messages<'p>(
    program: &'p Program,
    kind: &'static str,
) -> impl Iterator<Item = (u32, Message)> + 'p {
    let open =
        |operation: &Operation| operation.partner.is_none().then_some(operation.message).flatten();
    let of_kind = move |(_, operation): &(u32, &Operation)| operation.name.starts_with(kind);
    (0..)
        .zip(&program.operations)
        .filter(of_kind)
        .filter_map(move |(at, operation)| Some((at, open(operation)?)))
}
