//! The profile: which operation ran when, and who ran it (Schneider et al. 2011, sections 2.1 and
//! 5: timing operations recorded by the scheduler itself).
//!
//! Every process keeps its own lists; nothing is shared while the job runs, so that recording an
//! operation costs two clock readings. What was recorded names communicators, programs and runs by
//! numbers that are the same on all ranks, so that the lists of all processes fit together
//! afterwards.

use crate::linked::activation::monotonic_nanoseconds;
use crate::linked::linker::LinkedRank;
use crate::signature::Signature;
use goal::schedule::Schedule;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events, calls and operations of programs a process keeps, each; later ones are counted and
/// dropped, so that a long job cannot fill its memory.
const LIMIT: usize = 1 << 20;

/// Marks the numbers of communicators whose ranks are on several nodes. Where it is set, ranks are
/// those of the job; where it is not, those of the node.
pub const BETWEEN_NODES: u64 = 1 << 63;

/// Nanoseconds on the clock that all times of a profile are from: the node's monotonic one.
pub fn now() -> u64 {
    monotonic_nanoseconds()
}

/// What of an operation an event shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStage {
    /// Its execution. For a receive with a wildcard: that it was posted.
    Executed,
    /// A receive was posted whose message had not come, and others waited for just that.
    Posted,
    /// A receive with a wildcard took the message of this rank's operation.
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
    /// Whose operation it is.
    pub rank: u32,
    /// The operation's record in the schedule.
    pub operation: u32,
    /// Who executed it.
    pub executor: u32,
    /// What of it.
    pub stage: TraceStage,
    /// When it began, on the node's monotonic clock, in nanoseconds.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
}

/// A collective as the rank that called it saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedCall {
    /// The communicator; 0 is that of all ranks.
    pub communicator: u64,
    /// The number of the collective on its communicator.
    pub sequence: u64,
    /// What was called.
    pub call: Signature,
    /// When it was started, on the node's monotonic clock, in nanoseconds.
    pub begun: u64,
    /// When its owner saw that it was complete.
    pub ended: u64,
}

/// A linked program: what the numbers in events mean.
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
    /// What it is run for.
    pub call: Signature,
    /// This rank's operations.
    pub schedule: Schedule,
    /// The other end of each operation, where it is a message whose ends were linked: rank and
    /// operation.
    pub partners: Vec<Option<(u32, u32)>>,
}

/// Everything a process has recorded.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The programs it linked.
    pub programs: Vec<TracedProgram>,
    /// The operations it executed.
    pub events: Vec<TraceEvent>,
    /// The collectives it called.
    pub calls: Vec<TracedCall>,
    /// How many more there were of any of them.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Lists {
    recorded: Recorded,
    /// Operations of the programs kept.
    described: usize,
    /// Calls under way: when they were started, by communicator and number.
    open: HashMap<(u64, u64), u64>,
    /// Communicators that this rank was the first of.
    communicators: u64,
}

/// A process's lists.
#[derive(Debug, Default)]
pub struct Trace {
    lists: Mutex<Lists>,
}

impl Trace {
    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was recorded so far.
    pub fn take(&self) -> Recorded {
        let mut lists = self.lock();
        lists.described = 0;
        std::mem::take(&mut lists.recorded)
    }

    /// A number for a communicator that this rank of the job is the first of; no other has it.
    pub(crate) fn name_communicator(&self, first: u32) -> u64 {
        let mut lists = self.lock();
        lists.communicators += 1;
        (u64::from(first) << 32) + lists.communicators
    }

    /// Describes a program whose events will come.
    pub fn describe(&self, program: TracedProgram) {
        let mut lists = self.lock();
        lists.described += program.partners.len();
        if lists.described > LIMIT {
            lists.recorded.dropped += 1;
        } else {
            lists.recorded.programs.push(program);
        }
    }

    /// Notes what an operation has done.
    pub fn record(&self, event: TraceEvent) {
        let mut lists = self.lock();
        let Recorded { events, dropped, .. } = &mut lists.recorded;
        push(events, dropped, event);
    }

    /// A call begins now: the time that is kept.
    pub fn call_begun(&self, communicator: u64, sequence: u64) -> u64 {
        let now = now();
        self.lock().open.insert((communicator, sequence), now);
        now
    }

    /// The owner has seen that its call is complete; a second time changes nothing.
    pub fn call_ended(&self, communicator: u64, sequence: u64, call: Signature) {
        let ended = now();
        let mut lists = self.lock();
        let Some(begun) = lists.open.remove(&(communicator, sequence)) else { return };
        let Recorded { calls, dropped, .. } = &mut lists.recorded;
        push(calls, dropped, TracedCall { communicator, sequence, call, begun, ended });
    }

    /// Nobody will ask any more whether the call is complete.
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

/// Where the events of one program go.
#[derive(Debug)]
pub(crate) struct ProgramTrace {
    trace: Arc<Trace>,
    communicator: u64,
    program: u64,
}

impl ProgramTrace {
    /// Describes a program whose events will come.
    pub(crate) fn new(
        trace: Arc<Trace>,
        (communicator, members): (u64, &[u32]),
        (program, rank): (u64, u32),
        call: Signature,
        linked: &LinkedRank,
    ) -> Self {
        let partners: Vec<_> = linked.links.iter().map(|link| link.partner).collect();
        let (members, schedule) = (members.to_vec(), linked.schedule.clone());
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

    /// Notes that `executor` has done something for `rank`'s operation since `begun`.
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
