//! The directory of jobs, processes, names and rights, from which every destination table is
//! written.
//!
//! A name of a job means a [`PortId`]: a port of a process of some job. A table entry depends on
//! the rights, on the registered processes and on the open ports. Whenever one of these changes,
//! the entries concerned are marked as stale, and [`Directory::settle`] writes them again.
//!
//! A job that a client has added is removed when the client has left and none of its processes is
//! registered. Its number is not used again, so a later job of the same name gets none of its
//! rights, and names that other jobs have for its ports report the end. Such a name is used for
//! another port when a job has no unused name left.

mod entries;

use super::open_job::PRIVATE;
use super::records::{
    JobId, JobLifetime, JobRecord, Member, MemberId, OpenPort, PortId, ProcessSlot, QueuesParts,
};
use queues::id::{NAMES, NodeName, QUEUES, QueueIndex, QueueName, SourceName};
use queues::names::wire::{MAX_JOB_NAME, SourceFilter};
use queues::names::{
    JobConfig, JobKey, NameError, PortAddress, Refusal, SourceTableWriter, TableWriter,
};
use shm::segment::{Backing, Segment};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::time::SystemTime;

/// All jobs of a node.
#[derive(Debug)]
pub(super) struct Directory {
    node: NodeName,
    jobs: HashMap<JobId, JobRecord>,
    next_job: JobId,
    by_name: BTreeMap<String, JobId>,
    members: HashMap<MemberId, Member>,
    /// Names of each port, with their jobs.
    known_as: HashMap<PortId, BTreeSet<(JobId, QueueName)>>,
    queues: HashSet<u32>,
    next_queue: u32,
    /// Entries that must be written again.
    stale: BTreeSet<(JobId, QueueName)>,
}

impl Directory {
    pub(super) fn new(node: NodeName) -> Directory {
        Directory {
            node,
            jobs: HashMap::new(),
            next_job: 0,
            by_name: BTreeMap::new(),
            members: HashMap::new(),
            known_as: HashMap::new(),
            queues: HashSet::new(),
            next_queue: 0,
            stale: BTreeSet::new(),
        }
    }

    /// Adds a job that stays as long as the server runs.
    pub(super) fn add_job(&mut self, plan: JobConfig) -> Result<JobKey, NameError> {
        self.insert_job(plan, JobLifetime::Server, 0).map(|(_, key)| key)
    }

    /// Adds a job for process `pid`. It stays until [`Self::release_job`] and the end of its last
    /// process.
    pub(super) fn add_owned_job(
        &mut self,
        plan: JobConfig,
        pid: u32,
    ) -> Result<(JobId, JobKey), NameError> {
        self.insert_job(plan, JobLifetime::Owner, pid)
    }

    fn insert_job(
        &mut self,
        plan: JobConfig,
        lifetime: JobLifetime,
        pid: u32,
    ) -> Result<(JobId, JobKey), NameError> {
        let refused = |why| Err(NameError::Config { name: plan.name.clone(), why });
        if plan.name.is_empty() || plan.name.len() > MAX_JOB_NAME {
            return refused("its name must have 1 to 64 bytes");
        }
        if let Some(other) = self.job(&plan.name).and_then(|job| self.jobs.get(&job)) {
            return Err(NameError::JobExists { name: plan.name, pid: other.pid });
        }
        let own = u64::from(plan.processes) * u64::from(plan.ports);
        if plan.names > NAMES {
            return refused("it can have at most 16,384 names");
        }
        // The product of two numbers of 32 and 16 bits does not overflow.
        if own == 0 || own > u64::from(plan.names) {
            return refused(
                "its processes must have 1 port together and at most as many as the job has names",
            );
        }
        let segment = match plan.segment_bytes {
            0 => None,
            bytes => Some(Segment::create(bytes, Backing::Memory)?),
        };
        let job = self.next_job;
        // The last step that can fail: nothing has been entered before it.
        let key = JobKey::random()?;
        let places = |process| (0..plan.ports).map(move |port| PortId { job, process, port });
        let names: Vec<PortId> = (0..plan.processes).flat_map(places).collect();
        for (place, number) in names.iter().zip(0..NAMES) {
            let name = QueueName::from_bits(number.into());
            self.known_as.entry(*place).or_default().insert((job, name));
        }
        let slots = vec![ProcessSlot::Empty; plan.processes as usize];
        self.next_job += 1;
        self.by_name.insert(plan.name.clone(), job);
        let record = JobRecord {
            lifetime,
            pid,
            since: SystemTime::now(),
            plan,
            key,
            segment,
            slots,
            names,
            foreign: HashMap::new(),
            rights: HashMap::new(),
            revoked: HashSet::new(),
        };
        self.jobs.insert(job, record);
        Ok((job, key))
    }

    /// Ends the ownership of a job. Returns true if the job has been removed.
    pub(super) fn release_job(&mut self, job: JobId) -> bool {
        if let Some(record) = self.jobs.get_mut(&job) {
            record.lifetime = JobLifetime::Processes;
        }
        self.remove_if_unused(job)
    }

    /// Removes a job without owner and processes. Returns true if it has been removed.
    pub(super) fn remove_if_unused(&mut self, job: JobId) -> bool {
        let is_taken = |slot: &ProcessSlot| matches!(slot, ProcessSlot::Taken(_));
        let is_unused = |record: &JobRecord| {
            record.lifetime == JobLifetime::Processes && !record.slots.iter().any(is_taken)
        };
        if !self.jobs.get(&job).is_some_and(is_unused) {
            return false;
        }
        let Some(record) = self.jobs.remove(&job) else { return false };
        self.by_name.remove(&record.plan.name);
        for (place, number) in record.names.into_iter().zip(0..NAMES) {
            self.forget_name(place, job, QueueName::from_bits(number.into()));
            if place.job == job {
                self.outdate_place(place);
            }
        }
        self.settle();
        true
    }

    /// Returns true if a process is registered.
    pub(super) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    pub(super) fn job(&self, name: &str) -> Option<JobId> {
        self.by_name.get(name).copied()
    }

    pub(super) fn job_name(&self, job: JobId) -> &str {
        self.jobs.get(&job).map_or("", |record| &record.plan.name)
    }

    /// Returns the first job after this name, in the order of the names, that admits all others.
    pub(super) fn open_job_after(&self, name: &str) -> Option<(JobId, &JobRecord)> {
        let after = (Bound::Excluded(name), Bound::Unbounded);
        let later = self.by_name.range::<str, _>(after);
        let mut records = later.filter_map(|(_, job)| Some((*job, self.jobs.get(job)?)));
        records.find(|(_, record)| record.plan.admits_all)
    }

    /// Returns the process of a job of one process, or the one that has added the job.
    pub(super) fn program_of(&self, record: &JobRecord) -> u32 {
        let member = match record.slots[..] {
            [ProcessSlot::Taken(member)] => self.members.get(&member),
            _ => None,
        };
        member.map_or(record.pid, |member| member.pid)
    }

    /// Returns the names that programs have published.
    pub(super) fn published(&self) -> Vec<String> {
        let jobs = self.by_name.iter().filter_map(|(name, job)| Some((name, self.jobs.get(job)?)));
        let open =
            jobs.filter(|(name, record)| record.plan.admits_all && !name.starts_with(PRIVATE));
        open.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn ports(&self, job: JobId) -> u16 {
        self.jobs.get(&job).map_or(0, |record| record.plan.ports)
    }

    pub(super) fn resident(&self, job: JobId) -> u16 {
        self.jobs.get(&job).map_or(0, |record| record.plan.resident)
    }

    pub(super) fn segment(&self, job: JobId) -> Option<&Segment> {
        self.jobs.get(&job)?.segment.as_ref()
    }

    pub(super) fn member(&self, member: MemberId) -> Option<&Member> {
        self.members.get(&member)
    }

    /// Returns the port of an address, if the job has it.
    pub(super) fn place(&self, address: &PortAddress) -> Result<PortId, Refusal> {
        let job = self.job(&address.job).ok_or(Refusal::UnknownJob)?;
        let plan = &self.jobs.get(&job).ok_or(Refusal::UnknownJob)?.plan;
        if address.process >= plan.processes {
            return Err(Refusal::NoSuchProcess { processes: plan.processes });
        }
        if address.port >= plan.ports {
            return Err(Refusal::NoSuchPort { ports: plan.ports });
        }
        Ok(PortId { job, process: address.process, port: address.port })
    }

    /// Returns the process that has a port open.
    pub(super) fn owner(&self, place: PortId) -> Option<(MemberId, &OpenPort)> {
        let slot = self.jobs.get(&place.job)?.slots.get(place.process as usize)?;
        let ProcessSlot::Taken(member) = *slot else { return None };
        Some((member, self.members.get(&member)?.ports.get(&place.port)?))
    }

    /// Registers a process.
    pub(super) fn register(
        &mut self,
        member: MemberId,
        name: &str,
        process: u32,
        key: JobKey,
        pid: u32,
    ) -> Result<JobId, Refusal> {
        let job = self.job(name).ok_or(Refusal::UnknownJob)?;
        let record = self.jobs.get_mut(&job).ok_or(Refusal::UnknownJob)?;
        if record.key != key {
            return Err(Refusal::WrongKey);
        }
        let processes = record.plan.processes;
        let slot =
            record.slots.get_mut(process as usize).ok_or(Refusal::NoSuchProcess { processes })?;
        // The former process may have ended, with its exit not observed yet. Its successor retries.
        if let ProcessSlot::Taken(other) = *slot {
            return Err(Refusal::ProcessTaken {
                pid: self.members.get(&other).map_or(0, |other| other.pid),
            });
        }
        // Before the slot is taken: a failure leaves it for another attempt.
        let receive_queues =
            record.segment.as_ref().map(|_| QueuesParts::create(&record.plan)).transpose()?;
        *slot = ProcessSlot::Taken(member);
        self.members
            .insert(member, Member { job, process, pid, ports: BTreeMap::new(), receive_queues });
        Ok(job)
    }

    /// Removes a process that has ended, with all its ports, and returns its job.
    pub(super) fn leave(&mut self, member: MemberId) -> Option<JobId> {
        let gone = self.members.remove(&member)?;
        let slots = self.jobs.get_mut(&gone.job).map(|record| &mut record.slots);
        // The slot is marked before the tables are written: they report an end, where an empty slot
        // would mean that the process has yet to start.
        if let Some(slot) = slots.and_then(|slots| slots.get_mut(gone.process as usize)) {
            *slot = ProcessSlot::Left;
        }
        for (port, open) in gone.ports {
            self.queues.remove(&open.queue.number());
            self.outdate_place(PortId { job: gone.job, process: gone.process, port });
        }
        self.settle();
        Some(gone.job)
    }

    pub(super) fn open_port(&mut self, member: MemberId, port: u16) -> Result<PortId, Refusal> {
        let record = self.members.get(&member).ok_or(Refusal::NotUnderstood)?;
        let place = PortId { job: record.job, process: record.process, port };
        let ports = self.ports(place.job);
        if port >= ports {
            return Err(Refusal::NoSuchPort { ports });
        }
        if record.ports.contains_key(&port) {
            return Err(Refusal::PortOpen);
        }
        let names = self.jobs.get(&place.job).ok_or(Refusal::UnknownJob)?.plan.names;
        let table = TableWriter::create(names).map_err(Refusal::system)?;
        let sources = SourceTableWriter::create().map_err(Refusal::system)?;
        let queue = self.free_queue().ok_or(Refusal::NoQueue)?;
        let open = OpenPort { queue, table, sources, only: None };
        if let Some(record) = self.members.get_mut(&member) {
            record.ports.insert(port, open);
        }
        self.outdate_place(place);
        self.settle();
        // The new port's own table is still empty.
        let known = self.jobs.get(&place.job).map_or(0, |record| record.names.len());
        for number in 0..known {
            self.write_entry(place, QueueName::from_bits(number as u64));
        }
        self.settle();
        Ok(place)
    }

    fn free_queue(&mut self) -> Option<QueueIndex> {
        for _ in 0..QUEUES {
            let number = self.next_queue;
            // Numbers of closed queues are reused as late as possible.
            self.next_queue = (number + 1) % QUEUES;
            if self.queues.insert(number) {
                return QueueIndex::new(number);
            }
        }
        None
    }

    /// Grants or revokes the right of one job to send to another.
    pub(super) fn set_right(&mut self, from: JobId, to: JobId, may: bool) {
        let is_open = self.jobs.get(&to).is_some_and(|record| record.plan.admits_all);
        let Some(record) = self.jobs.get_mut(&from) else { return };
        // What was never granted is not revoked: it stays unknown.
        if may || is_open || record.rights.contains_key(&to) {
            record.rights.insert(to, may);
        }
        let names = record.names.iter().zip(0..NAMES).filter(|(place, _)| place.job == to);
        self.stale.extend(names.map(|(_, number)| (from, QueueName::from_bits(number.into()))));
        self.settle();
    }

    /// Returns the right of one job to send to another; `Some(false)` if it was revoked.
    pub(super) fn may_send(&self, from: JobId, to: JobId) -> Option<bool> {
        if from == to {
            return Some(true);
        }
        let granted = self.jobs.get(&from)?.rights.get(&to).copied();
        let is_open = || self.jobs.get(&to).is_some_and(|record| record.plan.admits_all);
        granted.or_else(|| is_open().then_some(true))
    }

    /// Changes the sources that a port accepts.
    pub(super) fn accept(
        &mut self,
        member: MemberId,
        port: u16,
        filter: SourceFilter,
    ) -> Result<(), Refusal> {
        let open = self.members.get_mut(&member).and_then(|member| member.ports.get_mut(&port));
        let open = open.ok_or(Refusal::PortNotOpen)?;
        let everyone = || (0..NAMES).map(|number| SourceName::from_bits(number.into()));
        let changed = match filter {
            SourceFilter::All | SourceFilter::Nothing => everyone().collect(),
            SourceFilter::Add(source) | SourceFilter::Remove(source) => vec![source],
        };
        match (filter, &mut open.only) {
            (SourceFilter::All, only) => *only = None,
            (SourceFilter::Nothing, only) => *only = Some(HashSet::new()),
            (SourceFilter::Add(source), Some(only)) => drop(only.insert(source)),
            (SourceFilter::Add(_), None) => {}
            (SourceFilter::Remove(source), only) => {
                only.get_or_insert_with(|| everyone().collect()).remove(&source);
            }
        }
        for source in changed {
            open.sources.set(source, open.accepts(source)).map_err(Refusal::system)?;
        }
        Ok(())
    }
}
