//! Configuration of a job at the name server, and the limits of connections.

use super::codec::fields;
use crate::receive_queues::{MAX_RINGS, QueuesConfig};

/// Cache lines of a connection's ring.
pub const RING_LINES: u32 = 256;
/// Bytes of a connection's ring.
pub const RING_BYTES: u64 = 64 * RING_LINES as u64 + 256;
/// Length of the longest message of a connection in bytes: a quarter of its ring, less the header.
/// Longer data is sent in pieces, or between processes of one job through their segment
/// ([`tag_on`](crate::tag_on), [`bulk`](crate::bulk)).
pub const MAX_MESSAGE_BYTES: usize = RING_LINES as usize / 4 * 64 - 8;
/// Largest number of connections of a process with rings, both directions together.
pub const MAX_RING_CONNECTIONS: usize = 4096;
/// Largest number of connections on which a process sends through receive queues.
pub const MAX_QUEUE_CONNECTIONS: usize = 1 << 15;

/// Configuration of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobConfig {
    /// Name of the job: 1 to 64 bytes.
    pub name: String,
    /// Number of processes.
    pub processes: u32,
    /// Number of ports per process.
    pub ports: u16,
    /// Number of names, those of its own ports and of other jobs' ports together: at most 16,384.
    pub names: u16,
    /// Size of the job's segment in bytes; 0 for none. With a segment, its processes have receive
    /// queues.
    pub segment_bytes: u64,
    /// Number of ports of a process that are resident at the same time, if the job has receive
    /// queues.
    pub resident: u16,
    /// Permits every other job of the user to send to this one, as [`JobOwner::allow`] permits one
    /// of them. [`JobOwner::forbid`] still excludes single jobs.
    ///
    /// [`JobOwner::allow`]: super::JobOwner::allow
    /// [`JobOwner::forbid`]: super::JobOwner::forbid
    pub admits_all: bool,
}

impl JobConfig {
    /// Returns the configuration of a job with one process, one port, 512 names and no segment,
    /// to which no other job may send.
    /// With a segment, 16 of its ports would be resident.
    pub fn new(name: &str) -> JobConfig {
        JobConfig {
            name: name.to_owned(),
            processes: 1,
            ports: 1,
            names: 512,
            segment_bytes: 0,
            resident: 16,
            admits_all: false,
        }
    }
}

fields! {
    JobConfig { name, processes, ports, names, segment_bytes, resident, admits_all }
}

/// Returns the configuration of the receive queues of a process with this many ports.
pub fn queues_config(ports: u16, resident: u16) -> QueuesConfig {
    let rings = usize::from(resident.min(ports)).min(MAX_RINGS);
    QueuesConfig { queues: usize::from(ports), rings, ..QueuesConfig::default() }
}
