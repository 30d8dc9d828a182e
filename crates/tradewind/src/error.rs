//! What can go wrong, in one type.

use goal::compile::CompileError;
use std::time::Duration;

/// Why a call failed, in sentences, as `Debug` too: that is what a program shows whose `main` gives
/// a [`Result`]. The engine's errors name ranks and collectives; see [`engine::Error`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank is gone, ranks are in different collectives, time is over, the segment is full, …
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// An argument of a collective is outside its range.
    #[error(transparent)]
    Collective(#[from] collectives::CollectiveError),
    /// A graph cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The job could not be joined.
    #[error(transparent)]
    Service(#[from] service::ServiceError),
    /// A message, a channel or a remote memory command failed.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A node cannot be reached, a rank of a communicator on several nodes is gone, … Ranks are
    /// those of the communicator.
    #[error(transparent)]
    Network(network::error::Error),
    /// Two ranks on different nodes are in different collectives.
    #[error("rank {rank} is in {ours} #{sequence}, rank {other} is in {theirs} #{sequence}{}", same_name(.ours, .theirs))]
    DifferentCollectives {
        /// The number of the collective on its communicator, from 0.
        sequence: u64,
        /// This rank.
        rank: u32,
        /// What it called.
        ours: &'static str,
        /// The other rank.
        other: u32,
        /// What that called.
        theirs: &'static str,
    },
    /// The time given to a collective between nodes was over.
    #[error("not complete after {after:?}{}", awaited(.waiting_for))]
    NotComplete {
        /// The time given.
        after: Duration,
        /// Ranks whose messages are missing, as far as this node's engine can see.
        waiting_for: Vec<Awaited>,
    },
    /// Something that lives in shared memory was asked of ranks on several nodes.
    #[error(
        "{what} need ranks that share memory: ask it of the ranks of one node (`split_by_node`)"
    )]
    SeveralNodes {
        /// What was asked for.
        what: &'static str,
    },
    /// The job has several nodes and nothing that works between them.
    #[error("this job has no engine between nodes")]
    NoCarrier,
    /// A rank of [`local`](crate::local) panicked.
    #[error("rank {rank} panicked: {message}")]
    Panicked {
        /// The rank.
        rank: u32,
        /// What it said.
        message: String,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    File {
        /// Which.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// A rank on some node that others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The rank in the communicator.
    pub rank: u32,
    /// The number of its node in the job.
    pub node: u32,
}

fn awaited(list: &[Awaited]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let parts: Vec<String> =
        list.iter().map(|Awaited { rank, node }| format!("rank {rank} (node {node})")).collect();
    format!(": waiting for messages of {}", parts.join(", "))
}

fn same_name(ours: &str, theirs: &str) -> &'static str {
    if ours == theirs {
        ": they differ in something else, such as size, root, operation, type"
    } else {
        ""
    }
}

impl From<Box<engine::Error>> for Error {
    #[cold]
    fn from(error: Box<engine::Error>) -> Self {
        Error::Engine(*error)
    }
}

/// What can go wrong with messages that no collective describes; see [`queues`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is the error it names")]
pub enum MessageError {
    #[error(transparent)]
    Queue(#[from] queues::error::CreateError),
    #[error(transparent)]
    Send(#[from] queues::queue::SendError),
    #[error(transparent)]
    Receive(#[from] queues::queue::RecvError),
    #[error(transparent)]
    ChannelOpen(#[from] queues::channel::OpenError),
    #[error(transparent)]
    ChannelSend(#[from] queues::channel::SendError),
    #[error(transparent)]
    ChannelReceive(#[from] queues::channel::RecvError),
    #[error(transparent)]
    Window(#[from] queues::window::WindowError),
    #[error(transparent)]
    Remote(#[from] queues::window::RemoteError),
    #[error(transparent)]
    LinkOpen(#[from] queues::bulk::OpenError),
    #[error(transparent)]
    Link(#[from] queues::bulk::BulkError),
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
    queues::queue::SendError,
    queues::queue::RecvError,
    queues::channel::OpenError,
    queues::channel::SendError,
    queues::channel::RecvError,
    queues::window::WindowError,
    queues::window::RemoteError,
    queues::bulk::OpenError,
    queues::bulk::BulkError,
);

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl std::fmt::Debug for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, formatter)
    }
}

impl Error {
    /// The rank that failed, if that is what happened.
    pub fn failed_rank(&self) -> Option<u32> {
        match self {
            Error::Engine(engine::Error::RankFailed { rank, .. })
            | Error::Network(network::error::Error::RankFailed { rank, .. })
            | Error::Panicked { rank, .. } => Some(*rank),
            _ => None,
        }
    }

    /// The node that cannot be reached, by its number in the job, if that is what happened.
    pub fn unreachable_node(&self) -> Option<u32> {
        match self {
            Error::Network(network::error::Error::NodeUnreachable { node, .. }) => Some(*node),
            _ => None,
        }
    }

    /// Whether only the time given was over, so that it can be waited for again.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Error::Engine(engine::Error::Timeout { .. }) | Error::NotComplete { .. })
    }
}

/// An argument error in the engine's words.
#[cold]
pub(crate) fn argument(
    what: &'static str,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> Error {
    Error::Engine(engine::Error::Argument { what, found: found.into(), expected: expected.into() })
}
