//! The name server: its listener, its clients, and the processes that it watches.

mod client;
mod connections;
mod directory;
mod records;
mod relay;
mod relay_request;
mod requests;

use self::client::{ClientConnection, MAX_OUTGOING};
use self::connections::Connections;
use self::relay::{ChangeConnections, Relay};
use crate::error::system;
use crate::wire::{NameError, Refusal, Request};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use shm::broker::{Broker, BrokerError, Connection};
use shm::process::ProcessHandle;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of sockets that a process may open before it has registered on one of them.
const MAX_UNREGISTERED: usize = 16;

/// Number of messages of one process that are read before those of others.
const TURN: usize = 16;

/// Number of messages that are read from a process that has ended.
const MAX_FINAL_MESSAGES: usize = 1024;

/// Time for which the listener is paused when no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Meaning of a ready descriptor, with the number of the client if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadyDescriptor {
    Listener,
    Stop,
    /// A thread of the relay has made the server unused.
    Unused,
    Readable(u32),
    Exited(u32),
}

impl ReadyDescriptor {
    fn encode(self) -> EventData {
        let (kind, number) = match self {
            ReadyDescriptor::Listener => (0, 0),
            ReadyDescriptor::Stop => (1, 0),
            ReadyDescriptor::Unused => (4, 0),
            ReadyDescriptor::Readable(number) => (2, number),
            ReadyDescriptor::Exited(number) => (3, number),
        };
        EventData::new_u64(kind << 32 | u64::from(number))
    }

    fn decode(data: EventData) -> ReadyDescriptor {
        let word = data.u64();
        match word >> 32 {
            0 => ReadyDescriptor::Listener,
            1 => ReadyDescriptor::Stop,
            2 => ReadyDescriptor::Readable(word as u32),
            4 => ReadyDescriptor::Unused,
            _ => ReadyDescriptor::Exited(word as u32),
        }
    }
}

/// State of the server, which its relay changes from other threads.
#[derive(Debug, Clone)]
struct SharedState(Arc<Mutex<ServerState>>);

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
        // A panic under the lock can leave one event incomplete; the others are intact.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChangeConnections for SharedState {
    fn change(&self, change: Box<dyn FnOnce(&mut Connections) + '_>) {
        let mut state = self.lock();
        change(&mut state.connections);
        state.send_all();
        if !state.connections.is_used() {
            // The server may sleep. A full counter wakes it as well.
            let _ = rustix::io::write(&state.unused, &1u64.to_ne_bytes());
        }
    }
}

#[derive(Debug)]
struct ServerState {
    /// Wakes the server, which ends when it is not used any more.
    unused: OwnedFd,
    epoll: Arc<OwnedFd>,
    connections: Connections,
    clients: HashMap<u32, ClientConnection>,
    next_client: u32,
    is_paused: bool,
}

/// The server of names and connections for all programs of a user on a node.
#[derive(Debug)]
pub struct NameServer {
    broker: Broker,
    epoll: Arc<OwnedFd>,
    stop: OwnedFd,
    state: SharedState,
    relay: Relay,
}

impl NameServer {
    /// Creates a name server under a name, with which processes connect to it (see
    /// [`shm::broker`]).
    ///
    /// # Errors
    ///
    /// [`NameError::Broker`] if the name is taken or invalid, [`NameError::System`].
    pub fn bind(name: &str) -> Result<NameServer, NameError> {
        let broker = Broker::bind(name)?;
        let epoll = Arc::new(
            epoll::create(CreateFlags::CLOEXEC).map_err(system("make a set of descriptors"))?,
        );
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(system("make an event"))?;
        let watch = system("watch a descriptor");
        epoll::add(&epoll, &broker, ReadyDescriptor::Listener.encode(), EventFlags::IN)
            .map_err(&watch)?;
        epoll::add(&epoll, &stop, ReadyDescriptor::Stop.encode(), EventFlags::IN)
            .map_err(&watch)?;
        let unused = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(system("make an event"))?;
        epoll::add(&epoll, &unused, ReadyDescriptor::Unused.encode(), EventFlags::IN)
            .map_err(&watch)?;
        let state = ServerState {
            unused,
            epoll: Arc::clone(&epoll),
            connections: Connections::default(),
            clients: HashMap::new(),
            next_client: 0,
            is_paused: false,
        };
        let state = SharedState(Arc::new(Mutex::new(state)));
        let relay = Relay::new(name, Arc::new(state.clone()));
        Ok(NameServer { broker, epoll, stop, state, relay })
    }

    /// Returns the name of the server.
    pub fn name(&self) -> &str {
        self.broker.name()
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock()
    }

    /// Serves until [`Self::stop`]. Sleeps while there is nothing to do.
    ///
    /// # Errors
    ///
    /// [`NameError::System`] if it cannot sleep.
    pub fn serve(&self) -> Result<(), NameError> {
        while self.serve_events(None)? {}
        Ok(())
    }

    /// Serves until the last process and the last owner of a program have left, or until
    /// [`Self::stop`]. Without any registration it ends after `first_use`.
    ///
    /// # Errors
    ///
    /// As [`Self::serve`].
    pub fn serve_while_used(&self, first_use: Duration) -> Result<(), NameError> {
        let deadline = Instant::now() + first_use;
        let mut was_used = false;
        loop {
            let is_used = self.state().connections.is_used();
            was_used |= is_used;
            let left = deadline.saturating_duration_since(Instant::now());
            // A client may have connected at this moment, with its request unread in its socket.
            // The socket is closed with this process, and the client starts another server.
            if !is_used && (was_used || left.is_zero()) {
                return Ok(());
            }
            if !self.serve_events((!was_used).then_some(left))? {
                return Ok(());
            }
        }
    }

    /// Waits for events, for at most `limit`, and serves them. Returns false after [`Self::stop`].
    fn serve_events(&self, limit: Option<Duration>) -> Result<bool, NameError> {
        let mut ready = Vec::with_capacity(64);
        let pause = self.state().is_paused.then_some(ACCEPT_PAUSE);
        let limit = limit.into_iter().chain(pause).min();
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(system("sleep until something happens")(error)),
        }
        let mut state = self.state();
        if state.is_paused {
            state.pause_accepting(self, false);
        }
        for event in ready.iter().map(|event: &epoll::Event| ReadyDescriptor::decode(event.data)) {
            // An event may name a client that an earlier one of the same batch removed. Client
            // numbers are not reused within a batch, so it finds no client and has no effect.
            match event {
                ReadyDescriptor::Listener => state.accept_clients(self),
                ReadyDescriptor::Readable(client) => state.receive_from(client, TURN),
                // Messages that the process sent before its end are read first: a drop among them
                // decides how its connection ends.
                ReadyDescriptor::Exited(client) => state.on_exit(client),
                ReadyDescriptor::Stop => return Ok(false),
                ReadyDescriptor::Unused => {
                    let _ = rustix::io::read(&state.unused, &mut [0; 8]);
                }
            }
            state.send_all();
        }
        let requests = std::mem::take(&mut state.connections.relay_requests);
        // The relay may wait for the state.
        drop(state);
        requests.into_iter().for_each(|request| self.relay.execute(request));
        Ok(true)
    }

    /// Ends [`Self::serve`], now or when it is called.
    pub fn stop(&self) {
        // A full counter means that the server is stopped already.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

impl ServerState {
    fn accept_clients(&mut self, names: &NameServer) {
        loop {
            match names.broker.accept() {
                // The process has opened too many sockets without a registration.
                Ok(Some(socket)) if self.unregistered(&socket) >= MAX_UNREGISTERED => {}
                Ok(Some(socket)) => {
                    let number = self.next_client;
                    self.next_client = self.next_client.wrapping_add(1);
                    let event = ReadyDescriptor::Readable(number).encode();
                    // A socket that cannot be watched is closed.
                    if epoll::add(&names.epoll, &socket, event, EventFlags::IN).is_ok() {
                        self.clients.insert(number, ClientConnection::new(socket));
                    }
                }
                Ok(None) => return,
                // A process of another user is rejected; the next may be one of this user.
                Err(BrokerError::OtherUser { .. }) => {}
                // No descriptor is free. The pending connection would wake this thread without
                // pause, so the listener is paused.
                Err(_) => return self.pause_accepting(names, true),
            }
        }
    }

    /// Returns the number of sockets of a process without a registration.
    fn unregistered(&self, socket: &Connection) -> usize {
        // The relay of this server connects from this process, once for each program of another node.
        if socket.peer().pid == Some(std::process::id()) {
            return 0;
        }
        let same = |client: &&ClientConnection| {
            client.process.is_none() && client.socket.peer() == socket.peer()
        };
        self.clients.values().filter(same).count()
    }

    fn pause_accepting(&mut self, names: &NameServer, pause: bool) {
        let flags = if pause { EventFlags::empty() } else { EventFlags::IN };
        // Cannot fail for a descriptor in the set; otherwise the listener keeps its state.
        let _ =
            epoll::modify(&names.epoll, &names.broker, ReadyDescriptor::Listener.encode(), flags);
        self.is_paused = pause;
    }

    /// Reads from a client, at most `turn` messages.
    fn receive_from(&mut self, number: u32, turn: usize) {
        for _ in 0..turn {
            // A client that sends requests and reads no responses is not read from either, so its
            // queue here is bounded. `flush` requests the next event when the client reads again.
            let Some(client) =
                self.clients.get(&number).filter(|client| client.outgoing.len() < MAX_OUTGOING)
            else {
                return;
            };
            let message = match client.socket.receive_message(Some(Duration::ZERO)) {
                Ok(message) => message,
                Err(BrokerError::TimedOut { .. }) => return,
                // The socket is closed, or the message is invalid.
                Err(_) => return self.disconnect(number),
            };
            match Request::decode(&message.bytes) {
                Some((question, request)) => {
                    self.serve_request(number, question, request, message.descriptors)
                }
                None => self.connections.refuse(number, 0, Refusal::NotUnderstood),
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
        let Some(client) = self.clients.get(&number) else { return };
        let pid = client.socket.peer().pid.unwrap_or(0);
        if let Request::Open { started, .. } | Request::Add { started, .. } = &request {
            if client.process.is_some() {
                return self.connections.refuse(number, question, Refusal::NotUnderstood);
            }
            // The kernel may have assigned the process number again since the connect: the start
            // time identifies the process.
            let process =
                ProcessHandle::open(pid).ok().filter(|process| process.start_time() == *started);
            if !process.is_some_and(|process| self.watch(number, process)) {
                return self.connections.refuse(number, question, Refusal::Unwatchable);
            }
        }
        self.connections.handle(number, pid, question, request, descriptors);
        // A refused registration must not keep the watch, or a later one of the same client would be
        // refused as a second registration.
        let registered = self.connections.has_registered(number);
        if let (false, Some(client)) = (registered, self.clients.get_mut(&number)) {
            client.process = None;
        }
    }

    /// Watches the process, because a child of it may keep the socket open after its end.
    fn watch(&mut self, number: u32, process: ProcessHandle) -> bool {
        let Some(client) = self.clients.get_mut(&number) else { return false };
        let watched = epoll::add(
            &*self.epoll,
            &process,
            ReadyDescriptor::Exited(number).encode(),
            EventFlags::IN,
        )
        .is_ok();
        client.process = watched.then_some(process);
        watched
    }

    fn on_exit(&mut self, number: u32) {
        self.receive_from(number, MAX_FINAL_MESSAGES);
        self.disconnect(number);
    }

    fn disconnect(&mut self, number: u32) {
        // Closing the descriptors removes them from the set.
        if self.clients.remove(&number).is_some() {
            self.connections.leave(number);
        }
    }

    /// Sends the queued messages.
    fn send_all(&mut self) {
        // A failed send may show that a process has ended, of which others are then notified.
        loop {
            let outgoing = self.connections.take_dispatches();
            if outgoing.is_empty() {
                break;
            }
            for message in outgoing {
                let to = message.to;
                if let Some(client) = self.clients.get_mut(&to) {
                    client.queue(message);
                    // In the order of the events, as far as the processes read.
                    client.flush(&self.epoll, ReadyDescriptor::Readable(to).encode());
                }
            }
        }
        for (&number, client) in &mut self.clients {
            client.flush(&self.epoll, ReadyDescriptor::Readable(number).encode());
        }
    }
}
