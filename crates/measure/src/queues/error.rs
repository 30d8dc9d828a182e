//! What can go wrong with this experiment.

use super::mechanism::Mechanism;
use tradewind::queues::bulk;

/// Why messages could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueuesError {
    /// The messages themselves: a rank is gone, the segment is full.
    #[error(transparent)]
    Tradewind(#[from] tradewind::Error),
    /// A bulk transfer failed.
    #[error(transparent)]
    Bulk(#[from] bulk::BulkError),
    /// A Basic ring failed.
    #[error(transparent)]
    Basic(#[from] tradewind::queues::basic::BasicError),
    /// Tag-On failed.
    #[error(transparent)]
    TagOn(#[from] tradewind::queues::tag_on::TagOnError),
    /// There can be no bulk transfers.
    #[error(transparent)]
    BulkOpen(#[from] bulk::OpenError),
    /// No place in the segment.
    #[error(transparent)]
    Arena(#[from] shm::arena::ArenaError),
    /// A place that is none.
    #[error(transparent)]
    Segment(#[from] shm::segment::SegmentError),
    /// Something that was asked for cannot be.
    #[error("{what} is {found}: give {expected}")]
    Argument {
        /// What.
        what: &'static str,
        /// What was asked for.
        found: String,
        /// What it can be.
        expected: &'static str,
    },
    /// No mechanism can be measured with any of the sizes and numbers of threads.
    #[error("nothing is left to measure: {why}")]
    Nothing {
        /// What stands in the way of each mechanism.
        why: String,
    },
    /// A message was not the one that was sent.
    #[error(
        "{mechanism} of {bytes} bytes gave rank {rank} wrong data: please report this, none of its figures can be trusted"
    )]
    WrongData {
        /// How it was sent.
        mechanism: Mechanism,
        /// Its size.
        bytes: u64,
        /// The receiver.
        rank: u32,
    },
}

/// The errors of single mechanisms, by way of the façade's.
macro_rules! by_way_of_tradewind {
    ($($error:ty),+ $(,)?) => {
        $(
            impl From<$error> for QueuesError {
                fn from(error: $error) -> Self {
                    QueuesError::Tradewind(error.into())
                }
            }
        )+
    };
}

by_way_of_tradewind!(
    tradewind::queues::error::CreateError,
    tradewind::queues::queue::SendError,
    tradewind::queues::queue::RecvError,
    tradewind::queues::channel::SendError,
    tradewind::queues::channel::RecvError,
    tradewind::queues::window::RemoteError,
);
