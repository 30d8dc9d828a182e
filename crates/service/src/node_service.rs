//! The node service: creates the job's segment, admits ranks, and detects the exit of their
//! processes.
//!
//! An exit breaks the communicators of the rank; complete collectives stay complete. A stopped rank
//! is awaited and never replaced: its late stores would reach slots that are in use again.

use crate::error::ServiceError;
use crate::events::{Events, NodeEvent};
use crate::internode::Internode;
use crate::limits::{FILES_PER_RANK, allow_open_files};
use crate::protocol::{Answer, Hello, JOB_NODES, OBSERVE, decode_keep};
use engine::Exit;
use engine::node::{JobOptions, Node};
use network::job_nodes::ServiceEndpoint;
use shm::broker::{Broker, BrokerError, Connection};
use shm::process::{ProcessError, ProcessHandle};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Process of a rank.
#[derive(Debug, Default)]
struct RankProcess {
    /// Present once the rank has been admitted.
    handle: Option<ProcessHandle>,
    has_exited: bool,
}

/// The service of one job.
#[derive(Debug)]
pub(crate) struct NodeService {
    node: Arc<Node>,
    broker: Broker,
    events: Events,
    /// Connections without a first message so far, by number.
    pending: HashMap<u32, Connection>,
    next_pending: u32,
    ranks: Vec<RankProcess>,
    internode: Internode,
    /// True if a rank was requested a second time after all processes had exited: the request
    /// belongs to a later job of the same name, and this service must end.
    superseded: bool,
    /// True if the process that has started the service ended its part before all ranks had
    /// joined.
    is_abandoned: bool,
}

impl NodeService {
    /// Creates the service. Binds the name first, so that only one of several creates a segment.
    /// `listen` is the address for the services of other nodes, if there are any.
    pub(crate) fn new(
        name: &str,
        options: &JobOptions,
        listen: Option<IpAddr>,
    ) -> Result<Self, ServiceError> {
        let broker = Broker::bind(name)?;
        let node = Node::create(options)?;
        let events = Events::new()?;
        events.add(&broker, NodeEvent::Listener)?;
        let internode = Internode::new(listen)?;
        events.add(&internode, NodeEvent::Internode)?;
        let ranks = (0..options.ranks).map(|_| RankProcess::default()).collect();
        Ok(NodeService {
            node,
            broker,
            events,
            pending: HashMap::new(),
            next_pending: 0,
            ranks,
            internode,
            superseded: false,
            is_abandoned: false,
        })
    }

    /// Returns the name of the service.
    pub(crate) fn name(&self) -> &str {
        self.broker.name()
    }

    /// Returns the events on which the service sleeps. The owner may add descriptors of its own.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Returns the job on this node.
    #[cfg(test)]
    fn node(&self) -> &Node {
        &self.node
    }

    /// Handles an event. `how` returns the exit of a process, where it can be known.
    pub(crate) fn handle(
        &mut self,
        event: NodeEvent,
        how: impl Fn(u32) -> Option<Exit>,
    ) -> Result<(), ServiceError> {
        match event {
            NodeEvent::Listener => self.accept()?,
            NodeEvent::Pending(number) => self.receive(number),
            NodeEvent::Exited(rank) => self.on_exit(rank, how),
            NodeEvent::Internode => self.progress_internode(),
            NodeEvent::Starter => {
                self.events.remove(std::io::stdout());
                let all_have_joined = self.ranks.iter().all(|process| process.handle.is_some());
                self.is_abandoned = !all_have_joined;
            }
            NodeEvent::Child(_) | NodeEvent::Signal | NodeEvent::Order => {}
        }
        Ok(())
    }

    /// Handles a change of the connections with other nodes.
    fn progress_internode(&mut self) {
        self.internode.progress();
        for (rank, connection) in self.internode.take_waiting() {
            self.internode.admit(rank, connection, &self.node);
        }
        // The agent has no report of ranks that exited before it started.
        for (rank, _) in (0..).zip(&self.ranks).filter(|(_, process)| process.has_exited) {
            self.internode.exit(rank, self.node.exit_of(rank).unwrap_or(Exit::Vanished));
        }
    }

    /// Handles all connections so far. A process that has ended may have connected just before.
    pub(crate) fn receive_all(&mut self) -> Result<(), ServiceError> {
        self.accept()?;
        let pending: Vec<u32> = self.pending.keys().copied().collect();
        pending.into_iter().for_each(|number| self.receive(number));
        Ok(())
    }

    fn accept(&mut self) -> Result<(), ServiceError> {
        loop {
            match self.broker.accept() {
                Ok(Some(connection)) => {
                    let number = self.next_pending;
                    self.next_pending = self.next_pending.wrapping_add(1);
                    self.events.add(&connection, NodeEvent::Pending(number))?;
                    self.pending.insert(number, connection);
                }
                Ok(None) => return Ok(()),
                // Rejected; the next may be a process of this user.
                Err(BrokerError::OtherUser { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Handles the first message of a pending connection, if it has arrived.
    fn receive(&mut self, number: u32) {
        let Some(connection) = self.pending.remove(&number) else { return };
        let message = match connection.receive_message(Some(Duration::ZERO)) {
            Ok(message) => message,
            Err(BrokerError::TimedOut { .. }) => {
                self.pending.insert(number, connection);
                return;
            }
            // Closed without a message, or the message is invalid.
            Err(_) => return,
        };
        if message.bytes == JOB_NODES {
            self.internode.submit(message, connection, self.node.ranks());
            return self.progress_internode();
        }
        if message.bytes == OBSERVE {
            return self.admit_observer(&connection);
        }
        if let Some(rank) = decode_keep(&message.bytes) {
            let answer = self.keep(rank, connection.peer().pid, message.descriptors);
            // As below.
            let _ = connection.send_message(&answer.encode(), &[]);
            return;
        }
        let hello = Hello::decode(&message.bytes);
        let answer = match hello {
            Some(hello) => self.register(hello, connection.peer().pid),
            None => Answer::Refused("its message names no rank".into()),
        };
        if answer == Answer::Welcome {
            let rank = hello.map(|hello| hello.rank);
            return self.internode.admit(rank, connection, &self.node);
        }
        // A process that does not read its response has ended, which its process handle reports.
        let _ = connection.send_message(&answer.encode(), &[]);
    }

    /// Keeps copies of sockets of a rank, which passes them itself.
    fn keep(&mut self, rank: u32, pid: Option<u32>, sockets: Vec<OwnedFd>) -> Answer {
        let living = self.ranks.get(rank as usize).filter(|process| !process.has_exited);
        let handle = living.and_then(|process| process.handle.as_ref());
        if handle.is_none_or(|handle| Some(handle.pid()) != pid) {
            return Answer::Refused(format!("it passes sockets as rank {rank}, which it is not"));
        }
        match self.internode.keep(rank, sockets) {
            Ok(()) => Answer::Welcome,
            Err(why) => Answer::Refused(why),
        }
    }

    /// Sends an observer, which is a process of this user, a descriptor for reading the segment.
    fn admit_observer(&self, connection: &Connection) {
        // An observer that does not read its response has ended.
        let _ = match self.node.segment().for_reading() {
            Ok(file) => connection.send_message(&Answer::Welcome.encode(), &[file.as_fd()]),
            Err(error) => {
                connection.send_message(&Answer::Refused(error.to_string()).encode(), &[])
            }
        };
    }

    /// Registers a process as a rank, and watches it from now on.
    fn register(&mut self, hello: Hello, pid: Option<u32>) -> Answer {
        let rank = hello.rank;
        let ranks = self.node.ranks();
        if hello.ranks != ranks || rank >= ranks {
            return Answer::Refused(format!(
                "it is rank {rank} of {}, the job has {ranks} ranks",
                hello.ranks
            ));
        }
        let Some(pid) = pid else {
            return Answer::Refused(format!(
                "the process of rank {rank} is in another process namespace: start the ranks of a \
                 node in one namespace"
            ));
        };
        if let Some(other) = &self.ranks[rank as usize].handle {
            self.superseded = self.all_have_exited();
            let pid = other.pid();
            let twice = format!(
                "rank {rank} has joined this job already, as process {pid}: start each rank with a number of its own"
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
        if let Err(error) = self.events.add(&handle, NodeEvent::Exited(rank)) {
            return Answer::Refused(error.to_string());
        }
        self.ranks[rank as usize].handle = Some(handle);
        Answer::Welcome
    }

    /// Records the exit of a rank, and reports it to the other ranks.
    fn on_exit(&mut self, rank: u32, how: impl Fn(u32) -> Option<Exit>) {
        let Some(process) = self.ranks.get_mut(rank as usize) else { return };
        let Some(handle) = process.handle.as_ref().filter(|_| !process.has_exited) else { return };
        // The handle of an ended process is ready for ever: in the set it would end every sleep.
        self.events.remove(handle);
        process.has_exited = true;
        let how = how(handle.pid()).unwrap_or(Exit::Vanished);
        self.node.mark(rank, how);
        self.internode.exit(rank, self.node.exit_of(rank).unwrap_or(how));
    }

    /// Reports every rank that has not joined as never started.
    fn stop_admission(&mut self) {
        for (rank, _) in (0..).zip(&self.ranks).filter(|(_, process)| process.handle.is_none()) {
            self.node.mark(rank, Exit::NeverStarted);
            self.internode.exit(rank, Exit::NeverStarted);
        }
    }

    /// Records the end of the child that was started as this rank. It has no effect if another
    /// process, which the child has started, is the rank.
    pub(crate) fn on_child_exit(&self, rank: u32, pid: u32, how: Exit) {
        match &self.ranks[rank as usize].handle {
            Some(handle) if handle.pid() != pid => {}
            // It ended without an error and without joining. "exited with status 0" would not
            // explain the failure to the ranks that wait for it.
            None if how == Exit::Exited(0) => self.node.mark(rank, Exit::NeverStarted),
            _ => self.node.mark(rank, how),
        }
    }

    /// Returns true if a process that has joined is alive.
    pub(crate) fn has_living(&self) -> bool {
        self.ranks.iter().any(|process| process.handle.is_some() && !process.has_exited)
    }

    /// Kills every process that has joined and is alive.
    pub(crate) fn kill_all(&self) {
        let living = self.ranks.iter().filter(|process| !process.has_exited);
        for handle in living.filter_map(|process| process.handle.as_ref()) {
            // Fails if it has ended at this moment by itself.
            let _ = handle.kill();
        }
    }

    fn all_have_exited(&self) -> bool {
        self.ranks.iter().all(|process| {
            let handle = process.handle.as_ref();
            handle.is_none_or(|handle| process.has_exited || handle.has_exited())
        })
    }

    /// Returns true if every rank has joined and exited. If the nodes cannot be connected, the first
    /// rank does not join: it has submitted the list of nodes, and got the reason in response.
    fn is_over(&self) -> bool {
        let absent = usize::from(self.internode.has_failed());
        let all_have_exited = self.ranks.iter().skip(absent).all(|process| process.has_exited);
        self.is_futile() || (all_have_exited && !self.has_living())
    }

    /// Returns true if nothing is left to do for the ranks that have joined.
    fn is_futile(&self) -> bool {
        self.superseded || self.is_abandoned
    }

    /// Returns true if a process has joined.
    fn has_any(&self) -> bool {
        self.ranks.iter().any(|process| process.handle.is_some())
    }
}

/// Serves the ranks that another launcher starts, until the last of their processes has exited.
/// Calls `ready` when ranks can connect, with the endpoint for other nodes, if there are any. An
/// embedded service also ends when its standard output closes before all ranks have joined.
///
/// # Errors
/// [`BrokerError::NameTaken`] if the job has a service already; if the segment cannot be created.
pub(crate) fn serve(
    name: &str,
    options: &JobOptions,
    (listen, is_embedded): (Option<IpAddr>, bool),
    start_timeout: Duration,
    ready: impl FnOnce(Option<ServiceEndpoint>),
) -> Result<(), ServiceError> {
    shm::detached::raise_limits();
    let mut server = NodeService::new(name, options, listen)?;
    allow_open_files(options.ranks, FILES_PER_RANK, 0)?;
    if is_embedded {
        server.events().add_written(std::io::stdout(), NodeEvent::Starter)?;
    }
    ready(server.internode.listening());
    // A rank that starts late must get a report of the others, so the service stays for the whole
    // start time-out even if those have exited.
    let started = Instant::now();
    let deadline = started.checked_add(start_timeout);
    let mut is_closed = false;
    loop {
        // The ranks wait for the connections with other nodes, which have a time limit of their
        // own.
        let is_connecting = server.internode.is_connecting();
        let waits_for_first =
            !is_closed && !is_connecting && (!server.has_any() || !server.has_living());
        for event in server.events().wait(deadline.filter(|_| waits_for_first))? {
            server.handle(event, |_| None)?;
        }
        let idle = !server.has_living()
            && !server.internode.is_connecting()
            && started.elapsed() >= start_timeout;
        if server.is_over() || idle {
            if !std::mem::replace(&mut is_closed, true) {
                server.stop_admission();
            }
            // The agent completes what the ranks have started: other nodes may wait for it.
            if server.is_futile() || !server.internode.is_busy() {
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

    fn server(ranks: u32) -> NodeService {
        let options = JobOptions::new(ranks, EngineKind::Peers);
        NodeService::new(&unguessable_name("tradewind-test").expect("random bytes"), &options, None)
            .expect("a new name")
    }

    /// Sends a message to the service. Returns the response, and true if a segment came with it.
    fn send(server: &mut NodeService, bytes: &[u8]) -> (Option<Answer>, bool) {
        let client = connect(server.name(), Duration::from_secs(10)).expect("it listens");
        client.send_message(bytes, &[]).expect("there is space");
        server.receive_all().expect("nothing fails");
        let message = client.receive_message(Some(Duration::from_secs(10))).expect("an answer");
        let segment = message.descriptors.into_iter().next().map(Segment::from_fd);
        (Answer::decode(&message.bytes), matches!(segment, Some(Ok(_))))
    }

    fn hello(rank: u32, ranks: u32) -> Vec<u8> {
        Hello { rank, ranks, started: start_time(std::process::id()).expect("/proc is mounted") }
            .encode()
    }

    #[test]
    fn only_ranks_of_the_job_are_admitted() {
        let mut server = server(2);
        for stranger in [&b""[..], b"hello", &hello(2, 2), &hello(0, 3), &hello(u32::MAX, u32::MAX)]
        {
            let answer = send(&mut server, stranger);
            assert!(matches!(answer, (Some(Answer::Refused(_)), false)), "{answer:?}");
        }
        assert_eq!(send(&mut server, &hello(1, 2)), (Some(Answer::Welcome), true));
        assert!(server.has_living());
    }

    #[test]
    fn a_rank_joins_once() {
        let mut server = server(2);
        assert_eq!(send(&mut server, &hello(0, 2)), (Some(Answer::Welcome), true));
        let (answer, _) = send(&mut server, &hello(0, 2));
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
        assert!(matches!(send(&mut server, &stale.encode()), (Some(Answer::Refused(_)), false)));
        assert_eq!(server.node().exit_of(0), Some(Exit::Vanished));
    }

    #[test]
    fn a_silent_connection_delays_no_other() {
        let mut server = server(1);
        let silent = connect(server.name(), Duration::from_secs(10)).expect("it listens");
        let gone = connect(server.name(), Duration::from_secs(10)).expect("it listens");
        drop(gone);
        assert_eq!(send(&mut server, &hello(0, 1)), (Some(Answer::Welcome), true));
        assert_eq!(server.pending.len(), 1, "the silent one");
        drop(silent);
    }

    #[test]
    fn the_end_of_a_child_matters_unless_another_process_is_the_rank() {
        let mut server = server(3);
        send(&mut server, &hello(0, 3));
        server.on_child_exit(0, 1, Exit::Exited(1));
        assert_eq!(server.node().exit_of(0), None, "it was a wrapper");
        server.on_child_exit(0, std::process::id(), Exit::Killed(9));
        assert_eq!(server.node().exit_of(0), Some(Exit::Killed(9)));
        server.on_child_exit(1, 1, Exit::Exited(0));
        assert_eq!(server.node().exit_of(1), Some(Exit::NeverStarted));
        server.on_child_exit(2, 1, Exit::Exited(127));
        assert_eq!(server.node().exit_of(2), Some(Exit::Exited(127)));
    }

    #[test]
    fn a_name_has_one_service() {
        let server = server(1);
        let options = JobOptions::new(1, EngineKind::Peers);
        let second = NodeService::new(server.name(), &options, None);
        assert!(matches!(second, Err(ServiceError::Broker(BrokerError::NameTaken { .. }))));
    }
}
