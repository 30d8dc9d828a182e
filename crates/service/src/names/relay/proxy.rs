//! The job that stands on this node for a program of another one.

use crate::names::open_job::open_job;
use network::streams::multiplexer::Multiplexer;
use queues::connection::{ConnectionError, Receiver, Sender};
use queues::names::wire::CloseReason;
use queues::names::{JobOwner, PortAddress};
use queues::port::{Class, Identity, NameClient, Port, PortError};
use rustix::event::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Time to wait for the server, which another thread of this process runs.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to wait for a program that has published its name and not opened its port yet. Other
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

/// A proxy: its registration, and the two ends of its connections with the program here.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) job: String,
    // The ends are dropped first, the job last.
    sender: Sender,
    receiver: Option<Receiver>,
    port: Port,
    _registration: NameClient,
    _owner: JobOwner,
    /// Class of the messages that it receives: its sender has the other one, so that the two
    /// directions never wait for each other.
    receives: Class,
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
    /// Adds the job, and connects it with the port of the program.
    pub(super) fn open(
        server: &str,
        job: String,
        program: &PortAddress,
        sends: Class,
    ) -> Result<Proxy, PortError> {
        // Whatever fails below, the values dropped on the way remove the job and its connections.
        let owner = JobOwner::add(server, &open_job(&job, 1), SERVER_TIMEOUT)?;
        let identity = Identity::new(&job, 0, owner.key());
        let registration = NameClient::register(server, &identity, SERVER_TIMEOUT)?;
        let port = registration.open_port(0)?;
        let name = registration.look_up_open(program, Instant::now() + OPEN_TIMEOUT)?;
        let sender = port.open_connection(name, sends)?;
        let receives = if sends == Class::Request { Class::Reply } else { Class::Request };
        Ok(Proxy {
            job,
            sender,
            receiver: None,
            port,
            _registration: registration,
            _owner: owner,
            receives,
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
        self.receiver = None;
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

    /// Moves messages of the program to the other node, as far as the stream has credit.
    fn collect(&mut self, streams: &mut Multiplexer, stream: u32) -> Result<bool, ProxyEnd> {
        if self.receiver.is_none() {
            self.accept().map_err(ProxyEnd::Here)?;
        }
        let Some(receiver) = &mut self.receiver else {
            return self.left.map_or(Ok(false), |why| Err(ProxyEnd::Here(why)));
        };
        let mut moved = false;
        for _ in 0..TURN {
            // Before the message leaves the ring: without credit it stays there, so the ring fills
            // and the program waits.
            if !streams.can_send(stream) {
                break;
            }
            match receiver.try_recv(&mut self.bytes) {
                Ok(Some(tag)) => moved |= streams.send(stream, tag, &self.bytes),
                Ok(None) => break,
                // All its messages were collected before this.
                Err(error) => return Err(ProxyEnd::Here(reason(&error))),
            }
        }
        Ok(moved)
    }

    /// Accepts the connection of the program, if it has opened it, and checks that it is alive.
    fn accept(&mut self) -> Result<(), CloseReason> {
        // First the check: a connection that was opened before the end is found after it.
        if self.left.is_none() {
            self.left = self.sender.check().err().as_ref().map(reason);
        }
        let receives = self.receives;
        let accepted = self.port.accept_connection().map_err(|error| match error {
            PortError::Connection(error) => reason(&error),
            _ => CloseReason::Left,
        })?;
        self.receiver = accepted.filter(|receiver| receiver.class() == receives);
        Ok(())
    }

    /// Returns true if messages wait for space in the ring of the program.
    fn waits_for_space(&self) -> bool {
        self.left.is_none() && !self.undelivered.is_empty()
    }

    /// Requests the wake-ups that this proxy needs. Returns true if they are certain.
    pub(super) fn arm(&mut self, streams: &Multiplexer, stream: u32) -> bool {
        let sender = !self.waits_for_space() || self.sender.arm();
        let receiver = match &mut self.receiver {
            Some(receiver) if streams.can_send(stream) => receiver.arm(),
            _ => true,
        };
        sender && receiver
    }

    /// Cancels the requests.
    pub(super) fn disarm(&mut self) {
        self.sender.disarm();
        if let Some(receiver) = &mut self.receiver {
            receiver.disarm();
        }
    }

    /// Appends the descriptors that become readable when the proxy has something to do.
    pub(super) fn watch<'a>(
        &'a self,
        watched: &mut Vec<PollFd<'a>>,
        streams: &Multiplexer,
        stream: u32,
    ) {
        // Only what the next step reads: descriptors that stay readable would prevent the sleep.
        let sender = self.sender.descriptor().filter(|_| self.waits_for_space());
        let receiver = self.receiver.as_ref().map(AsFd::as_fd).filter(|_| streams.can_send(stream));
        let is_awaited = self.receiver.is_none() && !self.is_unread_there;
        let server = Some(self.port.as_fd()).filter(|_| is_awaited);
        let all = [server, sender, receiver].into_iter().flatten();
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
