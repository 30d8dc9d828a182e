//! The one error type of all experiments.
//!
//! Variants name collectives, mechanisms and algorithms by text: the harness has no dependency on
//! the experiments that it runs.

/// Reason why an experiment cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that an experiment uses failed: the library under measurement, because a rank is gone
    /// or the segment is full, a network, a file.
    #[error(transparent)]
    Cause(Box<dyn std::error::Error + Send + Sync>),
    /// A rank that is a thread panicked.
    #[error("a rank of the measurement panicked: please report what it said above")]
    Panicked,
    /// A size that the collective does not support.
    #[error("{collective} cannot be measured with {bytes} bytes: give {expected}")]
    Bytes {
        /// Name of the collective.
        collective: String,
        /// The size.
        bytes: u64,
        /// Sizes that it supports.
        expected: &'static str,
    },
    /// An argument outside its range.
    #[error("{what} is {found}: give {expected}")]
    Argument {
        /// Name of the argument.
        what: &'static str,
        /// Its value.
        found: String,
        /// Its range.
        expected: &'static str,
    },
    /// No mechanism supports any of the sizes and numbers of threads.
    #[error("nothing is left to measure: {why}")]
    Nothing {
        /// Reason for each mechanism.
        why: String,
    },
    /// The results of an operation differ from those expected.
    #[error(
        "rank {rank} got wrong data in {what}: please report this, none of the figures can be \
         trusted"
    )]
    WrongData {
        /// The first rank with wrong data.
        rank: u32,
        /// The operation, its size and, if known, the first wrong byte.
        what: String,
    },
    /// The system does not report the CPU time of a process.
    #[error("cannot read the processor time of process {process}: {source}")]
    Processor {
        /// The process.
        process: u32,
        /// The system's reason.
        source: shm::process::ProcessError,
    },
    /// The experiment is impossible on this machine or in this directory.
    #[error("{what}; {way_out}")]
    Impossible {
        /// The obstacle.
        what: String,
        /// The remedy.
        way_out: String,
    },
    /// A step failed.
    #[error("{step}: {source}")]
    Step {
        /// Name of the step.
        step: String,
        /// Its error.
        source: Box<Error>,
    },
}

impl Error {
    /// Adds the name of the step that failed.
    pub(super) fn in_step(self, step: &str) -> Self {
        Error::Step { step: step.to_owned(), source: Box::new(self) }
    }
}

/// Converts the errors of what experiments use.
macro_rules! causes {
    ($($error:ty),+ $(,)?) => {
        $(
            impl From<$error> for Error {
                fn from(error: $error) -> Self {
                    Error::Cause(Box::new(error))
                }
            }
        )+
    };
}

causes!(
    std::io::Error,
    collectives::CollectiveError,
    collectives::UnknownName,
    crate::rows::RowsError,
    goal::compile::CompileError,
    models::file::FileError,
    network::error::Error,
    queues::bulk::BulkError,
    queues::error::CreateError,
    queues::error::RecvError,
    queues::error::SendError,
    queues::tag_on::TagOnError,
    queues::window::WindowError,
    shm::arena::ArenaError,
    shm::segment::SegmentError,
    tradewind::Error,
);
