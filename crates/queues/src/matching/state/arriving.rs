//! Lines that arrive: messages, and lines for sends of this rank.

use super::{OwnRecv, State};
use crate::matching::error::MatchError;
use crate::matching::incoming::{Arrival, Sink};
use crate::matching::line::{
    Ending, Envelope, INLINE_BYTES, Kind, LINE_BYTES, Line, MessageHead, Offer, tail_lines,
};
use crate::matching::matcher::{Body, Message, PostedState};
use crate::matching::outgoing::{EAGER_BYTES, Queued, Stream, charge_of};
use crate::matching::slab::Key;

impl State {
    /// Takes what has arrived from one rank, until the own receive is complete.
    pub(in crate::matching) fn progress_from(
        &mut self,
        sender: u32,
        own: &mut Option<OwnRecv<'_>>,
    ) -> Result<(), MatchError> {
        if self.remote_rank(sender).is_some() {
            return self.progress_remote(own, &None);
        }
        loop {
            let Some(incoming) = &mut self.peers[sender as usize].incoming else { return Ok(()) };
            if let Some(arrival) = incoming.arrival {
                if !self.take_lines(sender, arrival, own) {
                    return Ok(());
                }
                if arrival.has_end {
                    let requested = &mut self.peers[sender as usize].requested;
                    *requested = requested.saturating_sub(1);
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
            return incoming.take_lines(&mut Sink::Discarded).is_some();
        };
        // Without a place for them, another thread takes the lines: its call holds the buffer.
        let taken = message.sink(own).and_then(|mut sink| incoming.take_lines(&mut sink));
        let Some(ending) = taken else { return false };
        message.body = match (ending, std::mem::replace(&mut message.body, Body::Lost)) {
            (Ending::Lost, _) => Body::Lost,
            (Ending::Whole, Body::Arriving { data, .. }) => Body::Whole(data),
            (Ending::Whole, _) => Body::Delivered,
        };
        true
    }

    /// Accepts the first line of a message, or a line for a send of this rank.
    pub(super) fn accept(
        &mut self,
        sender: u32,
        line: Line,
        own: &mut Option<OwnRecv<'_>>,
    ) -> Result<(), MatchError> {
        let corrupt = MatchError::Corrupt { rank: sender };
        let envelope = line.envelope();
        let kind = line.kind().ok_or(corrupt)?;
        if matches!(kind, Kind::Eager | Kind::Synchronous) && envelope.bytes > EAGER_BYTES as u64 {
            // No sender writes that, and no receiver shall allocate memory for it.
            return Err(MatchError::Corrupt { rank: sender });
        }
        match kind {
            Kind::Eager => {
                // By the first line, before the others have arrived: the order of messages is that
                // of their first lines.
                let posted = self.matcher.match_message(sender, &envelope);
                if envelope.bytes <= INLINE_BYTES as u64 {
                    return self.accept_short(sender, envelope, line.words(), posted);
                }
                let message =
                    self.add(sender, envelope, posted, charge_of(envelope.bytes as usize), None);
                let done = INLINE_BYTES as u64;
                self.begin_arrival(sender, message, (done, tail_lines(envelope.bytes - done)), own);
                // After `begin_arrival`, which decides between buffer and memory.
                self.put_first(message, &line, own);
            }
            Kind::Synchronous => {
                let posted = self.matcher.match_message(sender, &envelope);
                let charge = charge_of(envelope.bytes as usize);
                let [send, ..] = line.words();
                let message = self.add(sender, envelope, posted, charge, Some(send));
                self.begin_arrival(sender, message, (0, tail_lines(envelope.bytes)), own);
                // An unmatched message is answered in `match_with`.
                self.answer_if_matched(message)?;
            }
            Kind::Offer => {
                let posted = self.matcher.match_message(sender, &envelope);
                // Without credit: the bytes stay in the memory of the sender.
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
                    // Behind all queued lines. `progress` flushes the queue.
                    let stream = Stream { send, message, done: None, is_lost: false };
                    outgoing.queue.push_back(Queued::Stream(stream));
                    if outgoing.queue.len() == 1 {
                        self.queued.push(sender);
                    }
                }
            }
            Kind::Requested => {
                let message = Key(line.words()[0]);
                self.begin_arrival(sender, message, (0, 0), own);
                if let Some(incoming) = &mut self.peers[sender as usize].incoming
                    && let Some(arrival) = &mut incoming.arrival
                {
                    // Also of a message for a receive that was dropped.
                    arrival.bytes = envelope.bytes;
                    arrival.has_end = true;
                }
            }
        }
        self.discard_unwanted()
    }

    pub(super) fn accept_short(
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
            posted.state = PostedState::Short(MessageHead { sender, envelope }, words);
        }
        Ok(())
    }

    /// Adds a message, to the receive that it has matched or to the unexpected ones.
    pub(super) fn add(
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

    /// Prepares a message for its lines: `done` bytes have arrived in the last line, and so many
    /// lines behind it.
    fn begin_arrival(
        &mut self,
        sender: u32,
        message: Key,
        (done, tail): (u64, u64),
        own: &Option<OwnRecv<'_>>,
    ) {
        self.expect_lines();
        self.set_arriving(message, own);
        let bytes = self.matcher.messages.get(message).map_or(0, |found| found.envelope.bytes);
        if let Some(incoming) = &mut self.peers[sender as usize].incoming {
            incoming.arrival = Some(Arrival { message, done, bytes, tail, has_end: false });
        }
    }

    /// Decides where the bytes of a message are stored that arrive from now on.
    pub(super) fn set_arriving(&mut self, message: Key, own: &Option<OwnRecv<'_>>) {
        let Some(found) = self.matcher.messages.get_mut(message) else { return };
        let posted = found.posted.and_then(|key| self.matcher.posted.get(key));
        // A posted receive takes no more than its buffer has; the rest is passed over, and the
        // receive reports the whole length.
        let keep = posted.map_or(u64::MAX, |posted| posted.capacity);
        let is_own = own.as_ref().is_some_and(|own| found.posted == Some(own.posted));
        found.body = if is_own {
            Body::Direct
        } else {
            let data = Vec::with_capacity(found.envelope.bytes.min(keep) as usize);
            Body::Arriving { data, keep }
        };
    }

    /// Stores the bytes in the first line of a message.
    fn put_first(&mut self, message: Key, line: &Line, own: &mut Option<OwnRecv<'_>>) {
        let sink = self.matcher.messages.get_mut(message).and_then(|found| found.sink(own));
        if let Some(mut sink) = sink {
            line.copy_to(sink.place(0, INLINE_BYTES as u64));
        }
    }
}

impl Message {
    /// Returns the place of the bytes that arrive; `None` if only another call may write there.
    pub(super) fn sink<'a>(&'a mut self, own: &'a mut Option<OwnRecv<'_>>) -> Option<Sink<'a>> {
        match (&mut self.body, own) {
            (Body::Direct, Some(own)) if self.posted == Some(own.posted) => {
                Some(Sink::Buffer(own.buffer))
            }
            (Body::Arriving { data, keep }, _) => Some(Sink::Kept(data, *keep)),
            _ => None,
        }
    }
}
