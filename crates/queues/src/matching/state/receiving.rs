//! Receives of a rank, and answers to senders.

use super::{FirstRecv, OwnRecv, PolledRecv, State};
use crate::matching::error::MatchError;
use crate::matching::incoming::{Arrival, Sink};
use crate::matching::line::{
    Envelope, INLINE_BYTES, Kind, LINE_BYTES, Line, MessageHead, Offer, copy_words, tail_lines,
};
use crate::matching::matcher::{Body, Pattern, PostedState};
use crate::matching::outgoing::{EAGER_BYTES, charge_of};
use crate::matching::slab::Key;
use shm::published_wait::Wait;

impl State {
    /// Answers a synchronous send once its message is matched.
    pub(in crate::matching) fn answer_if_matched(
        &mut self,
        message: Key,
    ) -> Result<(), MatchError> {
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
        let envelope = Envelope { context: 0, tag: 0, bytes: 0 };
        self.queue(to, Line::new(kind, envelope, words))
    }

    /// Posts a receive, which takes the first unexpected message that it accepts.
    pub(in crate::matching) fn post(
        &mut self,
        pattern: Pattern,
        capacity: u64,
    ) -> Result<Key, MatchError> {
        // MPI's order: messages that have left the rings are earlier than those still in them.
        match self.matcher.find_message(&pattern) {
            None => {
                self.expect_lines();
                Ok(self.matcher.post(pattern, capacity))
            }
            Some(message) => {
                self.matcher.take_unexpected(message);
                self.post_for(message, pattern, capacity)
            }
        }
    }

    /// Posts a receive for a message that is taken from the unexpected ones already.
    pub(in crate::matching) fn post_for(
        &mut self,
        message: Key,
        pattern: Pattern,
        capacity: u64,
    ) -> Result<Key, MatchError> {
        self.expect_lines();
        let posted = self.matcher.post(pattern, capacity);
        // The receive has its message: a line that arrives next must not find it among the waiting
        // ones.
        self.matcher.withdraw_waiting(posted);
        self.match_with(message, posted)?;
        Ok(posted)
    }

    /// Matches a message with a receive that does not wait in a list.
    pub(in crate::matching) fn match_with(
        &mut self,
        message: Key,
        posted: Key,
    ) -> Result<(), MatchError> {
        let Some(found) = self.matcher.messages.get_mut(message) else { return Ok(()) };
        found.posted = Some(posted);
        if matches!(found.body, Body::Offered(_)) {
            // The sender may wait until this message is read, and the owner of the receive for that
            // sender. So any thread of this rank may read it (`read_for_others`).
            self.unread.push(message);
        }
        if let Some(posted) = self.matcher.posted.get_mut(posted) {
            posted.state = PostedState::Matched(message);
        }
        self.answer_if_matched(message)
    }

    /// Receives a message that is first in the ring of its sender, without posting a receive.
    #[inline]
    pub(in crate::matching) fn recv_first(
        &mut self,
        pattern: &Pattern,
        buffer: &mut [u8],
    ) -> Result<FirstRecv, MatchError> {
        let Some(sender) = pattern.source else { return Ok(FirstRecv::MustPost) };
        // Otherwise the next line may belong to another receive, or an unexpected message comes
        // before it.
        if !self.matcher.none_waits() || !self.matcher.none_unexpected(sender) {
            return Ok(FirstRecv::MustPost);
        }
        let Some(incoming) = &mut self.peers[sender as usize].incoming else {
            return Ok(FirstRecv::MustPost);
        };
        if incoming.arrival.is_some() {
            return Ok(FirstRecv::MustPost);
        }
        let Some(line) = incoming.take() else { return Ok(FirstRecv::Nothing) };
        let envelope = line.envelope();
        let length = envelope.bytes as usize;
        let fits = length <= EAGER_BYTES.min(buffer.len());
        // The line has left the ring. If it is not for this buffer, it is accepted as in any other
        // poll, and the receive is posted behind it.
        if line.kind() != Some(Kind::Eager) || !fits || !pattern.accepts(sender, &envelope) {
            self.accept(sender, line, &mut None)?;
            return Ok(FirstRecv::MustPost);
        }
        if length <= INLINE_BYTES {
            copy_words(&line.words(), &mut buffer[..length]);
            incoming.return_credit(LINE_BYTES as u64);
            return Ok(FirstRecv::Complete(MessageHead { sender, envelope }));
        }
        self.recv_lines(sender, envelope, &line, (pattern, buffer))
    }

    /// Receives a message of several lines, of which `line` was the first.
    fn recv_lines(
        &mut self,
        sender: u32,
        envelope: Envelope,
        line: &Line,
        (pattern, buffer): (&Pattern, &mut [u8]),
    ) -> Result<FirstRecv, MatchError> {
        /// Polls for the blocks that follow, which the sender writes in the same call.
        const POLLS: u32 = 1000;
        let done = INLINE_BYTES as u64;
        let tail = tail_lines(envelope.bytes - done);
        // Without a message: there is one only if lines are missing at the end.
        let arrival =
            Arrival { message: Key(0), done, bytes: envelope.bytes, tail, has_end: false };
        let charge = charge_of(envelope.bytes as usize);
        line.copy_to(&mut buffer[..INLINE_BYTES]);
        if let Some(incoming) = &mut self.peers[sender as usize].incoming {
            incoming.arrival = Some(arrival);
            // With the lock. The sender had space for the whole message (`put_lines`), so it waits
            // for nothing between two blocks.
            for _ in 0..POLLS {
                if incoming.take_lines(&mut Sink::Buffer(buffer)).is_some() {
                    incoming.return_credit(charge);
                    return Ok(FirstRecv::Complete(MessageHead { sender, envelope }));
                }
            }
        }
        // The sender was stopped between two blocks.
        self.expect_lines();
        let posted = self.matcher.post(*pattern, buffer.len() as u64);
        self.matcher.withdraw_waiting(posted);
        let message = self.add(sender, envelope, Some(posted), charge, None);
        if let Some(found) = self.matcher.messages.get_mut(message) {
            found.body = Body::Direct;
        }
        if let Some(incoming) = &mut self.peers[sender as usize].incoming
            && let Some(arrival) = &mut incoming.arrival
        {
            arrival.message = message;
        }
        Ok(FirstRecv::Posted(posted))
    }

    /// Returns the sender of the message that a receive has matched.
    pub(in crate::matching) fn sender_of(&self, posted: Key) -> Option<u32> {
        match self.matcher.posted.get(posted)?.state {
            PostedState::Waiting => None,
            PostedState::Short(head, _) => Some(head.sender),
            PostedState::Matched(message) => Some(self.matcher.messages.get(message)?.sender),
        }
    }

    /// Returns the wait for a receive, as an observer of the job sees it.
    pub(in crate::matching) fn wait_of_recv(&self, posted: Key) -> Wait {
        let pattern = self.matcher.posted.get(posted).map(|posted| posted.pattern);
        let source = self.sender_of(posted).or(pattern.and_then(|pattern| pattern.source));
        Wait::Receive { source, tag: pattern.and_then(|pattern| pattern.tag) }
    }

    /// Completes a receive, as far as it has been matched.
    #[inline]
    pub(in crate::matching) fn poll_recv(
        &mut self,
        own: &mut OwnRecv<'_>,
    ) -> Result<PolledRecv, MatchError> {
        let Some(posted) = self.matcher.posted.get(own.posted) else {
            return Err(MatchError::Corrupt { rank: self.layout.rank });
        };
        match posted.state {
            PostedState::Waiting => Ok(PolledRecv::Pending),
            PostedState::Short(head, words) => {
                let length = (head.envelope.bytes as usize).min(own.buffer.len());
                copy_words(&words, &mut own.buffer[..length]);
                // Credit returns with the delivery. Until then the message uses memory of this
                // rank.
                self.matcher.posted.remove(own.posted);
                self.return_credit(head.sender, LINE_BYTES as u64);
                finished(head, own.buffer.len())
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
        let head = found.head();
        let length = (head.envelope.bytes as usize).min(own.buffer.len());
        match &found.body {
            Body::Short(words) => copy_words(words, &mut own.buffer[..length]),
            Body::Whole(data) => own.buffer[..length].copy_from_slice(&data[..length]),
            Body::Delivered => {}
            Body::Lost => {
                self.matcher.posted.remove(own.posted);
                self.remove_message(message);
                return Err(MatchError::Lost { rank: head.sender });
            }
            Body::Offered(offer) => {
                let offer = *offer;
                // With the lock, so one thread reads the message. The read itself needs no lock:
                // `Reading` keeps the message from all others, and a drop is found in
                // `finish_read`.
                found.body = Body::Reading;
                self.unread.retain(|other| *other != message);
                return Ok(PolledRecv::Read(message, offer, head));
            }
            Body::Arriving { .. } | Body::Direct | Body::Reading | Body::Requested => {
                return Ok(PolledRecv::Pending);
            }
        }
        self.matcher.posted.remove(own.posted);
        self.remove_message(message);
        finished(head, own.buffer.len())
    }

    fn remove_message(&mut self, message: Key) {
        if let Some(found) = self.matcher.messages.remove(message)
            && found.charge > 0
        {
            self.return_credit(found.sender, found.charge);
        }
    }

    fn return_credit(&mut self, sender: u32, bytes: u64) {
        if let Some(remote) = self.remote_rank(sender) {
            return self.return_remote_credit(remote, bytes);
        }
        if let Some(incoming) = &mut self.peers[sender as usize].incoming {
            incoming.return_credit(bytes);
        }
    }

    /// Ends the reading of an offered message, into the buffer of its receive or, with `data`, into
    /// memory of this module. A message that could not be read is requested, if it is still wanted.
    pub(in crate::matching) fn finish_read(
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
        // Without the lock another thread may have dropped the receive, and discarded the message.
        // An answer completes the send. Bytes without a receive are not requested.
        if is_read || self.matcher.messages.get(message).is_none() {
            self.answer(sender, Kind::Answer, [offer.send, 0, 0, 0, 0, 0])
        } else {
            self.answer(sender, Kind::Request, [offer.send, message.0, 0, 0, 0, 0])?;
            self.peers[sender as usize].requested += u32::from(sender < self.layout.ranks);
            Ok(())
        }
    }

    /// Takes an offered message of a receive with an owner outside a call, with the number of bytes
    /// that the receive takes.
    pub(in crate::matching) fn next_unread(&mut self) -> Option<(Key, u32, Offer, u64)> {
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
    pub(in crate::matching) fn detach(&mut self, own: &OwnRecv<'_>) {
        let Some(posted) = self.matcher.posted.get(own.posted) else { return };
        let PostedState::Matched(key) = posted.state else { return };
        let keep = posted.capacity;
        let Some(message) = self.matcher.messages.get_mut(key) else { return };
        if matches!(message.body, Body::Direct) {
            let sender = message.sender;
            let incoming = self.peers[sender as usize].incoming.as_ref();
            let done = incoming.and_then(|incoming| incoming.arrival).map_or(0, |one| one.done);
            let done = match sender.checked_sub(self.layout.ranks) {
                Some(remote) => self.remote_done(remote, key),
                None => done,
            };
            let Some(message) = self.matcher.messages.get_mut(key) else { return };
            // The caller gets its buffer back: the bytes in it are copied, and later ones are
            // appended behind them.
            let mut data = Vec::with_capacity(message.envelope.bytes.min(keep) as usize);
            data.extend_from_slice(&own.buffer[..own.buffer.len().min(done as usize)]);
            message.body = Body::Arriving { data, keep };
        }
    }

    /// Removes a receive. A message that it has matched is discarded.
    pub(in crate::matching) fn drop_recv(&mut self, posted: Key) -> Result<(), MatchError> {
        if self.matcher.unpost(posted) {
            return Ok(());
        }
        match self.matcher.posted.remove(posted).map(|posted| posted.state) {
            Some(PostedState::Short(head, _)) => {
                self.return_credit(head.sender, LINE_BYTES as u64);
                Ok(())
            }
            Some(PostedState::Matched(message)) => self.discard(message),
            _ => Ok(()),
        }
    }

    /// Discards a message, and completes its send.
    pub(in crate::matching) fn discard(&mut self, message: Key) -> Result<(), MatchError> {
        let Some(found) = self.matcher.messages.get_mut(message) else { return Ok(()) };
        // Any key: the message counts as matched.
        found.posted = Some(Key(0));
        let sender = found.sender;
        let body = std::mem::replace(&mut found.body, Body::Delivered);
        self.answer_if_matched(message)?;
        self.remove_message(message);
        // A message that another thread is reading is answered in `finish_read`. Lines of a message
        // that is on its way are passed over in `take_lines`.
        match body {
            Body::Offered(offer) => self.answer(sender, Kind::Answer, [offer.send, 0, 0, 0, 0, 0]),
            _ => Ok(()),
        }
    }

    /// Discards messages for which no receive follows: their senders need the credit and answers.
    #[inline]
    pub(in crate::matching) fn discard_unwanted(&mut self) -> Result<(), MatchError> {
        while let Some(message) = self.matcher.take_unwanted() {
            self.discard(message)?;
        }
        Ok(())
    }
}

/// Returns the result of a receive into a buffer of so many bytes.
fn finished(head: MessageHead, capacity: usize) -> Result<PolledRecv, MatchError> {
    if head.envelope.bytes > capacity as u64 {
        let sent = head.envelope.bytes;
        let capacity = capacity as u64;
        return Err(MatchError::Truncated { from: head.sender, sent, capacity });
    }
    Ok(PolledRecv::Complete(head))
}
