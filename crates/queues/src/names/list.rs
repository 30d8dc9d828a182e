//! The jobs of a name server that admit all other jobs.

use super::error::NameError;
use super::server_connection::ServerConnection;
use super::wire::{JobEntry, Request, Response};
use shm::broker::Connection;
use std::time::Instant;

/// Returns the jobs that admit all other jobs, in the order of their names.
///
/// # Errors
///
/// [`NameError::Refused`], [`NameError::NoAnswer`], [`NameError::ServerGone`].
pub fn open_jobs(socket: Connection, deadline: Instant) -> Result<Vec<JobEntry>, NameError> {
    let server = ServerConnection::new(socket);
    let mut jobs: Vec<JobEntry> = Vec::new();
    loop {
        // One job a message, because a message has a maximum length. The name leads to the next
        // job also if this one ends meanwhile.
        let after = jobs.last().map(|job| job.name.clone()).unwrap_or_default();
        let action = || "list its jobs".to_owned();
        match server.request(action, &Request::NextJob { after }, deadline)?.0 {
            Response::Job(job) => jobs.push(job),
            Response::Done => return Ok(jobs),
            _ => return Err(NameError::UnexpectedResponse),
        }
    }
}
