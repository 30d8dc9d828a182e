//! What processes ask for, and the lanes between them.

use super::directory::{Directory, JobNumber, MemberNumber, Place};
use super::protocol::{Answer, Closing, LaneOffer, Notice, Request};
use super::{Address, JobPlan, LANE_LINES, MAX_LANES, PostError, Refusal};
use crate::basic::bytes_for;
use crate::lane::Partner;
use crate::name::{NodeName, QueueName, SourceName};
use crate::table::Standing;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use shm::segment::{Backing, Offset, Segment};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// Something to be sent to a process.
#[derive(Debug)]
pub(super) struct Dispatch {
    pub(super) to: MemberNumber,
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
    /// The lane that it is about.
    pub(super) about: Option<(u32, About)>,
}

/// What a [`Dispatch`] says about a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Opening,
    Closing,
    /// Nothing: the lane was closed by the process at the other end. What it has not been told it need not know.
    Cancelling,
}

#[derive(Debug)]
struct Lane {
    from: Place,
    sender: MemberNumber,
    name: QueueName,
    to: Place,
    receiver: MemberNumber,
    source: SourceName,
    /// Where the receiving end is to go.
    moving: Option<Place>,
}

/// Somebody who waits until a port is open.
#[derive(Debug)]
struct Waiting {
    member: MemberNumber,
    question: u32,
    place: Place,
    name: QueueName,
}

/// The directory, the lanes, and what is to be sent.
#[derive(Debug)]
pub(super) struct Traffic {
    directory: Directory,
    lanes: HashMap<u32, Lane>,
    next_lane: u32,
    /// Which lane leads from a port to a name.
    by_route: HashMap<(Place, QueueName), u32>,
    waiting: Vec<Waiting>,
    dispatches: Vec<Dispatch>,
}

impl Traffic {
    pub(super) fn new(node: NodeName) -> Traffic {
        Traffic {
            directory: Directory::new(node),
            lanes: HashMap::new(),
            next_lane: 1,
            by_route: HashMap::new(),
            waiting: Vec::new(),
            dispatches: Vec::new(),
        }
    }

    pub(super) fn has_registered(&self, member: MemberNumber) -> bool {
        self.directory.member(member).is_some()
    }

    /// What has come together to be sent.
    pub(super) fn take_dispatches(&mut self) -> Vec<Dispatch> {
        std::mem::take(&mut self.dispatches)
    }

    fn answer(&mut self, to: MemberNumber, question: u32, answer: &Answer, descriptors: Vec<OwnedFd>) {
        self.dispatches.push(Dispatch { to, bytes: answer.encode(question), descriptors, about: None });
    }

    pub(super) fn refuse(&mut self, to: MemberNumber, question: u32, refusal: Refusal) {
        self.answer(to, question, &Answer::Refused(refusal), Vec::new());
    }

    fn notify(&mut self, to: MemberNumber, notice: &Notice, about: Option<(u32, About)>, descriptors: Vec<OwnedFd>) {
        self.dispatches.push(Dispatch { to, bytes: notice.encode(), descriptors, about });
    }

    /// Does what a process asks for.
    pub(super) fn handle(
        &mut self,
        member: MemberNumber,
        pid: u32,
        question: u32,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) {
        let outcome = match request {
            Request::Register { job, process, key, .. } => self
                .directory
                .register(member, &job, process, key, pid)
                .and_then(|job| self.welcome(member, question, job)),
            _ if self.directory.member(member).is_none() => Err(Refusal::NotUnderstood),
            Request::OpenPort { port } => self.open_port(member, question, port),
            Request::LookUp { address, wait } => self.look_up(member, question, &address, wait),
            Request::OpenLane { port, name } => self.open_lane(member, question, port, name),
            Request::Accept { port, whom } => self.directory.accept(member, port, whom).map(|()| {
                self.close_refused();
                self.answer(member, question, &Answer::Done, Vec::new());
            }),
            Request::CloseLane { lane } => {
                self.close_by(member, lane);
                Ok(())
            }
            Request::HandOver { lane, position } => {
                self.pass_on(member, lane, position, descriptors);
                Ok(())
            }
        };
        if let Err(refusal) = outcome {
            self.refuse(member, question, refusal);
        }
    }

    fn welcome(&mut self, member: MemberNumber, question: u32, job: JobNumber) -> Result<(), Refusal> {
        let segment = self.directory.segment(job).map(copy).transpose()?;
        let answer = Answer::Welcome { ports: self.directory.ports(job) };
        self.answer(member, question, &answer, segment.into_iter().collect());
        Ok(())
    }

    fn open_port(&mut self, member: MemberNumber, question: u32, port: u16) -> Result<(), Refusal> {
        let place = self.directory.open_port(member, port)?;
        let name = self.directory.name(place.job, place)?;
        let Some((_, open)) = self.directory.owner(place) else { return Err(Refusal::PortNotOpen) };
        let answer = Answer::PortOpened { name, queue: open.queue() };
        let descriptors = vec![copy(&open.table)?, copy(&open.sources)?];
        self.answer(member, question, &answer, descriptors);
        let (served, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiting: &Waiting| waiting.place == place);
        self.waiting = waiting;
        let served: Vec<Waiting> = served;
        for Waiting { member, question, name, .. } in served {
            self.answer(member, question, &Answer::Named { name }, Vec::new());
        }
        Ok(())
    }

    fn look_up(&mut self, member: MemberNumber, question: u32, address: &Address, wait: bool) -> Result<(), Refusal> {
        let job = self.directory.member(member).ok_or(Refusal::NotUnderstood)?.job;
        let place = self.directory.place(address)?;
        let name = self.directory.look_up(job, place)?;
        if wait && self.directory.owner(place).is_none() {
            // An asker that has given up before asks again: one question a process and place is enough.
            self.waiting.retain(|waiting| (waiting.member, waiting.place) != (member, place));
            self.waiting.push(Waiting { member, question, place, name });
        } else {
            self.answer(member, question, &Answer::Named { name }, Vec::new());
        }
        Ok(())
    }

    fn open_lane(&mut self, member: MemberNumber, question: u32, port: u16, name: QueueName) -> Result<(), Refusal> {
        let record = self.directory.member(member).ok_or(Refusal::NotUnderstood)?;
        if !record.ports.contains_key(&port) {
            return Err(Refusal::PortNotOpen);
        }
        let from = Place { job: record.job, process: record.process, port };
        let source = match self.directory.standing(from, name)? {
            Standing::Open { source, .. } => source,
            Standing::Unknown => return Err(Refusal::UnknownName),
            Standing::Revoked => return Err(Refusal::RevokedName),
            Standing::Gone => return Err(Refusal::ProcessGone),
        };
        let to = self.directory.meaning(from.job, name).ok_or(Refusal::UnknownName)?;
        let (receiver, open) = self.directory.owner(to).ok_or(Refusal::UnknownName)?;
        if !open.accepts(source) {
            return Err(Refusal::SourceRefused);
        }
        if self.by_route.contains_key(&(from, name)) {
            return Err(Refusal::LaneOpen);
        }
        if self.lanes_of(member) >= MAX_LANES || self.lanes_of(receiver) >= MAX_LANES {
            return Err(Refusal::TooManyLanes);
        }
        let lane = Lane { from, sender: member, name, to, receiver, source, moving: None };
        let (here, there) = make_lane()?;
        let number = self.next_lane;
        self.next_lane = number.wrapping_add(1);
        let answer = Answer::Lane(self.offer(number, &lane, receiver));
        let notice = Notice::LaneOpened { port: to.port, position: 0, offer: self.offer(number, &lane, member) };
        self.answer(member, question, &answer, here);
        self.notify(receiver, &notice, Some((number, About::Opening)), there);
        self.by_route.insert((from, name), number);
        self.lanes.insert(number, lane);
        Ok(())
    }

    fn lanes_of(&self, member: MemberNumber) -> usize {
        self.lanes.values().filter(|lane| lane.sender == member || lane.receiver == member).count()
    }

    fn offer(&self, number: u32, lane: &Lane, partner: MemberNumber) -> LaneOffer {
        let partner = match self.directory.member(partner) {
            Some(member) => Partner {
                job: self.directory.job_name(member.job).to_owned(),
                process: member.process,
                pid: member.pid,
            },
            None => Partner { job: String::new(), process: 0, pid: 0 },
        };
        LaneOffer { lane: number, lines: LANE_LINES, source: lane.source, partner }
    }

    fn remove(&mut self, lane: u32) -> Option<Lane> {
        let removed = self.lanes.remove(&lane)?;
        self.by_route.remove(&(removed.from, removed.name));
        Some(removed)
    }

    /// One of the two processes has dropped its end; the other one finds that in the ring.
    fn close_by(&mut self, member: MemberNumber, lane: u32) {
        if !self.lanes.get(&lane).is_some_and(|lane| lane.sender == member || lane.receiver == member) {
            return;
        }
        if let Some(removed) = self.remove(lane).filter(|removed| removed.sender == member) {
            let about = Some((lane, About::Cancelling));
            self.dispatches.push(Dispatch { to: removed.receiver, bytes: Vec::new(), descriptors: Vec::new(), about });
        }
    }

    /// Closes lanes and tells both ends, as far as they are there.
    fn close_where(&mut self, why: Closing, is_concerned: impl Fn(&Lane, &Directory) -> bool) {
        let concerned = |lane: &&Lane| is_concerned(lane, &self.directory);
        let numbers: Vec<u32> =
            self.lanes.iter().filter(|(_, lane)| concerned(lane)).map(|(&number, _)| number).collect();
        for number in numbers {
            let Some(lane) = self.remove(number) else { continue };
            let notice = Notice::LaneClosed { lane: number, why };
            for end in [lane.sender, lane.receiver] {
                if self.directory.member(end).is_some() {
                    self.notify(end, &notice, Some((number, About::Closing)), Vec::new());
                }
            }
        }
    }

    fn close_refused(&mut self) {
        self.close_where(Closing::Refused, |lane, directory| {
            directory.owner(lane.to).is_some_and(|(_, open)| !open.accepts(lane.source))
        });
    }

    /// The receiving end of a lane has come back from its owner, to go to another process.
    fn pass_on(&mut self, member: MemberNumber, number: u32, position: u64, descriptors: Vec<OwnedFd>) {
        let Some(lane) = self.lanes.get_mut(&number).filter(|lane| lane.receiver == member) else { return };
        let target = lane.moving.take().and_then(|to| Some((to, self.directory.owner(to)?.0)));
        let (Some((to, receiver)), 2) = (target, descriptors.len()) else {
            // Nobody there. The descriptors are closed with this, which the sender notices.
            self.remove(number);
            return;
        };
        (lane.to, lane.receiver) = (to, receiver);
        let (sender, lane) = (lane.sender, &self.lanes[&number]);
        let notice = Notice::LaneOpened { port: to.port, position, offer: self.offer(number, lane, sender) };
        self.notify(receiver, &notice, Some((number, About::Opening)), descriptors);
    }

    /// A process has ended or closed its connection.
    pub(super) fn leave(&mut self, member: MemberNumber) {
        self.waiting.retain(|waiting| waiting.member != member);
        // First who: those at the other ends are told before their tables say that there is nobody.
        let gone = self.directory.member(member).is_some();
        self.directory.leave(member);
        if gone {
            self.close_where(Closing::Gone, |lane, _| lane.sender == member || lane.receiver == member);
        }
    }

    pub(super) fn add_job(&mut self, plan: JobPlan) -> Result<super::JobKey, PostError> {
        self.directory.add_job(plan)
    }

    fn job(&self, name: &str) -> Result<JobNumber, PostError> {
        self.directory.job(name).ok_or_else(|| PostError::UnknownJob { name: name.to_owned() })
    }

    pub(super) fn set_right(&mut self, from: &str, to: &str, may: bool) -> Result<(), PostError> {
        let (from, to) = (self.job(from)?, self.job(to)?);
        self.directory.set_right(from, to, may);
        if !may {
            self.close_where(Closing::Revoked, |lane, _| (lane.from.job, lane.to.job) == (from, to));
        }
        Ok(())
    }

    pub(super) fn revoke(&mut self, job: &str, name: QueueName) -> Result<(), PostError> {
        let number = self.job(job)?;
        if self.directory.meaning(number, name).is_none() {
            return Err(PostError::UnknownName { job: job.to_owned(), name });
        }
        self.directory.revoke(number, name);
        self.close_where(Closing::Revoked, |lane, _| lane.from.job == number && lane.name == name);
        Ok(())
    }

    /// Lets every name of one port lead to another port of the same job.
    pub(super) fn move_port(&mut self, from: &Address, to: &Address) -> Result<(), PostError> {
        let place = |address: &Address| {
            let wrong = |why| PostError::Address { address: address.clone(), why };
            self.directory.place(address).map_err(|_| wrong("does not exist"))
        };
        let (from_place, to_place) = (place(from)?, place(to)?);
        if from_place.job != to_place.job {
            let why = "is of another job: a port moves within its job";
            return Err(PostError::Address { address: to.clone(), why });
        }
        if self.directory.owner(to_place).is_none() {
            return Err(PostError::Address { address: to.clone(), why: "is not open" });
        }
        for (job, name) in self.directory.names_of(from_place) {
            self.repoint_name(job, name, to_place);
        }
        Ok(())
    }

    /// Lets one name of a job lead to another port. Lanes go there if it is one of the same job as before.
    pub(super) fn repoint(&mut self, job: &str, name: QueueName, to: &Address) -> Result<(), PostError> {
        let number = self.job(job)?;
        let wrong = |why| PostError::Address { address: to.clone(), why };
        let place = self.directory.place(to).map_err(|_| wrong("does not exist"))?;
        if self.directory.meaning(number, name).is_none() {
            return Err(PostError::UnknownName { job: job.to_owned(), name });
        }
        if self.directory.may_send(number, place.job) != Some(true) {
            return Err(wrong("is one to which the job may not send"));
        }
        self.repoint_name(number, name, place);
        Ok(())
    }

    fn repoint_name(&mut self, job: JobNumber, name: QueueName, to: Place) {
        self.directory.repoint(job, name, to);
        let is_concerned = |lane: &Lane| lane.from.job == job && lane.name == name && lane.to != to;
        if self.directory.owner(to).is_none() {
            return self.close_where(Closing::Revoked, |lane, _| is_concerned(lane));
        }
        self.close_where(Closing::Revoked, |lane, _| is_concerned(lane) && lane.to.job != to.job);
        let mut moving = Vec::new();
        for (&number, lane) in self.lanes.iter_mut().filter(|(_, lane)| is_concerned(lane)) {
            lane.moving = Some(to);
            moving.push((number, lane.receiver));
        }
        for (lane, receiver) in moving {
            self.notify(receiver, &Notice::MoveLane { lane }, None, Vec::new());
        }
    }
}

fn copy(of: &impl AsFd) -> Result<OwnedFd, Refusal> {
    of.as_fd().try_clone_to_owned().map_err(Refusal::system)
}

/// The two ends of a new lane: memory and bell for the sender, and for the receiver.
fn make_lane() -> Result<(Vec<OwnedFd>, Vec<OwnedFd>), Refusal> {
    let bytes = bytes_for(LANE_LINES.into()).map_err(Refusal::system)?;
    let segment = Segment::create(bytes, Backing::Memory).map_err(Refusal::system)?;
    segment.commit(Offset(0), bytes).map_err(Refusal::system)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(Refusal::system)?;
    Ok((vec![copy(&segment)?, here], vec![copy(&segment)?, there]))
}
