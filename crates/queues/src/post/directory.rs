//! Who is there, under which names, and with which rights; and every destination table, written
//! accordingly.
//!
//! A name of a job means a [`Place`]: a port of a process of some job. What a table entry says
//! follows from the rights, from who has registered and which ports are open; whenever one of these
//! changes, the entries concerned are noted as stale and [`Directory::settle`] writes them anew.

use super::{Address, JobKey, JobPlan, PostError, Refusal, hall_shape};
use crate::name::{NAMES, NodeName, QUEUES, QueueIndex, QueueName, SourceName};
use crate::table::{SourceTableWriter, Standing, TableWriter};
use rustix::event::{EventfdFlags, eventfd};
use shm::segment::{Backing, Segment};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::OwnedFd;

/// Which of the jobs.
pub(super) type JobNumber = usize;
/// Which of the processes that have registered so far.
pub(super) type MemberNumber = u32;

/// A port of a process of a job, whether it is open or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) job: JobNumber,
    pub(super) process: u32,
    pub(super) port: u16,
}

/// Who is a process of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seat {
    Empty,
    Taken(MemberNumber),
    /// Somebody was, and has gone.
    Left,
}

#[derive(Debug)]
struct Job {
    plan: JobPlan,
    key: JobKey,
    segment: Option<Segment>,
    seats: Vec<Seat>,
    /// What each name means: the own ports first.
    names: Vec<Place>,
    /// The names of other jobs' ports.
    foreign: HashMap<Place, QueueName>,
    /// To which jobs it may send; `false` if it might once.
    rights: HashMap<JobNumber, bool>,
    /// Names taken away one by one.
    revoked: HashSet<QueueName>,
}

/// A process that has registered.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) job: JobNumber,
    pub(super) process: u32,
    pub(super) pid: u32,
    pub(super) ports: BTreeMap<u16, OpenPort>,
    /// If the job has a segment.
    pub(super) hall: Option<HallParts>,
}

/// What others need to send through a process's hall.
#[derive(Debug)]
pub(super) struct HallParts {
    pub(super) memory: Segment,
    pub(super) event: OwnedFd,
}

impl HallParts {
    fn create(plan: &JobPlan) -> Result<HallParts, Refusal> {
        let bytes = hall_shape(plan.ports, plan.resident).max_bytes().map_err(Refusal::system)?;
        let memory = Segment::create(bytes, Backing::Memory).map_err(Refusal::system)?;
        let event =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Refusal::system)?;
        Ok(HallParts { memory, event })
    }
}

#[derive(Debug)]
pub(super) struct OpenPort {
    queue: QueueIndex,
    pub(super) table: TableWriter,
    pub(super) sources: SourceTableWriter,
    /// The sources that its owner accepts; `None` for all.
    only: Option<HashSet<SourceName>>,
}

impl OpenPort {
    pub(super) fn queue(&self) -> QueueIndex {
        self.queue
    }

    pub(super) fn accepts(&self, source: SourceName) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&source))
    }
}

/// All jobs of a node.
#[derive(Debug)]
pub(super) struct Directory {
    node: NodeName,
    jobs: Vec<Job>,
    by_name: HashMap<String, JobNumber>,
    members: HashMap<MemberNumber, Member>,
    /// Under which names, of which jobs, a place is known.
    known_as: HashMap<Place, BTreeSet<(JobNumber, QueueName)>>,
    queues: HashSet<u32>,
    next_queue: u32,
    /// Entries that must be written anew.
    stale: BTreeSet<(JobNumber, QueueName)>,
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

    pub(super) fn add_job(&mut self, plan: JobPlan) -> Result<JobKey, PostError> {
        let refused = |why| Err(PostError::Plan { name: plan.name.clone(), why });
        if plan.name.is_empty() || plan.name.len() > super::protocol::MAX_JOB_NAME {
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
        let (job, key) = (self.jobs.len(), JobKey::new()?);
        let places = |process| (0..plan.ports).map(move |port| Place { job, process, port });
        let names: Vec<Place> = (0..plan.processes).flat_map(places).collect();
        for (place, number) in names.iter().zip(0..NAMES) {
            let name = QueueName::from_bits(number.into());
            self.known_as.entry(*place).or_default().insert((job, name));
        }
        let seats = vec![Seat::Empty; plan.processes as usize];
        self.by_name.insert(plan.name.clone(), job);
        let (foreign, rights, revoked) = Default::default();
        self.jobs.push(Job { plan, key, segment, seats, names, foreign, rights, revoked });
        Ok(key)
    }

    pub(super) fn job(&self, name: &str) -> Option<JobNumber> {
        self.by_name.get(name).copied()
    }

    pub(super) fn job_name(&self, job: JobNumber) -> &str {
        &self.jobs[job].plan.name
    }

    pub(super) fn ports(&self, job: JobNumber) -> u16 {
        self.jobs[job].plan.ports
    }

    pub(super) fn resident(&self, job: JobNumber) -> u16 {
        self.jobs[job].plan.resident
    }

    pub(super) fn segment(&self, job: JobNumber) -> Option<&Segment> {
        self.jobs[job].segment.as_ref()
    }

    pub(super) fn member(&self, member: MemberNumber) -> Option<&Member> {
        self.members.get(&member)
    }

    /// The place of an address, if the job has such a port.
    pub(super) fn place(&self, address: &Address) -> Result<Place, Refusal> {
        let job = self.job(&address.job).ok_or(Refusal::UnknownJob)?;
        let plan = &self.jobs[job].plan;
        if address.process >= plan.processes {
            return Err(Refusal::NoSuchProcess { processes: plan.processes });
        }
        if address.port >= plan.ports {
            return Err(Refusal::NoSuchPort { ports: plan.ports });
        }
        Ok(Place { job, process: address.process, port: address.port })
    }

    /// Who has a place's port open.
    pub(super) fn owner(&self, place: Place) -> Option<(MemberNumber, &OpenPort)> {
        let Seat::Taken(member) = self.jobs[place.job].seats[place.process as usize] else {
            return None;
        };
        Some((member, self.members.get(&member)?.ports.get(&place.port)?))
    }

    /// What a name means.
    pub(super) fn meaning(&self, job: JobNumber, name: QueueName) -> Option<Place> {
        self.jobs[job].names.get(usize::from(name.number())).copied()
    }

    /// Lets a process in.
    pub(super) fn register(
        &mut self,
        member: MemberNumber,
        name: &str,
        process: u32,
        key: JobKey,
        pid: u32,
    ) -> Result<JobNumber, Refusal> {
        let job = self.job(name).ok_or(Refusal::UnknownJob)?;
        let record = &mut self.jobs[job];
        if record.key != key {
            return Err(Refusal::WrongKey);
        }
        let processes = record.plan.processes;
        let seat =
            record.seats.get_mut(process as usize).ok_or(Refusal::NoSuchProcess { processes })?;
        if let Seat::Taken(other) = *seat {
            return Err(Refusal::SeatTaken {
                pid: self.members.get(&other).map_or(0, |other| other.pid),
            });
        }
        let hall = record.segment.as_ref().map(|_| HallParts::create(&record.plan)).transpose()?;
        *seat = Seat::Taken(member);
        self.members.insert(member, Member { job, process, pid, ports: BTreeMap::new(), hall });
        Ok(job)
    }

    /// A process has gone, with all its ports.
    pub(super) fn leave(&mut self, member: MemberNumber) {
        let Some(gone) = self.members.remove(&member) else { return };
        self.jobs[gone.job].seats[gone.process as usize] = Seat::Left;
        for (port, open) in gone.ports {
            self.queues.remove(&open.queue.number());
            self.outdate_place(Place { job: gone.job, process: gone.process, port });
        }
        self.settle();
    }

    pub(super) fn open_port(&mut self, member: MemberNumber, port: u16) -> Result<Place, Refusal> {
        let record = self.members.get(&member).ok_or(Refusal::NotUnderstood)?;
        let place = Place { job: record.job, process: record.process, port };
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
        // Its own table is empty so far.
        for number in 0..self.jobs[place.job].names.len() {
            self.write_entry(place, QueueName::from_bits(number as u64));
        }
        self.settle();
        Ok(place)
    }

    fn free_queue(&mut self) -> Option<QueueIndex> {
        for _ in 0..QUEUES {
            let number = self.next_queue;
            // The numbers of queues that are gone come again as late as possible.
            self.next_queue = (number + 1) % QUEUES;
            if self.queues.insert(number) {
                return QueueIndex::new(number);
            }
        }
        None
    }

    /// Says whether one job may send to another.
    pub(super) fn set_right(&mut self, from: JobNumber, to: JobNumber, may: bool) {
        if may {
            self.jobs[from].rights.insert(to, true);
        } else if let Some(right) = self.jobs[from].rights.get_mut(&to) {
            *right = false;
        }
        let names = self.jobs[from].names.iter().zip(0..NAMES).filter(|(place, _)| place.job == to);
        self.stale.extend(names.map(|(_, number)| (from, QueueName::from_bits(number.into()))));
        self.settle();
    }

    /// Whether one job may send to another; `Some(false)` if it might once.
    pub(super) fn may_send(&self, from: JobNumber, to: JobNumber) -> Option<bool> {
        if from == to { Some(true) } else { self.jobs[from].rights.get(&to).copied() }
    }

    /// Takes a name away from a job.
    pub(super) fn revoke(&mut self, job: JobNumber, name: QueueName) {
        self.jobs[job].revoked.insert(name);
        self.stale.insert((job, name));
        self.settle();
    }

    /// Lets a name lead to another place.
    pub(super) fn repoint(&mut self, job: JobNumber, name: QueueName, to: Place) {
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

    /// All names of a place.
    pub(super) fn names_of(&self, place: Place) -> Vec<(JobNumber, QueueName)> {
        self.known_as.get(&place).into_iter().flatten().copied().collect()
    }

    /// The name that a job has for a place whose job it may send to.
    pub(super) fn look_up(&mut self, job: JobNumber, place: Place) -> Result<QueueName, Refusal> {
        if self.may_send(job, place.job) != Some(true) {
            return Err(Refusal::NoRight);
        }
        let name = self.name(job, place)?;
        self.settle();
        Ok(name)
    }

    /// The name that a job has for a place, given if it has none.
    pub(super) fn name(&mut self, job: JobNumber, place: Place) -> Result<QueueName, Refusal> {
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

    fn outdate_place(&mut self, place: Place) {
        if let Some(names) = self.known_as.get(&place) {
            self.stale.extend(names);
        }
    }

    /// Writes what is stale. Writing may give names to senders, whose entries then are to be
    /// written too; that ends, because every place gets one name in each job.
    fn settle(&mut self) {
        while let Some((job, name)) = self.stale.pop_first() {
            for from in self.open_ports(job) {
                self.write_entry(from, name);
            }
        }
    }

    fn open_ports(&self, job: JobNumber) -> Vec<Place> {
        let seats = self.jobs[job].seats.iter().zip(0..);
        let members = seats.filter_map(|(seat, process)| match seat {
            Seat::Taken(member) => self.members.get(member).map(|member| (process, member)),
            _ => None,
        });
        members
            .flat_map(|(process, member)| {
                member.ports.keys().map(move |&port| Place { job, process, port })
            })
            .collect()
    }

    fn write_entry(&mut self, from: Place, name: QueueName) {
        // A sender for whom the receiver's job has no name left cannot send there.
        let standing = self.standing(from, name).unwrap_or(Standing::Unknown);
        if let Some((_, open)) = self.owner(from) {
            // The table has room for every name.
            let _ = open.table.set(name, standing);
        }
    }

    /// What a transmit queue's table is to say of a name.
    pub(super) fn standing(&mut self, from: Place, name: QueueName) -> Result<Standing, Refusal> {
        let Some(to) = self.meaning(from.job, name) else { return Ok(Standing::Unknown) };
        if self.jobs[from.job].revoked.contains(&name) {
            return Ok(Standing::Revoked);
        }
        match self.may_send(from.job, to.job) {
            None => return Ok(Standing::Unknown),
            Some(false) => return Ok(Standing::Revoked),
            Some(true) => {}
        }
        let Some((_, open)) = self.owner(to) else {
            let seat = self.jobs[to.job].seats[to.process as usize];
            return Ok(if seat == Seat::Left { Standing::Gone } else { Standing::Unknown });
        };
        let (node, queue) = (self.node, open.queue);
        let source = self.name(to.job, from)?.into();
        Ok(Standing::Open { node, queue, source })
    }

    /// Changes whom a port accepts.
    pub(super) fn accept(
        &mut self,
        member: MemberNumber,
        port: u16,
        whom: super::protocol::Whom,
    ) -> Result<(), Refusal> {
        use super::protocol::Whom;
        let open = self.members.get_mut(&member).and_then(|member| member.ports.get_mut(&port));
        let open = open.ok_or(Refusal::PortNotOpen)?;
        let everyone = || (0..NAMES).map(|number| SourceName::from_bits(number.into()));
        let changed = match whom {
            Whom::Everyone | Whom::Nobody => everyone().collect(),
            Whom::This(source) | Whom::NotThis(source) => vec![source],
        };
        match (whom, &mut open.only) {
            (Whom::Everyone, only) => *only = None,
            (Whom::Nobody, only) => *only = Some(HashSet::new()),
            (Whom::This(source), Some(only)) => drop(only.insert(source)),
            (Whom::This(_), None) => {}
            (Whom::NotThis(source), only) => {
                only.get_or_insert_with(|| everyone().collect()).remove(&source);
            }
        }
        for source in changed {
            open.sources.set(source, open.accepts(source)).map_err(Refusal::system)?;
        }
        Ok(())
    }
}
