//! A rank's part of a profile: what a file `rank-R.json` in the directory TRADEWIND_TRACE holds.
//!
//! One JSON object a line, a [`Record`]: first who wrote it, then what the programs' operations
//! are, then what happened. Ranks in records are those of the job, times are nanoseconds on the
//! monotonic clock of rank 0's node. `tradewind run --trace` puts the ranks' parts together, and
//! `tradewind trace` where another launcher has started them; they are plain enough for other
//! tools.

use crate::error::{Error, Result};
use engine::trace::{
    BETWEEN_NODES, Recorded, Trace, TraceEvent, TraceStage, TracedCall, TracedProgram,
};
use goal::schedule::{Kind, OperationRecord};
use network::nodes::Nodes;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum Record {
    /// The first line: whose part this is.
    Rank {
        /// The rank.
        rank: u32,
        /// How many ranks the job has.
        ranks: u32,
        /// Its process.
        process: u32,
        /// How many events, calls and programs there was no room for.
        dropped: u64,
    },
    /// A rank's operations in a linked program.
    Program(Program),
    /// Something an operation did.
    Event(Event),
    /// A collective as the rank that called it saw it.
    Call(Call),
}

/// A rank's operations in a linked program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The communicator, 0 for that of all ranks.
    pub communicator: u64,
    /// The number of the program on its communicator.
    pub program: u64,
    /// What it is run for.
    pub call: String,
    /// The rank whose operations these are.
    pub rank: u32,
    /// The operations, by number.
    pub operations: Vec<Operation>,
}

/// An operation of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// What it does, in the manner of the GOAL text format.
    pub name: String,
    /// The cpu that the graph gives it.
    pub cpu: u8,
    /// The network interface that the graph gives it.
    pub nic: u8,
    /// Operations that wait for its completion.
    pub successors: Vec<u32>,
    /// Operations that wait for its start.
    pub start_successors: Vec<u32>,
    /// The other end of a message: rank and operation. None where that is decided during the run,
    /// by a wildcard or between nodes.
    pub partner: Option<(u32, u32)>,
    /// What tells which message it is, if it is one and no wildcard leaves that open.
    pub message: Option<Message>,
}

/// What a message is known by at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// The other rank.
    pub peer: u32,
    /// The tag.
    pub tag: u32,
    /// Which one it is of those that this rank exchanges with that one in this direction under this
    /// tag.
    pub ordinal: u32,
}

/// Something an operation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The communicator, 0 for that of all ranks.
    pub communicator: u64,
    /// The number of the program on its communicator.
    pub program: u64,
    /// The number of the run of the program.
    pub run: u64,
    /// Whose operation it is.
    pub rank: u32,
    /// The operation.
    pub operation: u32,
    /// The rank that did it.
    pub executor: u32,
    /// What of it.
    pub stage: Stage,
    /// When it began, in nanoseconds.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
}

/// What of an operation an event shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Its execution. For a receive with a wildcard: that it was posted.
    Executed,
    /// A receive was posted whose message had not come, and others waited for just that.
    Posted,
    /// A receive with a wildcard took the message of this rank's operation.
    Took(u32, u32),
}

/// A collective as the rank that called it saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The communicator, 0 for that of all ranks.
    pub communicator: u64,
    /// The number of the collective on its communicator.
    pub sequence: u64,
    /// What was called, with its bytes.
    pub name: String,
    /// When it was started, in nanoseconds.
    pub begun: u64,
    /// When its owner saw that it was complete.
    pub ended: u64,
}

/// Where a rank's part lies.
pub fn part(directory: &Path, rank: u32) -> PathBuf {
    directory.join(format!("rank-{rank}.json"))
}

/// What a rank records, and where it goes.
#[derive(Debug)]
pub(crate) struct Profile {
    path: PathBuf,
    trace: Arc<Trace>,
    /// Where there are several nodes.
    pub(crate) place: Option<Place>,
}

/// Where a rank is among several nodes.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) nodes: Nodes,
    pub(crate) node: u32,
    /// Nanoseconds by which this node's clock is ahead of that of rank 0's.
    pub(crate) ahead: i64,
}

impl Profile {
    pub(crate) fn new(path: PathBuf, trace: Arc<Trace>) -> Self {
        Profile { path, trace, place: None }
    }

    /// Writes what the rank has recorded.
    pub(crate) fn write(self, rank: u32, ranks: u32) -> Result<()> {
        let failed = |source| Error::File { path: self.path.display().to_string(), source };
        // What cannot be made here cannot be written to, either.
        let _ = self.path.parent().map(std::fs::create_dir_all);
        let mut out = std::io::BufWriter::new(std::fs::File::create(&self.path).map_err(failed)?);
        let mut recorded = self.trace.take();
        if let Some(place) = &self.place {
            place.name_for_the_job(&mut recorded);
        }
        for record in records(rank, ranks, recorded) {
            serde_json::to_writer(&mut out, &record).map_err(|error| failed(error.into()))?;
            out.write_all(b"\n").map_err(failed)?;
        }
        out.flush().map_err(failed)
    }
}

impl Place {
    /// Gives communicators numbers that no two of the job share, ranks those of the job, and times
    /// those of the first node.
    fn name_for_the_job(&self, recorded: &mut Recorded) {
        // A communicator of one node has a number that other nodes use too.
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
    // Events name ranks of their communicator; their program knows who they are.
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
    let (view, graph) = (schedule.view(), goal::compile::decompile(schedule));
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
    let (rank, executor) = (members[rank as usize], members[executor as usize]);
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
