//! What can go wrong, in one type.

use goal::compile::CompileError;

/// Why a call failed. The engine's errors name ranks and collectives; see [`engine::Error`].
#[derive(Debug, thiserror::Error)]
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
    Queue(#[from] queues::ring::RingError),
    #[error(transparent)]
    Send(#[from] queues::queue::SendError),
    #[error(transparent)]
    Receive(#[from] queues::queue::ReceiveError),
    #[error(transparent)]
    ChannelOpen(#[from] queues::channel::OpenError),
    #[error(transparent)]
    ChannelSend(#[from] queues::channel::SendError),
    #[error(transparent)]
    ChannelReceive(#[from] queues::channel::ReceiveError),
    #[error(transparent)]
    Window(#[from] queues::window::WindowError),
    #[error(transparent)]
    Remote(#[from] queues::window::RemoteError),
    #[error(transparent)]
    LinkOpen(#[from] queues::dma::OpenError),
    #[error(transparent)]
    Link(#[from] queues::dma::DmaError),
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
    queues::ring::RingError,
    queues::queue::SendError,
    queues::queue::ReceiveError,
    queues::channel::OpenError,
    queues::channel::SendError,
    queues::channel::ReceiveError,
    queues::window::WindowError,
    queues::window::RemoteError,
    queues::dma::OpenError,
    queues::dma::DmaError,
);

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The rank that failed, if that is what happened.
    pub fn failed_rank(&self) -> Option<u32> {
        match self {
            Error::Engine(engine::Error::RankFailed { rank, .. }) | Error::Panicked { rank, .. } => Some(*rank),
            _ => None,
        }
    }
}

/// An argument error in the engine's words.
#[cold]
pub(crate) fn argument(what: &'static str, found: impl Into<String>, expected: impl Into<String>) -> Error {
    Error::Engine(engine::Error::Argument { what, found: found.into(), expected: expected.into() })
}
