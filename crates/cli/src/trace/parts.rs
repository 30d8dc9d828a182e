//! What the ranks have written.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;
use tradewind::profile::{self, Call, Event, Operation, Program, Record};

/// Everything that all ranks have written.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// By communicator, program and rank.
    pub(super) programs: HashMap<(u64, u64, u32), Program>,
    pub(super) events: Vec<Event>,
    /// With the rank that called.
    pub(super) calls: Vec<(u32, Call)>,
    /// Ranks that have written nothing.
    pub(super) missing: Vec<u32>,
    /// Events that a rank had no room for, and lines that cannot be read.
    pub(super) lost: u64,
}

impl Parts {
    pub(super) fn read(directory: &Path, ranks: u32) -> Self {
        let mut parts = Parts::default();
        for rank in 0..ranks {
            match std::fs::File::open(profile::part(directory, rank)) {
                Ok(file) => parts.add(rank, std::io::BufReader::new(file)),
                Err(_) => parts.missing.push(rank),
            }
        }
        parts
    }

    fn add(&mut self, rank: u32, file: impl BufRead) {
        for line in file.split(b'\n') {
            // A rank that was killed may have left half a line.
            match line.map(|line| serde_json::from_slice(&line)) {
                Ok(Ok(Record::Rank { dropped, .. })) => self.lost += dropped,
                Ok(Ok(Record::Program(program))) => {
                    self.programs.insert((program.communicator, program.program, program.rank), program);
                }
                Ok(Ok(Record::Event(event))) => self.events.push(event),
                Ok(Ok(Record::Call(call))) => self.calls.push((rank, call)),
                Ok(Err(_)) => self.lost += 1,
                Err(_) => {
                    self.lost += 1;
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
