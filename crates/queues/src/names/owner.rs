//! The owner of a job at a name server in another process.

use super::address::PortAddress;
use super::config::JobConfig;
use super::error::NameError;
use super::key::JobKey;
use super::server_connection::ServerConnection;
use super::wire::{Request, Response};
use crate::id::QueueName;
use shm::broker::{Connection, connect};
use std::time::{Duration, Instant};

/// Time to wait for a response of the name server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A job that this process has added to a name server.
///
/// The owner passes the job's key to its processes and decides which other jobs may send to it. The
/// job exists until this value has been dropped and the last of its processes has ended; then its
/// name is free for another job.
#[derive(Debug)]
pub struct JobOwner {
    server: ServerConnection,
    name_server: String,
    server_pid: Option<u32>,
    job: String,
    key: JobKey,
}

impl JobOwner {
    /// Adds a job to the name server of this name. The server may still be starting: the call
    /// retries until `timeout` has passed.
    ///
    /// # Errors
    ///
    /// [`NameError::Broker`] if there is no name server of this name, [`NameError::Refused`],
    /// [`NameError::NoAnswer`], [`NameError::ServerGone`].
    pub fn add(
        name_server: &str,
        config: &JobConfig,
        timeout: Duration,
    ) -> Result<JobOwner, NameError> {
        let deadline = Instant::now() + timeout;
        JobOwner::add_over(connect(name_server, timeout)?, name_server, config, deadline)
    }

    /// Adds a job as [`Self::add`] does, over a connection to the name server.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub fn add_over(
        socket: Connection,
        name_server: &str,
        config: &JobConfig,
        deadline: Instant,
    ) -> Result<JobOwner, NameError> {
        let server_pid = socket.peer().pid;
        let server = ServerConnection::new(socket);
        let started = shm::process::start_time(std::process::id())?;
        let request = Request::AddJob { config: config.clone(), started };
        let action = || format!("add job {}", config.name);
        let (Response::JobAdded { key }, _) = server.request(action, &request, deadline)? else {
            return Err(NameError::UnexpectedResponse);
        };
        let name_server = name_server.to_owned();
        Ok(JobOwner { server, name_server, server_pid, job: config.name.clone(), key })
    }

    /// Returns the key that admits a process to the job.
    pub fn key(&self) -> JobKey {
        self.key
    }

    /// Returns the name of the name server.
    pub fn name_server(&self) -> &str {
        &self.name_server
    }

    /// Returns the process number of the name server; `None` if it is in a process namespace that
    /// this process cannot see.
    pub fn server_pid(&self) -> Option<u32> {
        self.server_pid
    }

    /// Permits processes of job `from` to send to those of this job.
    ///
    /// # Errors
    ///
    /// [`NameError::Refused`] if there is no job `from`, [`NameError::NoAnswer`],
    /// [`NameError::ServerGone`].
    pub fn allow(&self, from: &str) -> Result<(), NameError> {
        let action = || format!("let job {from} send to job {}", self.job);
        self.change(action, &Request::SetRight { from: from.to_owned(), may: true })
    }

    /// Revokes that right: names are revoked and connections closed.
    ///
    /// # Errors
    ///
    /// As [`Self::allow`].
    pub fn forbid(&self, from: &str) -> Result<(), NameError> {
        let action = || format!("forbid job {from} to send to job {}", self.job);
        self.change(action, &Request::SetRight { from: from.to_owned(), may: false })
    }

    /// Revokes one name of the job, for ever.
    ///
    /// # Errors
    ///
    /// [`NameError::Refused`] if the job has no such name, and as [`Self::allow`].
    pub fn revoke(&self, name: QueueName) -> Result<(), NameError> {
        self.change(|| format!("revoke name {name}"), &Request::Revoke { name })
    }

    /// Re-points a name of the job to another port. If that is a port of the same job as before,
    /// the connections of the name move too, and no message is lost, duplicated or reordered (see
    /// "Moving" in the [module's page](super)). Otherwise the connections are closed.
    ///
    /// # Errors
    ///
    /// [`NameError::Refused`] for a name or port that does not exist or to which the job may not
    /// send, and as [`Self::allow`].
    pub fn repoint(&self, name: QueueName, to: &PortAddress) -> Result<(), NameError> {
        let action = || format!("re-point name {name} to {to}");
        self.change(action, &Request::Repoint { name, to: to.clone() })
    }

    /// Re-points every name of a port of the job, in every job, to another of its ports: a rank
    /// moves to another process. See [`Self::repoint`].
    ///
    /// # Errors
    ///
    /// [`NameError::Refused`] for a port that does not exist, is of another job or, for the target,
    /// is not open, and as [`Self::allow`].
    pub fn move_port(&self, from: &PortAddress, to: &PortAddress) -> Result<(), NameError> {
        let action = || format!("move {from} to {to}");
        self.change(action, &Request::MovePort { from: from.clone(), to: to.clone() })
    }

    fn change(&self, action: impl FnOnce() -> String, request: &Request) -> Result<(), NameError> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        match self.server.request(action, request, deadline)?.0 {
            Response::Done => Ok(()),
            _ => Err(NameError::UnexpectedResponse),
        }
    }
}
