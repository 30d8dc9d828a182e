//! The node service itself: makes the job's segment, lets ranks in, and notices when one of their
//! processes ends.

use crate::error::ServiceError;
use crate::events::{Event, Events};
use crate::protocol::{Answer, Hello, INVITATION};
use crate::reach::Reach;
use engine::Exit;
use engine::node::{JobOptions, Node};
use network::job_nodes::ServiceEndpoint;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shm::broker::{Broker, BrokerError, Connection};
use shm::process::{ProcessError, ProcessHandle};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who has come for a rank.
#[derive(Debug, Default)]
struct Seat {
    process: Option<ProcessHandle>,
    gone: bool,
}

/// The service of one job.
#[derive(Debug)]
pub(crate) struct Server {
    node: Arc<Node>,
    broker: Broker,
    events: Events,
    /// Who has come to the door and not said yet who it is.
    guests: HashMap<u32, Connection>,
    next_guest: u32,
    seats: Vec<Seat>,
    reach: Reach,
    /// Somebody came for a rank of a job whose processes are all gone: this service only stands in
    /// the way.
    superseded: bool,
}

impl Server {
    /// Binds the name first, so that only one of several makes a segment.
    /// `listen` says where the other nodes' services knock, if there are any.
    pub(crate) fn new(
        name: &str,
        options: &JobOptions,
        listen: Option<IpAddr>,
    ) -> Result<Self, ServiceError> {
        let broker = Broker::bind(name)?;
        let node = Node::create(options)?;
        let events = Events::new()?;
        events.add(&broker, Event::Door)?;
        let reach = Reach::new(listen)?;
        events.add(&reach, Event::Reach)?;
        let seats = (0..options.ranks).map(|_| Seat::default()).collect();
        Ok(Server {
            node,
            broker,
            events,
            guests: HashMap::new(),
            next_guest: 0,
            seats,
            reach,
            superseded: false,
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.broker.name()
    }

    /// What the service sleeps on; its owner may add descriptors of its own.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// The job.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Does what an event asks for. `how` tells how a process ended, where that can be known.
    pub(crate) fn handle(
        &mut self,
        event: Event,
        how: impl Fn(u32) -> Option<Exit>,
    ) -> Result<(), ServiceError> {
        match event {
            Event::Door => self.open_door()?,
            Event::Guest(guest) => self.listen(guest),
            Event::Attached(rank) => self.see_off(rank, how),
            Event::Reach => self.look_out(),
            Event::Child(_) | Event::Signal => {}
        }
        Ok(())
    }

    /// Something has come of the connections with other nodes.
    fn look_out(&mut self) {
        self.reach.progress();
        let segment = Arc::clone(self.node.segment());
        for (rank, connection) in self.reach.released() {
            self.reach.welcome(rank, connection, segment.as_fd());
        }
        // Who has ended while it waited for the connections is not known to the agent.
        for (rank, _) in (0..).zip(&self.seats).filter(|(_, seat)| seat.gone) {
            self.reach.depart(rank, self.node.exit_of(rank).unwrap_or(Exit::Vanished));
        }
    }

    /// Hears everybody who has come so far. A process that has ended may have joined just before.
    pub(crate) fn hear_all(&mut self) -> Result<(), ServiceError> {
        self.open_door()?;
        let guests: Vec<u32> = self.guests.keys().copied().collect();
        guests.into_iter().for_each(|guest| self.listen(guest));
        Ok(())
    }

    fn open_door(&mut self) -> Result<(), ServiceError> {
        loop {
            match self.broker.accept() {
                Ok(Some(connection)) => {
                    let guest = self.next_guest;
                    self.next_guest = self.next_guest.wrapping_add(1);
                    self.events.add(&connection, Event::Guest(guest))?;
                    self.guests.insert(guest, connection);
                }
                Ok(None) => return Ok(()),
                // Turned away; the next may be one of ours.
                Err(BrokerError::OtherUser { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn listen(&mut self, guest: u32) {
        let Some(connection) = self.guests.remove(&guest) else { return };
        let message = match connection.receive_message(Some(Duration::ZERO)) {
            Ok(message) => message,
            Err(BrokerError::TimedOut { .. }) => {
                self.guests.insert(guest, connection);
                return;
            }
            // Left without a word, or speaks another language and is told so by its own side.
            Err(_) => return,
        };
        if message.bytes == INVITATION {
            self.reach.invite(message, connection, self.node.ranks());
            return self.look_out();
        }
        let hello = Hello::decode(&message.bytes);
        let answer = match hello {
            Some(hello) => self.seat(hello, connection.peer().pid),
            None => Answer::Refused("it did not say which rank it is".into()),
        };
        if answer == Answer::Welcome {
            let segment = Arc::clone(self.node.segment());
            return self.reach.welcome(hello.map(|hello| hello.rank), connection, segment.as_fd());
        }
        // Who does not read its answer has ended, which its process handle tells.
        let _ = connection.send_message(&answer.encode(), &[]);
    }

    /// Gives a rank's seat to the process that has come for it, and watches that process from now
    /// on.
    fn seat(&mut self, hello: Hello, pid: Option<u32>) -> Answer {
        let (rank, ranks) = (hello.rank, self.node.ranks());
        if hello.ranks != ranks || rank >= ranks {
            return Answer::Refused(format!(
                "it is rank {rank} of {}, the job has {ranks} ranks",
                hello.ranks
            ));
        }
        let Some(pid) = pid else {
            return Answer::Refused(format!(
                "the process of rank {rank} lives in another process namespace"
            ));
        };
        if let Some(other) = &self.seats[rank as usize].process {
            self.superseded = self.attached_are_gone();
            let pid = other.pid();
            let twice = format!(
                "rank {rank} has joined this job already, as process {pid}: is {rank} given to two ranks?"
            );
            return if self.superseded { Answer::Over } else { Answer::Refused(twice) };
        }
        match ProcessHandle::open(pid) {
            Ok(handle) if handle.start_time() == hello.started => self.watch(rank, handle),
            // It has ended; the number may have gone to another process.
            Ok(_) | Err(ProcessError::NoSuchProcess { .. }) => {
                self.node.mark(rank, Exit::Vanished);
                Answer::Refused(String::new())
            }
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    fn watch(&mut self, rank: u32, handle: ProcessHandle) -> Answer {
        if let Err(error) = self.events.add(&handle, Event::Attached(rank)) {
            return Answer::Refused(error.to_string());
        }
        self.seats[rank as usize].process = Some(handle);
        Answer::Welcome
    }

    fn see_off(&mut self, rank: u32, how: impl Fn(u32) -> Option<Exit>) {
        let Some(seat) = self.seats.get_mut(rank as usize) else { return };
        let Some(process) = seat.process.as_ref().filter(|_| !seat.gone) else { return };
        // Left in the set, the handle would be ready for ever.
        self.events.remove(process);
        seat.gone = true;
        let how = how(process.pid()).unwrap_or(Exit::Vanished);
        self.node.mark(rank, how);
        self.reach.depart(rank, self.node.exit_of(rank).unwrap_or(how));
    }

    /// Ranks that have not come yet never will.
    fn close_door(&mut self) {
        for (rank, _) in (0..).zip(&self.seats).filter(|(_, seat)| seat.process.is_none()) {
            self.node.mark(rank, Exit::NeverStarted);
            self.reach.depart(rank, Exit::NeverStarted);
        }
    }

    /// The child that was started as this rank has ended. That matters unless another process,
    /// started by it, is the rank.
    pub(crate) fn child_gone(&self, rank: u32, pid: u32, how: Exit) {
        match &self.seats[rank as usize].process {
            Some(process) if process.pid() != pid => {}
            // It never came, and all went well for it: "exited with status 0" would puzzle whoever
            // waits for it.
            None if how == Exit::Exited(0) => self.node.mark(rank, Exit::NeverStarted),
            _ => self.node.mark(rank, how),
        }
    }

    /// Whether a process that joined still lives.
    pub(crate) fn has_attached(&self) -> bool {
        self.seats.iter().any(|seat| seat.process.is_some() && !seat.gone)
    }

    /// Ends every process that joined and still lives.
    pub(crate) fn kill_attached(&self) {
        for process in
            self.seats.iter().filter(|seat| !seat.gone).filter_map(|seat| seat.process.as_ref())
        {
            // It may end at this moment by itself.
            let _ = process.kill();
        }
    }

    fn attached_are_gone(&self) -> bool {
        self.seats.iter().all(|seat| {
            seat.process.as_ref().is_none_or(|process| seat.gone || process.has_exited())
        })
    }

    /// Whether every rank has come and gone.
    fn is_over(&self) -> bool {
        self.superseded || self.seats.iter().all(|seat| seat.gone)
    }

    fn has_any(&self) -> bool {
        self.seats.iter().any(|seat| seat.process.is_some())
    }
}

/// Raises this process's limit on open files as far as so many for each rank, and others, need.
pub(crate) fn allow_open_files(ranks: u32, each: u32, others: u64) -> Result<(), ServiceError> {
    let needed = u64::from(ranks) * u64::from(each) + others + 64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let too_low = |limit| ServiceError::OpenFiles { ranks, needed, limit };
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        return Err(too_low(maximum));
    }
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| too_low(limit.current.unwrap_or(needed)))
}

/// Its process's handle, its connection until it has an answer; the area and doorbell that it
/// shares with the agent, and the maps that it shares with the kernel engine, which descriptors
/// that are about to be sent are copies of.
pub(crate) const FILES_OF_A_RANK: u32 = 8;

/// Serves a job whose ranks somebody else starts, until the last of their processes is gone.
/// `ready` is called when ranks may come, with the address at which the service listens for other
/// nodes, if it was asked to.
///
/// # Errors
/// [`BrokerError::NameTaken`] if the job has a service already; when the segment cannot be had.
pub(crate) fn serve(
    name: &str,
    options: &JobOptions,
    listen: Option<IpAddr>,
    start_timeout: Duration,
    ready: impl FnOnce(Option<ServiceEndpoint>),
) -> Result<(), ServiceError> {
    let mut server = Server::new(name, options, listen)?;
    allow_open_files(options.ranks, FILES_OF_A_RANK, 0)?;
    ready(server.reach.listening());
    // Ranks that start late want to know what has become of the others; so this stays even if those
    // are gone.
    let started = Instant::now();
    let patience = started.checked_add(start_timeout);
    let mut is_closed = false;
    loop {
        let waits_for_first = !is_closed && (!server.has_any() || !server.has_attached());
        for event in server.events().wait(patience.filter(|_| waits_for_first))? {
            server.handle(event, |_| None)?;
        }
        let idle = !server.has_attached() && started.elapsed() >= start_timeout;
        if server.is_over() || idle {
            if !std::mem::replace(&mut is_closed, true) {
                server.close_door();
            }
            // What the ranks have started is carried through: other nodes may wait for it.
            if server.superseded || !server.reach.is_busy() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::node::EngineKind;
    use shm::broker::{connect, unguessable_name};
    use shm::process::{StartTime, start_time};
    use shm::segment::Segment;

    fn server(ranks: u32) -> Server {
        let options = JobOptions::new(ranks, EngineKind::Peers);
        Server::new(&unguessable_name("tradewind-test").expect("random bytes"), &options, None)
            .expect("a new name")
    }

    /// Says something at the door and gives the answer, and whether a segment came with it.
    fn say(server: &mut Server, words: &[u8]) -> (Option<Answer>, bool) {
        let client = connect(server.name(), Duration::from_secs(10)).expect("it listens");
        client.send_message(words, &[]).expect("there is room");
        server.hear_all().expect("nothing fails");
        let message = client.receive_message(Some(Duration::from_secs(10))).expect("an answer");
        let segment = message.descriptors.into_iter().next().map(Segment::from_fd);
        (Answer::decode(&message.bytes), matches!(segment, Some(Ok(_))))
    }

    fn hello(rank: u32, ranks: u32) -> Vec<u8> {
        Hello { rank, ranks, started: start_time(std::process::id()).expect("/proc is mounted") }
            .encode()
    }

    #[test]
    fn only_ranks_of_the_job_are_let_in() {
        let mut server = server(2);
        for stranger in [&b""[..], b"hello", &hello(2, 2), &hello(0, 3), &hello(u32::MAX, u32::MAX)]
        {
            let answer = say(&mut server, stranger);
            assert!(matches!(answer, (Some(Answer::Refused(_)), false)), "{answer:?}");
        }
        assert_eq!(say(&mut server, &hello(1, 2)), (Some(Answer::Welcome), true));
        assert!(server.has_attached());
    }

    #[test]
    fn a_rank_comes_once() {
        let mut server = server(2);
        assert_eq!(say(&mut server, &hello(0, 2)), (Some(Answer::Welcome), true));
        let (answer, _) = say(&mut server, &hello(0, 2));
        let Some(Answer::Refused(why)) = answer else { panic!("{answer:?}") };
        assert!(
            why.contains(&format!(
                "rank 0 has joined this job already, as process {}",
                std::process::id()
            )),
            "{why}"
        );
    }

    #[test]
    fn a_process_that_has_the_number_of_another_is_not_taken_for_it() {
        let mut server = server(2);
        let stale = Hello { rank: 0, ranks: 2, started: StartTime(1) };
        assert!(matches!(say(&mut server, &stale.encode()), (Some(Answer::Refused(_)), false)));
        assert_eq!(server.node().exit_of(0), Some(Exit::Vanished));
    }

    #[test]
    fn who_says_nothing_keeps_nobody_waiting() {
        let mut server = server(1);
        let silent = connect(server.name(), Duration::from_secs(10)).expect("it listens");
        let gone = connect(server.name(), Duration::from_secs(10)).expect("it listens");
        drop(gone);
        assert_eq!(say(&mut server, &hello(0, 1)), (Some(Answer::Welcome), true));
        assert_eq!(server.guests.len(), 1, "the silent one");
        drop(silent);
    }

    #[test]
    fn the_end_of_a_child_matters_unless_another_process_is_the_rank() {
        let mut server = server(3);
        say(&mut server, &hello(0, 3));
        server.child_gone(0, 1, Exit::Exited(1));
        assert_eq!(server.node().exit_of(0), None, "it was a wrapper");
        server.child_gone(0, std::process::id(), Exit::Killed(9));
        assert_eq!(server.node().exit_of(0), Some(Exit::Killed(9)));
        server.child_gone(1, 1, Exit::Exited(0));
        assert_eq!(server.node().exit_of(1), Some(Exit::NeverStarted));
        server.child_gone(2, 1, Exit::Exited(127));
        assert_eq!(server.node().exit_of(2), Some(Exit::Exited(127)));
    }

    #[test]
    fn a_name_has_one_service() {
        let server = server(1);
        let options = JobOptions::new(1, EngineKind::Peers);
        let second = Server::new(server.name(), &options, None);
        assert!(matches!(second, Err(ServiceError::Broker(BrokerError::NameTaken { .. }))));
    }
}
