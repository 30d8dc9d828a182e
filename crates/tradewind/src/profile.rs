//! The profile of one rank: the contents of a file `rank-R.json` in the directory
//! `TRADEWIND_TRACE`.
//!
//! One JSON object a line, a [`Record`]: first the rank, then the operations of its programs, then
//! the events. Ranks in records are those of the job; times are nanoseconds on the monotonic clock
//! of rank 0's node. `tradewind run --trace` merges the files of all ranks, and so does `tradewind
//! trace` where another launcher has started the ranks. The format is simple enough for other
//! tools.

use crate::error::{Error, Result};
use engine::trace::{
    BETWEEN_NODES, Recorded, Trace, TraceEvent, TraceStage, TracedCall, TracedProgram,
};
use goal::schedule::{Kind, OperationRecord};
use network::node_map::NodeMap;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One line of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum Record {
    /// The rank of the profile; the first line.
    Rank {
        /// The rank.
        rank: u32,
        /// Number of ranks of the job.
        ranks: u32,
        /// Process of the rank.
        process: u32,
        /// Number of events, calls and programs that were dropped for lack of memory.
        dropped: u64,
    },
    /// A rank's operations in a linked program.
    Program(Program),
    /// An event of an operation.
    Event(Event),
    /// A collective call of the rank.
    Call(Call),
}

/// A rank's operations in a linked program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Number of the communicator, 0 for that of all ranks.
    pub communicator: u64,
    /// Number of the program on its communicator.
    pub program: u64,
    /// The collective that the program runs.
    pub call: String,
    /// The rank that the operations belong to.
    pub rank: u32,
    /// The operations, by number.
    pub operations: Vec<Operation>,
}

/// An operation of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its description, in the style of the GOAL text format.
    pub name: String,
    /// The cpu that the graph assigns to it.
    pub cpu: u8,
    /// The network interface that the graph assigns to it.
    pub nic: u8,
    /// Operations that depend on its completion.
    pub successors: Vec<u32>,
    /// Operations that depend on its start.
    pub start_successors: Vec<u32>,
    /// The other end of a message: rank and operation. `None` where it is decided during the run,
    /// by a wildcard or between nodes.
    pub partner: Option<(u32, u32)>,
    /// The identity of its message; `None` for other operations and for wildcards.
    pub message: Option<Message>,
}

/// The identity of a message, equal at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// The other rank.
    pub peer: u32,
    /// The tag.
    pub tag: u32,
    /// Number among the messages between the two ranks in this direction with this tag.
    pub ordinal: u32,
}

/// An event of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Number of the communicator, 0 for that of all ranks.
    pub communicator: u64,
    /// Number of the program on its communicator.
    pub program: u64,
    /// Number of the run of the program.
    pub run: u64,
    /// The rank that the operation belongs to.
    pub rank: u32,
    /// Number of the operation.
    pub operation: u32,
    /// The rank that executed it.
    pub executor: u32,
    /// The stage of the operation.
    pub stage: Stage,
    /// Start, in nanoseconds.
    pub begun: u64,
    /// End, in nanoseconds.
    pub ended: u64,
}

/// Stage of an operation that an event records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Its execution. For a receive with a wildcard: the posting.
    Executed,
    /// The posting of a receive, if its message had not arrived when all its dependencies were
    /// complete.
    Posted,
    /// The match of a receive with a wildcard with this rank's operation.
    Took(u32, u32),
}

/// A collective call of the rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Number of the communicator, 0 for that of all ranks.
    pub communicator: u64,
    /// Number of the collective on its communicator.
    pub sequence: u64,
    /// The collective, with its bytes.
    pub name: String,
    /// Start of the collective, in nanoseconds.
    pub begun: u64,
    /// Time at which the rank saw its completion.
    pub ended: u64,
}

/// Path of a rank's file.
pub fn part(directory: &Path, rank: u32) -> PathBuf {
    directory.join(format!("rank-{rank}.json"))
}

/// The profile that this rank records, and its file.
#[derive(Debug)]
pub(crate) struct Profile {
    path: PathBuf,
    trace: Arc<Trace>,
    /// The rank's node, in a job on several nodes.
    pub(crate) node: Option<NodeOfProfile>,
}

/// The node of a rank in a job on several nodes.
#[derive(Clone, Debug)]
pub(crate) struct NodeOfProfile {
    pub(crate) nodes: NodeMap,
    pub(crate) node: u32,
    /// Nanoseconds by which this node's clock is ahead of rank 0's.
    pub(crate) ahead: i64,
}

impl Profile {
    pub(crate) fn new(path: PathBuf, trace: Arc<Trace>) -> Self {
        Profile { path, trace, node: None }
    }

    /// Writes the recorded profile.
    pub(crate) fn write(self, rank: u32, ranks: u32) -> Result<()> {
        let failed = |source| {
            let what = format!("cannot write {}", self.path.display());
            Error::System { what, source }
        };
        // If the directory cannot be made, creating the file below reports it.
        let _ = self.path.parent().map(std::fs::create_dir_all);
        let mut out = std::io::BufWriter::new(std::fs::File::create(&self.path).map_err(failed)?);
        let mut recorded = self.trace.take();
        if let Some(node) = &self.node {
            node.translate(&mut recorded);
        }
        for record in records(rank, ranks, recorded) {
            serde_json::to_writer(&mut out, &record).map_err(|error| failed(error.into()))?;
            out.write_all(b"\n").map_err(failed)?;
        }
        out.flush().map_err(failed)
    }
}

impl NodeOfProfile {
    /// Replaces numbers of communicators by ones that are unique in the job, ranks by those of the
    /// job, and times by those of the first node.
    fn translate(&self, recorded: &mut Recorded) {
        // Communicators of one node are numbered independently on each node.
        let number = |number: u64| match number & BETWEEN_NODES {
            0 => u64::from(self.node + 1) << 48 | number,
            _ => number ^ BETWEEN_NODES,
        };
        let time = |time: u64| time.saturating_add_signed(self.ahead.saturating_neg());
        let ranks: Vec<u32> = self.nodes.members(self.node).collect();
        for program in &mut recorded.programs {
            if program.communicator & BETWEEN_NODES == 0 {
                let of_job = |member: &mut u32| {
                    *member = ranks.get(*member as usize).copied().unwrap_or(*member)
                };
                program.members.iter_mut().for_each(of_job);
            }
            program.communicator = number(program.communicator);
        }
        for TraceEvent { communicator, begun, ended, .. } in &mut recorded.events {
            (*communicator, *begun, *ended) = (number(*communicator), time(*begun), time(*ended));
        }
        for TracedCall { communicator, begun, ended, .. } in &mut recorded.calls {
            (*communicator, *begun, *ended) = (number(*communicator), time(*begun), time(*ended));
        }
    }
}

fn records(rank: u32, ranks: u32, recorded: Recorded) -> impl Iterator<Item = Record> {
    let Recorded { programs, mut events, calls, mut dropped } = recorded;
    // Events have ranks of their communicator; the program of the event has its members.
    let members: HashMap<(u64, u64), Vec<u32>> = programs
        .iter()
        .map(|program| ((program.communicator, program.program), program.members.clone()))
        .collect();
    let before = events.len();
    events.retain(|event| members.contains_key(&(event.communicator, event.program)));
    dropped += (before - events.len()) as u64;
    let first = Record::Rank { rank, ranks, process: std::process::id(), dropped };
    let programs = programs.into_iter().map(|program| Record::Program(describe(&program)));
    let events = events.into_iter().filter_map(move |event| {
        let members = members.get(&(event.communicator, event.program))?;
        Some(Record::Event(translate(&event, members)))
    });
    std::iter::once(first).chain(programs).chain(events).chain(calls.into_iter().map(name))
}

fn describe(program: &TracedProgram) -> Program {
    let TracedProgram { communicator, program: number, members, rank, call, schedule, partners } =
        program;
    let view = schedule.view();
    let graph = goal::compile::decompile(schedule);
    let operations = view.operations().iter().zip(partners).map(|(record, partner)| Operation {
        name: graph.vertices()[record.vertex as usize].operation.describe(),
        cpu: record.cpu,
        nic: record.nic,
        successors: view.successors(record).collect(),
        start_successors: view.start_successors(record).collect(),
        partner: partner.map(|(rank, operation)| (members[rank as usize], operation)),
        message: message(record, members),
    });
    Program {
        communicator: *communicator,
        program: *number,
        call: call.kind.name().to_owned(),
        rank: members[*rank as usize],
        operations: operations.collect(),
    }
}

fn message(record: &OperationRecord, members: &[u32]) -> Option<Message> {
    if !matches!(record.kind(), Kind::Send | Kind::Receive) {
        return None;
    }
    let peer = *members.get(record.peer()? as usize)?;
    Some(Message { peer, tag: record.tag()?, ordinal: record.ordinal })
}

fn translate(event: &TraceEvent, members: &[u32]) -> Event {
    let TraceEvent { communicator, program, run, rank, operation, executor, stage, begun, ended } =
        *event;
    let stage = match stage {
        TraceStage::Executed => Stage::Executed,
        TraceStage::Posted => Stage::Posted,
        TraceStage::Took(rank, operation) => Stage::Took(members[rank as usize], operation),
    };
    let rank = members[rank as usize];
    let executor = members[executor as usize];
    Event { communicator, program, run, rank, operation, executor, stage, begun, ended }
}

fn name(traced: TracedCall) -> Record {
    let TracedCall { communicator, sequence, call, begun, ended } = traced;
    let name = match call.bytes {
        0 => call.kind.name().to_owned(),
        bytes => format!("{} {bytes}b", call.kind.name()),
    };
    Record::Call(Call { communicator, sequence, name, begun, ended })
}
