//! Records of the directory: programs and their processes.

use crate::private_names::REMOTE;
use crate::table::TableWriter;
use crate::wire::ProgramKey;
use queues::id::QueueName;
use shm::process::StartTime;
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

/// Number of a program, never reused.
pub(super) type ProgramId = u64;
/// Number of a client of the server, never reused while it is connected.
pub(super) type ClientId = u32;

/// State of a program.
#[derive(Debug)]
pub(super) enum Slot {
    /// No process has opened it yet.
    Empty,
    Open(Process),
    /// A process had opened it and has ended.
    Left,
}

/// The process that has opened a program.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) client: ClientId,
    pub(super) pid: u32,
    pub(super) started: StartTime,
    pub(super) table: TableWriter,
}

/// A sender that a program excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Excluded {
    /// A process of this node, with all its programs.
    Process(u32, StartTime),
    /// A program that stands for one of another node.
    Program(ProgramId),
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) key: ProgramKey,
    /// The client that has added it is connected.
    pub(super) is_owned: bool,
    /// Process that has added it.
    pub(super) pid: u32,
    pub(super) since: SystemTime,
    pub(super) slot: Slot,
    /// Meaning of each name: the program itself first.
    pub(super) names: Vec<ProgramId>,
    /// Names of other programs.
    pub(super) known: HashMap<ProgramId, QueueName>,
    pub(super) excluded: HashSet<Excluded>,
    /// It receives nothing any more.
    pub(super) is_closed: bool,
}

impl Program {
    pub(super) fn process(&self) -> Option<&Process> {
        match &self.slot {
            Slot::Open(process) => Some(process),
            Slot::Empty | Slot::Left => None,
        }
    }

    /// Returns how other programs exclude this one.
    pub(super) fn as_excluded(&self, id: ProgramId) -> Excluded {
        match self.process() {
            // The process that stands for programs of other nodes is the name server.
            Some(process) if !self.name.starts_with(REMOTE) => {
                Excluded::Process(process.pid, process.started)
            }
            _ => Excluded::Program(id),
        }
    }
}
