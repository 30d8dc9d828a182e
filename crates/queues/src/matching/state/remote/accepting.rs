//! Accepting what arrives from ranks on other nodes.

use super::OFFER_CHARGE;
use crate::matching::error::MatchError;
use crate::matching::line::{INLINE_BYTES, Offer, words_of as inline_words};
use crate::matching::matcher::{Body, PostedState};
use crate::matching::outgoing::charge_of;
use crate::matching::remote::{
    RemoteArrival, RemoteExit, RemoteRecord, RemoteStream, envelope_of, kind, kind_of, words_of,
};
use crate::matching::slab::{Key, Slab};
use crate::matching::state::{OwnRecv, PendingSend, State};

impl State {
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
                // Not further than needed: messages stay in the receive ring until they are wanted.
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
    pub(super) fn refuse(&mut self, from: u32) {
        if let Some(remote) = &mut self.remote
            && let Some(peer) = remote.peers.get_mut(from as usize)
        {
            peer.refuse();
        }
    }

    /// Accepts a record. False if another thread must take it, with the buffer in its call.
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
            // The first reason stays: a rank that was refused for a corrupt record exits as well.
            peer.exit.get_or_insert(RemoteExit::Reported(why.into()));
            return Ok(true);
        }
        if peer.exit.is_some() {
            // Its earlier records were refused.
            return Ok(true);
        }
        remote.set_known(from);
        let charge = match kind_of(words) {
            kind::EAGER | kind::SYNCHRONOUS | kind::LONG => {
                charge_of(envelope_of(words).bytes as usize)
            }
            kind::OFFER => OFFER_CHARGE,
            _ => 0,
        };
        // A sender charges itself the same amount before it sends. A record beyond its credit shows
        // that it does not, and would let it fill this rank's memory.
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
                // The parts follow without another message between them. The highest bit
                // distinguishes the numbers of long messages from those of requested sends, which
                // share `arrivals`.
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
                    // A second request would queue the bytes twice.
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

    /// Accepts a message that the first record contains as a whole.
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
        // Does not underflow: `done` grows by checked lengths only.
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
            // Without a place for the bytes, another call takes them, or they are discarded.
            if let Some(mut sink) = found.sink(own) {
                remote.link.read(0, sink.place(done, bytes as u64));
            } else if matches!(found.body, Body::Direct) {
                return Ok(false);
            }
            if end == all {
                found.body = match std::mem::replace(&mut found.body, Body::Delivered) {
                    Body::Arriving { data, .. } => Body::Whole(data),
                    Body::Direct => Body::Delivered,
                    body => body,
                };
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
}

/// Returns true if there is a send of this number to the rank at a place.
fn is_to(sends: &Slab<PendingSend>, number: u64, place: u32) -> bool {
    sends.get(Key(number)).is_some_and(|send| send.to == place)
}
