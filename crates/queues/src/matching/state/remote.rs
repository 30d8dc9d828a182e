//! Messages with ranks on other nodes: see the table of records in `remote`.

use super::sending::{Part, part_of};
use super::{OwnRecv, PendingSend, State};
use crate::matching::error::MatchError;
use crate::matching::line::{Envelope, INLINE_BYTES, Kind, Line, Offer, words_of as inline_words};
use crate::matching::matcher::{Body, PostedState};
use crate::matching::outgoing::charge_of;
use crate::matching::remote::{
    REMOTE_RECORD_BYTES, Remote, RemoteArrival, RemoteExit, RemotePeer, RemoteRecord, RemoteStream,
    envelope_of, kind, kind_of, words_of, words_with,
};
use crate::matching::slab::{Key, Slab};

/// Credit that an offer uses until it is matched.
const OFFER_CHARGE: u64 = 64;

impl State {
    /// Returns the number among the remote ranks of the rank at a place.
    #[inline]
    pub(in crate::matching) fn remote_rank(&self, place: u32) -> Option<u32> {
        place.checked_sub(self.layout.ranks)
    }

    #[inline]
    fn remote(&mut self, rank: u32) -> Result<&mut Remote, MatchError> {
        let place = self.layout.ranks + rank;
        self.remote.as_deref_mut().ok_or(MatchError::Corrupt { rank: place })
    }

    /// Returns why nothing follows from a remote rank, if that is so.
    pub(in crate::matching) fn remote_exit(&self, rank: u32) -> Option<RemoteExit> {
        self.remote.as_ref()?.exit_of(rank)
    }

    /// Sends a message without a request, if there is space and credit for all of it.
    #[inline]
    pub(super) fn try_eager_to(
        &mut self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
    ) -> Result<bool, MatchError> {
        let remote = self.remote(to)?;
        if !remote.has_credit(to, bytes.len()) {
            return Ok(false);
        }
        let is_sent = if bytes.len() <= REMOTE_RECORD_BYTES {
            remote.link.put(to, words_with(kind::EAGER, envelope, 0), bytes)
        } else {
            remote.put_long(to, envelope, bytes)
        };
        if is_sent {
            remote.link.publish();
            remote.peers[to as usize].messages.take(charge_of(bytes.len()));
            remote.note(to);
        }
        Ok(is_sent)
    }

    /// Returns true if a message needs nothing but space in the outbox.
    pub(super) fn has_credit_at(&mut self, to: u32, bytes: usize) -> Result<bool, MatchError> {
        Ok(self.remote(to)?.has_credit(to, bytes))
    }

    /// Sends a short synchronous message, or offers one.
    pub(super) fn offer_to(
        &mut self,
        to: u32,
        envelope: Envelope,
        send: Key,
        bytes: &[u8],
    ) -> Result<(), MatchError> {
        let remote = self.remote(to)?;
        remote.note(to);
        let is_short = bytes.len() <= REMOTE_RECORD_BYTES && remote.has_credit(to, bytes.len());
        let words = words_with(kind::SYNCHRONOUS, envelope, send.0);
        if is_short && remote.link.put(to, words, bytes) {
            remote.link.publish();
            remote.peers[to as usize].messages.take(charge_of(bytes.len()));
            return Ok(());
        }
        let words = words_with(kind::OFFER, envelope, send.0);
        remote.peers[to as usize].offers.push_back(words);
        remote.set_queued(to);
        self.flush_remote(&None)
    }

    /// Sends a line about a message of a remote rank.
    pub(super) fn queue_remote(&mut self, to: u32, line: Line) -> Result<(), MatchError> {
        let [send, message, ..] = line.words();
        let words = match line.kind() {
            Some(Kind::Request) => {
                let message = Key(message);
                let bytes = self.matcher.messages.get(message).map_or(0, |one| one.envelope.bytes);
                let arrival = RemoteArrival { message, done: 0, bytes, is_requested: true };
                self.remote(to)?.peers[to as usize].arrivals.insert(send, arrival);
                words_of(kind::REQUEST, send, 0)
            }
            _ => words_of(kind::ANSWER, send, 0),
        };
        self.remote(to)?.control(to, words);
        Ok(())
    }

    /// Returns credit of messages to a remote rank.
    pub(super) fn return_remote_credit(&mut self, from: u32, bytes: u64) {
        // A record without space goes on in later calls.
        self.expect_lines();
        if let Some(remote) = &mut self.remote {
            remote.return_credit(from, [bytes, 0]);
        }
    }

    /// Bytes of a message that have arrived in parts.
    pub(super) fn remote_done(&self, from: u32, message: Key) -> u64 {
        let peer = self.remote.as_ref().and_then(|remote| remote.peers.get(from as usize));
        let mut arrivals = peer.into_iter().flat_map(|peer| peer.arrivals.values());
        arrivals.find(|arrival| arrival.message == message).map_or(0, |arrival| arrival.done)
    }

    /// Returns true if an operation with a remote rank needs later calls of this rank.
    pub(super) fn has_pending_remote(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| {
            !remote.queued.is_empty() || remote.peers.iter().any(|peer| !peer.arrivals.is_empty())
        })
    }

    /// Reports to the remote ranks that this rank receives nothing any more.
    pub(super) fn close_remote(&mut self) {
        let Some(remote) = &mut self.remote else { return };
        remote.is_closed = true;
        for to in 0..remote.peers.len() as u32 {
            if remote.peers[to as usize].is_known {
                remote.control(to, words_of(kind::CLOSED, 0, 0));
            }
        }
    }

    /// Returns true if a remote rank may still receive.
    pub(super) fn remote_receives(&self, rank: u32) -> bool {
        self.remote_exit(rank).is_none()
            && self.remote.as_ref().is_some_and(|remote| !remote.peers[rank as usize].is_closed)
    }

    /// Returns true if something is queued for a remote rank that may still receive it.
    pub(super) fn has_unsent_remote(&self) -> bool {
        let queued = self.remote.iter().flat_map(|remote| &remote.queued);
        queued.copied().any(|to| self.remote_receives(to))
    }

    /// Takes what has arrived from other nodes, until the own receive is complete, and continues
    /// what is queued for them.
    pub(in crate::matching) fn progress_remote(
        &mut self,
        own: &mut Option<OwnRecv<'_>>,
        send: &Option<(Key, &[u8])>,
    ) -> Result<(), MatchError> {
        while let Some(record) = self.remote.as_mut().and_then(|remote| remote.link.first()) {
            match self.accept_remote(record, own) {
                Ok(true) => {}
                Ok(false) => break,
                // Nothing that a rank sends harms the messages of other ranks.
                Err(MatchError::Corrupt { rank }) if self.remote_rank(rank).is_some() => {
                    self.refuse(record.from);
                }
                Err(error) => return Err(error),
            }
            if let Some(remote) = &mut self.remote {
                remote.link.release();
            }
            let posted = own.as_ref().and_then(|own| self.matcher.posted.get(own.posted));
            let is_complete = match posted.map(|posted| posted.state) {
                Some(PostedState::Short(..)) => true,
                Some(PostedState::Matched(message)) => {
                    let body = self.matcher.messages.get(message).map(|message| &message.body);
                    matches!(body, Some(Body::Delivered | Body::Whole(_) | Body::Lost))
                }
                _ => false,
            };
            if is_complete {
                // Not further than needed: messages stay in the inbox until they are wanted.
                break;
            }
        }
        if self.remote.as_ref().is_none_or(|remote| remote.queued.is_empty()) {
            return Ok(());
        }
        self.flush_remote(send)
    }

    /// Ends the messages of a remote rank that has sent what no rank sends.
    #[cold]
    fn refuse(&mut self, from: u32) {
        if let Some(remote) = &mut self.remote
            && let Some(peer) = remote.peers.get_mut(from as usize)
        {
            peer.refuse();
        }
    }

    /// Accepts a record. False if another thread, whose call holds the buffer, must take it.
    fn accept_remote(
        &mut self,
        record: RemoteRecord,
        own: &mut Option<OwnRecv<'_>>,
    ) -> Result<bool, MatchError> {
        let RemoteRecord { from, is_exit, words, bytes } = record;
        let place = self.layout.ranks + from;
        let corrupt = MatchError::Corrupt { rank: place };
        let State { remote, matcher, .. } = self;
        let Some(remote) = remote else { return Ok(true) };
        let Some(peer) = remote.peers.get_mut(from as usize) else { return Err(corrupt) };
        if is_exit {
            let mut why = vec![0; bytes];
            remote.link.read(0, &mut why);
            peer.exit.get_or_insert(RemoteExit::Reported(why.into()));
            return Ok(true);
        }
        if peer.exit.is_some() {
            // Its earlier records were refused.
            return Ok(true);
        }
        remote.note(from);
        let charge = match kind_of(words) {
            kind::EAGER | kind::SYNCHRONOUS | kind::LONG => {
                charge_of(envelope_of(words).bytes as usize)
            }
            kind::OFFER => OFFER_CHARGE,
            _ => 0,
        };
        if charge > 0 && !remote.hold(from, charge) {
            return Err(corrupt);
        }
        let Some(peer) = remote.peers.get_mut(from as usize) else { return Err(corrupt) };
        let [second, _, number] = words;
        match kind_of(words) {
            kind::EAGER | kind::SYNCHRONOUS => {
                if envelope_of(words).bytes != bytes as u64 {
                    return Err(corrupt);
                }
                self.accept_whole(place, words, own)?;
            }
            kind::LONG => {
                // The parts follow without another message between them.
                if peer.long.replace(number).is_some() || number >> 63 == 0 {
                    return Err(corrupt);
                }
                let envelope = envelope_of(words);
                let posted = matcher.match_message(place, &envelope);
                let message = self.add(place, envelope, posted, charge, None);
                let is_requested = false;
                let bytes = envelope.bytes;
                let arrival = RemoteArrival { message, done: 0, bytes, is_requested };
                self.set_arriving(message, own);
                self.remote(from)?.peers[from as usize].arrivals.insert(number, arrival);
            }
            kind::OFFER => {
                let envelope = envelope_of(words);
                let posted = matcher.match_message(place, &envelope);
                let message = self.add(place, envelope, posted, charge, None);
                if let Some(found) = self.matcher.messages.get_mut(message) {
                    let none = [number, 0, 0, 0, 0, 0];
                    found.body = Body::Offered(Offer::of_words(none));
                }
                if posted.is_some() {
                    self.unread.push(message);
                }
            }
            kind::PART => return self.accept_part(from, number, bytes, own),
            kind::LOST => {
                if let Some(arrival) = peer.arrivals.remove(&number)
                    && let Some(message) = matcher.messages.get_mut(arrival.message)
                {
                    message.body = Body::Lost;
                }
            }
            kind::ANSWER if is_to(&self.sends, number, place) => self.complete_send(Key(number)),
            // The send has been given up.
            kind::ANSWER => {}
            kind::REQUEST => match self.sends.get_mut(Key(number)) {
                Some(send) if send.to == place => {
                    if std::mem::replace(&mut send.is_requested, true) {
                        return Err(corrupt);
                    }
                    peer.streams.push_back(RemoteStream { send: Key(number), done: 0 });
                    remote.set_queued(from);
                }
                // A send that was abandoned has no bytes.
                _ => {
                    remote.control(from, words_of(kind::LOST, number, 0));
                    self.expect_lines();
                }
            },
            kind::CREDIT => {
                peer.messages.add(number);
                peer.parts.add(second);
            }
            kind::CLOSED => peer.is_closed = true,
            _ => return Err(corrupt),
        }
        self.discard_unwanted()?;
        Ok(true)
    }

    /// Accepts a message whose bytes are in the first record.
    fn accept_whole(
        &mut self,
        place: u32,
        words: [u64; 3],
        own: &mut Option<OwnRecv<'_>>,
    ) -> Result<(), MatchError> {
        let envelope = envelope_of(words);
        let bytes = envelope.bytes as usize;
        let posted = self.matcher.match_message(place, &envelope);
        let is_synchronous = kind_of(words) == kind::SYNCHRONOUS;
        if bytes <= INLINE_BYTES && !is_synchronous {
            let mut inline = [0; INLINE_BYTES];
            if let Some(remote) = &self.remote {
                remote.link.read(0, &mut inline[..bytes]);
            }
            return self.accept_short(place, envelope, inline_words(&inline), posted);
        }
        let unanswered = is_synchronous.then_some(words[2]);
        let message = self.add(place, envelope, posted, charge_of(bytes), unanswered);
        let State { remote, matcher, .. } = self;
        let Some(remote) = remote else { return Ok(()) };
        let Some(found) = matcher.messages.get_mut(message) else { return Ok(()) };
        found.body = match own {
            Some(own) if posted == Some(own.posted) => {
                let length = own.buffer.len().min(bytes);
                remote.link.read(0, &mut own.buffer[..length]);
                Body::Delivered
            }
            _ => {
                let capacity = posted.and_then(|posted| matcher.posted.get(posted));
                let keep = capacity.map_or(u64::MAX, |posted| posted.capacity);
                let mut data = vec![0; bytes.min(keep as usize)];
                remote.link.read(0, &mut data);
                Body::Whole(data)
            }
        };
        self.answer_if_matched(message)
    }

    /// Prepares a message for its parts.
    fn set_arriving(&mut self, message: Key, own: &Option<OwnRecv<'_>>) {
        let Some(found) = self.matcher.messages.get_mut(message) else { return };
        let posted = found.posted.and_then(|key| self.matcher.posted.get(key));
        let keep = posted.map_or(u64::MAX, |posted| posted.capacity);
        let is_own = own.as_ref().is_some_and(|own| found.posted == Some(own.posted));
        found.body = if is_own {
            Body::Direct
        } else {
            let data = Vec::with_capacity(found.envelope.bytes.min(keep) as usize);
            Body::Arriving { data, keep }
        };
    }

    /// Accepts the next bytes of a message. False if another thread must take them.
    fn accept_part(
        &mut self,
        from: u32,
        number: u64,
        bytes: usize,
        own: &mut Option<OwnRecv<'_>>,
    ) -> Result<bool, MatchError> {
        let corrupt = MatchError::Corrupt { rank: self.layout.ranks + from };
        let peer = &self.remote(from)?.peers[from as usize];
        let Some(RemoteArrival { message, done, bytes: all, is_requested }) =
            peer.arrivals.get(&number).copied()
        else {
            return Err(corrupt);
        };
        if bytes as u64 > all - done {
            return Err(corrupt);
        }
        let found = self.matcher.messages.get(message);
        if found.is_some_and(|found| matches!(found.body, Body::Requested)) {
            self.set_arriving(message, own);
        }
        let State { remote, matcher, .. } = self;
        let Some(remote) = remote else { return Ok(true) };
        let end = done + bytes as u64;
        if let Some(found) = matcher.messages.get_mut(message) {
            match (&mut found.body, own) {
                (Body::Direct, Some(own)) if found.posted == Some(own.posted) => {
                    let to = own.buffer.len().min(end as usize);
                    if let Some(place) = own.buffer.get_mut(done as usize..to) {
                        remote.link.read(0, place);
                    }
                }
                (Body::Direct, _) => return Ok(false),
                (Body::Arriving { data, keep }, _) => {
                    let kept = keep.saturating_sub(done).min(bytes as u64) as usize;
                    let start = data.len();
                    data.resize(start + kept, 0);
                    remote.link.read(0, &mut data[start..]);
                }
                // It is discarded.
                _ => {}
            }
            if end == all {
                found.body = match std::mem::replace(&mut found.body, Body::Delivered) {
                    Body::Arriving { data, .. } => Body::Whole(data),
                    body => body,
                };
                if matches!(found.body, Body::Direct) {
                    found.body = Body::Delivered;
                }
            }
        }
        let peer = &mut remote.peers[from as usize];
        if end == all {
            peer.arrivals.remove(&number);
            peer.long.take_if(|long| *long == number);
        } else if let Some(arrival) = peer.arrivals.get_mut(&number) {
            arrival.done = end;
        }
        if is_requested {
            remote.return_credit(from, [0, bytes as u64]);
        }
        Ok(true)
    }

    /// Sends what is queued for remote ranks, as far as there is space and credit.
    pub(super) fn flush_remote(&mut self, own: &Option<(Key, &[u8])>) -> Result<(), MatchError> {
        let mut number = 0;
        while let Some(to) = self.remote.as_ref().and_then(|one| one.queued.get(number).copied()) {
            if self.flush_to(to, own) {
                let remote = self.remote(to)?;
                remote.queued.swap_remove(number);
                remote.peers[to as usize].is_queued = false;
            } else {
                number += 1;
            }
        }
        if let Some(remote) = &mut self.remote {
            remote.link.publish();
        }
        Ok(())
    }

    /// As [`flush_remote`](Self::flush_remote), for one rank. True if nothing is queued any more.
    fn flush_to(&mut self, to: u32, own: &Option<(Key, &[u8])>) -> bool {
        let State { remote, sends, chunk, own: mailbox, .. } = self;
        let Some(Remote { link, peers, credit, .. }) = remote.as_deref_mut() else { return true };
        let peer = &mut peers[to as usize];
        if peer.exit.is_some() {
            peer.control.clear();
            peer.offers.clear();
            peer.streams.clear();
            return true;
        }
        while let Some(words) = peer.control.front() {
            if !link.put(to, *words, &[]) {
                return false;
            }
            peer.control.pop_front();
        }
        while let Some(words) = peer.offers.front() {
            if !peer.messages.has(OFFER_CHARGE, *credit) || !link.put(to, *words, &[]) {
                break;
            }
            peer.messages.take(OFFER_CHARGE);
            peer.offers.pop_front();
        }
        while let Some(stream) = peer.streams.front_mut() {
            let Some(pending) = sends.get_mut(stream.send) else {
                // It was given up after a failure of this rank.
                if !link.put(to, words_of(kind::LOST, stream.send.0, 0), &[]) {
                    return false;
                }
                peer.streams.pop_front();
                continue;
            };
            let all = pending.bytes();
            let mut is_lost = false;
            // A message is complete with its last part, so an empty one has a part too.
            if all == 0 && !link.put(to, words_of(kind::PART, stream.send.0, 0), &[]) {
                return false;
            }
            while stream.done < all {
                let end = all.min(stream.done + REMOTE_RECORD_BYTES as u64);
                let length = end - stream.done;
                if !peer.parts.has(length, *credit) || !link.has_space(1, length as usize, 0) {
                    return false;
                }
                let own_bytes = own.filter(|(send, _)| *send == stream.send).map(|(_, own)| own);
                let part = match part_of(pending, own_bytes, stream.done, end, chunk) {
                    Part::Bytes(part) => part,
                    Part::Lost(_) => {
                        is_lost = true;
                        break;
                    }
                    // A call that holds the buffer continues.
                    Part::Later => return false,
                };
                if !link.put(to, words_of(kind::PART, stream.send.0, 0), part) {
                    return false;
                }
                peer.parts.take(length);
                stream.done = end;
            }
            if is_lost && !link.put(to, words_of(kind::LOST, stream.send.0, 0), &[]) {
                return false;
            }
            let send = stream.send;
            peer.streams.pop_front();
            pending.is_complete = true;
            if pending.is_dropped {
                sends.remove(send);
            }
            if own.is_none_or(|(own, _)| own != send) {
                // Another thread may sleep until this send is complete.
                mailbox.wakeup().notify();
            }
        }
        peer.offers.is_empty() && peer.streams.is_empty()
    }
}

impl RemotePeer {
    /// Ends the messages of a rank that has sent what no rank sends.
    #[cold]
    fn refuse(&mut self) {
        self.exit.get_or_insert(RemoteExit::Invalid);
        self.arrivals.clear();
    }
}

impl Remote {
    /// Returns true if a message may be sent without a request, as far as its receiver is
    /// concerned.
    #[inline]
    fn has_credit(&self, to: u32, bytes: usize) -> bool {
        let peer = &self.peers[to as usize];
        // Behind an offer that waits nothing may pass it.
        peer.offers.is_empty()
            && peer.messages.has(charge_of(bytes), self.credit)
            && bytes as u64 <= self.longest()
    }

    /// Puts a message in parts into the outbox, if there is space for all of it.
    fn put_long(&mut self, to: u32, envelope: Envelope, bytes: &[u8]) -> bool {
        let parts = bytes.chunks(REMOTE_RECORD_BYTES);
        if !self.link.has_space(parts.len() + 1, REMOTE_RECORD_BYTES, 0) {
            return false;
        }
        let number = self.next_long();
        let mut is_put = self.link.put(to, words_with(kind::LONG, envelope, number), &[]);
        for part in parts {
            is_put &= self.link.put(to, words_of(kind::PART, number, 0), part);
            // The carrier begins with the first parts while the last are copied.
            self.link.publish();
        }
        debug_assert!(is_put, "there is space for all parts");
        is_put
    }

    /// Notes that there are messages from or to a rank.
    #[inline]
    fn note(&mut self, rank: u32) {
        if !std::mem::replace(&mut self.peers[rank as usize].is_known, true) && self.is_closed {
            // Its first message was on the way at the close, so nothing was reported to it then.
            // It may wait for that, and this rank for it, in a ring of ranks.
            self.control(rank, words_of(kind::CLOSED, 0, 0));
        }
    }

    /// Sends a record that waits for nothing but space. Refuses a rank to which more of them would
    /// wait than the rank can cause.
    fn control(&mut self, to: u32, words: [u64; 3]) {
        // The credit of a message returns behind the answer or request that it causes, and a send
        // of this rank that was given up is requested once.
        const CREDIT_RECORDS: u64 = 64;
        let most = 2 * self.credit / OFFER_CHARGE + CREDIT_RECORDS;
        let peer = &mut self.peers[to as usize];
        if peer.control.len() as u64 >= most {
            peer.refuse();
            return;
        }
        if peer.control.is_empty() && self.link.put(to, words, &[]) {
            self.link.publish();
            return;
        }
        peer.control.push_back(words);
        self.set_queued(to);
    }

    /// Returns credit of messages and of parts, as soon as there is enough of it.
    #[inline]
    fn return_credit(&mut self, to: u32, bytes: [u64; 2]) {
        if let Some([messages, parts]) = self.owe(to, bytes) {
            self.control(to, words_of(kind::CREDIT, messages, parts));
        }
    }
}

/// Returns true if there is a send of this number to the rank at a place.
fn is_to(sends: &Slab<PendingSend>, number: u64, place: u32) -> bool {
    sends.get(Key(number)).is_some_and(|send| send.to == place)
}
