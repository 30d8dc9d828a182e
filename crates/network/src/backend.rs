//! The interface of an engine that runs schedules across nodes.

use crate::error::{Error, RankExit};
use crate::run_counts::StartedRuns;
use goal::schedule::{BufferRecord, Schedule};
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

/// A communicator as its backends see it: its number and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommunicatorContext {
    /// Number of the communicator: the same on all its ranks, different from that of every other
    /// communicator of the job that any of them belongs to.
    pub number: u32,
    /// Ranks of the job, by rank of the communicator.
    pub members: Arc<[u32]>,
    /// This rank of the communicator.
    pub rank: u32,
}

/// A registered schedule, which can be started any number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScheduleId(pub u64);

/// A run under way, or complete and not fetched yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunId(pub u64);

/// A rank of the job that has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitedRank {
    /// Number of the rank in the job.
    pub rank: u32,
    /// False if it has left in order: everything that it had started to send is on its way.
    pub has_failed: bool,
}

/// Exits and starts of other ranks, as a rank that leaves its job detects them, for backends that
/// cannot detect them themselves.
pub trait RankExits {
    /// Ranks of the job that have exited.
    fn exited(&self) -> Vec<ExitedRank>;

    /// Reports to all ranks that this one leaves, and starts nothing any more on the backend that
    /// it drains. `started` has the runs that it has started there, in order; it has started none of
    /// a communicator that is absent.
    fn announce(&self, started: &[StartedRuns]) {
        let _ = started;
    }

    /// Ranks of the job that have [announced](Self::announce) that they leave, and will never start
    /// this run. Some of them may be absent from the list.
    fn never_start(&self, communicator: u32, sequence: u64) -> Vec<u32> {
        let _ = (communicator, sequence);
        Vec::new()
    }
}

impl<F: Fn() -> Vec<ExitedRank>> RankExits for F {
    fn exited(&self) -> Vec<ExitedRank> {
        self()
    }
}

/// State in which a rank leaves its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOutcome {
    /// Nothing is left to send.
    Drained,
    /// This number of runs have messages left to send, and wait for ranks that have exited, or
    /// leave without having started them.
    Undeliverable {
        /// Number of runs.
        runs: usize,
    },
    /// The deadline came first.
    TimedOut,
}

/// A rank of the job from which nothing arrives any more, for whatever reason: it may be alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRank {
    /// Its number in the job.
    pub rank: u32,
    /// The symptom, as the end of a sentence about the rank.
    pub why: String,
}

impl LostRank {
    /// The failure of a run that waits for the rank.
    pub fn error(&self) -> Error {
        let how = RankExit::Failed(format!("cannot be reached any more: {}", self.why));
        Error::RankFailed { rank: self.rank, how }
    }
}

/// Runs one rank's schedules across nodes.
///
/// All methods may be called by many threads of the rank. Only [`wait`](Self::wait) and
/// [`drain`](Self::drain) block.
pub trait Backend: Send + Sync + Debug {
    /// Name of the backend, as `--engine` takes it.
    fn name(&self) -> &'static str;

    /// Returns true if the backend can run this schedule: it is small enough and has no operation
    /// that the backend does not implement.
    fn supports(&self, schedule: &Schedule) -> bool;

    /// Registers a schedule that was compiled for the communicator's ranks. Purely local.
    ///
    /// `signature` is a 24-bit digest of the call: the same on all ranks, and with high probability
    /// different for different calls. Every message of a run carries it. A run that receives a
    /// message of its communicator and sequence with another signature ends with
    /// [`Error::Mismatch`]; otherwise the ranks would wait for each other for ever.
    ///
    /// # Errors
    /// If the schedule is not supported, or there is no memory for it.
    fn register(
        &self,
        context: &CommunicatorContext,
        schedule: &Schedule,
        signature: u32,
    ) -> Result<ScheduleId, Error>;

    /// Releases a schedule. Runs of it that are under way continue.
    fn release(&self, schedule: ScheduleId);

    /// Notes that this rank neither has nor will have a communicator with one of these numbers:
    /// messages for them are late. The last of them has just ended, after its last start. Runs that
    /// are under way continue.
    fn end_communicators(&self, numbers: RangeInclusive<u32>) {
        let _ = numbers;
    }

    /// Starts a run with the contents of the user buffers in their order, and an empty slice for
    /// those that the run only writes. `sequence` is the number of the collective in the
    /// communicator, the same on all its ranks: it matches the messages of different ranks. A backend
    /// gets ascending numbers, with gaps where other backends run the collectives between.
    ///
    /// # Errors
    /// If a buffer's length differs from the schedule's (`check_inputs`), or there is no memory
    /// for the run.
    fn start(&self, schedule: ScheduleId, sequence: u64, inputs: &[&[u8]]) -> Result<RunId, Error>;

    /// Returns true if the run has ended, successfully or not. One load, if others than the threads
    /// of this rank execute the run.
    fn is_complete(&self, run: RunId) -> bool;

    /// Waits until the run has ended; false if the deadline came first, or another rank was
    /// [lost](Self::lost) meanwhile. Polls for a moment, then sleeps.
    ///
    /// # Errors
    /// If the run cannot end: a node or a rank has failed.
    fn wait(&self, run: RunId, deadline: Option<Instant>) -> Result<bool, Error>;

    /// Makes runs that start from now on record when each operation is executed, if the backend
    /// supports that.
    fn set_timed(&self, timed: bool) {
        let _ = timed;
    }

    /// Times at which the operations of a run that has ended were executed, by their place in the
    /// schedule, in nanoseconds of `CLOCK_MONOTONIC`; 0 for those that were not. Empty if times
    /// were not recorded.
    fn times(&self, run: RunId) -> Vec<u64> {
        let _ = run;
        Vec::new()
    }

    /// Advances a run for which no thread [waits](Self::wait): requests what may be lost, and
    /// starts what had no memory. Callers that only poll a run call this now and then.
    ///
    /// # Errors
    /// If the run cannot end: a node or a rank has failed.
    fn progress(&self, run: RunId) -> Result<(), Error> {
        let _ = run;
        Ok(())
    }

    /// Ranks of the job that the run waits for at this moment, as far as that is known.
    fn waiting_for(&self, run: RunId) -> Vec<u32> {
        let _ = run;
        Vec::new()
    }

    /// Sends the ranks that the run waits for a sign that this one executes it. Those that have not
    /// started it then [have something unexpected](Self::has_unexpected), also if this rank has sent
    /// nothing else.
    fn announce_wait(&self, run: RunId) {
        let _ = run;
    }

    /// Returns true if messages have arrived for a run that this rank has not started: another
    /// rank executes the run of this number on this backend.
    fn has_unexpected(&self, context: &CommunicatorContext, sequence: u64) -> bool {
        let _ = (context, sequence);
        false
    }

    /// Ranks of the job from which nothing arrives any more: a run that waits for them cannot end.
    /// Empty for backends that report this in the outcome of the run.
    fn lost(&self) -> Vec<LostRank> {
        Vec::new()
    }

    /// Fetches the results of a run that has ended: the contents of the user buffers that it wrote,
    /// except for those with an empty slice. Bytes that no operation wrote keep their value. The
    /// run's number is invalid afterwards.
    ///
    /// # Errors
    /// The failure of the run; if it has not ended. After an [`Error::DivisionByZero`] the results
    /// are there.
    fn fetch(&self, run: RunId, outputs: &mut [&mut [u8]]) -> Result<(), Error>;

    /// Discards the results of a run. The run continues, because other ranks may depend on it.
    fn discard(&self, run: RunId);

    /// The exits of other ranks, if this backend detects them.
    fn rank_exits(&self) -> Option<&dyn RankExits> {
        None
    }

    /// Marks a run that cannot complete, because a rank or a node has failed: [`drain`](Self::drain)
    /// does not wait for what it has left to send. Backends that detect failures need no mark.
    fn abandon(&self, run: RunId) {
        let _ = run;
    }

    /// Leaves the job: waits until what this rank has started has nothing left to send that the
    /// end of this process could stop. Nothing can be started afterwards. `exits` are for
    /// backends that cannot detect these themselves: a run does not hold the exit if only ranks
    /// could advance it that have exited, or leave without having started it.
    ///
    /// A process manager may kill the node service as soon as the node's last rank has ended. So
    /// the last rank of a node to leave waits for the messages of all of them; the others return at
    /// once. Runs that only receive are not waited for, nor are ranks of other nodes that have yet
    /// to leave.
    ///
    /// # Errors
    /// If the node service has ended.
    fn drain(&self, deadline: Instant, exits: &dyn RankExits) -> Result<DrainOutcome, Error>;
}

/// Messages of this node's ranks that another backend than the agent carries.
pub trait PendingTraffic: Send + Debug {
    /// Returns true if the other nodes have acknowledged all messages, except for nodes that are
    /// `lost`, by number of the node. Requests missing acknowledgements.
    fn is_empty(&mut self, lost: &[bool]) -> bool;
}

/// Checks the buffers of a start against the schedule: there is one for each buffer of the
/// schedule, and each has the schedule's length. A buffer that the run only writes may be empty.
///
/// # Errors
/// [`Error::BufferCount`] or [`Error::Length`], with the first buffer that does not fit.
pub fn check_inputs(buffers: &[BufferRecord], inputs: &[&[u8]]) -> Result<(), Error> {
    let is_read = |record: &BufferRecord| record.access != goal::graph::Access::Output as u32;
    check_buffers(buffers, inputs.iter().map(|input| input.len()), is_read)
}

/// Checks the buffers of a fetch in the same way. Every one of them may be empty, and there may be
/// none at all if no results are wanted.
///
/// # Errors
/// As [`check_inputs`].
pub fn check_outputs(buffers: &[BufferRecord], outputs: &[&mut [u8]]) -> Result<(), Error> {
    if outputs.is_empty() {
        return Ok(());
    }
    check_buffers(buffers, outputs.iter().map(|output| output.len()), |_| false)
}

/// The one check of lengths for all backends; `is_needed` returns true for buffers that must not be
/// empty.
fn check_buffers(
    buffers: &[BufferRecord],
    lengths: impl ExactSizeIterator<Item = usize>,
    is_needed: impl Fn(&BufferRecord) -> bool,
) -> Result<(), Error> {
    if lengths.len() != buffers.len() {
        return Err(Error::BufferCount { expected: buffers.len(), found: lengths.len() });
    }
    for (buffer, (record, length)) in buffers.iter().zip(lengths).enumerate() {
        let expected = record.length;
        let found = length as u64;
        if found != expected && (found != 0 || is_needed(record)) {
            return Err(Error::Length { buffer, expected, found });
        }
    }
    Ok(())
}
