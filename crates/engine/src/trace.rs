//! The profile: time and executing rank of each operation (Schneider et al. 2011, sections 2.1 and
//! 5: timing operations recorded by the scheduler itself).
//!
//! Every process keeps its own lists. Processes share nothing while the job runs, so recording an
//! operation costs two clock readings. Communicators, programs and runs have the same numbers on
//! all ranks, so the lists of all processes can be merged afterwards.

use crate::signature::Signature;
use goal::link::LinkedRank;
use goal::schedule::Schedule;
use shm::clock::monotonic_nanoseconds;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest number of events, of calls and of operations of programs that a process keeps. Later
/// ones are counted and dropped, so that a long job cannot fill its memory.
const LIMIT: usize = 1 << 20;

/// Flag in the number of a communicator with ranks on several nodes. With the flag, ranks are
/// numbered in the job; without it, on the node.
pub const BETWEEN_NODES: u64 = 1 << 63;

/// Returns the time in nanoseconds on the node's monotonic clock, which all times of a profile use.
pub fn now() -> u64 {
    monotonic_nanoseconds()
}

/// The stage of an operation that an event records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStage {
    /// The operation was executed; a receive with a wildcard was posted.
    Executed,
    /// A receive was posted before its message arrived, and other operations waited for its start.
    Posted,
    /// A receive with a wildcard matched the message of this rank and operation.
    Took(u32, u32),
}

/// One executed operation. Ranks are those of the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The communicator; 0 is that of all ranks.
    pub communicator: u64,
    /// The program on its communicator.
    pub program: u64,
    /// The run of the program.
    pub run: u64,
    /// The rank that owns the operation.
    pub rank: u32,
    /// The operation's record in the schedule.
    pub operation: u32,
    /// The rank that executed it.
    pub executor: u32,
    /// Stage of the operation.
    pub stage: TraceStage,
    /// Start time on the node's monotonic clock, in nanoseconds.
    pub begun: u64,
    /// End time.
    pub ended: u64,
}

/// One call of a collective on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedCall {
    /// The communicator; 0 is that of all ranks.
    pub communicator: u64,
    /// The number of the collective on its communicator.
    pub sequence: u64,
    /// Signature of the call.
    pub call: Signature,
    /// Start time on the node's monotonic clock, in nanoseconds.
    pub begun: u64,
    /// Time at which its owner found it complete.
    pub ended: u64,
}

/// A linked program, to which the numbers in events refer.
#[derive(Clone, Debug)]
pub struct TracedProgram {
    /// The communicator; 0 is that of all ranks.
    pub communicator: u64,
    /// The program on its communicator.
    pub program: u64,
    /// The ranks of the communicator, as ranks of the node; as ranks of the job with
    /// [`BETWEEN_NODES`].
    pub members: Vec<u32>,
    /// This rank in the communicator.
    pub rank: u32,
    /// Signature of the calls that run it.
    pub call: Signature,
    /// This rank's operations.
    pub schedule: Schedule,
    /// Rank and operation of the other end of each operation that is a linked send or receive.
    pub partners: Vec<Option<(u32, u32)>>,
}

/// The records of a process.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The programs it linked.
    pub programs: Vec<TracedProgram>,
    /// The operations it executed.
    pub events: Vec<TraceEvent>,
    /// The collectives it called.
    pub calls: Vec<TracedCall>,
    /// Number of dropped records of all three kinds.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct TraceLists {
    recorded: Recorded,
    /// Number of operations of the recorded programs.
    described: usize,
    /// Start times of pending calls, by communicator and sequence number.
    open: HashMap<(u64, u64), u64>,
    /// Number of communicators in which this rank is the first.
    communicators: u64,
}

/// A process's lists.
#[derive(Debug, Default)]
pub struct Trace {
    lists: Mutex<TraceLists>,
}

impl Trace {
    fn lock(&self) -> MutexGuard<'_, TraceLists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the records made so far.
    pub fn take(&self) -> Recorded {
        let mut lists = self.lock();
        lists.described = 0;
        std::mem::take(&mut lists.recorded)
    }

    /// Returns a unique number for a communicator with rank `first` of the job as its first.
    pub(crate) fn name_communicator(&self, first: u32) -> u64 {
        let mut lists = self.lock();
        lists.communicators += 1;
        (u64::from(first) << 32) + lists.communicators
    }

    /// Describes a program before its first event.
    pub fn describe(&self, program: TracedProgram) {
        let mut lists = self.lock();
        // Programs count by their operations, because a schedule's size follows from them.
        lists.described += program.partners.len();
        if lists.described > LIMIT {
            lists.recorded.dropped += 1;
        } else {
            lists.recorded.programs.push(program);
        }
    }

    /// Records an event.
    pub fn record(&self, event: TraceEvent) {
        let mut lists = self.lock();
        let Recorded { events, dropped, .. } = &mut lists.recorded;
        push(events, dropped, event);
    }

    /// Records the start of a call. Returns the recorded time.
    pub fn call_begun(&self, communicator: u64, sequence: u64) -> u64 {
        let now = now();
        self.lock().open.insert((communicator, sequence), now);
        now
    }

    /// Records that the owner has found its call complete. A second call has no effect.
    pub fn call_ended(&self, communicator: u64, sequence: u64, call: Signature) {
        let ended = now();
        let mut lists = self.lock();
        let Some(begun) = lists.open.remove(&(communicator, sequence)) else { return };
        let Recorded { calls, dropped, .. } = &mut lists.recorded;
        push(calls, dropped, TracedCall { communicator, sequence, call, begun, ended });
    }

    /// Forgets a call after its request has been dropped.
    pub fn call_abandoned(&self, communicator: u64, sequence: u64) {
        self.lock().open.remove(&(communicator, sequence));
    }
}

fn push<T>(list: &mut Vec<T>, dropped: &mut u64, item: T) {
    if list.len() < LIMIT {
        list.push(item);
    } else {
        *dropped += 1;
    }
}

/// Recorder of the events of one program.
#[derive(Debug)]
pub(crate) struct ProgramTrace {
    trace: Arc<Trace>,
    communicator: u64,
    program: u64,
}

impl ProgramTrace {
    /// Describes a program before its first event.
    pub(crate) fn new(
        trace: Arc<Trace>,
        (communicator, members): (u64, &[u32]),
        (program, rank): (u64, u32),
        call: Signature,
        linked: &LinkedRank,
    ) -> Self {
        let partners: Vec<_> = linked.links.iter().map(|link| link.partner).collect();
        let members = members.to_vec();
        let schedule = linked.schedule.clone();
        trace.describe(TracedProgram {
            communicator,
            program,
            members,
            rank,
            call,
            schedule,
            partners,
        });
        ProgramTrace { trace, communicator, program }
    }

    pub(crate) fn now(&self) -> u64 {
        now()
    }

    /// Records that `executor` has executed a stage of an operation of `rank`, from `begun` until
    /// now.
    pub(crate) fn record(
        &self,
        run: u64,
        (rank, operation): (u32, u32),
        executor: u32,
        stage: TraceStage,
        begun: u64,
    ) {
        let ended = self.now();
        let ProgramTrace { communicator, program, .. } = *self;
        let event = TraceEvent {
            communicator,
            program,
            run,
            rank,
            operation,
            executor,
            stage,
            begun,
            ended,
        };
        self.trace.record(event);
    }
}
