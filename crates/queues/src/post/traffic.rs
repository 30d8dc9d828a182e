//! What processes ask for, and the lanes between them.

use super::directory::{Directory, JobNumber, MemberNumber, Place};
use super::protocol::{Answer, Carrier, Closing, Dropped, LaneOffer, Notice, Request};
use super::{Address, Class, LANE_LINES, MAX_HALL_LANES, MAX_LANES, Refusal};
use crate::basic::bytes_for;
use crate::lane::Partner;
use crate::name::{NodeName, QueueName, SourceName};
use crate::table::Standing;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use shm::segment::{Backing, Offset, Segment};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

mod rules;

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
    Opening {
        /// The lane whose messages come first, or 0.
        after: u32,
    },
    /// Its sender has dropped its end, and waits until the receiver says that it has received
    /// everything.
    Leaving,
    /// It is no more.
    Closing,
    /// Nothing: the lane was closed by the process at the other end. What it has not been told it
    /// need not know.
    Cancelling,
}

/// What a lane is for. There is one for each, and perhaps an older one through a hall from which
/// the receiver still takes what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Route {
    from: Place,
    name: QueueName,
    class: Class,
}

#[derive(Debug)]
struct Lane {
    route: Route,
    sender: MemberNumber,
    to: Place,
    receiver: MemberNumber,
    source: SourceName,
    carrier: Carrier,
    /// Where the receiving end is to go.
    moving: Option<Place>,
    /// The sender has dropped its end, and the receiver has not yet found everything that was sent.
    is_draining: bool,
}

impl Lane {
    fn has_ring(&self) -> bool {
        matches!(self.carrier, Carrier::Ring { .. })
    }
}

/// What was on a route before a new lane.
struct Before {
    /// The lane that its sender leaves for the new one.
    left: Option<u32>,
    /// The lane whose messages come first, or 0.
    after: u32,
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
    by_route: HashMap<Route, u32>,
    /// Which one did before, through a hall, and is draining.
    draining: HashMap<Route, u32>,
    /// How many lanes each process sends on through halls.
    hall_lanes: HashMap<MemberNumber, usize>,
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
            draining: HashMap::new(),
            hall_lanes: HashMap::new(),
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

    fn answer(
        &mut self,
        to: MemberNumber,
        question: u32,
        answer: &Answer,
        descriptors: Vec<OwnedFd>,
    ) {
        self.dispatches.push(Dispatch {
            to,
            bytes: answer.encode(question),
            descriptors,
            about: None,
        });
    }

    pub(super) fn refuse(&mut self, to: MemberNumber, question: u32, refusal: Refusal) {
        self.answer(to, question, &Answer::Refused(refusal), Vec::new());
    }

    fn notify(
        &mut self,
        to: MemberNumber,
        notice: &Notice,
        about: Option<(u32, About)>,
        descriptors: Vec<OwnedFd>,
    ) {
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
            Request::OpenLane { port, name, class, alone } => {
                self.open_lane(member, question, port, (name, class), alone)
            }
            Request::Accept { port, whom } => self.directory.accept(member, port, whom).map(|()| {
                self.close_refused();
                self.answer(member, question, &Answer::Done, Vec::new());
            }),
            Request::CloseLane { lane, dropped } => {
                self.close_by(member, lane, dropped);
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

    fn welcome(
        &mut self,
        member: MemberNumber,
        question: u32,
        job: JobNumber,
    ) -> Result<(), Refusal> {
        let mut descriptors: Vec<OwnedFd> =
            self.directory.segment(job).map(copy).transpose()?.into_iter().collect();
        if let Some(hall) = self.directory.member(member).and_then(|member| member.hall.as_ref()) {
            descriptors.extend([copy(&hall.memory)?, copy(&hall.event)?]);
        }
        let answer = Answer::Welcome {
            ports: self.directory.ports(job),
            resident: self.directory.resident(job),
        };
        self.answer(member, question, &answer, descriptors);
        Ok(())
    }

    fn open_port(&mut self, member: MemberNumber, question: u32, port: u16) -> Result<(), Refusal> {
        let place = self.directory.open_port(member, port)?;
        let name = self.directory.name(place.job, place)?;
        let Some((_, open)) = self.directory.owner(place) else { return Err(Refusal::PortNotOpen) };
        let answer = Answer::PortOpened { name, queue: open.queue() };
        let descriptors = vec![copy(&open.table)?, copy(&open.sources)?];
        self.answer(member, question, &answer, descriptors);
        let (served, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting: &Waiting| waiting.place == place);
        self.waiting = waiting;
        let served: Vec<Waiting> = served;
        for Waiting { member, question, name, .. } in served {
            self.answer(member, question, &Answer::Named { name }, Vec::new());
        }
        Ok(())
    }

    fn look_up(
        &mut self,
        member: MemberNumber,
        question: u32,
        address: &Address,
        wait: bool,
    ) -> Result<(), Refusal> {
        let job = self.directory.member(member).ok_or(Refusal::NotUnderstood)?.job;
        let place = self.directory.place(address)?;
        let name = self.directory.look_up(job, place)?;
        if wait && self.directory.owner(place).is_none() {
            // An asker that has given up before asks again: one question a process and place is
            // enough.
            self.waiting.retain(|waiting| (waiting.member, waiting.place) != (member, place));
            self.waiting.push(Waiting { member, question, place, name });
        } else {
            self.answer(member, question, &Answer::Named { name }, Vec::new());
        }
        Ok(())
    }

    fn open_lane(
        &mut self,
        member: MemberNumber,
        question: u32,
        port: u16,
        (name, class): (QueueName, Class),
        alone: bool,
    ) -> Result<(), Refusal> {
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
        let queue = open.queue();
        let route = Route { from, name, class };
        let Before { left, after } = self.before(route, alone, (to, receiver))?;
        let hall = self.directory.member(receiver).and_then(|member| member.hall.as_ref());
        let hall = hall.filter(|_| !alone && from.job == to.job);
        let carrier = match hall {
            Some(_) => Carrier::Hall { hall: receiver, port: to.port, queue },
            None => Carrier::Ring { lines: LANE_LINES },
        };
        let is_too_many = match hall {
            Some(_) => self.hall_lanes.get(&member).is_some_and(|lanes| *lanes >= MAX_HALL_LANES),
            None => self.lanes_of(member) >= MAX_LANES || self.lanes_of(receiver) >= MAX_LANES,
        };
        if is_too_many {
            return Err(Refusal::TooManyLanes);
        }
        let (here, there) = match hall {
            Some(hall) => (vec![copy(&hall.memory)?, copy(&hall.event)?], Vec::new()),
            None => make_lane()?,
        };
        if let Some(left) = left {
            self.close_by(member, left, Dropped::SenderGoesOn);
        }
        let lane = Lane {
            route,
            sender: member,
            to,
            receiver,
            source,
            carrier,
            moving: None,
            is_draining: false,
        };
        let number = self.next_lane;
        self.next_lane = number.checked_add(1).unwrap_or(1);
        let answer = Answer::Lane(self.offer(number, &lane, receiver));
        let offer = self.offer(number, &lane, member);
        let notice = Notice::LaneOpened { port: to.port, position: 0, after, offer };
        // First the receiver: it can know of the lane when the first message has come.
        self.notify(receiver, &notice, Some((number, About::Opening { after })), there);
        self.answer(member, question, &answer, here);
        self.insert(number, lane);
        Ok(())
    }

    /// What becomes of the lane that there is on a route, when another is to be opened.
    fn before(
        &self,
        route: Route,
        alone: bool,
        new: (Place, MemberNumber),
    ) -> Result<Before, Refusal> {
        let left = self.by_route.get(&route).copied();
        // Only one through a hall is left, for one with a ring.
        let is_to_leave =
            |number| alone && self.lanes.get(number).is_some_and(|lane| !lane.has_ring());
        if left.as_ref().is_some_and(|number| !is_to_leave(number)) {
            return Err(Refusal::LaneOpen);
        }
        // What was sent before comes first. The same receiver can see to that itself.
        let before = left.or_else(|| self.draining.get(&route).copied());
        match before.and_then(|number| Some((number, self.lanes.get(&number)?))) {
            None => Ok(Before { left, after: 0 }),
            Some((after, lane)) if alone && (lane.to, lane.receiver) == new => {
                Ok(Before { left, after })
            }
            Some(_) => Err(Refusal::Moving),
        }
    }

    /// How many lanes with rings a process has.
    fn lanes_of(&self, member: MemberNumber) -> usize {
        let is_its =
            |lane: &&Lane| lane.has_ring() && (lane.sender == member || lane.receiver == member);
        self.lanes.values().filter(is_its).count()
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
        LaneOffer {
            lane: number,
            carrier: lane.carrier,
            class: lane.route.class,
            source: lane.source,
            partner,
        }
    }

    fn insert(&mut self, number: u32, lane: Lane) {
        if !lane.has_ring() {
            *self.hall_lanes.entry(lane.sender).or_default() += 1;
        }
        self.by_route.insert(lane.route, number);
        self.lanes.insert(number, lane);
    }

    fn remove(&mut self, number: u32) -> Option<Lane> {
        let removed = self.lanes.remove(&number)?;
        let routes = if removed.is_draining { &mut self.draining } else { &mut self.by_route };
        routes.remove(&removed.route);
        if !removed.has_ring()
            && let Some(lanes) = self.hall_lanes.get_mut(&removed.sender)
        {
            *lanes -= 1;
            if *lanes == 0 {
                self.hall_lanes.remove(&removed.sender);
            }
        }
        Some(removed)
    }

    /// One of the two processes has dropped its end. The other one finds that in the ring; of a
    /// hall it is told.
    fn close_by(&mut self, member: MemberNumber, number: u32, dropped: Dropped) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let (own, other) = if dropped.is_receiver() {
            (lane.receiver, lane.sender)
        } else {
            (lane.sender, lane.receiver)
        };
        if own != member || lane.is_draining && !dropped.is_receiver() {
            return;
        }
        if lane.has_ring() {
            self.remove(number);
            if !dropped.is_receiver() {
                let about = Some((number, About::Cancelling));
                self.dispatches.push(Dispatch {
                    to: other,
                    bytes: Vec::new(),
                    descriptors: Vec::new(),
                    about,
                });
            }
            return;
        }
        let about = if dropped.is_receiver() {
            self.remove(number);
            About::Closing
        } else {
            lane.is_draining = true;
            let route = lane.route;
            self.by_route.remove(&route);
            self.draining.insert(route, number);
            About::Leaving
        };
        let why = if dropped == Dropped::SenderGoesOn { Closing::Replaced } else { Closing::Left };
        self.notify(
            other,
            &Notice::LaneClosed { lane: number, why },
            Some((number, about)),
            Vec::new(),
        );
    }

    /// Closes lanes and tells both ends, as far as they are there.
    fn close_where(&mut self, why: Closing, is_concerned: impl Fn(&Lane, &Directory) -> bool) {
        let concerned = |lane: &&Lane| is_concerned(lane, &self.directory);
        let mut numbers: Vec<u32> = self
            .lanes
            .iter()
            .filter(|(_, lane)| concerned(lane))
            .map(|(&number, _)| number)
            .collect();
        // The newest first: until it has gone, the one whose messages come before its own has to be
        // known.
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        for number in numbers {
            let Some(lane) = self.remove(number) else { continue };
            let notice = Notice::LaneClosed { lane: number, why };
            // Who has not heard yet of a lane need never hear of it.
            let about = Some((number, About::Closing));
            for end in [lane.sender, lane.receiver] {
                if self.directory.member(end).is_some() {
                    self.notify(end, &notice, about, Vec::new());
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
    fn pass_on(
        &mut self,
        member: MemberNumber,
        number: u32,
        position: u64,
        descriptors: Vec<OwnedFd>,
    ) {
        let Some(lane) = self.lanes.get_mut(&number).filter(|lane| lane.receiver == member) else {
            return;
        };
        let target = lane.moving.take().and_then(|to| Some((to, self.directory.owner(to)?.0)));
        let (Some((to, receiver)), 2) = (target, descriptors.len()) else {
            // Nobody there. The descriptors are closed with this, which the sender notices.
            self.remove(number);
            return;
        };
        (lane.to, lane.receiver) = (to, receiver);
        let (sender, lane) = (lane.sender, &self.lanes[&number]);
        let offer = self.offer(number, lane, sender);
        let notice = Notice::LaneOpened { port: to.port, position, after: 0, offer };
        self.notify(receiver, &notice, Some((number, About::Opening { after: 0 })), descriptors);
    }

    /// A process has ended or closed its connection.
    pub(super) fn leave(&mut self, member: MemberNumber) {
        self.waiting.retain(|waiting| waiting.member != member);
        // First who: those at the other ends are told before their tables say that there is nobody.
        let gone = self.directory.member(member).is_some();
        self.directory.leave(member);
        if gone {
            self.close_where(Closing::Gone, |lane, _| {
                lane.sender == member || lane.receiver == member
            });
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
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(Refusal::system)?;
    Ok((vec![copy(&segment)?, here], vec![copy(&segment)?, there]))
}
