//! The program that stands on this node for one of another node.

use crate::connection::{ConnectionError, Receiver, Sender};
use crate::owner::ProgramOwner;
use crate::port::{Port, PortError};
use crate::wire::{CloseReason, NameError, Refusal};
use network::streams::multiplexer::Multiplexer;
use queues::id::QueueName;
use rustix::event::{PollFd, PollFlags};
use shm::broker::connect;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Time to wait for the server, which another thread of this process runs.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to wait for a program whose name is published and which no process has opened yet. Other
/// streams of the link wait meanwhile.
const OPEN_TIMEOUT: Duration = Duration::from_millis(500);

/// Number of messages that one stream moves before others.
const TURN: usize = 32;

/// The end of a program, as a number in a frame.
pub(super) fn code_of(why: CloseReason) -> u8 {
    match why {
        CloseReason::GoneThere => 1,
        _ => 0,
    }
}

/// The reason of a number in a frame.
pub(super) fn reason_of(code: u8) -> CloseReason {
    if code == 1 { CloseReason::GoneThere } else { CloseReason::Left }
}

/// A proxy: its port, and its connections with the program here. After the name of that program has
/// moved, two processes may send to it for a while.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) program: String,
    // The ends are dropped first, the program last.
    sender: Sender,
    receivers: Vec<Receiver>,
    /// The name of the program here.
    name: QueueName,
    port: Port,
    _owner: ProgramOwner,
    /// Messages for the program that are not in its ring yet.
    undelivered: VecDeque<(u8, Vec<u8>)>,
    /// The program here receives nothing any more.
    left: Option<CloseReason>,
    /// The other node receives nothing any more.
    is_unread_there: bool,
    /// The other node sends nothing any more.
    ended: Option<CloseReason>,
    bytes: Vec<u8>,
}

impl Proxy {
    /// Adds the proxy, and connects it with the program here.
    pub(super) fn open(server: &str, proxy: String, program: &str) -> Result<Proxy, PortError> {
        // Whatever fails below, the values dropped on the way remove the proxy and its connections.
        let deadline = Instant::now() + SERVER_TIMEOUT;
        let socket = connect(server, SERVER_TIMEOUT).map_err(NameError::from)?;
        let owner = ProgramOwner::add(socket, &proxy, deadline)?;
        let port = Port::open(server, &proxy, owner.key(), SERVER_TIMEOUT)?;
        let action = format!("connect with {program}");
        let name = port.look_up(program, Instant::now() + OPEN_TIMEOUT)?;
        let name = name.ok_or(NameError::Refused { action, refusal: Refusal::UnknownName })?;
        let sender = port.connect(name, deadline)?;
        Ok(Proxy {
            program: proxy,
            sender,
            receivers: Vec::new(),
            name,
            port,
            _owner: owner,
            undelivered: VecDeque::new(),
            left: None,
            is_unread_there: false,
            ended: None,
            bytes: Vec::new(),
        })
    }

    /// Takes a message of the other node.
    pub(super) fn receive(&mut self, tag: u8, bytes: Vec<u8>) {
        self.undelivered.push_back((tag, bytes));
    }

    /// Records that the other node receives nothing any more. The name server has closed the
    /// connection from the program, so that the program has the reason before this end is dropped.
    pub(super) fn stop_collecting(&mut self) {
        self.is_unread_there = true;
        self.receivers.clear();
    }

    /// Records that the other node sends nothing any more.
    pub(super) fn end(&mut self, why: CloseReason) {
        self.ended.get_or_insert(why);
    }

    /// Moves messages in both directions. Returns whether any moved, or the reason for the end of
    /// the proxy.
    pub(super) fn advance(
        &mut self,
        streams: &mut Multiplexer,
        stream: u32,
        may_send: bool,
    ) -> Result<bool, ProxyEnd> {
        let delivered = self.deliver(streams, stream);
        // The program gets the reason only after the last message of the other node. If it receives
        // nothing any more, `deliver` has discarded the undelivered ones.
        if self.undelivered.is_empty()
            && let Some(why) = self.ended
        {
            return Err(ProxyEnd::There(why));
        }
        match (self.left, self.is_unread_there) {
            // Neither program receives any more.
            (Some(why), true) => return Err(ProxyEnd::Here(why)),
            (Some(why), false) => streams.leave(stream, code_of(why)),
            (None, true) => return Ok(delivered),
            (None, false) => {}
        }
        let collected = may_send && self.collect(streams, stream)?;
        Ok(delivered || collected)
    }

    /// Moves messages of the other node into the ring of the program.
    fn deliver(&mut self, streams: &mut Multiplexer, stream: u32) -> bool {
        let mut moved = false;
        while let Some((tag, bytes)) = self.undelivered.front() {
            match self.sender.try_put(*tag, bytes) {
                // The credit returns only with the message in the ring, so at most the stream's
                // window is undelivered.
                Ok(true) => {
                    streams.consumed(stream, bytes.len());
                    self.undelivered.pop_front();
                    moved = true;
                }
                Ok(false) => break,
                Err(ConnectionError::Moved { .. }) if self.reconnect() => {}
                // The program receives nothing any more; what it has sent before is still
                // collected. No credit is returned: the other end must not believe that messages
                // arrive.
                Err(error) => {
                    self.left.get_or_insert(reason(&error));
                    self.undelivered.clear();
                    moved = true;
                }
            }
        }
        // All of these messages by one store.
        self.sender.publish();
        moved
    }

    /// Connects with the process that has the name of the program now. Returns false if it cannot.
    fn reconnect(&mut self) -> bool {
        // The name server refuses a second connection to a name.
        self.sender.close();
        let connected = self.port.connect(self.name, Instant::now() + SERVER_TIMEOUT);
        connected.map(|sender| self.sender = sender).is_ok()
    }

    /// Moves messages of the program to the other node, as far as the stream has credit.
    fn collect(&mut self, streams: &mut Multiplexer, stream: u32) -> Result<bool, ProxyEnd> {
        self.accept().map_err(ProxyEnd::Here)?;
        if self.receivers.is_empty() {
            return self.left.map_or(Ok(false), |why| Err(ProxyEnd::Here(why)));
        }
        let mut moved = false;
        let mut turn = 0;
        let mut left = TURN;
        // Before the message leaves the ring: without credit it stays there, so the ring fills and
        // the program waits.
        while turn < self.receivers.len() && left > 0 && streams.can_send(stream) {
            match self.receivers[turn].try_recv(&mut self.bytes) {
                Ok(Some(tag)) => {
                    moved |= streams.send(stream, tag, &self.bytes);
                    left -= 1;
                }
                Ok(None) => turn += 1,
                // All its messages were collected before this.
                Err(error) => {
                    let former = self.receivers.swap_remove(turn);
                    let is_current = self.sender.peer() == former.peer();
                    // Another program may have the name now.
                    if is_current && !self.sender.is_outdated() {
                        return Err(ProxyEnd::Here(reason(&error)));
                    }
                }
            }
        }
        Ok(moved)
    }

    /// Accepts connections of the program, and checks that it is alive.
    fn accept(&mut self) -> Result<(), CloseReason> {
        // First the check: a connection that was opened before the end is found after it.
        if self.left.is_none() {
            match self.sender.check() {
                Err(ConnectionError::Moved { .. }) if self.reconnect() => {}
                checked => self.left = checked.err().as_ref().map(reason),
            }
        }
        let accepted = self.port.accept().map_err(|error| match error {
            PortError::Connection(error) => reason(&error),
            PortError::Names(_) => CloseReason::Left,
        })?;
        self.receivers.extend(accepted);
        Ok(())
    }

    /// Returns true if messages wait for space in the ring of the program.
    fn waits_for_space(&self) -> bool {
        self.left.is_none() && !self.undelivered.is_empty()
    }

    /// Requests the wake-ups that this proxy needs. Returns true if they are certain.
    pub(super) fn arm(&mut self, streams: &Multiplexer, stream: u32) -> bool {
        let sender = !self.waits_for_space() || self.sender.arm();
        let receivers = self.receivers.iter_mut().filter(|_| streams.can_send(stream));
        // `fold` and not `all`: every receiver must be armed.
        receivers.fold(sender, |all, receiver| all & receiver.arm())
    }

    /// Cancels the requests.
    pub(super) fn disarm(&mut self) {
        self.sender.disarm();
        self.receivers.iter_mut().for_each(Receiver::disarm);
    }

    /// Appends the descriptors that become readable when the proxy has something to do.
    pub(super) fn watch<'a>(
        &'a self,
        watched: &mut Vec<PollFd<'a>>,
        streams: &Multiplexer,
        stream: u32,
    ) {
        // Only what the next step reads: descriptors that stay readable would prevent the sleep.
        let sender = Some(self.sender.as_fd()).filter(|_| self.waits_for_space());
        let receivers = self.receivers.iter().filter(|_| streams.can_send(stream)).map(AsFd::as_fd);
        let server = Some(self.port.as_fd()).filter(|_| !self.is_unread_there);
        let all = server.into_iter().chain(sender).chain(receivers);
        watched.extend(all.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)));
    }
}

/// Returns the reason for the end of a connection with the program here.
fn reason(error: &ConnectionError) -> CloseReason {
    match error {
        ConnectionError::Gone { .. } => CloseReason::GoneThere,
        _ => CloseReason::Left,
    }
}

/// The end of a proxy.
#[derive(Debug)]
pub(super) enum ProxyEnd {
    /// The program here has left, and all its messages were collected.
    Here(CloseReason),
    /// The other node has ended the stream, and all its messages were delivered.
    There(CloseReason),
}
