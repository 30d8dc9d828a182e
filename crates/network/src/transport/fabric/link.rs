//! The stream of bytes to and from one node, in messages.

use super::message::{Answer, HEADER_BYTES, Header, Kind, Request};
use super::offers::Offers;
use super::registered::RegisteredMemory;
use crate::transport::Arrival;
use crate::transport::payloads::{PayloadLocation, Payloads};
use crate::transport::stream::receive_buffer::ReceiveBuffer;
use crate::transport::stream::send_queue::SendQueue;
use crate::transport::stream::{Sink, Source};
use ::fabric::{Endpoint, Peer, SendBuffer};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Messages to one node that may be under way, so that others get buffers, too.
const WINDOW: usize = 16;
/// Messages that may arrive ahead of one that is missing.
const MOST_EARLY: usize = 1024;
/// Answers that may wait for space. Offers of this node's ranks are not counted: the peer does not
/// make them.
const MOST_ANSWERS: usize = 1 << 16;

/// A message that is composed.
#[derive(Debug)]
struct Composed {
    buffer: SendBuffer,
    length: usize,
    kind: Kind,
}

/// This node's end of the streams to and from another one.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: Peer,
    pub(super) queue: SendQueue,
    /// Messages that the node reads from this one's memory.
    pub(super) offers: Offers,
    /// Offers and answers that are not composed yet. They precede what is in the queue.
    controls: VecDeque<(Kind, Vec<u8>)>,
    /// Number of answers among them.
    answers: usize,
    open: Option<Composed>,
    /// Number of the next message to the node.
    next_sent: u64,
    /// Messages under way, and their bytes.
    under_way: usize,
    bytes: u64,
    /// True if a message has left without a completion, so that its failure has no token.
    has_injected: bool,
    /// True if the provider has taken nothing and will not report when it does.
    is_refused: bool,
    /// Time from which on something has been under way or refused without progress.
    stalled: Option<Instant>,
    /// Time from which on the link counts as lost, and the reason.
    failed: Option<(Instant, String)>,
    /// The same for a failure that may be that of another link.
    suspected: Option<(Instant, String)>,
    buffer: ReceiveBuffer,
    /// Number of the next message from the node.
    next_received: u64,
    early: BTreeMap<u64, (Kind, Vec<u8>)>,
}

impl Link {
    pub(super) fn new(peer: Peer) -> Link {
        Link {
            peer,
            queue: SendQueue::default(),
            offers: Offers::default(),
            controls: VecDeque::new(),
            answers: 0,
            open: None,
            next_sent: 0,
            under_way: 0,
            bytes: 0,
            has_injected: false,
            is_refused: false,
            stalled: None,
            failed: None,
            suspected: None,
            buffer: ReceiveBuffer::default(),
            next_received: 0,
            early: BTreeMap::new(),
        }
    }

    /// Sends as much as the provider takes.
    ///
    /// # Errors
    /// If the provider refuses for good, with the reason.
    pub(super) fn write(
        &mut self,
        node: u32,
        header: impl Fn(Kind, u64) -> Header,
        endpoint: &mut Endpoint,
        payloads: &mut dyn Payloads,
    ) -> Result<(), String> {
        let mut queue = std::mem::take(&mut self.queue);
        let mut messages = Messages { link: self, node, header, endpoint, failure: None };
        let written =
            if messages.post_controls() { queue.write(&mut messages, payloads) } else { Ok(false) };
        messages.post();
        let failure = messages.failure.take();
        self.queue = queue;
        if let Some(why) = failure {
            return Err(why);
        }
        written.map_err(|error| error.to_string())?;
        let waits = self.under_way > 0 || self.has_unsent();
        self.stalled = if waits { self.stalled.or_else(|| Some(Instant::now())) } else { None };
        Ok(())
    }

    /// Registers the memory of new messages, and offers them.
    pub(super) fn offer(
        &mut self,
        registered: &mut RegisteredMemory,
        endpoint: &mut Endpoint,
        payloads: &mut dyn Payloads,
    ) {
        let Link { offers, queue, controls, .. } = self;
        let new = offers.register(registered, endpoint, queue, payloads);
        controls.extend(new.iter().map(|offer| (Kind::Offer, offer.encode())));
    }

    /// Answers an offer. Returns false if the node has made too many.
    pub(super) fn answer(&mut self, answer: Answer) -> bool {
        self.controls.push_back((Kind::Answer, answer.encode()));
        self.answers += 1;
        self.answers <= MOST_ANSWERS
    }

    /// Processes an answer; false if it answers nothing.
    pub(super) fn take_answer(
        &mut self,
        answer: Answer,
        registered: &mut RegisteredMemory,
        endpoint: &mut Endpoint,
        payloads: &mut dyn Payloads,
    ) -> bool {
        let Link { offers, queue, .. } = self;
        offers.answer(answer, registered, endpoint, queue, payloads)
    }

    /// Notes that a message has left.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.under_way = self.under_way.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes as u64);
        let waits = self.under_way > 0 || self.has_unsent();
        self.stalled = waits.then(Instant::now);
    }

    /// Notes that a message could not be sent. The link counts as lost after `grace`.
    pub(super) fn fail(&mut self, why: String, grace: Duration) {
        let at = Instant::now() + grace;
        self.failed.get_or_insert((at, why));
    }

    /// Notes that an injected message to some node could not be delivered. If it may have been one
    /// of this link, the link counts as lost after `grace`.
    pub(super) fn suspect(&mut self, why: &str, grace: Duration) {
        if self.has_injected {
            let at = Instant::now() + grace;
            self.suspected.get_or_insert_with(|| (at, why.to_owned()));
        }
    }

    /// Notes that the loss of another node explains the failure of an injected message.
    pub(super) fn clear_suspicion(&mut self) {
        self.suspected = None;
    }

    /// True if an injected message of this link may fail.
    pub(super) fn has_injected(&self) -> bool {
        self.has_injected
    }

    /// The reason why the node counts as lost.
    pub(super) fn failure(&self, now: Instant, unanswered: Duration) -> Option<String> {
        let failures = [&self.failed, &self.suspected].into_iter().flatten();
        if let Some((_, why)) = failures.clone().find(|(at, _)| *at <= now) {
            return Some(why.clone());
        }
        if failures.count() > 0 {
            return None;
        }
        let stalled = self.stalled.filter(|since| now.duration_since(*since) > unanswered)?;
        let seconds = now.duration_since(stalled).as_secs_f64();
        Some(format!(
            "no message has left for it within {seconds:.1} s, although its node service answers \
             over TCP; does its firewall let the provider's ports through? TRADEWIND_NETWORK=tcp \
             avoids it"
        ))
    }

    /// True if something is queued that the provider has not taken.
    pub(super) fn has_unsent(&self) -> bool {
        self.queue.bytes() > 0 || self.open.is_some() || !self.controls.is_empty()
    }

    /// True if the provider was busy, and nothing is under way that reports the end of that.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused && self.under_way == 0 && self.has_unsent()
    }

    /// True if something is under way in either direction.
    pub(super) fn is_active(&self) -> bool {
        let has_messages = self.under_way > 0 || self.has_unsent() || !self.early.is_empty();
        has_messages || self.offers.are_under_way()
    }

    /// Number of bytes that have not left.
    pub(super) fn queued(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |open| open.length as u64);
        let controls = self.controls.len() as u64;
        self.queue.bytes() + self.offers.bytes() + controls + open + self.bytes
    }

    /// Number of bytes of long messages that were sent and received.
    pub(super) fn transferred(&self) -> u64 {
        let sent = self.queue.transferred().wrapping_add(self.offers.transferred());
        sent.wrapping_add(self.buffer.transferred())
    }

    /// Ends the link. Returns the locations of the payloads that have not been sent.
    pub(super) fn close(
        &mut self,
        registered: &mut RegisteredMemory,
        endpoint: &mut Endpoint,
    ) -> Vec<PayloadLocation> {
        if let Some(Composed { buffer, .. }) = self.open.take() {
            endpoint.discard(buffer);
        }
        let mut locations = self.offers.close(registered, endpoint);
        locations.extend(self.queue.locations());
        locations
    }

    /// Reads a message, and those that had arrived ahead of it. Returns what the node requests.
    ///
    /// # Errors
    /// If its contents or its number are invalid, with the reason.
    pub(super) fn receive(
        &mut self,
        (kind, number): (Kind, u64),
        bytes: &[u8],
        node: u32,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<Vec<Request>, String> {
        if number != self.next_received {
            self.keep((kind, number), bytes)?;
            return Ok(Vec::new());
        }
        let mut requests = Vec::new();
        requests.extend(self.read(kind, bytes, node, payloads, arrivals)?);
        requests.extend(self.read_early(node, payloads, arrivals)?);
        Ok(requests)
    }

    /// Keeps a message that cannot be read yet.
    ///
    /// # Errors
    /// If its number is invalid, or there are too many, with the reason.
    pub(super) fn keep(&mut self, (kind, number): (Kind, u64), bytes: &[u8]) -> Result<(), String> {
        let is_wrong = number < self.next_received || self.early.len() >= MOST_EARLY;
        // Copied: its buffer must be posted again, or the missing message has no place.
        if is_wrong || self.early.insert(number, (kind, bytes.to_vec())).is_some() {
            return Err(format!("a message with number {number} after {}", self.next_received));
        }
        Ok(())
    }

    /// Reads the messages that were kept, up to one that is missing. Returns what the node requests.
    ///
    /// # Errors
    /// If their contents are invalid, with the reason.
    pub(super) fn read_early(
        &mut self,
        node: u32,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<Vec<Request>, String> {
        let mut requests = Vec::new();
        while let Some((kind, bytes)) = self.early.remove(&self.next_received) {
            requests.extend(self.read(kind, &bytes, node, payloads, arrivals)?);
        }
        Ok(requests)
    }

    fn read(
        &mut self,
        kind: Kind,
        bytes: &[u8],
        node: u32,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<Option<Request>, String> {
        self.next_received += 1;
        if kind != Kind::Stream {
            let request = Request::decode(kind, bytes);
            return request.map(Some).ok_or_else(|| format!("a damaged message: {kind:?}"));
        }
        let mut arrived = Arrived(bytes);
        while !arrived.0.is_empty() {
            self.buffer
                .read(&mut arrived, node, payloads, arrivals)
                .map_err(|error| error.to_string())?;
        }
        Ok(None)
    }
}

/// The messages to a node, as a place for the bytes of its queue.
struct Messages<'a, H> {
    link: &'a mut Link,
    node: u32,
    header: H,
    endpoint: &'a mut Endpoint,
    failure: Option<String>,
}

impl<H: Fn(Kind, u64) -> Header> Messages<'_, H> {
    /// Returns the message of the stream that is composed. There is space for at least one byte.
    fn open(&mut self) -> Result<Composed, Errno> {
        let longest = self.endpoint.message_bytes();
        let is_over = |open: &Composed| open.kind != Kind::Stream || open.length == longest;
        if self.link.open.as_ref().is_some_and(is_over) && !self.post() {
            return Err(Errno::AGAIN);
        }
        match self.link.open.take() {
            Some(open) => Ok(open),
            None => self.compose(Kind::Stream),
        }
    }

    /// Begins a message.
    fn compose(&mut self, kind: Kind) -> Result<Composed, Errno> {
        if self.link.under_way >= WINDOW {
            return Err(Errno::AGAIN);
        }
        let Some(buffer) = self.endpoint.take_buffer() else {
            // Completions of other nodes' messages free buffers, but this link is called again
            // with every event.
            self.link.is_refused = true;
            return Err(Errno::AGAIN);
        };
        Ok(Composed { buffer, length: HEADER_BYTES, kind })
    }

    /// Sends offers and answers. False if some are left.
    fn post_controls(&mut self) -> bool {
        while !self.link.controls.is_empty() {
            if !self.post() {
                return false;
            }
            let Ok(Composed { buffer, length, .. }) = self.compose(Kind::Stream) else {
                return false;
            };
            let Some((kind, bytes)) = self.link.controls.pop_front() else { return true };
            self.link.answers -= usize::from(kind == Kind::Answer);
            let end = length + bytes.len();
            self.endpoint.bytes_mut(&buffer)[length..end].copy_from_slice(&bytes);
            self.link.open = Some(Composed { buffer, length: end, kind });
        }
        self.post()
    }

    /// Posts the message that is composed, if there is one. False if the provider does not take it.
    fn post(&mut self) -> bool {
        let Some(Composed { buffer, length, kind }) = self.link.open.take() else { return true };
        let number = self.link.next_sent;
        (self.header)(kind, number).write(self.endpoint.bytes_mut(&buffer));
        match self.endpoint.send(buffer, length, self.link.peer, self.node) {
            Ok(has_left) => {
                self.link.next_sent += 1;
                self.link.is_refused = false;
                if has_left {
                    self.link.has_injected = true;
                    // It contains no information about the messages that are under way.
                    if self.link.under_way == 0 {
                        self.link.stalled = None;
                    }
                } else {
                    self.link.under_way += 1;
                    self.link.bytes += length as u64;
                }
                true
            }
            Err((buffer, busy_or_failed)) => {
                self.link.open = Some(Composed { buffer, length, kind });
                self.link.is_refused = true;
                self.failure = busy_or_failed.map(|error| error.to_string());
                false
            }
        }
    }

    /// Appends slices to messages. Returns the number of bytes taken.
    fn append(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut taken = 0;
        for slice in slices {
            let mut rest: &[u8] = slice;
            while !rest.is_empty() {
                let Composed { buffer, length, kind } = match self.open() {
                    Ok(open) => open,
                    Err(error) => return if taken > 0 { Ok(taken) } else { Err(error) },
                };
                let space = &mut self.endpoint.bytes_mut(&buffer)[length..];
                let count = space.len().min(rest.len());
                space[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                taken += count;
                self.link.open = Some(Composed { buffer, length: length + count, kind });
            }
        }
        Ok(taken)
    }
}

impl<H: Fn(Kind, u64) -> Header> Sink for Messages<'_, H> {
    fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        self.append(slices)
    }

    fn write_payload(
        &mut self,
        [head, _]: [&[IoSlice<'_>]; 2],
        location: PayloadLocation,
        range: Range<usize>,
        payloads: &dyn Payloads,
    ) -> Result<usize, Errno> {
        let wanted: usize = head.iter().map(|slice| slice.len()).sum();
        let taken = self.append(head)?;
        // The payload follows the slices: not before all of them have been taken.
        if taken < wanted {
            return Ok(taken);
        }
        let Composed { buffer, length, kind } = match self.open() {
            Ok(open) => open,
            Err(error) => return if taken > 0 { Ok(taken) } else { Err(error) },
        };
        let space = &mut self.endpoint.bytes_mut(&buffer)[length..];
        let count = space.len().min(range.len());
        let loaded = payloads.load(location, range.start..range.start + count, &mut space[..count]);
        let length = if loaded.is_ok() { length + count } else { length };
        self.link.open = Some(Composed { buffer, length, kind });
        match loaded {
            Ok(()) => Ok(taken + count),
            // The slices have been taken. The next call reports the fault.
            Err(_) if taken > 0 => Ok(taken),
            Err(error) => Err(error),
        }
    }
}

/// The bytes of a message that has arrived.
struct Arrived<'a>(&'a [u8]);

impl<'a> Arrived<'a> {
    fn take(&mut self, most: usize) -> Result<&'a [u8], Errno> {
        let (taken, rest) = self.0.split_at(self.0.len().min(most));
        self.0 = rest;
        if taken.is_empty() { Err(Errno::AGAIN) } else { Ok(taken) }
    }
}

impl Source for Arrived<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        let taken = self.take(into.len())?;
        into[..taken.len()].copy_from_slice(taken);
        Ok(taken.len())
    }

    fn read_payload(
        &mut self,
        location: PayloadLocation,
        at: usize,
        most: usize,
        payloads: &mut dyn Payloads,
    ) -> Option<Result<usize, Errno>> {
        let before = self.0;
        match self.take(most) {
            Ok(taken) if payloads.store(location, at, taken) => Some(Ok(taken.len())),
            Ok(_) => {
                self.0 = before;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}
