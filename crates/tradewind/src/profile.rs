//! A rank's part of a profile: what a file `rank-R.json` in the directory TRADEWIND_TRACE holds.
//!
//! One JSON object a line, a [`Record`]: first who wrote it, then what the programs' operations are, then what happened.
//! Ranks in records are those of the job. `tradewind run --trace` puts the ranks' parts together; they are plain enough
//! for other tools.

use crate::error::{Error, Result};
use engine::trace::{Recorded, Trace, TraceEvent, TraceStage, TracedCall, TracedProgram};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum Record {
    /// The first line: whose part this is.
    Rank {
        /// The rank.
        rank: u32,
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
    /// The other end of a message: rank and operation. None where a wildcard decides during the run.
    pub partner: Option<(u32, u32)>,
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
    /// When it began: nanoseconds on the node's monotonic clock.
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
    /// When it was started: nanoseconds on the node's monotonic clock.
    pub begun: u64,
    /// When its owner saw that it was complete.
    pub ended: u64,
}

/// Where a rank's part lies.
pub fn part(directory: &Path, rank: u32) -> PathBuf {
    directory.join(format!("rank-{rank}.json"))
}

/// Writes what a rank has recorded.
pub(crate) fn write(path: &Path, rank: u32, trace: &Trace) -> Result<()> {
    let failed = |source| Error::File { path: path.display().to_string(), source };
    let file = std::fs::File::create(path).map_err(failed)?;
    let mut out = std::io::BufWriter::new(file);
    for record in records(rank, trace.take()) {
        serde_json::to_writer(&mut out, &record).map_err(|error| failed(error.into()))?;
        out.write_all(b"\n").map_err(failed)?;
    }
    out.flush().map_err(failed)
}

fn records(rank: u32, recorded: Recorded) -> impl Iterator<Item = Record> {
    let Recorded { programs, mut events, calls, mut dropped } = recorded;
    // Events name ranks of their communicator; their program knows who they are.
    let members: HashMap<(u64, u64), Vec<u32>> =
        programs.iter().map(|program| ((program.communicator, program.program), program.members.clone())).collect();
    let before = events.len();
    events.retain(|event| members.contains_key(&(event.communicator, event.program)));
    dropped += (before - events.len()) as u64;
    let first = Record::Rank { rank, process: std::process::id(), dropped };
    let programs = programs.into_iter().map(|program| Record::Program(describe(&program)));
    let events = events.into_iter().filter_map(move |event| {
        let members = members.get(&(event.communicator, event.program))?;
        Some(Record::Event(translate(&event, members)))
    });
    std::iter::once(first).chain(programs).chain(events).chain(calls.into_iter().map(name))
}

fn describe(program: &TracedProgram) -> Program {
    let TracedProgram { communicator, program: number, members, rank, call, schedule, partners } = program;
    let (view, graph) = (schedule.view(), goal::compile::decompile(schedule));
    let operations = view.operations().iter().zip(partners).map(|(record, partner)| Operation {
        name: graph.vertices()[record.vertex as usize].operation.describe(),
        cpu: record.cpu,
        nic: record.nic,
        successors: view.successors(record).collect(),
        start_successors: view.start_successors(record).collect(),
        partner: partner.map(|(rank, operation)| (members[rank as usize], operation)),
    });
    Program {
        communicator: *communicator,
        program: *number,
        call: call.kind.name().to_owned(),
        rank: members[*rank as usize],
        operations: operations.collect(),
    }
}

fn translate(event: &TraceEvent, members: &[u32]) -> Event {
    let TraceEvent { communicator, program, run, rank, operation, executor, stage, begun, ended } = *event;
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
