//! Errors of the library.

use crate::buffer_error::BufferError;
use crate::failure::{Exit, Straggler};
use collectives::CollectiveError;
use engine::signature::CallKind;
use goal::check::Problem;
use goal::compile::CompileError;
use std::time::Duration;

/// A failed call.
///
/// `Debug` prints the same sentences as `Display`: a program prints them if its `main` returns a
/// [`Result`]. Ranks are those of the communicator of the call.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank of the communicator is gone; the communicator cannot be used any more.
    #[error("rank {rank} {how}")]
    RankFailed {
        /// The rank that is gone.
        rank: u32,
        /// Its exit.
        how: Exit,
    },
    /// A node does not answer any more, or its node service has ended.
    #[error(
        "node {node} ({address}) is unreachable: {why}; communicators with its ranks are broken"
    )]
    NodeUnreachable {
        /// Number of the node in the job.
        node: u32,
        /// Its address.
        address: String,
        /// The evidence.
        why: String,
    },
    /// The node service of this node (`tradewind run`, or the process that the first rank started)
    /// is gone.
    #[error("the node service failed: its process is gone; start the job again")]
    ServiceFailed,
    /// The ranks are in different collectives.
    #[error("{calls}")]
    Mismatch {
        /// Number of the collective on its communicator, from 0.
        sequence: u64,
        /// The collectives and the ranks that called them.
        calls: String,
    },
    /// The communicator cannot be used since an earlier mismatch or failure.
    #[error(
        "this communicator is broken since an earlier mismatch or failure: use one that was created \
         before it (`split`), without the failed ranks if a rank has failed, or end the job"
    )]
    Broken,
    /// The other runtime of the process has ended the wait: the function of
    /// [`while_waiting`](crate::interop::while_waiting) broke it off.
    #[error("the wait was given up: the other runtime of this process has ended it")]
    GivenUp,
    /// The request has failed in an earlier call, which has returned the cause.
    #[error("this request has failed before: an earlier test or wait has returned the cause")]
    RequestFailed,
    /// The collective or message was not complete within the time given; it can be waited for again.
    #[error("not complete after {after:?}{}", Straggler::list(.waiting_for))]
    Timeout {
        /// The time given.
        after: Duration,
        /// Ranks that the collective waits for.
        waiting_for: Vec<Straggler>,
    },
    /// An integer was divided by zero; the element's result is 0, and the run has finished.
    #[error("integer division by zero{}", .vertex.map(vertex_of_rank).unwrap_or_default())]
    DivisionByZero {
        /// The rank and the vertex of its graph. `None` for a collective without a graph, in which
        /// any rank may execute the operation.
        vertex: Option<(u32, u32)>,
    },
    /// A schedule failed while it ran between nodes.
    #[error("{0}")]
    Run(String),
    /// An argument is outside its range.
    #[error("{what} is {found}, it must be {expected}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// Its value.
        found: String,
        /// The values that are allowed.
        expected: String,
    },
    /// A buffer, or a list of counts, does not fit its collective.
    #[error(transparent)]
    Buffer(#[from] Box<BufferError>),
    /// The number of buffers differs from the schedule's.
    #[error("the schedule declares {expected} buffers, {found} were passed: pass one for each")]
    BufferCount {
        /// Buffers that the schedule declares.
        expected: usize,
        /// Buffers that were passed.
        found: usize,
    },
    /// The length of a buffer differs from the schedule's.
    #[error(
        "buffer {buffer} has {found} bytes: pass the {expected} bytes that the schedule declares"
    )]
    BufferLength {
        /// Number of the buffer.
        buffer: usize,
        /// Bytes that the schedule declares.
        expected: u64,
        /// Bytes that were passed.
        found: u64,
    },
    /// Two ranks differ in the length of a block.
    #[error(
        "rank {from} has {sent} bytes for rank {to} in {call}, rank {to} expects {expected}: their counts must agree"
    )]
    BlockLength {
        /// The collective.
        call: &'static str,
        /// The sender of the block.
        from: u32,
        /// Its receiver.
        to: u32,
        /// Bytes that are sent.
        sent: u64,
        /// Bytes that are expected.
        expected: u64,
    },
    /// A rank expects a block from a rank that has none for it.
    #[error(
        "rank {to} expects a block from rank {from} in {call}, which has none for it: their lists of neighbours must agree"
    )]
    MissingEdge {
        /// The collective.
        call: &'static str,
        /// The rank without a block.
        from: u32,
        /// The rank that expects one.
        to: u32,
    },
    /// The arguments of a collective do not fit its algorithm.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// A graph cannot be compiled.
    #[error(transparent)]
    Graph(#[from] CompileError),
    /// The graphs of the ranks do not match.
    #[error("the schedules do not fit together:\n{}", goal::check::list(.0))]
    Link(Vec<Problem>),
    /// The job's segment is full, cannot be mapped, or is damaged.
    #[error("{0}")]
    NoMemory(String),
    /// A schedule, a run or a message is larger than a backend between nodes accepts.
    #[error("{0}")]
    TooLarge(String),
    /// Ranks on several nodes have no shared memory.
    #[error(
        "{what} need ranks that share memory: create them in the communicator of one node (`split_by_node`)"
    )]
    NeedsSharedMemory {
        /// The things that live in shared memory.
        what: &'static str,
    },
    /// Another rank could not create its part of a shared object; it has the reason.
    #[error("rank {rank} cannot make {what}: see its own message")]
    CreationFailed {
        /// The rank that failed.
        rank: u32,
        /// The object.
        what: &'static str,
    },
    /// The job could not be joined.
    #[error("{0}")]
    Startup(String),
    /// A rank of [`local`](crate::local) panicked.
    #[error("rank {rank} panicked: {message}")]
    Panicked {
        /// The rank.
        rank: u32,
        /// The message of the panic.
        message: String,
    },
    /// A message is longer than the buffer of its receive, which holds its beginning.
    #[error(
        "the message of rank {from} has {sent} bytes, the buffer of its receive {capacity}: make \
         the buffer larger, or probe for the length first"
    )]
    Truncated {
        /// The sender.
        from: u32,
        /// Length of the message in bytes.
        sent: u64,
        /// Length of the buffer in bytes.
        capacity: u64,
    },
    /// A message, a channel or a remote memory command failed.
    #[error(transparent)]
    Message(#[from] crate::messages::MessageError),
    /// The system refused an operation.
    #[error("{what}: {source}")]
    System {
        /// The operation, with the way out.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A defect of the library.
    #[error("{0}")]
    Internal(String),
}

/// A result with the error type [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl std::fmt::Debug for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, formatter)
    }
}

impl Error {
    /// The rank that failed or panicked, for the errors that mean this.
    pub fn failed_rank(&self) -> Option<u32> {
        match self {
            Error::RankFailed { rank, .. } | Error::Panicked { rank, .. } => Some(*rank),
            _ => None,
        }
    }

    /// Number in the job of the unreachable node, for the error that means this.
    pub fn unreachable_node(&self) -> Option<u32> {
        match self {
            Error::NodeUnreachable { node, .. } => Some(*node),
            _ => None,
        }
    }

    /// Returns `true` if the call timed out; the collective can be waited for again.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Error::Timeout { .. })
    }
}

/// An error in an argument.
#[cold]
pub(crate) fn argument(
    what: &'static str,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> Error {
    Error::Argument { what, found: found.into(), expected: expected.into() }
}

/// An error of a buffer or list `what` of a collective, which `found` but must `expected`.
#[cold]
pub(crate) fn does_not_fit(
    kind: CallKind,
    what: &'static str,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> Error {
    Error::Buffer(Box::new(BufferError::new(kind, what, found.into(), expected.into())))
}

fn vertex_of_rank((rank, vertex): (u32, u32)) -> String {
    format!(" in vertex {vertex} of rank {rank}")
}

impl From<Box<engine::Error>> for Error {
    #[cold]
    fn from(error: Box<engine::Error>) -> Self {
        Error::from(*error)
    }
}

impl From<engine::Error> for Error {
    #[cold]
    fn from(error: engine::Error) -> Self {
        use engine::Error as Engine;
        match error {
            Engine::RankFailed { rank, how } => Error::RankFailed { rank, how: how.into() },
            Engine::ServiceFailed => Error::ServiceFailed,
            Engine::Mismatch { sequence, .. } => {
                Error::Mismatch { sequence, calls: error.to_string() }
            }
            Engine::Broken => Error::Broken,
            Engine::GivenUp => Error::GivenUp,
            Engine::Timeout { after, waiting_for } => {
                let waiting_for = waiting_for.into_iter().map(Straggler::from).collect();
                Error::Timeout { after, waiting_for }
            }
            Engine::DivisionByZero { vertex } => Error::DivisionByZero { vertex },
            Engine::BufferLength { buffer, expected, found } => {
                Error::BufferLength { buffer, expected, found }
            }
            Engine::BufferCount { expected, found } => Error::BufferCount { expected, found },
            Engine::BlockLength { call, from, to, sent, expected } => {
                Error::BlockLength { call, from, to, sent, expected }
            }
            Engine::MissingEdge { call, from, to } => Error::MissingEdge { call, from, to },
            Engine::Argument { what, found, expected } => Error::Argument { what, found, expected },
            Engine::Link(problems) => Error::Link(problems),
            Engine::Segment(_) | Engine::Arena(_) | Engine::NoMemory(_) => {
                Error::NoMemory(error.to_string())
            }
            Engine::System { what, source } => Error::System { what, source },
            Engine::NotAJob | Engine::Environment(_) => Error::Startup(error.to_string()),
            other => Error::Internal(other.to_string()),
        }
    }
}

impl From<service::ServiceError> for Error {
    #[cold]
    fn from(error: service::ServiceError) -> Self {
        match error {
            service::ServiceError::Engine(error) => error.into(),
            service::ServiceError::Network(error) => error.into(),
            other => Error::Startup(other.to_string()),
        }
    }
}

/// Ranks stay those of the job.
impl From<network::error::Error> for Error {
    #[cold]
    fn from(error: network::error::Error) -> Self {
        use network::error::Error as Backend;
        match error {
            Backend::NodeUnreachable { node, address, why } => {
                Error::NodeUnreachable { node, address, why }
            }
            Backend::RankFailed { rank, how } => Error::RankFailed { rank, how: how.into() },
            Backend::DivisionByZero { rank, vertex, .. } => {
                Error::DivisionByZero { vertex: Some((rank, vertex)) }
            }
            Backend::Mismatch { sequence, .. } => {
                Error::Mismatch { sequence, calls: error.to_string() }
            }
            Backend::Length { buffer, expected, found } => {
                Error::BufferLength { buffer, expected, found }
            }
            Backend::TooLarge { .. } => Error::TooLarge(error.to_string()),
            Backend::System { what, why } => {
                Error::System { what, source: std::io::Error::other(why) }
            }
            other => Error::Run(other.to_string()),
        }
    }
}

macro_rules! from_messages {
    ($($error:ty),+ $(,)?) => {
        $(
            impl From<$error> for Error {
                fn from(error: $error) -> Self {
                    Error::Message(error.into())
                }
            }
        )+
    };
}

from_messages!(
    queues::error::CreateError,
    queues::error::SendError,
    queues::error::RecvError,
    queues::window::WindowError,
    queues::bulk::BulkError,
    queues::tag_on::TagOnError,
);
