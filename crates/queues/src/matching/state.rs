//! State of a rank's matched messages, behind one lock: the ends of its rings, its sends and its
//! receives.
//!
//! A thread writes into the buffer of its own receive only, during a call that borrows it. What
//! arrives for other receives is kept in memory of this module until their owners call. The bytes of
//! a send that has not been read are read again through the kernel, because the program may have
//! forgotten the request and freed the buffer.

use super::error::MatchError;
use super::incoming::{Arrival, Incoming};
use super::line::{Ending, Envelope, INLINE_BYTES, Kind, LINE_BYTES, Line, Offer, copy_words};
use super::matcher::{Body, Matcher, Message, Pattern, PostedState};
use super::memory::{Mailbox, RING_LINES, Ring, mailbox};
use super::outgoing::{EAGER_BYTES, Outgoing, Queued, Stream, charge_of};
use super::slab::{Key, Slab};
use shm::arena::Arena;
use shm::mapped::Mapped;
use shm::process_memory::{self, AccessFailure, Guard};
use shm::segment::Offset;
use std::sync::Arc;

/// Bytes of a send that are read at once on their way into a ring.
const CHUNK_BYTES: u64 = 4096;

/// A started send whose message has not been read.
#[derive(Debug)]
pub(super) struct PendingSend {
    to: u32,
    address: u64,
    bytes: u64,
    /// The bytes, if they do not lie in the buffer of the request.
    owned: Option<Box<[u8]>>,
    /// The request has been dropped.
    is_dropped: bool,
    guard: Guard,
    pub(super) is_complete: bool,
}

/// Result of the start of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartedSend {
    Complete,
    Pending(Key),
}

/// Result of a poll of a receive.
#[derive(Debug)]
pub(super) enum PolledRecv {
    Pending,
    Complete(Envelope),
    /// The caller reads the message from its sender's memory, without the lock, and reports it.
    Read(Key, u32, Offer, Envelope),
}

/// A receive whose buffer the current call holds.
#[derive(Debug)]
pub(super) struct OwnRecv<'a> {
    pub(super) posted: Key,
    pub(super) buffer: &'a mut [u8],
}

/// The ends of the rings to and from one rank.
#[derive(Debug, Default)]
struct Peer {
    outgoing: Option<Outgoing>,
    incoming: Option<Incoming>,
}

/// Fixed properties of a rank's messages.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) arena: Arc<Arena>,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) mailboxes: Offset,
    /// Credit of each sender, in bytes.
    pub(super) credit: u64,
    /// This process can read its own memory through the kernel.
    pub(super) reads_itself: bool,
}

impl Layout {
    pub(super) fn mailbox(&self, rank: u32) -> Result<Mapped<Mailbox>, MatchError> {
        let at = self.mailboxes.0 + u64::from(rank) * size_of::<Mailbox>() as u64;
        Ok(mailbox(self.arena.segment(), Offset(at))?)
    }
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct State {
    layout: Arc<Layout>,
    own: Mapped<Mailbox>,
    peers: Vec<Peer>,
    /// Ranks from which there is a ring.
    senders: Vec<u32>,
    /// Ranks with a queue of outgoing lines.
    queued: Vec<u32>,
    pub(super) matcher: Matcher,
    sends: Slab<PendingSend>,
    guards: Vec<Guard>,
    /// Offered messages that have matched a receive and not been read.
    unread: Vec<Key>,
    chunk: Vec<u8>,
}

impl State {
    pub(super) fn new(layout: Arc<Layout>) -> Result<Self, MatchError> {
        Ok(State {
            own: layout.mailbox(layout.rank)?,
            peers: (0..layout.ranks).map(|_| Peer::default()).collect(),
            senders: Vec::new(),
            queued: Vec::new(),
            matcher: Matcher::new(layout.ranks),
            sends: Slab::new(),
            guards: Vec::new(),
            unread: Vec::new(),
            chunk: Vec::new(),
            layout,
        })
    }

    /// Returns the ring to a rank; the first call creates it.
    #[inline]
    fn outgoing(&mut self, to: u32) -> Result<&mut Outgoing, MatchError> {
        if self.peers[to as usize].outgoing.is_none() {
            self.open_outgoing(to)?;
        }
        match &mut self.peers[to as usize].outgoing {
            Some(outgoing) => Ok(outgoing),
            None => Err(MatchError::Corrupt { rank: to }),
        }
    }

    #[cold]
    fn open_outgoing(&mut self, to: u32) -> Result<(), MatchError> {
        let receiver = self.layout.mailbox(to)?;
        let ring = Ring::create(&self.layout.arena, self.layout.rank, &receiver)?;
        self.peers[to as usize].outgoing = Some(Outgoing::new(ring, receiver, self.layout.credit));
        Ok(())
    }

    /// Sends an eager message, if its receiver has space and credit.
    #[inline]
    pub(super) fn try_eager(
        &mut self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
    ) -> Result<bool, MatchError> {
        if bytes.len() > EAGER_BYTES {
            return Ok(false);
        }
        let outgoing = self.outgoing(to)?;
        if !outgoing.has_credit(bytes.len()) {
            return Ok(false);
        }
        let is_sent = outgoing
            .put_message(Kind::Eager, envelope, 0, bytes)
            .map_err(|_| MatchError::Corrupt { rank: to })?;
        if is_sent {
            outgoing.notify();
        }
        Ok(is_sent)
    }

    /// Returns true if an eager message of this length waits for nothing but space in the ring.
    pub(super) fn has_credit(&mut self, to: u32, bytes: usize) -> Result<bool, MatchError> {
        Ok(bytes <= EAGER_BYTES && self.outgoing(to)?.has_credit(bytes))
    }

    /// Starts a send that completes when its message is matched: synchronous, or without space or
    /// credit for its bytes. The bytes are copied if this process cannot read its own memory: any
    /// thread may have to send them, without the call that holds their buffer.
    pub(super) fn start_matched_send(
        &mut self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
    ) -> Result<Key, MatchError> {
        let guard = self.guards.pop().unwrap_or_default();
        let owned: Option<Box<[u8]>> = (!self.layout.reads_itself).then(|| bytes.into());
        let address = owned.as_deref().unwrap_or(bytes).as_ptr() as u64;
        let offer = guard.published();
        let send = self.sends.insert(PendingSend {
            to,
            address,
            bytes: bytes.len() as u64,
            owned,
            is_dropped: false,
            guard,
            is_complete: false,
        });
        let corrupt = |_| MatchError::Corrupt { rank: to };
        let outgoing = self.outgoing(to)?;
        let is_short = bytes.len() <= INLINE_BYTES && outgoing.has_credit(bytes.len());
        if is_short
            && outgoing.put_message(Kind::Synchronous, envelope, send.0, bytes).map_err(corrupt)?
        {
            outgoing.notify();
            return Ok(send);
        }
        let offer = Offer { send: send.0, address, guard: offer };
        self.queue(to, Line::new(Kind::Offer, envelope, offer.words()))?;
        Ok(send)
    }

    /// Puts a line into the ring to a rank, or queues it.
    fn queue(&mut self, to: u32, line: Line) -> Result<(), MatchError> {
        let outgoing = self.outgoing(to)?;
        outgoing.queue.push_back(Queued::Line(line));
        if outgoing.queue.len() == 1 {
            self.queued.push(to);
        }
        self.flush(&None)
    }

    /// Puts queued lines into the rings. `own` is a send whose buffer the current call holds.
    fn flush(&mut self, own: &Option<(Key, &[u8])>) -> Result<(), MatchError> {
        let mut number = 0;
        while let Some(&to) = self.queued.get(number) {
            if self.flush_one(to, own)? {
                self.queued.swap_remove(number);
            } else {
                number += 1;
            }
        }
        Ok(())
    }

    /// As [`flush`](Self::flush), for one ring. Returns true if nothing is queued any more.
    fn flush_one(&mut self, to: u32, own: &Option<(Key, &[u8])>) -> Result<bool, MatchError> {
        let State { peers, sends, chunk, own: mailbox, .. } = self;
        let Some(outgoing) = &mut peers[to as usize].outgoing else { return Ok(true) };
        let mut has_moved = false;
        let mut is_blocked = false;
        while !is_blocked && let Some(first) = outgoing.queue.pop_front() {
            let rest = match first {
                Queued::Line(line) => {
                    let put = outgoing.put(line).map_err(|_| MatchError::Corrupt { rank: to })?;
                    has_moved |= put;
                    (!put).then_some(Queued::Line(line))
                }
                Queued::Stream(mut stream) => {
                    let is_done = stream_bytes(outgoing, &mut stream, sends, own, chunk)
                        .map_err(|_| MatchError::Corrupt { rank: to })?;
                    has_moved = true;
                    if is_done && own.is_none_or(|(send, _)| send != stream.send) {
                        // Another thread may sleep until this send is complete.
                        mailbox.wakeup().notify();
                    }
                    (!is_done).then_some(Queued::Stream(stream))
                }
            };
            if let Some(rest) = rest {
                outgoing.queue.push_front(rest);
                is_blocked = true;
            }
        }
        if has_moved {
            outgoing.notify();
        }
        Ok(!is_blocked)
    }

    /// Returns true if a send is complete, and then forgets it.
    pub(super) fn finish_send(&mut self, send: Key) -> bool {
        if self.sends.get(send).is_some_and(|pending| !pending.is_complete) {
            return false;
        }
        self.forget_send(send);
        true
    }

    fn forget_send(&mut self, send: Key) {
        if let Some(pending) = self.sends.remove(send) {
            // A receiver that still has the offer must not find the guard's next send.
            pending.guard.withdraw();
            self.guards.push(pending.guard);
        }
    }

    /// Detaches a send from its buffer: its bytes are copied, and it completes by itself.
    pub(super) fn drop_send(&mut self, send: Key, bytes: &[u8]) {
        if self.finish_send(send) {
            return;
        }
        if let Some(pending) = self.sends.get_mut(send) {
            pending.is_dropped = true;
            if pending.owned.is_none() {
                pending.owned = Some(bytes.into());
                // Before the caller has its buffer back: a receiver that reads it now fails, and
                // requests the bytes.
                pending.guard.withdraw();
            }
        }
    }

    /// Ends a send after a failure of its wait: it is given up if its receiver takes nothing any
    /// more, and detached from its buffer otherwise.
    pub(super) fn fail_send(&mut self, send: Key, bytes: &[u8], error: &MatchError) {
        let to = self.sends.get(send).map(|pending| pending.to);
        match error {
            MatchError::RankExited { rank } | MatchError::Corrupt { rank } if Some(*rank) == to => {
                self.forget_send(send);
            }
            _ => self.drop_send(send, bytes),
        }
    }

    /// Returns true if an operation is not complete: later lines need this rank.
    pub(super) fn has_pending(&self) -> bool {
        let arrives = |sender: &u32| {
            let incoming = self.peers[*sender as usize].incoming.as_ref();
            incoming.is_some_and(|incoming| incoming.arrival.is_some())
        };
        !(self.matcher.posted.is_empty() && self.sends.is_empty() && self.queued.is_empty())
            || self.senders.iter().any(arrives)
    }

    /// Ends the receiving of messages, and reports that to the ranks that this rank has sent to.
    pub(super) fn close(&self) {
        self.own.set_draining();
        self.peers.iter().filter_map(|peer| peer.outgoing.as_ref()).for_each(Outgoing::notify);
    }

    /// Returns true if sends of dropped requests wait for receivers that may still receive and have
    /// not `exited`.
    pub(super) fn has_unsent(&self, exited: impl Fn(u32) -> bool) -> bool {
        let receives = |to: u32| {
            let outgoing = self.peers[to as usize].outgoing.as_ref();
            to != self.layout.rank && !outgoing.is_some_and(Outgoing::is_closed) && !exited(to)
        };
        self.sends.values().any(|pending| pending.is_dropped && receives(pending.to))
            || self.queued.iter().any(|to| receives(*to))
    }

    /// Opens new rings, takes what has arrived in all rings, and continues what is queued.
    pub(super) fn progress(
        &mut self,
        recv: &mut Option<OwnRecv<'_>>,
        send: &Option<(Key, &[u8])>,
    ) -> Result<(), MatchError> {
        let mut next = self.own.take_new_rings();
        while next != super::ring_list::END {
            let (ring, sender, following) = Ring::open(self.layout.arena.segment(), next)?;
            if sender >= self.layout.ranks {
                return Err(MatchError::Corrupt { rank: sender });
            }
            let mailbox = self.layout.mailbox(sender)?;
            self.peers[sender as usize].incoming =
                Some(Incoming::new(ring, RING_LINES, mailbox, self.layout.credit));
            self.senders.push(sender);
            next = following;
        }
        for number in 0..self.senders.len() {
            self.progress_from(self.senders[number], recv)?;
        }
        if self.queued.is_empty() { Ok(()) } else { self.flush(send) }
    }

    /// Takes what has arrived from one rank, until the own receive is complete.
    pub(super) fn progress_from(
        &mut self,
        sender: u32,
        own: &mut Option<OwnRecv<'_>>,
    ) -> Result<(), MatchError> {
        loop {
            let Some(incoming) = &mut self.peers[sender as usize].incoming else { return Ok(()) };
            if let Some(arrival) = incoming.arrival {
                if !self.take_lines(sender, arrival, own) {
                    return Ok(());
                }
            } else {
                let Some(line) = incoming.take() else { return Ok(()) };
                self.accept(sender, line, own)?;
            }
            let state = own.as_ref().and_then(|own| self.matcher.posted.get(own.posted));
            if state.is_some_and(|posted| !matches!(posted.state, PostedState::Waiting)) {
                // Not further than needed: messages stay in the ring until they are wanted. The
                // lines of the own message come next.
                let arriving = self.peers[sender as usize].incoming.as_ref();
                if arriving.is_none_or(|incoming| incoming.arrival.is_none()) {
                    return Ok(());
                }
            }
        }
    }

    /// Takes lines of an arriving message. Returns true if it is complete.
    fn take_lines(&mut self, sender: u32, arrival: Arrival, own: &mut Option<OwnRecv<'_>>) -> bool {
        let State { peers, matcher, .. } = self;
        let Some(incoming) = &mut peers[sender as usize].incoming else { return false };
        let Some(message) = matcher.messages.get_mut(arrival.message) else {
            // Its receive was dropped: the lines are passed over.
            return incoming.take_lines(|_, _, _| {}).is_some();
        };
        let taken = match (&mut message.body, own) {
            (Body::Direct, Some(own)) if message.posted == Some(own.posted) => {
                incoming.take_lines(|at, line, length| {
                    let end = own.buffer.len().min(at as usize + length);
                    if let Some(bytes) = own.buffer.get_mut(at as usize..end) {
                        line.copy_to(bytes);
                    }
                })
            }
            (Body::Arriving { data, keep }, _) => {
                let keep = *keep;
                incoming.take_lines(|at, line, length| {
                    let kept = keep.saturating_sub(at).min(length as u64) as usize;
                    let mut bytes = [0; LINE_BYTES];
                    line.copy_to(&mut bytes);
                    data.extend_from_slice(&bytes[..kept]);
                })
            }
            // The thread whose call holds the buffer takes them.
            _ => None,
        };
        let Some(ending) = taken else { return false };
        message.body = match (ending, std::mem::replace(&mut message.body, Body::Lost)) {
            (Ending::Lost, _) => Body::Lost,
            (Ending::Whole, Body::Arriving { data, .. }) => Body::Whole(data),
            (Ending::Whole, _) => Body::Delivered,
        };
        true
    }

    /// Accepts the first line of a message, or a line for a send of this rank.
    fn accept(
        &mut self,
        sender: u32,
        line: Line,
        own: &mut Option<OwnRecv<'_>>,
    ) -> Result<(), MatchError> {
        let corrupt = MatchError::Corrupt { rank: sender };
        let envelope = line.envelope();
        match line.kind().ok_or(corrupt)? {
            Kind::Eager => {
                let posted = self.matcher.match_message(sender, &envelope);
                if envelope.bytes <= INLINE_BYTES as u64 {
                    return self.accept_short(sender, envelope, line.words(), posted);
                }
                let message =
                    self.add(sender, envelope, posted, charge_of(envelope.bytes as usize), None);
                self.begin_arrival(sender, message, INLINE_BYTES as u64, own);
                self.put_first(message, &line, own);
            }
            Kind::Synchronous => {
                let posted = self.matcher.match_message(sender, &envelope);
                let charge = charge_of(envelope.bytes as usize);
                let [send, ..] = line.words();
                let message = self.add(sender, envelope, posted, charge, Some(send));
                self.begin_arrival(sender, message, 0, own);
                self.answer_if_matched(message)?;
            }
            Kind::Offer => {
                let posted = self.matcher.match_message(sender, &envelope);
                let message = self.add(sender, envelope, posted, 0, None);
                if let Some(found) = self.matcher.messages.get_mut(message) {
                    found.body = Body::Offered(Offer::of_words(line.words()));
                }
                if posted.is_some() {
                    self.unread.push(message);
                }
            }
            Kind::Answer => self.complete_send(Key(line.words()[0])),
            Kind::Request => {
                let [send, message, ..] = line.words();
                let send = Key(send);
                // A send that was abandoned has no bytes.
                if self.sends.get(send).is_some() {
                    let outgoing = self.outgoing(sender)?;
                    let stream = Stream { send, message, done: None, is_lost: false };
                    outgoing.queue.push_back(Queued::Stream(stream));
                    if outgoing.queue.len() == 1 {
                        self.queued.push(sender);
                    }
                }
            }
            Kind::Requested => {
                let message = Key(line.words()[0]);
                self.begin_arrival(sender, message, 0, own);
                if let Some(incoming) = &mut self.peers[sender as usize].incoming
                    && let Some(arrival) = &mut incoming.arrival
                {
                    // Also of a message whose receive was dropped.
                    arrival.bytes = envelope.bytes;
                    arrival.has_end = true;
                }
            }
        }
        Ok(())
    }

    fn accept_short(
        &mut self,
        sender: u32,
        envelope: Envelope,
        words: [u64; 6],
        posted: Option<Key>,
    ) -> Result<(), MatchError> {
        let Some(key) = posted else {
            self.matcher.add_unexpected(Message {
                sender,
                envelope,
                body: Body::Short(words),
                posted: None,
                unanswered: None,
                charge: LINE_BYTES as u64,
            });
            return Ok(());
        };
        if let Some(posted) = self.matcher.posted.get_mut(key) {
            posted.state = PostedState::Short(envelope, words, sender);
        }
        Ok(())
    }

    /// Adds a message, to the receive that it has matched or to the unexpected ones.
    fn add(
        &mut self,
        sender: u32,
        envelope: Envelope,
        posted: Option<Key>,
        charge: u64,
        unanswered: Option<u64>,
    ) -> Key {
        let body = Body::Requested;
        let message = Message { sender, envelope, body, posted, unanswered, charge };
        let Some(key) = posted else { return self.matcher.add_unexpected(message) };
        let message = self.matcher.messages.insert(message);
        if let Some(posted) = self.matcher.posted.get_mut(key) {
            posted.state = PostedState::Matched(message);
        }
        message
    }

    /// Prepares a message for its lines, of which `done` bytes have arrived.
    fn begin_arrival(&mut self, sender: u32, message: Key, done: u64, own: &Option<OwnRecv<'_>>) {
        let mut bytes = 0;
        if let Some(found) = self.matcher.messages.get_mut(message) {
            bytes = found.envelope.bytes;
            let posted = found.posted.and_then(|key| self.matcher.posted.get(key));
            let keep = posted.map_or(u64::MAX, |posted| posted.capacity);
            let is_own = own.as_ref().is_some_and(|own| found.posted == Some(own.posted));
            found.body = if is_own {
                Body::Direct
            } else {
                let data = Vec::with_capacity(bytes.min(keep) as usize);
                Body::Arriving { data, keep }
            };
        }
        if let Some(incoming) = &mut self.peers[sender as usize].incoming {
            incoming.arrival = Some(Arrival { message, done, bytes, has_end: false });
        }
    }

    /// Stores the bytes in the first line of a message.
    fn put_first(&mut self, message: Key, line: &Line, own: &mut Option<OwnRecv<'_>>) {
        let Some(found) = self.matcher.messages.get_mut(message) else { return };
        match (&mut found.body, own) {
            (Body::Direct, Some(own)) => {
                let length = own.buffer.len().min(INLINE_BYTES);
                line.copy_to(&mut own.buffer[..length]);
            }
            (Body::Arriving { data, keep }, _) => {
                let mut bytes = [0; INLINE_BYTES];
                line.copy_to(&mut bytes);
                data.extend_from_slice(&bytes[..INLINE_BYTES.min(*keep as usize)]);
            }
            _ => {}
        }
    }

    fn complete_send(&mut self, send: Key) {
        let Some(pending) = self.sends.get_mut(send) else { return };
        pending.is_complete = true;
        if pending.is_dropped {
            self.forget_send(send);
        }
    }

    /// Answers a synchronous send once its message is matched.
    pub(super) fn answer_if_matched(&mut self, message: Key) -> Result<(), MatchError> {
        let Some(found) = self.matcher.messages.get_mut(message) else { return Ok(()) };
        if found.posted.is_none() {
            return Ok(());
        }
        let sender = found.sender;
        match found.unanswered.take() {
            Some(send) => self.answer(sender, Kind::Answer, [send, 0, 0, 0, 0, 0]),
            None => Ok(()),
        }
    }

    fn answer(&mut self, to: u32, kind: Kind, words: [u64; 6]) -> Result<(), MatchError> {
        let envelope = Envelope { context: 0, tag: 0, source: 0, bytes: 0 };
        self.queue(to, Line::new(kind, envelope, words))
    }

    /// Posts a receive, which takes the first unexpected message that it accepts.
    pub(super) fn post(&mut self, pattern: Pattern, capacity: u64) -> Result<Key, MatchError> {
        match self.matcher.find_message(&pattern) {
            None => Ok(self.matcher.post(pattern, capacity)),
            Some(message) => {
                self.matcher.take_unexpected(message);
                self.post_for(message, pattern, capacity)
            }
        }
    }

    /// Posts a receive for a message that is taken from the unexpected ones already.
    pub(super) fn post_for(
        &mut self,
        message: Key,
        pattern: Pattern,
        capacity: u64,
    ) -> Result<Key, MatchError> {
        let posted = self.matcher.post(pattern, capacity);
        self.matcher.withdraw_waiting(posted);
        self.match_with(message, posted)?;
        Ok(posted)
    }

    /// Matches a message with a receive that does not wait in a list.
    pub(super) fn match_with(&mut self, message: Key, posted: Key) -> Result<(), MatchError> {
        let Some(found) = self.matcher.messages.get_mut(message) else { return Ok(()) };
        found.posted = Some(posted);
        if matches!(found.body, Body::Offered(_)) {
            self.unread.push(message);
        }
        if let Some(posted) = self.matcher.posted.get_mut(posted) {
            posted.state = PostedState::Matched(message);
        }
        self.answer_if_matched(message)
    }

    /// Receives a message that has arrived first in the ring, without posting a receive.
    #[inline]
    pub(super) fn recv_first(
        &mut self,
        pattern: &Pattern,
        buffer: &mut [u8],
    ) -> Result<Option<Envelope>, MatchError> {
        let Some(sender) = pattern.source else { return Ok(None) };
        if !self.matcher.none_waits() || !self.matcher.none_unexpected(sender) {
            return Ok(None);
        }
        let Some(incoming) = &mut self.peers[sender as usize].incoming else { return Ok(None) };
        if incoming.arrival.is_some() {
            return Ok(None);
        }
        let Some(line) = incoming.take() else { return Ok(None) };
        let envelope = line.envelope();
        let length = envelope.bytes as usize;
        if line.kind() == Some(Kind::Eager)
            && length <= INLINE_BYTES.min(buffer.len())
            && pattern.accepts(sender, &envelope)
        {
            copy_words(&line.words(), &mut buffer[..length]);
            incoming.return_credit(LINE_BYTES as u64);
            return Ok(Some(envelope));
        }
        self.accept(sender, line, &mut None)?;
        Ok(None)
    }

    /// Returns the sender of the message that a receive has matched.
    pub(super) fn sender_of(&self, posted: Key) -> Option<u32> {
        match self.matcher.posted.get(posted)?.state {
            PostedState::Waiting => None,
            PostedState::Short(_, _, sender) => Some(sender),
            PostedState::Matched(message) => Some(self.matcher.messages.get(message)?.sender),
        }
    }

    /// Completes a receive, as far as it has been matched.
    #[inline]
    pub(super) fn poll_recv(&mut self, own: &mut OwnRecv<'_>) -> Result<PolledRecv, MatchError> {
        let Some(posted) = self.matcher.posted.get(own.posted) else {
            return Err(MatchError::Corrupt { rank: self.layout.rank });
        };
        match posted.state {
            PostedState::Waiting => Ok(PolledRecv::Pending),
            PostedState::Short(envelope, words, sender) => {
                let length = (envelope.bytes as usize).min(own.buffer.len());
                copy_words(&words, &mut own.buffer[..length]);
                self.matcher.posted.remove(own.posted);
                self.return_credit(sender, LINE_BYTES as u64);
                finished(envelope, own.buffer.len())
            }
            PostedState::Matched(message) => self.poll_matched(own, message),
        }
    }

    fn poll_matched(
        &mut self,
        own: &mut OwnRecv<'_>,
        message: Key,
    ) -> Result<PolledRecv, MatchError> {
        let Some(found) = self.matcher.messages.get_mut(message) else {
            return Err(MatchError::Corrupt { rank: self.layout.rank });
        };
        let (envelope, sender) = (found.envelope, found.sender);
        let length = (envelope.bytes as usize).min(own.buffer.len());
        match &found.body {
            Body::Short(words) => copy_words(words, &mut own.buffer[..length]),
            Body::Whole(data) => own.buffer[..length].copy_from_slice(&data[..length]),
            Body::Delivered => {}
            Body::Lost => {
                self.matcher.posted.remove(own.posted);
                self.remove_message(message);
                return Err(MatchError::Lost { rank: sender });
            }
            Body::Offered(offer) => {
                let offer = *offer;
                found.body = Body::Reading;
                self.unread.retain(|other| *other != message);
                return Ok(PolledRecv::Read(message, sender, offer, envelope));
            }
            Body::Arriving { .. } | Body::Direct | Body::Reading | Body::Requested => {
                return Ok(PolledRecv::Pending);
            }
        }
        self.matcher.posted.remove(own.posted);
        self.remove_message(message);
        finished(envelope, own.buffer.len())
    }

    fn remove_message(&mut self, message: Key) {
        if let Some(found) = self.matcher.messages.remove(message)
            && found.charge > 0
        {
            self.return_credit(found.sender, found.charge);
        }
    }

    fn return_credit(&mut self, sender: u32, bytes: u64) {
        if let Some(incoming) = &mut self.peers[sender as usize].incoming {
            incoming.return_credit(bytes);
        }
    }

    /// Ends the reading of an offered message, into the buffer of its receive or, with `data`, into
    /// memory of this module. A message that could not be read is requested.
    pub(super) fn finish_read(
        &mut self,
        message: Key,
        sender: u32,
        offer: Offer,
        data: Option<Vec<u8>>,
        is_read: bool,
    ) -> Result<(), MatchError> {
        let body = match (is_read, data) {
            (false, _) => Body::Requested,
            (true, None) => Body::Delivered,
            (true, Some(data)) => Body::Whole(data),
        };
        let is_for_other = matches!(body, Body::Whole(_));
        if let Some(found) = self.matcher.messages.get_mut(message) {
            found.body = body;
        }
        if is_for_other {
            // The owner of the receive may sleep.
            self.own.wakeup().notify();
        }
        if is_read {
            self.answer(sender, Kind::Answer, [offer.send, 0, 0, 0, 0, 0])
        } else {
            self.answer(sender, Kind::Request, [offer.send, message.0, 0, 0, 0, 0])
        }
    }

    /// Takes an offered message of a receive whose owner is not in a call, with the number of bytes
    /// that the receive takes.
    pub(super) fn next_unread(&mut self) -> Option<(Key, u32, Offer, u64)> {
        loop {
            let message = self.unread.pop()?;
            let Some(found) = self.matcher.messages.get_mut(message) else { continue };
            let Body::Offered(offer) = found.body else { continue };
            let posted = found.posted.and_then(|key| self.matcher.posted.get(key));
            let capacity = posted.map_or(0, |posted| posted.capacity);
            found.body = Body::Reading;
            return Some((message, found.sender, offer, found.envelope.bytes.min(capacity)));
        }
    }

    /// Ends a call that holds the buffer of a receive: what arrives from now on is kept in memory
    /// of this module.
    pub(super) fn detach(&mut self, own: &OwnRecv<'_>) {
        let Some(posted) = self.matcher.posted.get(own.posted) else { return };
        let PostedState::Matched(key) = posted.state else { return };
        let keep = posted.capacity;
        let Some(message) = self.matcher.messages.get_mut(key) else { return };
        if matches!(message.body, Body::Direct) {
            let incoming = self.peers[message.sender as usize].incoming.as_ref();
            let done = incoming.and_then(|incoming| incoming.arrival).map_or(0, |one| one.done);
            let mut data = Vec::with_capacity(message.envelope.bytes.min(keep) as usize);
            data.extend_from_slice(&own.buffer[..own.buffer.len().min(done as usize)]);
            message.body = Body::Arriving { data, keep };
        }
    }

    /// Removes a receive. A message that it has matched is discarded.
    pub(super) fn drop_recv(&mut self, posted: Key) -> Result<(), MatchError> {
        if self.matcher.unpost(posted) {
            return Ok(());
        }
        match self.matcher.posted.remove(posted).map(|posted| posted.state) {
            Some(PostedState::Short(_, _, sender)) => {
                self.return_credit(sender, LINE_BYTES as u64);
                Ok(())
            }
            Some(PostedState::Matched(message)) => self.discard(message),
            _ => Ok(()),
        }
    }

    /// Discards a message, and completes its send.
    pub(super) fn discard(&mut self, message: Key) -> Result<(), MatchError> {
        let Some(found) = self.matcher.messages.get_mut(message) else { return Ok(()) };
        // Any key: the message counts as matched.
        found.posted = Some(Key(0));
        let (sender, body) = (found.sender, std::mem::replace(&mut found.body, Body::Delivered));
        self.answer_if_matched(message)?;
        self.remove_message(message);
        match body {
            Body::Offered(offer) => self.answer(sender, Kind::Answer, [offer.send, 0, 0, 0, 0, 0]),
            _ => Ok(()),
        }
    }

    /// Discards the unexpected messages of a communicator.
    pub(super) fn discard_context(&mut self, context: u32) -> Result<(), MatchError> {
        for message in self.matcher.unexpected_of(context) {
            self.matcher.take_unexpected(message);
            self.discard(message)?;
        }
        Ok(())
    }
}

/// Returns the result of a receive into a buffer of so many bytes.
fn finished(envelope: Envelope, capacity: usize) -> Result<PolledRecv, MatchError> {
    if envelope.bytes > capacity as u64 {
        let (sent, capacity) = (envelope.bytes, capacity as u64);
        return Err(MatchError::Truncated { from: envelope.source, sent, capacity });
    }
    Ok(PolledRecv::Complete(envelope))
}

/// Puts the next lines of a requested send into the ring. Returns true if all are there.
fn stream_bytes(
    outgoing: &mut Outgoing,
    stream: &mut Stream,
    sends: &mut Slab<PendingSend>,
    own: &Option<(Key, &[u8])>,
    chunk: &mut Vec<u8>,
) -> Result<bool, super::outgoing::Corrupt> {
    let Some(pending) = sends.get_mut(stream.send) else { return Ok(true) };
    let bytes = pending.bytes;
    if stream.done.is_none() {
        let envelope = Envelope { context: 0, tag: 0, source: 0, bytes };
        let line = Line::new(Kind::Requested, envelope, [stream.message, 0, 0, 0, 0, 0]);
        if !outgoing.put(line)? {
            return Ok(false);
        }
        stream.done = Some(0);
    }
    let mut done = stream.done.unwrap_or(0);
    while done < bytes {
        let end = bytes.min(done + CHUNK_BYTES);
        let own_bytes = own.as_ref().filter(|(send, _)| *send == stream.send);
        let part = match (&pending.owned, own_bytes) {
            (Some(owned), _) => &owned[done as usize..end as usize],
            (None, Some((_, own))) => &own[done as usize..end as usize],
            (None, None) => {
                chunk.resize((end - done) as usize, 0);
                // The kernel reads: the program may have forgotten the request and freed its
                // buffer, where another value or nothing lies now.
                let own = std::process::id();
                match process_memory::read(own, pending.address.wrapping_add(done), chunk) {
                    Ok(()) => {}
                    Err(AccessFailure::NotMapped { .. }) => stream.is_lost = true,
                    // The bytes are there. A call that holds the buffer continues.
                    Err(_) => {
                        stream.done = Some(done);
                        return Ok(false);
                    }
                }
                &chunk[..]
            }
        };
        for line in part.chunks(LINE_BYTES) {
            if !outgoing.put(Line::of_bytes(line))? {
                stream.done = Some(done);
                return Ok(false);
            }
            done += line.len() as u64;
        }
    }
    stream.done = Some(done);
    if !outgoing.put(Ending::of_stream(stream.is_lost).line())? {
        return Ok(false);
    }
    pending.is_complete = true;
    if pending.is_dropped {
        sends.remove(stream.send);
    }
    Ok(true)
}
