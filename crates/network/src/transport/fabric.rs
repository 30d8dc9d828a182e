//! Messages through libfabric, beside a mesh of TCP connections.
//!
//! All frames of a node to another one form a stream of bytes, as over TCP, which is cut into
//! messages of libfabric. Each message has a number, so that the receiver restores the order
//! whatever the provider promises; what must keep its place behind other frames keeps it.
//!
//! The connections of the [`Tcp`] mesh carry no frames of runs. They prove the job's key, and their
//! end reports the loss of a node: providers report a peer that has died late or not at all.
//! Messages that have arrived before that end are read first. In large jobs nodes are connected when
//! they are needed: what is sent to a node, or arrives from there, waits for the connection of the
//! mesh.
//!
//! Every process can send to the port of a provider over sockets. So each message contains a word
//! that is derived from the job's key for this pair of nodes and this direction; others are refused.
//!
//! Where the endpoint reads remote memory, a long message that lies in a rank's region is offered to
//! its receiver: a message has the address and the key of the registered memory. The receiver reads
//! it into the region of its own rank, and its answer frees the memory. If either memory cannot be
//! registered, or the receiver's rank has not posted the receive, the answer requests messages.
//!
//! A provider without a descriptor to sleep on is polled: often while a run is under way, and with
//! long pauses otherwise. Some providers complete a send in calls of its receiver only, so that a
//! node which never called its provider would count as lost at the sender.

mod link;
mod mesh;
mod message;
mod offers;
mod reads;
mod registered;
mod waiting;

use super::frame::{Frame, Route};
use super::payloads::{PayloadLocation, Payloads};
use super::tcp::Tcp;
use super::{Arrival, LinkState, Transport};
use crate::error::{Error, system};
use crate::job_nodes::Key;
use ::fabric::{Endpoint, Event, Request as EndpointRequest, Selection};
use interpreter::Packet;
use link::Link;
use message::{Answer, Header, Request, word};
use reads::Reads;
use registered::RegisteredMemory;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of the provider's descriptor in the mesh.
const DESCRIPTOR: u64 = u64::MAX - 2;
/// Time for the mesh to report the loss of a node to which a message could not be sent. Its reason
/// is the better one.
const GRACE: Duration = Duration::from_millis(200);

/// Number of waits in a row that may not examine the mesh.
const MOST_SKIPPED: u32 = 16;
/// Longest time for which polls may not.
const LONGEST_POLLING: Duration = Duration::from_millis(10);

/// Numbers of sends, posted receives, and reads of other nodes' memory under way.
const SENDS: usize = 64;
const RECEIVES: usize = 64;
const READS: usize = 16;
/// Length of the longest message: a payload of 64 KiB with its headers, so that payloads of powers
/// of two do not end in a message of a few bytes.
pub const MESSAGE_BYTES: usize = 68 << 10;
/// Shortest message that is read: below, the two messages around a read cost more than a copy at
/// each end.
pub const READ_FROM: u64 = 64 << 10;

/// Returns the requirements of an endpoint between nodes.
pub fn request(selection: Selection, address: IpAddr) -> EndpointRequest {
    EndpointRequest {
        selection,
        address,
        sends: SENDS,
        receives: RECEIVES,
        reads: READS,
        message_bytes: MESSAGE_BYTES,
    }
}

/// One node's endpoint, and its connections to the other nodes.
#[derive(Debug)]
pub struct Fabric {
    // Dropped first: the end of the connections reports to the other nodes that this one has ended.
    mesh: Tcp,
    endpoint: Endpoint,
    key: Key,
    /// By node; `None` for this one and for those that are lost.
    links: Vec<Option<Link>>,
    /// Memory of the ranks that this or another node reads.
    registered: RegisteredMemory,
    reads: Reads,
    /// Shortest message that its receiver reads; `None` if all are sent.
    read_from: Option<u64>,
    /// Time without progress after which a node counts as lost.
    unanswered: Duration,
    /// Nodes to which something was sent since the last flush.
    written: Vec<u32>,
    /// Payloads for nodes that were lost before, to be reported by `flush`.
    dropped: Vec<PayloadLocation>,
    /// Arrivals of calls that do not return any.
    arrived: Vec<Arrival>,
    /// Nodes that were lost while sending, to be reported by the next call that returns arrivals.
    lost: Vec<(u32, String)>,
    /// Time until which failures of injected messages count as those of a node that is lost.
    explained_until: Option<Instant>,
    events: Vec<Event>,
    refused: u64,
    /// Number of waits since the mesh was examined, and the time of that.
    skipped: u32,
    examined: Instant,
    /// Time of the last search for registrations of ranks that have exited.
    released: Instant,
}

impl Fabric {
    /// Takes an endpoint, and the names of the endpoints of all nodes, in order. The mesh is
    /// connected. `key` is known to the nodes of the job only. Messages of `read_from` bytes or more
    /// are read by their receivers, if the provider has remote memory.
    ///
    /// # Errors
    /// If a name is invalid, or the system refuses to watch the endpoint.
    pub fn new(
        mut mesh: Tcp,
        mut endpoint: Endpoint,
        names: &[Vec<u8>],
        key: Key,
        unanswered: Duration,
        read_from: u64,
    ) -> Result<Fabric, Error> {
        let own = mesh.node();
        let insert = |(node, name): (u32, &Vec<u8>)| {
            if node == own {
                return Ok(None);
            }
            let peer = endpoint.insert(name).map_err(|error| {
                system(&format!("use the endpoint of node {node} through libfabric"), error)
            })?;
            Ok(Some(Link::new(peer)))
        };
        let links = (0..).zip(names).map(insert).collect::<Result<Vec<_>, Error>>()?;
        if let Some(descriptor) = endpoint.descriptor() {
            mesh.watch(descriptor, DESCRIPTOR)?;
        }
        let read_from = endpoint.provider().reads.then_some(read_from);
        Ok(Fabric {
            mesh,
            endpoint,
            key,
            links,
            registered: RegisteredMemory::default(),
            reads: Reads::default(),
            read_from,
            unanswered,
            written: Vec::new(),
            dropped: Vec::new(),
            arrived: Vec::new(),
            lost: Vec::new(),
            explained_until: None,
            events: Vec::new(),
            refused: 0,
            skipped: 0,
            examined: Instant::now(),
            released: Instant::now(),
        })
    }

    /// Sends what is queued for a node, as far as the provider takes it.
    fn write(&mut self, node: u32, payloads: &mut dyn Payloads) {
        let own = self.mesh.node();
        let word = word(&self.key, own, node);
        let header = |kind, number| Header { node: own, kind, number, word };
        let Some(link) = self.links[node as usize].as_mut() else { return };
        if self.mesh.link(node) != LinkState::Open {
            return self.mesh.require(node);
        }
        link.offer(&mut self.registered, &mut self.endpoint, payloads);
        if let Err(why) = link.write(node, header, &mut self.endpoint, payloads) {
            self.lose(node, why, payloads);
        }
    }

    /// Calls the provider, and processes what has happened. Returns true if something has.
    fn progress(&mut self, payloads: &mut dyn Payloads, arrivals: &mut Vec<Arrival>) -> bool {
        let mut events = std::mem::take(&mut self.events);
        if let Err(error) = self.endpoint.poll(&mut events) {
            for node in self.connected() {
                self.lose(node, error.to_string(), payloads);
            }
        }
        let any = !events.is_empty();
        for event in events.drain(..) {
            match event {
                Event::Sent { token, bytes } => {
                    if let Some(link) = self.open_link(token) {
                        link.sent(bytes);
                    }
                }
                Event::SendFailed { token, bytes, why } => {
                    if let Some(link) = self.open_link(token) {
                        link.sent(bytes);
                        link.fail(why, GRACE);
                    }
                }
                Event::InjectFailed { why } => self.suspect(&why),
                Event::ReceiveFailed => self.refused += 1,
                Event::Received(message) => {
                    let requests = self.receive(&message, payloads, arrivals);
                    self.endpoint.release(message);
                    for (node, request) in requests {
                        self.process(node, request, payloads);
                    }
                }
                Event::Read { token, bytes, outcome } => self.reads.ended(token, bytes, outcome),
            }
        }
        self.events = events;
        self.progress_reads(payloads, arrivals);
        for node in self.connected() {
            if self.links[node as usize].as_ref().is_some_and(Link::has_unsent) {
                self.write(node, payloads);
            }
        }
        any
    }

    /// Reads a message. Returns what its sender requests.
    fn receive(
        &mut self,
        message: &::fabric::Received,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Vec<(u32, Request)> {
        let own = self.mesh.node();
        let bytes = self.endpoint.received(message);
        // Nothing changes before the word has been compared. No run waits for a message of
        // a lost node.
        let is_known = |header: &Header| header.word == word(&self.key, header.node, own);
        let Some((header, rest)) = Header::read(bytes).filter(|(header, _)| is_known(header))
        else {
            self.refused += 1;
            return Vec::new();
        };
        let Header { node, kind, number, .. } = header;
        let Some(link) = self.links.get_mut(node as usize).and_then(Option::as_mut) else {
            return Vec::new();
        };
        if self.mesh.link(node) != LinkState::Open {
            // This end of the connection, which the other one has, is being made.
            if let Err(why) = link.keep((kind, number), rest) {
                self.lose(node, why, payloads);
            }
            return Vec::new();
        }
        match link.receive((kind, number), rest, node, payloads, arrivals) {
            Ok(requests) => requests.into_iter().map(|request| (node, request)).collect(),
            Err(why) => {
                self.refused += 1;
                self.lose(node, why, payloads);
                Vec::new()
            }
        }
    }

    /// Processes what a node requests about memory.
    fn process(&mut self, node: u32, request: Request, payloads: &mut dyn Payloads) {
        let Fabric { endpoint, links, registered, reads, read_from, .. } = self;
        let Some(link) = links.get_mut(node as usize).and_then(Option::as_mut) else { return };
        let is_valid = match request {
            // Where messages are sent and not read, no node offers memory.
            Request::Offer(_) if read_from.is_none() => false,
            Request::Offer(offer) => {
                let number = offer.number;
                // The sender keeps the memory until the answer. `progress_reads` sends it at the
                // end of a read; if none begins, the answer requests messages at once.
                reads.begin((node, link.peer), offer, registered, endpoint, payloads)
                    || link.answer(Answer { number, was_read: false })
            }
            Request::Answer(answer) => link.take_answer(answer, registered, endpoint, payloads),
        };
        if !is_valid {
            self.refused += 1;
            let why = "it answers or offers what it may not".to_owned();
            self.lose(node, why, payloads);
        }
    }

    /// Reads other nodes' memory, and reports messages that have been read.
    fn progress_reads(&mut self, payloads: &mut dyn Payloads, arrivals: &mut Vec<Arrival>) {
        if !self.reads.are_under_way() {
            return;
        }
        let Fabric { endpoint, links, registered, reads, .. } = self;
        // Before the ended ones are taken: no event would report one that cannot be read.
        reads.post(registered, endpoint);
        for ended in reads.take_ended(registered, endpoint, payloads) {
            let was_read = ended.arrival.is_some();
            arrivals.extend(ended.arrival);
            if let Some(Some(link)) = links.get_mut(ended.node as usize) {
                // No read of this message is under way, and none will begin: the sender's rank may
                // get its memory back. One answer an offer, of which the ranks' posted receives
                // bound the number.
                link.answer(Answer { number: ended.number, was_read });
            }
        }
    }

    fn open_link(&mut self, node: u32) -> Option<&mut Link> {
        self.links.get_mut(node as usize)?.as_mut()
    }

    fn connected(&self) -> Vec<u32> {
        let nodes = (0..).zip(&self.links);
        nodes.filter(|(_, link)| link.is_some()).map(|(node, _)| node).collect()
    }
}

impl Transport for Fabric {
    fn node(&self) -> u32 {
        self.mesh.node()
    }

    fn nodes(&self) -> u32 {
        self.mesh.nodes()
    }

    fn address(&self, node: u32) -> String {
        self.mesh.address(node)
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        self.mesh.watch(descriptor, number)
    }

    fn send(&mut self, node: u32, frame: Frame) {
        if let Some(link) = self.open_link(node)
            && let Some(frame) = link.offers.hold(frame)
            && link.queue.push(frame)
        {
            self.written.push(node);
        }
    }

    fn send_in_place(
        &mut self,
        node: u32,
        route: Route,
        packet: Packet,
        location: PayloadLocation,
        bytes: u64,
    ) {
        let is_read = self.read_from.is_some_and(|shortest| bytes >= shortest);
        match self.open_link(node) {
            Some(link) if is_read => {
                link.offers.push(route, packet, location, bytes);
                self.written.push(node);
            }
            Some(link) => {
                if link.queue.push_in_place(route, packet, location, bytes as usize) {
                    self.written.push(node);
                }
            }
            None => self.dropped.push(location),
        }
    }

    fn detach(&mut self, location: PayloadLocation, payload: Option<Vec<u8>>) {
        let payload = payload.map(Arc::new);
        for (node, link) in (0..).zip(&mut self.links) {
            let Some(link) = link else { continue };
            link.queue.detach(location, payload.as_ref());
            if link.offers.detach(location, payload.as_ref(), &mut link.queue) {
                self.written.push(node);
            }
        }
    }

    fn uses_run(&self, location: PayloadLocation) -> bool {
        let links = || self.links.iter().flatten();
        self.reads.use_run(location) || links().any(|link| link.offers.use_run(location))
    }

    fn flush(&mut self, payloads: &mut dyn Payloads) {
        self.dropped.drain(..).for_each(|location| payloads.sent(location));
        while let Some(node) = self.written.pop() {
            self.write(node, payloads);
        }
    }

    fn queued(&self, node: u32) -> u64 {
        self.links[node as usize].as_ref().map_or(0, Link::queued)
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        self.flush(payloads);
        let had_events = self.progress(payloads, arrivals);
        // What has arrived is worth a return without a system call for the mesh, if not always.
        if had_events && !arrivals.is_empty() && self.skipped < MOST_SKIPPED {
            self.skipped += 1;
            return Ok(());
        }
        self.skipped = 0;
        self.examined = Instant::now();
        let timeout =
            if had_events || !self.lost.is_empty() { Some(Duration::ZERO) } else { timeout };
        if self.endpoint.provider().can_sleep {
            self.wait_sleeping(timeout, payloads, arrivals)?;
        } else {
            self.wait_polling(timeout, payloads, arrivals)?;
        }
        self.take_mesh_arrivals(payloads, arrivals);
        arrivals.extend(self.lost.drain(..).map(|(node, why)| Arrival::NodeLost { node, why }));
        Ok(())
    }

    fn poll(
        &mut self,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        // The agent may poll for any time while other nodes keep it busy.
        if self.examined.elapsed() > LONGEST_POLLING {
            return self.wait(Some(Duration::ZERO), payloads, arrivals);
        }
        // The mesh and the time-outs are left for later.
        self.progress(payloads, arrivals);
        arrivals.extend(self.lost.drain(..).map(|(node, why)| Arrival::NodeLost { node, why }));
        Ok(())
    }

    fn transferred(&self) -> u64 {
        let links = self.links.iter().flatten().map(Link::transferred);
        links.fold(self.reads.transferred(), u64::wrapping_add)
    }

    fn refused(&self) -> u64 {
        self.refused + self.mesh.refused()
    }

    fn is_sparse(&self) -> bool {
        self.mesh.is_sparse()
    }

    fn link(&self, node: u32) -> LinkState {
        match (self.mesh.link(node), &self.links[node as usize]) {
            (LinkState::Open, _) => LinkState::Open,
            (_, Some(link)) if link.queued() > 0 => LinkState::Pending,
            (state, _) => state,
        }
    }

    fn has_answered(&self, node: u32) -> bool {
        self.mesh.has_answered(node)
    }

    fn require(&mut self, node: u32) {
        self.mesh.require(node);
    }

    fn abandon(&mut self, node: u32) {
        self.mesh.abandon(node);
        if self.mesh.link(node) != LinkState::Open
            && let Some(mut link) = self.links[node as usize].take()
        {
            self.dropped.extend(link.close(&mut self.registered, &mut self.endpoint));
        }
    }
}
