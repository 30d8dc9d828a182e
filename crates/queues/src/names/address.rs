//! Addresses of ports, and identities of peers.

use super::codec::fields;
use std::fmt;

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

fields! {
    PortAddress { job, process, port }
    Peer { job, process, pid }
}
