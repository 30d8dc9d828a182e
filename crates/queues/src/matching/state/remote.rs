//! Messages with ranks on other nodes: see the table of records in `remote`.

mod accepting;
mod sending;

use super::State;
use crate::matching::error::MatchError;
use crate::matching::line::{Kind, Line};
use crate::matching::remote::{Remote, RemoteArrival, RemoteExit, RemotePeer, kind, words_of};
use crate::matching::slab::Key;
use std::time::Duration;

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

    /// Returns the exit of a remote rank, if it has one of its own.
    pub(in crate::matching) fn remote_exit(&self, rank: u32) -> Option<RemoteExit> {
        self.remote.as_ref()?.exit_of(rank)
    }

    /// Discards the messages of the rank at a place in a communicator.
    pub(in crate::matching) fn refuse_sender(
        &mut self,
        context: u32,
        place: u32,
    ) -> Result<(), MatchError> {
        self.matcher.refuse(context, place);
        self.discard_unwanted()
    }

    /// Returns true if nothing follows from any remote rank.
    pub(in crate::matching) fn remote_has_failed(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.has_failed())
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
        self.remote.as_ref().is_some_and(|remote| remote.receives(rank))
    }

    /// Takes what has arrived from other nodes, where this process does that itself; false if it
    /// has not looked.
    #[inline]
    pub(in crate::matching) fn look(&mut self, is_awaited: bool) -> bool {
        self.remote.as_mut().is_some_and(|remote| remote.link.look(is_awaited))
    }

    /// Gives up the remote ranks that have read nothing for a time, although there is something for
    /// them. For a rank that leaves.
    pub(in crate::matching) fn give_up_silent(&mut self, limit: Duration) {
        if let Some(remote) = &mut self.remote {
            remote.give_up_silent(limit);
        }
    }

    /// Returns true if something is queued for a remote rank that may still receive it.
    pub(super) fn has_unsent_remote(&self) -> bool {
        let queued = self.remote.iter().flat_map(|remote| &remote.queued);
        queued.copied().any(|to| self.remote_receives(to))
    }

    /// Returns true if a remote rank may wait for this one to take what it has requested.
    pub(super) fn has_requested_remote(&self) -> bool {
        let peers = self.remote.iter().flat_map(|remote| (0..).zip(&remote.peers));
        let mut requested =
            peers.filter(|(_, peer)| peer.arrivals.values().any(|arrival| arrival.is_requested));
        requested.any(|(from, _)| self.remote_receives(from))
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
    /// Notes that there are messages from or to a rank.
    #[inline]
    fn set_known(&mut self, rank: u32) {
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
