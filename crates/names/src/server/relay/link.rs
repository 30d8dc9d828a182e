//! The connection with the name server of one other node, and its thread.

use super::control::Control;
use super::proxy::{Proxy, ProxyEnd, code_of, reason_of};
use super::shared::{NodeId, Shared};
use crate::port::PortError;
use crate::private_names::{PRIVATE, REMOTE};
use crate::server::relay_request::Opener;
use crate::target::check_name;
use crate::wire::{CloseReason, NameError, Refusal, Response};
use network::streams::authentication::{self, ConnectError, Connection};
use network::streams::multiplexer::{Multiplexer, Side, StreamEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, getpeername, send};
use shm::wait::UNCERTAIN_SLICE;
use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Limit of an attempt to connect with another node.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Number of bytes to be written at which no messages are taken out of the rings.
const MAX_OUTGOING: usize = 1 << 20;

/// Longest sleep. The end of a program without a notice is found after it.
const SLICE: Duration = Duration::from_millis(250);

/// Time for which the other end may be busy with the programs of its node and not answer.
const BUSY: Duration = Duration::from_secs(2);

/// Time before another attempt to connect with a node that has closed a connection in its
/// handshake, and the time for all attempts: other clients that connect without pause displace
/// connections.
const CROWDED_PAUSE: Duration = Duration::from_millis(20);
const CROWDED_LIMIT: Duration = CONNECT_LIMIT;

/// Codes of refusals of a stream.
const UNKNOWN: u8 = 1;
const FAILED: u8 = 2;

/// Connects with another node and serves the link. If there is no connection, the clients that have
/// requested it meanwhile are refused.
pub(super) fn connect(shared: &Shared, node: &NodeId, control: &Control) {
    match connect_any(node, shared.unanswered) {
        Ok(connection) => Link::new(shared, control, connection, Side::Connecting).run(),
        Err(why) => loop {
            while let Some(Opener { client, question, .. }) = control.next_opener() {
                shared.refuse(client, question, Refusal::Unreachable { why: why.clone() });
            }
            if control.close_if_empty() {
                return;
            }
        },
    }
}

/// Connects with the first address of a node that answers.
fn connect_any((node, key): &NodeId, unanswered: Duration) -> Result<Connection, String> {
    let addresses: Vec<SocketAddr> =
        node.to_socket_addrs().map_err(|error| error.to_string())?.collect();
    let end = Instant::now() + CROWDED_LIMIT;
    loop {
        let mut why = "it has no address".to_owned();
        let mut is_crowded = false;
        for address in &addresses {
            let connected = authentication::connect(*address, key, CONNECT_LIMIT, unanswered);
            // The hello of the other end: a link that ends before it is not lost, but displaced.
            let kept = connected.and_then(|connection| {
                connection.await_first_byte(CONNECT_LIMIT).map(|()| connection)
            });
            match kept {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    is_crowded |= error.is_crowded();
                    why = format!("{error} ({address})");
                    if matches!(error, ConnectError::NotListening) {
                        why += "; `tradewind names --listen` there lets it in";
                    }
                }
            }
        }
        if !is_crowded || Instant::now() >= end {
            return Err(why);
        }
        std::thread::sleep(CROWDED_PAUSE);
    }
}

/// A link, on its thread.
pub(super) struct Link<'a> {
    shared: &'a Shared,
    control: &'a Control,
    /// `None` after the connection was lost: messages that have arrived are still delivered.
    socket: Option<OwnedFd>,
    side: Side,
    /// Address of the other node.
    address: String,
    streams: Multiplexer,
    proxies: HashMap<u32, Proxy>,
    /// Clients without an answer to their stream yet.
    openers: HashMap<u32, Opener>,
    /// The stream that had the last turn: its messages were moved last.
    last_turn: u32,
    last_heard: Instant,
    /// Time of the ping that has no answer yet.
    pinged: Option<Instant>,
}

impl<'a> Link<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        control: &'a Control,
        Connection { socket, keys }: Connection,
        side: Side,
    ) -> Link<'a> {
        let address = getpeername(&socket).ok().flatten();
        let address = address.and_then(|address| SocketAddr::try_from(address).ok());
        Link {
            shared,
            control,
            socket: Some(socket),
            side,
            address: address.map_or_else(String::new, |address| address.ip().to_string()),
            streams: Multiplexer::new(side, keys),
            proxies: HashMap::new(),
            openers: HashMap::new(),
            last_turn: 0,
            last_heard: Instant::now(),
            pinged: None,
        }
    }

    /// Serves the link until it has no stream any more, or the server ends.
    pub(super) fn run(mut self) {
        let mut is_used = false;
        // The hello leaves before anything is read: an end of another version names its own.
        self.write();
        while !self.control.is_stopped() {
            let mut has_moved = self.take_commands();
            match self.read() {
                true => has_moved = true,
                false => self.check_answers(),
            }
            has_moved |= self.advance_proxies();
            self.write();
            is_used |= !self.streams.is_idle();
            // The end that has connected closes an unused link; the other one observes that.
            let is_over = match self.side {
                Side::Connecting => self.streams.is_idle() && self.streams.outgoing().is_empty(),
                Side::Accepting => false,
            };
            // A lost link still delivers what has arrived; its last proxy ends with the last
            // message.
            let is_lost = self.socket.is_none() && self.proxies.is_empty();
            if (is_over && is_used || is_lost) && self.control.close_if_empty() {
                return;
            }
            if !has_moved {
                self.sleep();
            }
        }
    }

    /// Opens the streams that clients have requested.
    fn take_commands(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(opener) = self.control.next_opener() {
            has_moved = true;
            match self.streams.open(opener.program.as_bytes()) {
                Some(stream) => drop(self.openers.insert(stream, opener)),
                None => {
                    let why = "this node has the largest number of connections with it".to_owned();
                    self.refuse(&opener, Refusal::Unreachable { why });
                }
            }
        }
        has_moved
    }

    fn refuse(&self, opener: &Opener, refusal: Refusal) {
        self.shared.refuse(opener.client, opener.question, refusal);
    }

    /// Reads what has arrived.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 32 << 10];
        let Some(socket) = &self.socket else { return false };
        let count = match rustix::io::read(socket, &mut bytes[..]) {
            Ok(0) => return self.lose("it has closed the connection".to_owned()),
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(error) => return self.lose(std::io::Error::from(error).to_string()),
        };
        // Any byte is a sign of life: an end that sends a long message answers the ping behind it.
        self.last_heard = Instant::now();
        self.pinged = None;
        let mut events = Vec::new();
        // Events of the frames before an invalid one are valid: each frame has a code of its own.
        let outcome = self.streams.receive(&bytes[..count], &mut events);
        events.into_iter().for_each(|event| self.take(event));
        if let Err(error) = outcome {
            log::warn!("the connection with the name server at {} ends: {error}", self.address);
            self.lose(error.to_string());
        }
        true
    }

    /// Requests a sign of a silent other end, and ends the connection if there is none: a server
    /// that is stopped keeps its connections. Called when nothing has arrived, so that an answer
    /// that was not read yet counts.
    fn check_answers(&mut self) {
        let unanswered = self.shared.unanswered;
        match self.pinged {
            None if self.socket.is_some() && self.last_heard.elapsed() > unanswered / 4 => {
                self.streams.ping();
                self.pinged = Some(Instant::now());
            }
            Some(since) if since.elapsed() > unanswered + BUSY => {
                self.pinged = None;
                self.lose("it does not answer any more".to_owned());
            }
            _ => {}
        }
    }

    /// Ends the connection. What has arrived is still delivered.
    fn lose(&mut self, why: String) -> bool {
        self.socket = None;
        for (_, opener) in std::mem::take(&mut self.openers) {
            self.refuse(&opener, Refusal::Unreachable { why: why.clone() });
        }
        // The next client that connects with the node gets a link of its own, while this one
        // delivers.
        for opener in self.control.close() {
            self.refuse(&opener, Refusal::Unreachable { why: why.clone() });
        }
        for proxy in self.proxies.values_mut() {
            stop_collecting(self.shared, proxy, CloseReason::NodeLost);
            proxy.end(CloseReason::NodeLost);
        }
        true
    }

    fn take(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Opened { stream, request } => self.offer(stream, &request),
            StreamEvent::Accepted { stream } => self.accepted(stream),
            StreamEvent::Refused { stream, code, reason } => {
                let Some(opener) = self.openers.remove(&stream) else { return };
                // It appears in the messages of a program here.
                let reason: String = reason.chars().filter(|it| !it.is_control()).collect();
                let refusal = match code {
                    UNKNOWN => Refusal::UnknownThere { published: reason },
                    _ => Refusal::Unreachable { why: reason },
                };
                self.refuse(&opener, refusal);
            }
            StreamEvent::Message { stream, tag, bytes } => {
                if let Some(proxy) = self.proxies.get_mut(&stream) {
                    proxy.receive(tag, bytes);
                }
            }
            StreamEvent::Left { stream, code } => {
                if let Some(proxy) = self.proxies.get_mut(&stream) {
                    stop_collecting(self.shared, proxy, reason_of(code));
                }
            }
            StreamEvent::Closed { stream, code } => match self.proxies.get_mut(&stream) {
                Some(proxy) => {
                    stop_collecting(self.shared, proxy, reason_of(code));
                    proxy.end(reason_of(code));
                }
                None => self.streams.close(stream, code),
            },
        }
    }

    /// Connects a program of the other node with the one here that has published a name.
    fn offer(&mut self, stream: u32, request: &[u8]) {
        let name = std::str::from_utf8(request).ok().and_then(|name| check_name(name).ok());
        let Some(name) = name else {
            return self.streams.refuse(stream, FAILED, "the requested name is invalid");
        };
        // The name identifies the program at the other end to the program here.
        let number = self.shared.next_proxy();
        let proxy = format!("{REMOTE}{}#{number}", self.address);
        match Proxy::open(&self.shared.server, proxy, name) {
            Ok(proxy) => {
                self.streams.accept(stream);
                self.proxies.insert(stream, proxy);
            }
            Err(PortError::Names(NameError::Refused {
                refusal: Refusal::UnknownProgram, ..
            })) => {
                let mut names = Vec::new();
                self.shared.change(|connections| names = connections.directory.published());
                self.streams.refuse(stream, UNKNOWN, &shorten(&names));
            }
            Err(error) => self.streams.refuse(stream, FAILED, &error.to_string()),
        }
    }

    /// Connects the client here with the stream that the other node has accepted.
    fn accepted(&mut self, stream: u32) {
        let Some(opener) = self.openers.remove(&stream) else { return };
        let proxy = format!("{PRIVATE}remote#{}", self.shared.next_proxy());
        match Proxy::open(&self.shared.server, proxy, &opener.local) {
            Ok(proxy) => {
                let response = Response::RemoteOpened { program: proxy.program.clone() };
                self.proxies.insert(stream, proxy);
                self.shared.answer(opener.client, opener.question, response);
            }
            // The client has ended meanwhile, or the system has no descriptors. The other node has
            // connected its program already, and drops that connection with the stream.
            Err(error) => {
                self.streams.close(stream, code_of(CloseReason::GoneThere));
                self.refuse(&opener, Refusal::system(error));
            }
        }
    }

    fn advance_proxies(&mut self) -> bool {
        let mut has_moved = false;
        let mut ended = Vec::new();
        // Each pass begins behind the last stream that could send, so that all of them get a turn.
        let mut turns: Vec<u32> = self.proxies.keys().copied().collect();
        turns.sort_unstable();
        let first = turns.partition_point(|stream| *stream <= self.last_turn);
        turns.rotate_left(first);
        for stream in turns {
            let Some(proxy) = self.proxies.get_mut(&stream) else { continue };
            let may_send = self.streams.outgoing().len() < MAX_OUTGOING;
            if may_send {
                self.last_turn = stream;
            }
            match proxy.advance(&mut self.streams, stream, may_send) {
                Ok(moved) => has_moved |= moved,
                Err(end) => ended.push((stream, end)),
            }
        }
        for (stream, end) in ended {
            has_moved = true;
            let Some(proxy) = self.proxies.remove(&stream) else { continue };
            // Its connections are closed with the reason before the proxy is dropped, so that the
            // program here gets the reason and not the end of a program of this process.
            let why = match end {
                ProxyEnd::Here(why) | ProxyEnd::There(why) => why,
            };
            self.shared.change(|connections| connections.close_program(&proxy.program, why));
            self.streams.close(stream, code_of(why));
        }
        has_moved
    }

    /// Writes as much as the socket takes.
    fn write(&mut self) {
        while let Some(socket) = &self.socket
            && !self.streams.outgoing().is_empty()
        {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(socket, self.streams.outgoing(), flags) {
                Ok(count) => self.streams.written(count),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(error) => drop(self.lose(std::io::Error::from(error).to_string())),
            }
        }
    }

    /// Sleeps until something arrives, a program sends or receives, or a command comes.
    fn sleep(&mut self) {
        let Link { proxies, streams, .. } = self;
        // `fold` and not `all`, which would stop at the first proxy without a certain wake-up:
        // the others must be armed, too.
        let armed = proxies.iter_mut().map(|(stream, proxy)| proxy.arm(streams, *stream));
        let is_certain = armed.fold(true, |all, one| all & one);
        // After all announcements the last look: a program either sees its announcement, or its
        // message is seen here.
        if !self.advance_proxies() {
            let mut watched =
                vec![PollFd::from_borrowed_fd(self.control.descriptor(), PollFlags::IN)];
            if let Some(socket) = &self.socket {
                let is_full = !self.streams.outgoing().is_empty();
                let events = if is_full { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                watched.push(PollFd::new(socket, events));
            }
            for (stream, proxy) in &self.proxies {
                proxy.watch(&mut watched, &self.streams, *stream);
            }
            let limit = if is_certain { SLICE } else { UNCERTAIN_SLICE };
            // After a signal or a lack of memory everything is polled again.
            let _ = poll(&mut watched, Timespec::try_from(limit).ok().as_ref());
        }
        self.proxies.values_mut().for_each(Proxy::disarm);
    }
}

/// Closes the connection from the program here, with the reason why nothing is received at the
/// other node any more. The program may be blocked in a send, and not receive until that has
/// returned.
fn stop_collecting(shared: &Shared, proxy: &mut Proxy, why: CloseReason) {
    shared.change(|connections| connections.stop_receiving(&proxy.program, why));
    proxy.stop_collecting();
}

/// Returns names with commas, as many as fit into the answer to a client.
fn shorten(names: &[String]) -> String {
    const LIMIT: usize = 150;
    let mut text = String::new();
    for name in names {
        if text.len() + name.len() > LIMIT {
            text.push_str(", …");
            break;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(name);
    }
    text
}
