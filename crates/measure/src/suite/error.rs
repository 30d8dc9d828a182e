//! What can go wrong in an experiment of the suite.

use crate::queues::QueuesError;
use models::fit::FitError;

/// Why an experiment could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuiteError {
    /// The messages themselves: a rank is gone, the segment is full.
    #[error(transparent)]
    Tradewind(#[from] tradewind::Error),
    /// The queues beside them.
    #[error(transparent)]
    Queues(#[from] QueuesError),
    /// The experiment on overlap.
    #[error(transparent)]
    Overlap(#[from] crate::Error),
    /// Nothing can be fitted to what was measured.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// A file of its own could not be kept.
    #[error(transparent)]
    File(#[from] models::file::FileError),
    /// A finding names what the part does not have.
    #[error(
        "{what} {name:?} was found, and part {part:?} has none of that name: please report this"
    )]
    NoPlace {
        /// Figure, map or table.
        what: &'static str,
        /// Its name.
        name: String,
        /// The part.
        part: String,
    },
    /// A value that is none.
    #[error("{place} came to {value}: please report this")]
    NotFinite {
        /// Where.
        place: String,
        /// The value.
        value: f64,
    },
    /// A message was not the one that was sent.
    #[error(
        "rank {rank} got wrong data in {what}: please report this, none of the figures can be trusted"
    )]
    WrongData {
        /// The receiver.
        rank: u32,
        /// The message.
        what: String,
    },
    /// It cannot be done here.
    #[error("{what}; {way_out}")]
    Impossible {
        /// What cannot be done, and why.
        what: String,
        /// What to do instead.
        way_out: String,
    },
    /// A step failed.
    #[error("{step}: {source}")]
    Step {
        /// The step.
        step: String,
        /// Why.
        source: Box<SuiteError>,
    },
}

impl SuiteError {
    pub(super) fn in_step(self, step: &str) -> Self {
        SuiteError::Step { step: step.to_owned(), source: Box::new(self) }
    }
}

/// The errors of single mechanisms, by way of the façade's.
macro_rules! by_way_of_tradewind {
    ($($error:ty),+ $(,)?) => {
        $(
            impl From<$error> for SuiteError {
                fn from(error: $error) -> Self {
                    SuiteError::Tradewind(error.into())
                }
            }
        )+
    };
}

by_way_of_tradewind!(
    tradewind::queues::error::CreateError,
    tradewind::queues::queue::SendError,
    tradewind::queues::queue::RecvError,
);
