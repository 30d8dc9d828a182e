//! Records of the directory: jobs, their processes, and open ports.

use queues::id::{QueueIndex, QueueName, SourceName};
use queues::names::{JobConfig, JobKey, Refusal, SourceTableWriter, TableWriter, queues_config};
use rustix::event::{EventfdFlags, eventfd};
use shm::segment::{Backing, Segment};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::SystemTime;

/// Number of a job, never reused.
pub(super) type JobId = u64;
/// Number of a registered process, never reused.
pub(super) type MemberId = u32;

/// A port of a process of a job, open or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PortId {
    pub(super) job: JobId,
    pub(super) process: u32,
    pub(super) port: u16,
}

/// Registration state of a process of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessSlot {
    Empty,
    Taken(MemberId),
    /// A process was registered and has ended.
    Left,
}

/// Reason for which a job stays in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobLifetime {
    /// The job stays as long as the server runs.
    Server,
    /// The client that added the job is connected.
    Owner,
    /// That client has left: the job stays while one of its processes is registered.
    Processes,
}

#[derive(Debug)]
pub(super) struct JobRecord {
    pub(super) lifetime: JobLifetime,
    /// Process that added it; 0 for this one.
    pub(super) pid: u32,
    pub(super) since: SystemTime,
    pub(super) plan: JobConfig,
    pub(super) key: JobKey,
    pub(super) segment: Option<Segment>,
    pub(super) slots: Vec<ProcessSlot>,
    /// Meaning of each name: the own ports first.
    pub(super) names: Vec<PortId>,
    /// Names of other jobs' ports.
    pub(super) foreign: HashMap<PortId, QueueName>,
    /// Jobs to which it may send; false if the right was revoked.
    pub(super) rights: HashMap<JobId, bool>,
    /// Names that were revoked one by one.
    pub(super) revoked: HashSet<QueueName>,
}

/// A registered process.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) job: JobId,
    pub(super) process: u32,
    pub(super) pid: u32,
    pub(super) ports: BTreeMap<u16, OpenPort>,
    /// Present if the job has a segment.
    pub(super) receive_queues: Option<QueuesParts>,
}

/// Descriptors with which other processes send through the receive queues of a process.
#[derive(Debug)]
pub(super) struct QueuesParts {
    pub(super) memory: Segment,
    pub(super) event: OwnedFd,
}

impl QueuesParts {
    pub(super) fn create(plan: &JobConfig) -> Result<QueuesParts, Refusal> {
        let bytes =
            queues_config(plan.ports, plan.resident).max_bytes().map_err(Refusal::system)?;
        let memory = Segment::create(bytes, Backing::Memory).map_err(Refusal::system)?;
        let event =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Refusal::system)?;
        Ok(QueuesParts { memory, event })
    }
}

#[derive(Debug)]
pub(super) struct OpenPort {
    pub(super) queue: QueueIndex,
    pub(super) table: TableWriter,
    pub(super) sources: SourceTableWriter,
    /// Sources that its owner accepts; `None` for all.
    pub(super) only: Option<HashSet<SourceName>>,
}

impl OpenPort {
    pub(super) fn queue(&self) -> QueueIndex {
        self.queue
    }

    pub(super) fn accepts(&self, source: SourceName) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&source))
    }
}
