//! Limits of the process that serves a job.

use crate::error::ServiceError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of descriptors for each rank: the handle of its process; its connection until it has a
/// response; and, as copies to be sent, the region and the doorbell that it shares with the agent,
/// and the maps that it shares with the kernel engine.
pub(crate) const FILES_PER_RANK: u32 = 8;

/// Returns how many descriptors may be kept for others: a quarter of the open files of this process,
/// so that the process itself does not run out of them.
pub(crate) fn spare_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4
}

/// Raises this process's limit on open files to `per_rank` for each rank and `others`, if it is
/// lower.
pub(crate) fn allow_open_files(ranks: u32, per_rank: u32, others: u64) -> Result<(), ServiceError> {
    let needed = u64::from(ranks) * u64::from(per_rank) + others + 64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let too_low = |limit| ServiceError::OpenFiles { ranks, needed, limit };
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        return Err(too_low(maximum));
    }
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| too_low(limit.current.unwrap_or(needed)))
}
