//! The one error type of all experiments.
//!
//! Variants name collectives, mechanisms and algorithms by text: the harness has no dependency on
//! the experiments that it runs.

use collectives::CollectiveError;
use goal::arithmetic::UnknownName;
use goal::compile::CompileError;
use queues::bulk;

/// Reason why an experiment cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library under measurement failed: a rank is gone, the segment is full.
    #[error(transparent)]
    Tradewind(#[from] tradewind::Error),
    /// A backend between nodes failed.
    #[error(transparent)]
    Network(#[from] network::error::Error),
    /// A plain socket, the lower bound between nodes, failed.
    #[error("a plain socket between the nodes: {0}")]
    Socket(#[from] std::io::Error),
    /// No graph exists for these parameters of a collective.
    #[error(transparent)]
    Graph(#[from] CollectiveError),
    /// A graph cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// An algorithm has a model and no graph.
    #[error(transparent)]
    Algorithm(#[from] UnknownName),
    /// A two-level algorithm on ranks of one node.
    #[error("a plan in two levels needs several nodes, and what is measured here is one")]
    TwoLevels,
    /// A bulk transfer failed.
    #[error(transparent)]
    Bulk(#[from] bulk::BulkError),
    /// A Tag-On pool failed.
    #[error(transparent)]
    TagOn(#[from] queues::tag_on::TagOnError),
    /// The segment has no space left.
    #[error(transparent)]
    Arena(#[from] shm::arena::ArenaError),
    /// An offset that lies outside the segment.
    #[error(transparent)]
    Segment(#[from] shm::segment::SegmentError),
    /// A file that an experiment writes itself failed.
    #[error(transparent)]
    File(#[from] models::file::FileError),
    /// Rows cannot be read or kept.
    #[error(transparent)]
    Rows(#[from] crate::rows::RowsError),
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

/// Converts the errors of single mechanisms by way of the façade's.
macro_rules! by_way_of_tradewind {
    ($($error:ty),+ $(,)?) => {
        $(
            impl From<$error> for Error {
                fn from(error: $error) -> Self {
                    Error::Tradewind(error.into())
                }
            }
        )+
    };
}

by_way_of_tradewind!(
    queues::error::CreateError,
    queues::error::SendError,
    queues::error::RecvError,
    queues::window::WindowError,
);
