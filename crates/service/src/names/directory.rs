//! The directory of jobs, processes, names and rights, from which every destination table is
//! written.
//!
//! A name of a job means a [`PortId`]: a port of a process of some job. A table entry depends on
//! the rights, on the registered processes and on the open ports. Whenever one of these changes,
//! the entries concerned are marked as stale, and [`Directory::settle`] writes them again.
//!
//! A job that a client has added is removed when the client has left and none of its processes is
//! registered. Its index stays reserved, so a later job of the same name gets none of its rights.

use super::records::{
    JobId, JobLifetime, JobRecord, Member, MemberId, OpenPort, PortId, ProcessSlot, QueuesParts,
};
use queues::id::{NAMES, NodeName, QUEUES, QueueIndex, QueueName, SourceName};
use queues::names::wire::{MAX_JOB_NAME, SourceFilter};
use queues::names::{
    JobConfig, JobKey, NameError, NameState, PortAddress, Refusal, SourceTableWriter, TableWriter,
};
use shm::segment::{Backing, Segment};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// All jobs of a node.
#[derive(Debug)]
pub(super) struct Directory {
    node: NodeName,
    jobs: Vec<JobRecord>,
    by_name: HashMap<String, JobId>,
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
            jobs: Vec::new(),
            by_name: HashMap::new(),
            members: HashMap::new(),
            known_as: HashMap::new(),
            queues: HashSet::new(),
            next_queue: 0,
            stale: BTreeSet::new(),
        }
    }

    /// Adds a job that stays as long as the server runs.
    pub(super) fn add_job(&mut self, plan: JobConfig) -> Result<JobKey, NameError> {
        self.insert_job(plan, JobLifetime::OfServer).map(|(_, key)| key)
    }

    /// Adds a job that stays until [`Self::release_job`] and the end of its last process.
    pub(super) fn add_owned_job(&mut self, plan: JobConfig) -> Result<(JobId, JobKey), NameError> {
        self.insert_job(plan, JobLifetime::OfOwner)
    }

    fn insert_job(
        &mut self,
        plan: JobConfig,
        lifetime: JobLifetime,
    ) -> Result<(JobId, JobKey), NameError> {
        let refused = |why| Err(NameError::Config { name: plan.name.clone(), why });
        if plan.name.is_empty() || plan.name.len() > MAX_JOB_NAME {
            return refused("its name must have 1 to 64 bytes");
        }
        if self.by_name.contains_key(&plan.name) {
            return refused("there is one of this name already");
        }
        let own = u64::from(plan.processes) * u64::from(plan.ports);
        if plan.names > NAMES {
            return refused("it can have at most 16,384 names");
        }
        if own == 0 || own > u64::from(plan.names) {
            return refused(
                "its processes must have 1 port together and at most as many as the job has names",
            );
        }
        let segment = match plan.segment_bytes {
            0 => None,
            bytes => Some(Segment::create(bytes, Backing::Memory)?),
        };
        let job = self.jobs.len();
        let key = JobKey::random()?;
        let places = |process| (0..plan.ports).map(move |port| PortId { job, process, port });
        let names: Vec<PortId> = (0..plan.processes).flat_map(places).collect();
        for (place, number) in names.iter().zip(0..NAMES) {
            let name = QueueName::from_bits(number.into());
            self.known_as.entry(*place).or_default().insert((job, name));
        }
        let slots = vec![ProcessSlot::Empty; plan.processes as usize];
        self.by_name.insert(plan.name.clone(), job);
        self.jobs.push(JobRecord {
            lifetime,
            plan,
            key,
            segment,
            slots,
            names,
            foreign: HashMap::new(),
            rights: HashMap::new(),
            revoked: HashSet::new(),
        });
        Ok((job, key))
    }

    /// Ends the ownership of a job. Returns true if the job has been removed.
    pub(super) fn release_job(&mut self, job: JobId) -> bool {
        self.jobs[job].lifetime = JobLifetime::OfProcesses;
        self.remove_if_unused(job)
    }

    /// Removes a job without owner and processes. Returns true if it has been removed.
    pub(super) fn remove_if_unused(&mut self, job: JobId) -> bool {
        let record = &mut self.jobs[job];
        let is_taken = |slot: &ProcessSlot| matches!(slot, ProcessSlot::Taken(_));
        if record.lifetime != JobLifetime::OfProcesses || record.slots.iter().any(is_taken) {
            return false;
        }
        record.lifetime = JobLifetime::Ended;
        // The name is free for another job, which gets another index: rights that were granted to
        // this index, and names that mean its ports, never apply to the later job.
        record.segment = None;
        record.foreign.clear();
        record.rights.clear();
        record.revoked.clear();
        // What is left is a record of some hundred bytes.
        record.slots = Vec::new();
        let names = std::mem::take(&mut record.names);
        self.by_name.remove(&record.plan.name);
        for (place, number) in names.into_iter().zip(0..NAMES) {
            let name = QueueName::from_bits(number.into());
            if let Some(known_as) = self.known_as.get_mut(&place) {
                known_as.remove(&(job, name));
                if known_as.is_empty() {
                    self.known_as.remove(&place);
                }
            }
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
        &self.jobs[job].plan.name
    }

    pub(super) fn ports(&self, job: JobId) -> u16 {
        self.jobs[job].plan.ports
    }

    pub(super) fn resident(&self, job: JobId) -> u16 {
        self.jobs[job].plan.resident
    }

    pub(super) fn segment(&self, job: JobId) -> Option<&Segment> {
        self.jobs[job].segment.as_ref()
    }

    pub(super) fn member(&self, member: MemberId) -> Option<&Member> {
        self.members.get(&member)
    }

    /// Returns the port of an address, if the job has it.
    pub(super) fn place(&self, address: &PortAddress) -> Result<PortId, Refusal> {
        let job = self.job(&address.job).ok_or(Refusal::UnknownJob)?;
        let plan = &self.jobs[job].plan;
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
        let slot = self.jobs[place.job].slots.get(place.process as usize)?;
        let ProcessSlot::Taken(member) = *slot else { return None };
        Some((member, self.members.get(&member)?.ports.get(&place.port)?))
    }

    /// Returns the meaning of a name.
    pub(super) fn meaning(&self, job: JobId, name: QueueName) -> Option<PortId> {
        self.jobs[job].names.get(usize::from(name.number())).copied()
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
        let record = &mut self.jobs[job];
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
        self.jobs[gone.job].slots[gone.process as usize] = ProcessSlot::Left;
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
        let table =
            TableWriter::create(self.jobs[place.job].plan.names).map_err(Refusal::system)?;
        let sources = SourceTableWriter::create().map_err(Refusal::system)?;
        let queue = self.free_queue().ok_or(Refusal::NoQueue)?;
        let open = OpenPort { queue, table, sources, only: None };
        if let Some(record) = self.members.get_mut(&member) {
            record.ports.insert(port, open);
        }
        self.outdate_place(place);
        self.settle();
        // The new port's own table is still empty.
        for number in 0..self.jobs[place.job].names.len() {
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
        if may {
            self.jobs[from].rights.insert(to, true);
        } else if let Some(right) = self.jobs[from].rights.get_mut(&to) {
            *right = false;
        }
        let names = self.jobs[from].names.iter().zip(0..NAMES).filter(|(place, _)| place.job == to);
        self.stale.extend(names.map(|(_, number)| (from, QueueName::from_bits(number.into()))));
        self.settle();
    }

    /// Returns the right of one job to send to another; `Some(false)` if it was revoked.
    pub(super) fn may_send(&self, from: JobId, to: JobId) -> Option<bool> {
        if from == to { Some(true) } else { self.jobs[from].rights.get(&to).copied() }
    }

    /// Revokes a name of a job.
    pub(super) fn revoke(&mut self, job: JobId, name: QueueName) {
        self.jobs[job].revoked.insert(name);
        self.stale.insert((job, name));
        self.settle();
    }

    /// Re-points a name to another port.
    pub(super) fn repoint(&mut self, job: JobId, name: QueueName, to: PortId) {
        // Names of the old and the new port change together with the meaning, so `known_as` always
        // lists the names of a port.
        let Some(meaning) = self.jobs[job].names.get_mut(usize::from(name.number())) else {
            return;
        };
        let before = std::mem::replace(meaning, to);
        if let Some(names) = self.known_as.get_mut(&before) {
            names.remove(&(job, name));
        }
        self.known_as.entry(to).or_default().insert((job, name));
        self.stale.insert((job, name));
        self.settle();
    }

    /// Returns all names of a port.
    pub(super) fn names_of(&self, place: PortId) -> Vec<(JobId, QueueName)> {
        self.known_as.get(&place).into_iter().flatten().copied().collect()
    }

    /// Returns the name that a job has for a port of a job to which it may send.
    pub(super) fn look_up(&mut self, job: JobId, place: PortId) -> Result<QueueName, Refusal> {
        if self.may_send(job, place.job) != Some(true) {
            return Err(Refusal::NoRight);
        }
        let name = self.name(job, place)?;
        self.settle();
        Ok(name)
    }

    /// Returns the name that a job has for a port; assigns one if it has none.
    pub(super) fn name(&mut self, job: JobId, place: PortId) -> Result<QueueName, Refusal> {
        let record = &mut self.jobs[job];
        if place.job == job {
            let number = place.process * u32::from(record.plan.ports) + u32::from(place.port);
            return Ok(QueueName::from_bits(number.into()));
        }
        if let Some(name) = record.foreign.get(&place) {
            return Ok(*name);
        }
        if record.names.len() >= usize::from(record.plan.names) {
            return Err(Refusal::TableFull);
        }
        let number = QueueName::from_bits(record.names.len() as u64);
        record.names.push(place);
        record.foreign.insert(place, number);
        self.known_as.entry(place).or_default().insert((job, number));
        self.stale.insert((job, number));
        Ok(number)
    }

    fn outdate_place(&mut self, place: PortId) {
        if let Some(names) = self.known_as.get(&place) {
            self.stale.extend(names);
        }
    }

    /// Writes the stale entries. Writing one may assign a name to the sender in the receiver's job,
    /// which makes further entries stale. That terminates, because every port gets one name in each
    /// job.
    fn settle(&mut self) {
        // An entry is computed from the current state when it is written, so an entry that becomes
        // stale twice is written with the last state at least once.
        while let Some((job, name)) = self.stale.pop_first() {
            for from in self.open_ports(job) {
                self.write_entry(from, name);
            }
        }
    }

    fn open_ports(&self, job: JobId) -> Vec<PortId> {
        let slots = self.jobs[job].slots.iter().zip(0..);
        let members = slots.filter_map(|(slot, process)| match slot {
            ProcessSlot::Taken(member) => self.members.get(member).map(|member| (process, member)),
            _ => None,
        });
        members
            .flat_map(|(process, member)| {
                member.ports.keys().map(move |&port| PortId { job, process, port })
            })
            .collect()
    }

    fn write_entry(&mut self, from: PortId, name: QueueName) {
        // A sender needs a name in the receiver's job. If the names of that job are used up, it
        // cannot send there.
        let name_state = self.name_state(from, name).unwrap_or(NameState::Unknown);
        if let Some((_, open)) = self.owner(from) {
            // Cannot fail: the table has an entry for every name.
            let _ = open.table.set(name, name_state);
        }
    }

    /// Returns the state of a name for a transmit queue's table.
    pub(super) fn name_state(
        &mut self,
        from: PortId,
        name: QueueName,
    ) -> Result<NameState, Refusal> {
        // A revocation outlives the port and its process: it is checked first.
        let Some(to) = self.meaning(from.job, name) else { return Ok(NameState::Unknown) };
        if self.jobs[from.job].revoked.contains(&name) {
            return Ok(NameState::Revoked);
        }
        match self.may_send(from.job, to.job) {
            None => return Ok(NameState::Unknown),
            Some(false) => return Ok(NameState::Revoked),
            Some(true) => {}
        }
        let Some((_, open)) = self.owner(to) else {
            // A job that has been removed has no slots: names for its ports report the end, also
            // those of ports that were never open.
            let slot = self.jobs[to.job].slots.get(to.process as usize);
            return Ok(match slot {
                None | Some(ProcessSlot::Left) => NameState::Gone,
                Some(_) => NameState::Unknown,
            });
        };
        let node = self.node;
        let queue = open.queue;
        let source = self.name(to.job, from)?.into();
        Ok(NameState::Open { node, queue, source })
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
