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
