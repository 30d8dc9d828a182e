//! What an engine between nodes does for one rank.

use goal::schedule::Schedule;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Instant;

/// What tells the messages of one communicator from those of all others, and who belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Number of the communicator: the same on all its ranks, different from that of every other
    /// communicator of the job that any of them belongs to.
    pub number: u32,
    /// Ranks of the job, by rank of the communicator.
    pub members: Arc<[u32]>,
    /// This rank of the communicator.
    pub rank: u32,
}

/// A schedule that a carrier has taken, to be started any number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prepared(pub u64);

/// A run under way, or complete and not fetched yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Runs one rank's schedules between nodes.
///
/// All methods may be called by many threads of the rank. None but [`wait`](Self::wait) waits for
/// other ranks.
pub trait Carrier: Send + Sync + Debug {
    /// Its name, as `--engine` takes it.
    fn name(&self) -> &'static str;

    /// Whether it can run this schedule: small enough, with no operation that it does not know.
    fn admits(&self, schedule: &Schedule) -> bool;

    /// Takes a schedule, compiled for the communicator's ranks. A matter of this rank alone.
    ///
    /// `stamp` says in 24 bits what is called: the same on all ranks, as a rule another one for
    /// another call. It goes with every message of a run. A run that meets a message of its
    /// communicator and sequence with another stamp ends with [`Error::Mismatch`], where ranks
    /// would otherwise wait for each other for ever.
    ///
    /// # Errors
    /// When it does not admit the schedule, or has no memory for it.
    fn prepare(
        &self,
        context: &Context,
        schedule: &Schedule,
        stamp: u32,
    ) -> Result<Prepared, Error>;

    /// Lets go of a schedule. Runs of it go on.
    fn release(&self, prepared: Prepared);

    /// Starts a run with the contents of the user buffers in their order, for those that the run
    /// only writes an empty slice. `sequence` numbers the runs of the communicator from 0, the same
    /// on all its ranks: messages meet by it.
    ///
    /// # Errors
    /// When a buffer has another length than the schedule says, or there is no memory for the run.
    fn start(&self, prepared: Prepared, sequence: u64, inputs: &[&[u8]]) -> Result<Ticket, Error>;

    /// Whether the run has ended, well or not: one load.
    fn is_complete(&self, ticket: Ticket) -> bool;

    /// Waits until the run has ended; false when the deadline came first. Looks for a moment, then
    /// sleeps.
    ///
    /// # Errors
    /// When the run can not end: a node or a rank is gone.
    fn wait(&self, ticket: Ticket, deadline: Option<Instant>) -> Result<bool, Error>;

    /// Has runs that start from now on note when each operation is executed, if the engine can.
    fn set_timed(&self, timed: bool) {
        let _ = timed;
    }

    /// When the operations of a run that has ended were executed, by their place in the schedule,
    /// in nanoseconds of `CLOCK_MONOTONIC`; 0 for those that were not. Empty if the engine does not
    /// know, or was not told to note it.
    fn times(&self, ticket: Ticket) -> Vec<u64> {
        let _ = ticket;
        Vec::new()
    }

    /// Does for a run what nobody does for it while no one [waits](Self::wait): asks for what may
    /// be lost, and starts what had no room. To be called now and then by those who only look
    /// whether it has ended.
    ///
    /// # Errors
    /// When the run can not end: a node or a rank is gone.
    fn look_after(&self, ticket: Ticket) -> Result<(), Error> {
        let _ = ticket;
        Ok(())
    }

    /// Ranks of the job whose messages the run waits for at this moment, as far as that can be
    /// seen.
    fn awaited(&self, ticket: Ticket) -> Vec<u32> {
        let _ = ticket;
        Vec::new()
    }

    /// Takes the results of a run that has ended: the contents of the user buffers that it wrote; a
    /// slice that is empty is not wanted. What no operation wrote keeps its value. The ticket ends
    /// with it.
    ///
    /// # Errors
    /// What went wrong in the run; it has not ended. After a [`Error::DivisionByZero`] the results
    /// are there.
    fn fetch(&self, ticket: Ticket, outputs: &mut [&mut [u8]]) -> Result<(), Error>;

    /// Lets go of a run without its results. It goes on: other ranks may need it.
    fn forget(&self, ticket: Ticket);

    /// Leaves the job: waits until what this rank has started has nothing left to send that the
    /// end of this process could stop. Nothing can be started afterwards. Returns false when the
    /// deadline came first.
    ///
    /// A process manager may kill the node service as soon as the node's last rank has ended. So
    /// the last rank of a node to leave waits for the messages of all of them; the others return at
    /// once. Runs that only receive are not waited for, nor are ranks of other nodes that have yet
    /// to leave.
    ///
    /// # Errors
    /// When the node service has ended.
    fn drain(&self, deadline: Instant) -> Result<bool, Error>;
}

/// Messages of this node's ranks that another engine than the agent carries.
pub trait Outbox: Send + Debug {
    /// Whether the other nodes have acknowledged all that was sent, but for `lost` ones, by number
    /// of the node. Speeds up what is still on its way.
    fn is_empty(&mut self, lost: &[bool]) -> bool;
}

/// What can go wrong between nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node does not answer any more, or its node service has ended.
    #[error(
        "node {node} ({address}) is unreachable: {why}; its ranks take part in nothing any more"
    )]
    NodeUnreachable {
        /// Its number in the job.
        node: u32,
        /// Where it was reached.
        address: String,
        /// How that was noticed.
        why: String,
    },
    /// A rank on another node, or on this one, is gone.
    #[error("rank {rank} {how}")]
    RankFailed {
        /// Its number in the job.
        rank: u32,
        /// How it went.
        how: Exit,
    },
    /// An integer was divided by zero; the element's result is 0, the run is complete and its
    /// results are there.
    #[error("{why}")]
    DivisionByZero {
        /// The rank, by its number in the communicator.
        rank: u32,
        /// The operation's place in the rank's vertex order.
        vertex: u32,
        /// Which operation, and the way out.
        why: String,
    },
    /// A message is not as long as its receive; the text names both.
    #[error("{0}")]
    SizesDiffer(String),
    /// Two ranks are in different collectives.
    #[error(
        "this rank and rank {rank} are in different collectives at run {sequence} of a communicator"
    )]
    Mismatch {
        /// The number of the run on its communicator.
        sequence: u64,
        /// The stamp of this rank's call.
        ours: u32,
        /// The other rank, by its number in the job.
        rank: u32,
        /// The stamp of its call.
        theirs: u32,
    },
    /// Something else in a run went wrong.
    #[error("{0}")]
    Operation(String),
    /// A buffer has another length than its schedule says.
    #[error(
        "buffer {buffer} is {found} bytes long, the schedule says {expected}: pass as many as the graph declares"
    )]
    Length {
        /// Which, by its number in the graph.
        buffer: usize,
        /// Bytes that the schedule says.
        expected: u64,
        /// Bytes that were passed.
        found: u64,
    },
    /// A schedule, run or message that is larger than the carrier takes.
    #[error("{what} needs {needed}, the {carrier} engine takes {limit}: {way_out}")]
    TooLarge {
        /// Which engine.
        carrier: &'static str,
        /// What is too large.
        what: String,
        /// Its size.
        needed: u64,
        /// The largest one.
        limit: u64,
        /// What to do.
        way_out: &'static str,
    },
    /// The system refused something.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said, and the way out.
        why: String,
    },
}

impl Error {
    /// Whether it is about a rank that has left the job in order.
    pub fn has_left(&self) -> bool {
        matches!(self, Error::RankFailed { how: Exit::Left, .. })
    }
}

/// How a rank has gone; its text goes on with a sentence that begins with the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// In order.
    Left,
    /// In another way, for the same sentence.
    Failed(String),
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Exit::Left => "has left the job",
            Exit::Failed(how) => how,
        })
    }
}
