//! Addresses of ports, identities of peers, and the key of a job.

use super::error::NameError;
use std::fmt;
use std::str::FromStr;

/// Address of a port of a process of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortAddress {
    /// Name of the job.
    pub job: String,
    /// Index of the process in the job, from 0.
    pub process: u32,
    /// Index of the port in the process, from 0.
    pub port: u16,
}

impl PortAddress {
    /// Returns the address of a port.
    pub fn new(job: &str, process: u32, port: u16) -> PortAddress {
        PortAddress { job: job.to_owned(), process, port }
    }
}

impl fmt::Display for PortAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "port {} of process {} of job {}", self.port, self.process, self.job)
    }
}

/// The process at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Name of its job.
    pub job: String,
    /// Index of the process in the job.
    pub process: u32,
    /// Process number in the system.
    pub pid: u32,
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} of job {} (pid {})", self.process, self.job, self.pid)
    }
}

/// Key that admits a process to its job. The launcher passes it to the processes as text.
///
/// ```
/// use queues::names::JobKey;
/// let key: JobKey = "00000000000000000000000000000abc".parse()?;
/// assert_eq!(key.to_string(), "00000000000000000000000000000abc");
/// # Ok::<(), queues::names::NameError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobKey(u128);

impl JobKey {
    pub(super) fn new() -> Result<JobKey, NameError> {
        let random = shm::random::bytes().map_err(|source| NameError::System {
            action: "get random bytes from the system",
            source,
        })?;
        Ok(JobKey(u128::from_ne_bytes(random)))
    }

    pub(super) fn halves(self) -> [u64; 2] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }

    pub(super) fn from_halves([low, high]: [u64; 2]) -> JobKey {
        JobKey(u128::from(high) << 64 | u128::from(low))
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for JobKey {
    /// Omits the key, so that it does not appear in logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JobKey(..)")
    }
}

impl FromStr for JobKey {
    type Err = NameError;

    fn from_str(text: &str) -> Result<JobKey, NameError> {
        u128::from_str_radix(text, 16).map(JobKey).map_err(|_| NameError::Key)
    }
}
