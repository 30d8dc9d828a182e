//! Translation of a backend's errors into those of a communicator.

use crate::error::Error;
use crate::failure::Exit;
use engine::signature::Signature;
use network::backend::CommunicatorContext;
use network::error::Error as BackendError;

/// Rank in the communicator of a rank of the job.
pub(super) fn rank_in(context: &CommunicatorContext, member: u32) -> Option<u32> {
    context.members.iter().position(|other| *other == member).map(|rank| rank as u32)
}

/// The error with ranks of the communicator instead of ranks of the job, and calls by name.
pub(super) fn translate(context: &CommunicatorContext, error: BackendError) -> Error {
    match error {
        BackendError::RankFailed { rank: member, how } => match rank_in(context, member) {
            Some(rank) => Error::RankFailed { rank, how: how.into() },
            None => {
                Error::RankFailed { rank: member, how: Exit::Remote(format!("of the job {how}")) }
            }
        },
        BackendError::Mismatch { sequence, ours, rank, theirs } => {
            let own = context.rank;
            let other = rank_in(context, rank).unwrap_or(rank);
            let forms = Signature::different_forms(ours, theirs);
            let ours = Signature::kind_of(ours).name();
            let theirs = Signature::kind_of(theirs).name();
            let hint = match forms {
                Some(forms) => forms,
                None if ours == theirs => {
                    ": they differ in something else, such as size, root, operation or type"
                }
                None => "",
            };
            let calls = format!(
                "rank {own} is in {ours} #{sequence}, rank {other} is in {theirs} #{sequence}{hint}"
            );
            Error::Mismatch { sequence, calls }
        }
        other => other.into(),
    }
}
