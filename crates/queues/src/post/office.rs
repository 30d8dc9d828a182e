//! The post office at work: its door, its conversations, and the processes that it watches.

use super::protocol::Request;
use super::traffic::{About, Dispatch, Traffic};
use super::{Address, JobKey, JobPlan, PostError, Refusal, system};
use crate::name::{NodeName, QueueName};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use shm::broker::{Broker, BrokerError, Connection};
use shm::process::ProcessHandle;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many conversations a process may begin before it has registered in one of them.
const GUESTS: usize = 16;

/// How many messages wait for a process at most before it is not heard any more until it reads.
const BACKLOG: usize = 64;

/// How many messages of one process are heard before it is the others' turn.
const TURN: usize = 16;

/// How many messages of a process that has ended are heard.
const LAST_WORDS: usize = 1024;

/// How long the door stays shut when there is no descriptor for whoever knocks, in nanoseconds.
const SHUT: i64 = 100_000_000;

/// What a descriptor's readiness means, with the number of the conversation where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Door,
    Stop,
    Speaks(u32),
    Ends(u32),
}

impl Event {
    fn encode(self) -> EventData {
        let (kind, number) = match self {
            Event::Door => (0, 0),
            Event::Stop => (1, 0),
            Event::Speaks(number) => (2, number),
            Event::Ends(number) => (3, number),
        };
        EventData::new_u64(kind << 32 | u64::from(number))
    }

    fn decode(data: EventData) -> Event {
        let word = data.u64();
        match word >> 32 {
            0 => Event::Door,
            1 => Event::Stop,
            2 => Event::Speaks(word as u32),
            _ => Event::Ends(word as u32),
        }
    }
}

/// A conversation with a process.
#[derive(Debug)]
struct Link {
    connection: Connection,
    /// The process, once it has registered.
    process: Option<ProcessHandle>,
    /// What it has not had room for.
    outgoing: VecDeque<Dispatch>,
}

#[derive(Debug)]
struct Office {
    epoll: Arc<OwnedFd>,
    traffic: Traffic,
    links: HashMap<u32, Link>,
    next_link: u32,
    is_shut: bool,
}

/// The broker of all jobs of a node that meet in queues. See the [module's page](super).
#[derive(Debug)]
pub struct Post {
    broker: Broker,
    epoll: Arc<OwnedFd>,
    stop: OwnedFd,
    office: Mutex<Office>,
}

impl Post {
    /// Opens a post office under a name, at which processes find it (see [`shm::broker`]).
    ///
    /// # Errors
    ///
    /// [`PostError::Broker`] if the name is taken or none, [`PostError::System`].
    pub fn bind(name: &str) -> Result<Post, PostError> {
        Post::bind_on(name, NodeName::default())
    }

    /// As [`Self::bind`], on this node of several.
    ///
    /// # Errors
    ///
    /// As [`Self::bind`].
    pub fn bind_on(name: &str, node: NodeName) -> Result<Post, PostError> {
        let broker = Broker::bind(name)?;
        let epoll = Arc::new(
            epoll::create(CreateFlags::CLOEXEC).map_err(system("make a set of descriptors"))?,
        );
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(system("make an event"))?;
        let watch = system("watch a descriptor");
        epoll::add(&epoll, &broker, Event::Door.encode(), EventFlags::IN).map_err(&watch)?;
        epoll::add(&epoll, &stop, Event::Stop.encode(), EventFlags::IN).map_err(&watch)?;
        let office = Office {
            epoll: Arc::clone(&epoll),
            traffic: Traffic::new(node),
            links: HashMap::new(),
            next_link: 0,
            is_shut: false,
        };
        Ok(Post { broker, epoll, stop, office: Mutex::new(office) })
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.broker.name()
    }

    fn office(&self) -> MutexGuard<'_, Office> {
        // Whoever panicked while holding it may have left an event half done; the others are as
        // they were.
        self.office.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the rules, and tells those concerned.
    fn change<T>(&self, change: impl FnOnce(&mut Traffic) -> T) -> T {
        let mut office = self.office();
        let outcome = change(&mut office.traffic);
        office.send_all();
        outcome
    }

    /// Adds a job; gives the key that lets its processes in.
    ///
    /// # Errors
    ///
    /// [`PostError::Plan`], [`PostError::Segment`] if its segment cannot be had,
    /// [`PostError::System`].
    pub fn add_job(&self, plan: JobPlan) -> Result<JobKey, PostError> {
        self.change(|traffic| traffic.add_job(plan))
    }

    /// From now on processes of job `from` may send to those of job `to`. Within a job everybody
    /// may.
    ///
    /// # Errors
    ///
    /// [`PostError::UnknownJob`].
    pub fn allow(&self, from: &str, to: &str) -> Result<(), PostError> {
        self.change(|traffic| traffic.set_right(from, to, true))
    }

    /// Takes the right back: names are revoked and lanes closed.
    ///
    /// # Errors
    ///
    /// [`PostError::UnknownJob`].
    pub fn forbid(&self, from: &str, to: &str) -> Result<(), PostError> {
        self.change(|traffic| traffic.set_right(from, to, false))
    }

    /// Takes one name away from a job, for ever.
    ///
    /// # Errors
    ///
    /// [`PostError::UnknownJob`], [`PostError::UnknownName`].
    pub fn revoke(&self, job: &str, name: QueueName) -> Result<(), PostError> {
        self.change(|traffic| traffic.revoke(job, name))
    }

    /// Lets a name of a job lead to another port. If that is a port of the same job as before, what
    /// is sent under this name goes with it, and nothing is lost, doubled or reordered (see
    /// "Moving" in the [module's page](super)). Otherwise the lanes are closed.
    ///
    /// # Errors
    ///
    /// [`PostError::UnknownJob`], [`PostError::UnknownName`], [`PostError::Address`] for a port
    /// that does not exist or to which the job may not send.
    pub fn repoint(&self, job: &str, name: QueueName, to: &Address) -> Result<(), PostError> {
        self.change(|traffic| traffic.repoint(job, name, to))
    }

    /// Lets every name of a port, in every job, lead to another port of the same job: a rank moves
    /// to another process. See [`Self::repoint`].
    ///
    /// # Errors
    ///
    /// [`PostError::Address`] for a port that does not exist, is of another job or, if the target,
    /// not open.
    pub fn move_port(&self, from: &Address, to: &Address) -> Result<(), PostError> {
        self.change(|traffic| traffic.move_port(from, to))
    }

    /// Serves until [`Self::stop`]. Waiting, it sleeps.
    ///
    /// # Errors
    ///
    /// [`PostError::System`] if it cannot even sleep.
    pub fn serve(&self) -> Result<(), PostError> {
        let mut ready = Vec::with_capacity(64);
        loop {
            ready.clear();
            let shut = self.office().is_shut.then_some(Timespec { tv_sec: 0, tv_nsec: SHUT });
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut ready),
                shut.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(system("sleep until something happens")(error)),
            }
            let mut office = self.office();
            if office.is_shut {
                office.shut_door(self, false);
            }
            for event in ready.iter().map(|event: &epoll::Event| Event::decode(event.data)) {
                match event {
                    Event::Door => office.open_door(self),
                    Event::Speaks(link) => office.listen(link, TURN),
                    // Who has spoken before it ended is heard first.
                    Event::Ends(link) => office.see_off(link),
                    Event::Stop => return Ok(()),
                }
                office.send_all();
            }
        }
    }

    /// Ends [`Self::serve`], now or when it is called.
    pub fn stop(&self) {
        // Full means that it has been stopped very often already.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

impl Office {
    fn open_door(&mut self, post: &Post) {
        loop {
            match post.broker.accept() {
                // It has come before, again and again, without saying who it is.
                Ok(Some(connection)) if self.guests(&connection) >= GUESTS => {}
                Ok(Some(connection)) => {
                    let number = self.next_link;
                    self.next_link = self.next_link.wrapping_add(1);
                    let event = Event::Speaks(number).encode();
                    // Who cannot be watched is turned away.
                    if epoll::add(&post.epoll, &connection, event, EventFlags::IN).is_ok() {
                        let link = Link { connection, process: None, outgoing: VecDeque::new() };
                        self.links.insert(number, link);
                    }
                }
                Ok(None) => return,
                // Turned away; the next may be one of ours.
                Err(BrokerError::OtherUser { .. }) => {}
                // No descriptor is left for whoever knocks. It would go on knocking, and wake this
                // thread every time.
                Err(_) => return self.shut_door(post, true),
            }
        }
    }

    /// How many conversations a process has begun without having registered.
    fn guests(&self, connection: &Connection) -> usize {
        let same =
            |link: &&Link| link.process.is_none() && link.connection.peer() == connection.peer();
        self.links.values().filter(same).count()
    }

    fn shut_door(&mut self, post: &Post, shut: bool) {
        let flags = if shut { EventFlags::empty() } else { EventFlags::IN };
        // It cannot fail for a descriptor that is in the set; if it did, the door would stay as it
        // is.
        let _ = epoll::modify(&post.epoll, &post.broker, Event::Door.encode(), flags);
        self.is_shut = shut;
    }

    /// Hears a process, `turn` messages at most.
    fn listen(&mut self, number: u32, turn: usize) {
        for _ in 0..turn {
            let Some(link) = self.links.get(&number).filter(|link| link.outgoing.len() < BACKLOG)
            else {
                return;
            };
            let message = match link.connection.receive_message(Some(Duration::ZERO)) {
                Ok(message) => message,
                Err(BrokerError::TimedOut { .. }) => return,
                // Its end, or another language.
                Err(_) => return self.hang_up(number),
            };
            match Request::decode(&message.bytes) {
                Some((question, request)) => {
                    self.serve_request(number, question, request, message.descriptors)
                }
                None => self.traffic.refuse(number, 0, Refusal::NotUnderstood),
            }
        }
    }

    fn serve_request(
        &mut self,
        number: u32,
        question: u32,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) {
        let Some(link) = self.links.get(&number) else { return };
        let pid = link.connection.peer().pid.unwrap_or(0);
        if let Request::Register { started, .. } = &request {
            if link.process.is_some() {
                return self.traffic.refuse(number, question, Refusal::NotUnderstood);
            }
            // The number may have gone to another process since the kernel noted it.
            let process =
                ProcessHandle::open(pid).ok().filter(|process| process.start_time() == *started);
            if !process.is_some_and(|process| self.watch(number, process)) {
                return self.traffic.refuse(number, question, Refusal::Unwatchable);
            }
        }
        self.traffic.handle(number, pid, question, request, descriptors);
        let registered = self.traffic.has_registered(number);
        if let (false, Some(link)) = (registered, self.links.get_mut(&number)) {
            link.process = None;
        }
    }

    /// Has the process's end noticed, even if a child of it keeps the connection open.
    fn watch(&mut self, number: u32, process: ProcessHandle) -> bool {
        let Some(link) = self.links.get_mut(&number) else { return false };
        let watched =
            epoll::add(&*self.epoll, &process, Event::Ends(number).encode(), EventFlags::IN)
                .is_ok();
        link.process = watched.then_some(process);
        watched
    }

    fn see_off(&mut self, number: u32) {
        self.listen(number, LAST_WORDS);
        self.hang_up(number);
    }

    fn hang_up(&mut self, number: u32) {
        // Closing the descriptors takes them out of the set.
        if self.links.remove(&number).is_some() {
            self.traffic.leave(number);
        }
    }

    /// Sends what has come together.
    fn send_all(&mut self) {
        // Sending may show that somebody has gone, and then others are to be told.
        loop {
            let dispatches = self.traffic.take_dispatches();
            if dispatches.is_empty() {
                break;
            }
            for dispatch in dispatches {
                let to = dispatch.to;
                if let Some(link) = self.links.get_mut(&to) {
                    link.queue(dispatch);
                    // In the order of the events, as far as they read.
                    link.flush(to, &self.epoll);
                }
            }
        }
        for (&number, link) in &mut self.links {
            link.flush(number, &self.epoll);
        }
    }
}

impl Link {
    fn queue(&mut self, dispatch: Dispatch) {
        let Some((lane, what @ (About::Closing | About::Cancelling))) = dispatch.about else {
            return self.outgoing.push_back(dispatch);
        };
        let mut openings = self.outgoing.iter().filter_map(|waiting| match waiting.about? {
            (lane, About::Opening { after }) => Some((lane, after)),
            _ => None,
        });
        let is_unheard = openings.clone().any(|(opened, _)| opened == lane);
        let is_awaited = openings.any(|(_, after)| after == lane);
        if is_unheard && !is_awaited {
            // What it has not heard of it need not forget. So nobody who does not read makes this
            // queue long.
            self.outgoing.retain(|waiting| waiting.about.is_none_or(|(about, _)| about != lane));
        } else if what == About::Closing {
            self.outgoing.push_back(dispatch);
        }
    }

    fn flush(&mut self, number: u32, epoll: &OwnedFd) {
        if self.outgoing.is_empty() {
            return;
        }
        while let Some(dispatch) = self.outgoing.front() {
            let descriptors: Vec<_> = dispatch.descriptors.iter().map(AsFd::as_fd).collect();
            match self.connection.send_message(&dispatch.bytes, &descriptors) {
                Err(BrokerError::NotReading) => break,
                // Gone, which its descriptors will tell; or not to be sent at all.
                Ok(()) | Err(_) => drop(self.outgoing.pop_front()),
            }
        }
        let flags = match self.outgoing.len() {
            0 => EventFlags::IN,
            1..BACKLOG => EventFlags::IN | EventFlags::OUT,
            _ => EventFlags::OUT,
        };
        let _ = epoll::modify(epoll, &self.connection, Event::Speaks(number).encode(), flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm::broker::{connect, unguessable_name};

    /// What waits for a process that does not read, after it should have been told this.
    fn waiting(told: &[(u32, About)]) -> Vec<(u32, About)> {
        let broker = Broker::bind(&unguessable_name("tradewind-test").expect("random bytes"))
            .expect("a new name");
        let connection = connect(broker.name(), Duration::from_secs(60)).expect("it listens");
        let mut link = Link { connection, process: None, outgoing: VecDeque::new() };
        for &about in told {
            link.queue(Dispatch {
                to: 0,
                bytes: Vec::new(),
                descriptors: Vec::new(),
                about: Some(about),
            });
        }
        link.outgoing.iter().filter_map(|waiting| waiting.about).collect()
    }

    #[test]
    fn who_does_not_read_has_no_long_queue() {
        use About::{Cancelling, Closing, Leaving};
        let new = About::Opening { after: 0 };
        assert_eq!(waiting(&[(1, new), (2, new), (1, Closing), (2, Cancelling)]), []);
        assert_eq!(waiting(&[(1, new), (1, Leaving), (1, Closing)]), []);
        // The sender waits for an answer to that.
        assert_eq!(waiting(&[(1, new), (1, Leaving)]), [(1, new), (1, Leaving)]);
        // It has heard of these lanes.
        assert_eq!(
            waiting(&[(1, Leaving), (1, Closing), (2, Cancelling)]),
            [(1, Leaving), (1, Closing)]
        );
        let next = About::Opening { after: 1 };
        let both = [(1, new), (1, Leaving), (2, next)];
        assert_eq!(waiting(&[both[0], both[1], both[2], (2, Closing), (1, Closing)]), []);
        // The second lane's messages wait for those of the first, which it has to know.
        let first_closed = [both[0], both[1], both[2], (1, Closing)];
        assert_eq!(waiting(&first_closed), first_closed);
    }
}
