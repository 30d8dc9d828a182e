//! What can go wrong in an experiment.

use crate::overlap::Collective;

/// Why an experiment could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The collectives themselves: a rank failed, the segment is full.
    #[error(transparent)]
    Tradewind(#[from] tradewind::Error),
    /// An engine between nodes.
    #[error(transparent)]
    Network(#[from] network::carrier::Error),
    /// A socket, with nothing of ours between it and the network.
    #[error("a plain socket between the nodes: {0}")]
    Socket(#[from] std::io::Error),
    /// A graph that no collective has.
    #[error(transparent)]
    Graph(#[from] collectives::CollectiveError),
    /// A thread that was a rank.
    #[error("a rank of the measurement panicked: please report what it said above")]
    Panicked,
    /// A run that was complete and then was not.
    #[error(
        "a complete run was found incomplete: please report this, the engine cannot be trusted"
    )]
    Forgotten,
    /// A size that the collective cannot have.
    #[error("{collective} cannot be measured with {bytes} bytes: give {expected}")]
    Bytes {
        /// The collective.
        collective: Collective,
        /// What was asked for.
        bytes: u64,
        /// What it can have.
        expected: &'static str,
    },
    /// A number that has to be positive is not.
    #[error("{what} is {found}: give {expected}")]
    Argument {
        /// Which.
        what: &'static str,
        /// What was asked for.
        found: String,
        /// What it can be.
        expected: &'static str,
    },
    /// A collective gave something else than it should.
    #[error(
        "rank {rank} got wrong data from {collective} of {bytes} bytes, first at byte {at}: please report this, none of \
         its figures can be trusted"
    )]
    WrongData {
        /// The rank.
        rank: u32,
        /// The collective.
        collective: Collective,
        /// Its size.
        bytes: u64,
        /// The first wrong byte of the output.
        at: usize,
    },
    /// The machine does not tell what is asked for.
    #[error("cannot read the processor time of process {process}: {source}")]
    Processor {
        /// The process.
        process: u32,
        /// The system's reason.
        source: shm::process::ProcessError,
    },
    /// A plan that cannot be run.
    #[error(transparent)]
    Plan(crate::collectives::PlanError),
    /// An algorithm gave something else than it should.
    #[error(
        "rank {rank} got wrong data from {shape} by {plan}, first at byte {at}: please report this, none of its figures can be trusted"
    )]
    WrongResult {
        /// The rank.
        rank: u32,
        /// What was run.
        shape: crate::collectives::Shape,
        /// By what.
        plan: Box<models::decision::Plan>,
        /// The first wrong byte of the output.
        at: usize,
    },
}
