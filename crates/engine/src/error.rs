//! Errors of a job, a communicator or a run.

use crate::signature::{CallKind, Signature};
use goal::arithmetic::ArithmeticError;
use goal::check::Problem;
use goal::schedule::ScheduleError;
use shm::arena::ArenaError;
use shm::segment::SegmentError;
use std::collections::HashSet;
use std::time::Duration;

/// Result of a step of a small collective. The error is boxed because its size costs time even on
/// success: a result of many words is returned in memory, written in part and read as a whole.
/// Store forwarding then fails, and the load waits until all earlier stores have completed,
/// including those to other ranks' cache lines.
pub type Outcome<T = ()> = Result<T, Box<Error>>;

impl From<Box<Error>> for Error {
    #[cold]
    fn from(error: Box<Error>) -> Self {
        *error
    }
}

impl From<SegmentError> for Box<Error> {
    #[cold]
    fn from(error: SegmentError) -> Self {
        Box::new(error.into())
    }
}

/// The way in which a rank left the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Its process ended with this exit status before the rank left the job.
    Exited(i32),
    /// Its process was ended by this signal.
    Killed(i32),
    /// It left the job in order, while others still waited for it.
    Left,
    /// It never joined the job.
    NeverStarted,
    /// Its thread panicked (ranks that are threads of one process).
    Panicked,
    /// Its process no longer exists; its exit status is unavailable.
    Vanished,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Exited(status) => {
                write!(formatter, "its process exited with status {status}")
            }
            Exit::Killed(signal) => {
                write!(formatter, "its process was ended by signal {signal}")
            }
            Exit::Left => write!(formatter, "it has left the job"),
            Exit::NeverStarted => write!(formatter, "it never joined the job"),
            Exit::Panicked => write!(formatter, "its thread panicked"),
            Exit::Vanished => write!(formatter, "its process is gone"),
        }
    }
}

/// A rank that others wait for, and the state of its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Straggler {
    /// The rank in the communicator.
    pub rank: u32,
    /// Its process.
    pub process: u32,
    /// True if the process is stopped (SIGSTOP, a debugger). Other ranks wait for it; it is never
    /// replaced.
    pub stopped: bool,
}

/// Failure of a call of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank of the communicator has failed; the communicator is no longer usable.
    #[error("rank {rank} failed: {how}")]
    RankFailed {
        /// The rank in the communicator.
        rank: u32,
        /// The way in which it left.
        how: Exit,
    },
    /// The node service (`tradewind run`, or the service started by the first rank) has exited.
    #[error("the node service failed: its process is gone; start the job again")]
    ServiceFailed,
    /// The ranks are in different collectives.
    #[error("{}", mismatch(*.sequence, .calls))]
    Mismatch {
        /// The number of the collective on its communicator, from 0.
        sequence: u64,
        /// The call of each rank, in rank order.
        calls: Vec<Signature>,
    },
    /// An earlier call broke the communicator.
    #[error("this communicator is broken since an earlier mismatch or failure")]
    Broken,
    /// The other runtime of the process has ended the wait (`while_waiting`).
    #[error("the wait was given up")]
    GivenUp,
    /// The time limit has passed.
    #[error("not complete after {after:?}{}", stragglers(.waiting_for))]
    Timeout {
        /// The time limit.
        after: Duration,
        /// Ranks that have not started the call.
        waiting_for: Vec<Straggler>,
    },
    /// An integer was divided by zero; the element's result is 0 and the run finished.
    #[error("integer division by zero{}", .vertex.map(vertex_of_rank).unwrap_or_default())]
    DivisionByZero {
        /// The rank and the vertex of its graph. `None` in a flat collective, which has no graph
        /// and in which any rank may execute the operation.
        vertex: Option<(u32, u32)>,
    },
    /// The length of a buffer differs from the declared one.
    #[error("buffer {buffer} has {found} bytes, the schedule needs {expected}")]
    BufferLength {
        /// Number of the buffer.
        buffer: usize,
        /// The number in the schedule.
        expected: u64,
        /// The number in the call.
        found: u64,
    },
    /// The number of buffers differs from the schedule's.
    #[error("the schedule has {expected} buffers, {found} were given")]
    BufferCount {
        /// The number in the schedule.
        expected: usize,
        /// The number in the call.
        found: usize,
    },
    /// Two ranks do not agree on the length of a block.
    #[error(
        "rank {from} has {sent} bytes for rank {to} in {call}, rank {to} expects {expected}: their counts must agree"
    )]
    BlockLength {
        /// Name of the collective.
        call: &'static str,
        /// The sending rank.
        from: u32,
        /// The receiving rank.
        to: u32,
        /// Length at the sender, in bytes.
        sent: u64,
        /// Length at the receiver, in bytes.
        expected: u64,
    },
    /// A rank expects a block from a rank that sends it none.
    #[error(
        "rank {to} expects a block from rank {from} in {call}, which has none for it: their lists of neighbours must agree"
    )]
    MissingEdge {
        /// Name of the collective.
        call: &'static str,
        /// The rank without the block.
        from: u32,
        /// The rank that expects it.
        to: u32,
    },
    /// An argument outside its range.
    #[error("{what} is {found}, it must be {expected}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// Its value.
        found: String,
        /// The permitted values.
        expected: String,
    },
    /// The ranks' schedules do not fit together.
    #[error("the schedules do not fit together:\n{}", goal::check::list(.0))]
    Link(Vec<Problem>),
    /// A schedule is damaged.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The segment is full, or its contents are invalid.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// This rank's part of the segment is full.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// A rank's part of the segment has no space for what all ranks of a call need.
    #[error("{0}")]
    NoMemory(String),
    /// Failure of a system call that the job needs.
    #[error("{what}: {source}")]
    System {
        /// The attempted step, with the remedy.
        what: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The segment was created by another version, or belongs to no job.
    #[error(
        "the segment is not a job of this version of tradewind: start all ranks with the same version"
    )]
    NotAJob,
    /// The job's environment is incomplete or contradictory.
    #[error("{0}")]
    Environment(String),
}

impl Error {
    /// Returns the error once more, for another request that fails because of it.
    #[cold]
    pub(crate) fn copy(&self) -> Self {
        match self {
            Error::Mismatch { sequence, calls } => {
                Error::Mismatch { sequence: *sequence, calls: calls.clone() }
            }
            other => Error::Environment(other.to_string()),
        }
    }

    /// Returns whether the error is one of memory that may be free later.
    #[cold]
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(
            self,
            Error::Arena(
                ArenaError::Full { .. } | ArenaError::Segment(SegmentError::NoSpace { .. })
            )
        )
    }

    /// Returns the error of a flat reduction.
    #[cold]
    pub(crate) fn of_reduction(failure: ArithmeticError) -> Self {
        match failure {
            ArithmeticError::DivisionByZero { .. } => Error::DivisionByZero { vertex: None },
            other => Error::Argument {
                what: "the contribution",
                found: other.to_string(),
                expected: "whole elements that the operation applies to".into(),
            },
        }
    }
}

fn vertex_of_rank((rank, vertex): (u32, u32)) -> String {
    format!(" in vertex {vertex} of rank {rank}")
}

/// Formats a mismatch, largest group first: "3 of 4 ranks are in allreduce #17, rank 1 is in
/// barrier #17".
fn mismatch(sequence: u64, calls: &[Signature]) -> String {
    let mut groups: Vec<(Signature, Vec<usize>)> = Vec::new();
    for (rank, call) in calls.iter().enumerate() {
        match groups.iter_mut().find(|(known, _)| known == call) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((*call, vec![rank])),
        }
    }
    groups.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
    let arrived = groups.iter().map(|(call, _)| call.kind).filter(|kind| *kind != CallKind::None);
    let same_kind = arrived.collect::<HashSet<_>>().len() == 1;
    let parts = groups.iter().enumerate().map(|(index, (call, ranks))| {
        if call.kind == CallKind::None {
            let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
            return match ranks.as_slice() {
                [rank] => format!("rank {rank} has not started this collective"),
                ranks => format!("ranks {} have not started it", ranks.join(", ")),
            };
        }
        let who = match ranks.as_slice() {
            [rank] => format!("rank {rank} is"),
            _ if index == 0 => format!("{} of {} ranks are", ranks.len(), calls.len()),
            _ => format!(
                "ranks {} are",
                ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            ),
        };
        format!("{who} in {}", call.describe(sequence, same_kind))
    });
    let same_size = same_kind && groups.iter().all(|(call, _)| call.bytes == groups[0].0.bytes);
    let forms = match groups.as_slice() {
        [(first, _), (second, _)] => {
            Signature::different_forms(first.digest24(), second.digest24())
        }
        _ => None,
    };
    let why = match forms {
        Some(forms) => forms,
        None if same_size && groups.len() > 1 => {
            ": they differ in something else, such as root, operation or type"
        }
        None => "",
    };
    format!("{}{why}", parts.collect::<Vec<_>>().join(", "))
}

fn stragglers(list: &[Straggler]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let parts = list.iter().map(|straggler| {
        let stopped = if straggler.stopped { ", stopped by a signal" } else { "" };
        format!("rank {} (process {}{stopped})", straggler.rank, straggler.process)
    });
    format!(": waiting for {}", parts.collect::<Vec<_>>().join(", "))
}
