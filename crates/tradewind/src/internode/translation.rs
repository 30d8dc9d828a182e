//! Translation of a backend's errors into those of a communicator.

use crate::error::Error;
use engine::call::Call;
use network::backend::CommunicatorContext;
use network::error::{Error as BackendError, RankExit};

/// Rank in the communicator of a rank of the job.
pub(super) fn rank_in(context: &CommunicatorContext, member: u32) -> Option<u32> {
    context.members.iter().position(|other| *other == member).map(|rank| rank as u32)
}

/// The error with ranks of the communicator instead of ranks of the job, and calls by name.
pub(super) fn translate(context: &CommunicatorContext, error: BackendError) -> Error {
    match error {
        BackendError::RankFailed { rank: member, how } => match rank_in(context, member) {
            Some(rank) => Error::Network(BackendError::RankFailed { rank, how }),
            None => Error::Network(BackendError::RankFailed {
                rank: member,
                how: RankExit::Failed(format!("of the job {how}")),
            }),
        },
        BackendError::DivisionByZero { rank, vertex, .. } => {
            engine::Error::DivisionByZero { rank, vertex }.into()
        }
        BackendError::Mismatch { sequence, ours, rank, theirs } => Error::DifferentCollectives {
            sequence,
            rank: context.rank,
            ours: Call::kind_of(ours).name(),
            other: rank_in(context, rank).unwrap_or(rank),
            theirs: Call::kind_of(theirs).name(),
        },
        other => Error::Network(other),
    }
}
