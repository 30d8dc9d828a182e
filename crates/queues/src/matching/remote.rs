//! Ranks on other nodes, as a rank sees them: records that another process carries, or connections
//! of this one.
//!
//! | kind | words | bytes |
//! |---|---|---|
//! | `EAGER` | envelope | the message |
//! | `SYNCHRONOUS` | envelope, send | the message; its sender waits for an answer when it is matched |
//! | `LONG` | envelope, message | none; the message follows in parts |
//! | `OFFER` | envelope, send | none; the message stays with its sender until it is requested |
//! | `ANSWER` | send | none; the message has been matched, or is not wanted |
//! | `REQUEST` | send | none; the message must come, in parts |
//! | `PART` | message or send | the next bytes of the message |
//! | `LOST` | send | none; its sender could not read the rest of the message |
//! | `CREDIT` | bytes of messages, bytes of requested parts | none |
//! | `CLOSED` | | none; the sender receives nothing any more |
//!
//! **Two kinds of credit.** A message, or the offer of one, uses credit until it is matched, as on
//! one node. The parts of a requested message have a receive, so they never wait for one: their
//! credit returns as soon as the receiver has taken them from its receive ring, and bounds what the
//! receive ring and the network contain. With one kind, unexpected messages could hold back a
//! message that the receiver waits for.

use super::line::{Envelope, Kind, Line};
use super::slab::Key;
use crate::remote_waits::{RemoteDriver, RemoteWaits};
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest number of bytes of a record.
pub const REMOTE_RECORD_BYTES: usize = 32 << 10;

/// Credit of all senders on other nodes together, and limits of the credit of each, in bytes.
const ALL_CREDIT: u64 = 128 << 20;
const LEAST_CREDIT: u64 = 64 << 10;
const MOST_CREDIT: u64 = 4 << 20;

/// A record that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRecord {
    /// The sender, by its number among the remote ranks.
    pub from: u32,
    /// True if the sender is gone: the bytes are the reason.
    pub is_exit: bool,
    /// Words of a message.
    pub words: [u64; 3],
    /// Number of bytes.
    pub bytes: usize,
}

/// Transport of records between this rank and ranks on other nodes. The records from one rank to
/// another arrive in order, each once: through another process while both ranks compute, over
/// connections of this one as far as these hold them, and at intervals.
pub trait RemoteLink: Send + Debug {
    /// Puts a record for remote rank `to` behind those before; false if there is no space. Then the
    /// transport wakes the rank when there is.
    fn put(&mut self, to: u32, words: [u64; 3], bytes: &[u8]) -> bool;

    /// Returns true if there is space for records for remote rank `to` with these numbers of bytes,
    /// `count` of the first length and one of the second. The next records of this rank that are
    /// [put](Self::put) find it, whatever happens meanwhile.
    fn has_space(&mut self, to: u32, count: usize, bytes: usize, last: usize) -> bool;

    /// Passes what was put on to the transport.
    fn publish(&mut self);

    /// As [`publish`](Self::publish), for a message that may wait a moment for others to join it.
    fn publish_soon(&mut self) {
        self.publish();
    }

    /// Returns the first record that has arrived and was not released.
    fn first(&mut self) -> Option<RemoteRecord>;

    /// Reads bytes of the first record, from byte `at` on.
    fn read(&self, at: usize, into: &mut [u8]);

    /// Removes the first record.
    fn release(&mut self);

    /// Returns true if nothing can be sent or received any more.
    fn has_failed(&self) -> bool;

    /// Takes what has arrived, where this process does that itself: always if this call waits for
    /// it, otherwise now and then. Needs no call while a thread [drives](RemoteDriver::drive).
    /// Returns false if it has not looked.
    fn look(&mut self, is_awaited: bool) -> bool {
        let _ = is_awaited;
        false
    }

    /// Ends the sleep of another thread of this process that waits for what arrives: this one has
    /// taken it.
    fn wake(&self) {}

    /// Returns a number that changes whenever something leaves for remote rank `to`, if there are bytes
    /// that leave only when the rank reads; `None` if there are none.
    fn held_up(&self, to: u32) -> Option<u64> {
        let _ = to;
        None
    }

    /// Gives up what has not left for remote rank `to`, which reads nothing while this one leaves.
    fn give_up(&mut self, to: u32) {
        let _ = to;
    }
}

/// Manner in which threads of the rank wait for records.
#[derive(Clone, Debug)]
pub enum RemoteProgress {
    /// Another process carries the records, and wakes the threads.
    Process(Arc<dyn RemoteWaits>),
    /// The threads take the records from the connections of this process.
    Connections(Arc<dyn RemoteDriver>),
}

/// Ranks on other nodes, and the way to them.
#[derive(Debug)]
pub struct RemoteOptions {
    /// Number of remote ranks. The place of remote rank `r` among all ranks of an endpoint is the
    /// number of ranks of the node plus `r`.
    pub ranks: u32,
    /// Transport of the records.
    pub link: Box<dyn RemoteLink>,
    /// Manner of waiting.
    pub progress: RemoteProgress,
    /// Time after which the drop of the endpoint gives up a rank that reads nothing.
    pub leave_limit: Duration,
}

/// Reason why nothing follows from a remote rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteExit {
    /// The transport reports that the rank is gone, with these bytes.
    Reported(Box<[u8]>),
    /// The rank has sent what no rank sends.
    Invalid,
    /// Nothing can be sent to any remote rank any more, or received from one.
    LinkFailed,
}

/// Kinds of records. The numbers of those with an envelope are the same as in a ring.
pub(super) mod kind {
    pub(in super::super) const EAGER: u64 = super::Kind::Eager as u64;
    pub(in super::super) const SYNCHRONOUS: u64 = super::Kind::Synchronous as u64;
    pub(in super::super) const OFFER: u64 = super::Kind::Offer as u64;
    pub(in super::super) const ANSWER: u64 = super::Kind::Answer as u64;
    pub(in super::super) const REQUEST: u64 = super::Kind::Request as u64;
    pub(in super::super) const PART: u64 = super::Kind::Requested as u64;
    pub(in super::super) const LONG: u64 = 7;
    pub(in super::super) const LOST: u64 = 8;
    pub(in super::super) const CREDIT: u64 = 9;
    pub(in super::super) const CLOSED: u64 = 10;
}

const KIND_SHIFT: u32 = 60;

/// Returns the words of a record with an envelope.
#[inline]
pub(super) fn words_with(kind: u64, envelope: Envelope, number: u64) -> [u64; 3] {
    // Any kind: it is replaced.
    let Line { lead: [.., matched], last } = Line::new(Kind::Eager, envelope, [0; 6]);
    [matched, last & ((1 << KIND_SHIFT) - 1) | kind << KIND_SHIFT, number]
}

/// Returns the words of a record without an envelope: two numbers.
#[inline]
pub(super) fn words_of(kind: u64, number: u64, second: u64) -> [u64; 3] {
    [second, kind << KIND_SHIFT, number]
}

/// Returns the kind of a record.
#[inline]
pub(super) fn kind_of(words: [u64; 3]) -> u64 {
    words[1] >> KIND_SHIFT
}

/// Returns the envelope of a record.
#[inline]
pub(super) fn envelope_of(words: [u64; 3]) -> Envelope {
    Line { lead: [0, 0, 0, 0, 0, 0, words[0]], last: words[1] }.envelope()
}

/// A message that arrives in parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteArrival {
    pub(super) message: Key,
    pub(super) done: u64,
    pub(super) bytes: u64,
    /// It was requested, so its parts use the credit of parts.
    pub(super) is_requested: bool,
}

/// Bytes of a send that its receiver has requested.
#[derive(Debug)]
pub(super) struct RemoteStream {
    pub(super) send: Key,
    pub(super) done: u64,
}

/// Credit at a receiver.
#[derive(Debug, Default)]
pub(super) struct Credit {
    used: u64,
}

impl Credit {
    #[inline]
    pub(super) fn has(&self, bytes: u64, limit: u64) -> bool {
        self.used + bytes <= limit
    }

    #[inline]
    pub(super) fn take(&mut self, bytes: u64) {
        self.used += bytes;
    }

    pub(super) fn add(&mut self, bytes: u64) {
        // A number that no receiver sends permits nothing more than a longer queue there.
        self.used = self.used.saturating_sub(bytes);
    }
}

/// One remote rank.
#[derive(Debug, Default)]
pub(super) struct RemotePeer {
    /// Records about messages of the other rank, and credit. They wait for space only.
    pub(super) control: VecDeque<[u64; 3]>,
    /// Offers that wait for credit or space, in the order of the sends.
    pub(super) offers: VecDeque<[u64; 3]>,
    pub(super) streams: VecDeque<RemoteStream>,
    pub(super) is_queued: bool,
    /// Credit at the other rank, of messages and of parts.
    pub(super) messages: Credit,
    pub(super) parts: Credit,
    /// Credit of the other rank that was not returned yet.
    owed: [u64; 2],
    /// Messages of the other rank that arrive in parts, by their numbers there.
    pub(super) arrivals: HashMap<u64, RemoteArrival>,
    /// Message among them that arrives without a request: one at a time.
    pub(super) long: Option<u64>,
    /// There were messages in one of the two directions.
    pub(super) is_known: bool,
    pub(super) is_closed: bool,
    /// Credit that its messages hold here.
    held: u64,
    /// Why nothing follows from it.
    pub(super) exit: Option<RemoteExit>,
    /// Result of [`RemoteLink::held_up`], and the time of its last change.
    held_up: Option<(u64, Instant)>,
}

/// All remote ranks.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) link: Box<dyn RemoteLink>,
    pub(super) peers: Vec<RemotePeer>,
    /// Peers for which something is queued.
    pub(super) queued: Vec<u32>,
    /// Credit of a sender.
    pub(super) credit: u64,
    /// This rank receives nothing any more.
    pub(super) is_closed: bool,
    /// Number of the last message that was sent in parts without a request.
    long: u64,
}

impl Remote {
    pub(super) fn new(ranks: u32, link: Box<dyn RemoteLink>) -> Self {
        Remote {
            link,
            peers: (0..ranks).map(|_| RemotePeer::default()).collect(),
            queued: Vec::new(),
            credit: (ALL_CREDIT / u64::from(ranks.max(1))).clamp(LEAST_CREDIT, MOST_CREDIT),
            is_closed: false,
            long: 0,
        }
    }

    /// Returns a number for a message in parts. No send has it: the numbers of sends count the uses
    /// of their places in the upper half, and leave its highest bit 0.
    pub(super) fn next_long(&mut self) -> u64 {
        self.long += 1;
        1 << 63 | self.long
    }

    /// Notes that something is queued for a peer.
    pub(super) fn set_queued(&mut self, to: u32) {
        if !std::mem::replace(&mut self.peers[to as usize].is_queued, true) {
            self.queued.push(to);
        }
    }

    /// Returns the exit of a rank, if it has one of its own.
    pub(super) fn exit_of(&self, rank: u32) -> Option<RemoteExit> {
        self.peers.get(rank as usize)?.exit.clone()
    }

    /// Returns true if nothing follows from any rank. That takes a system call.
    pub(super) fn has_failed(&self) -> bool {
        self.link.has_failed()
    }

    /// Returns true if a rank may still receive.
    pub(super) fn receives(&self, rank: u32) -> bool {
        let peer = &self.peers[rank as usize];
        peer.exit.is_none() && !peer.is_closed && !self.has_failed()
    }

    /// Gives up the ranks for which nothing has left for a time, although their connections have
    /// something to send.
    pub(super) fn give_up_silent(&mut self, limit: Duration) {
        for (to, peer) in (0..).zip(&mut self.peers) {
            if peer.is_closed || peer.exit.is_some() {
                continue;
            }
            let found = self.link.held_up(to);
            match (peer.held_up, found) {
                (Some((before, since)), Some(found)) if before == found => {
                    if since.elapsed() >= limit {
                        peer.is_closed = true;
                        self.link.give_up(to);
                    }
                }
                _ => peer.held_up = found.map(|found| (found, Instant::now())),
            }
        }
    }

    /// Counts credit that a message of a rank holds; false if the rank has not so much.
    #[inline]
    pub(super) fn hold(&mut self, from: u32, bytes: u64) -> bool {
        let held = &mut self.peers[from as usize].held;
        *held += bytes;
        *held <= self.credit
    }

    /// Adds credit that is to be returned: of messages and of parts. Returns what is due.
    #[inline]
    pub(super) fn owe(&mut self, to: u32, bytes: [u64; 2]) -> Option<[u64; 2]> {
        let interval = self.credit / 4;
        let peer = &mut self.peers[to as usize];
        peer.held = peer.held.saturating_sub(bytes[0]);
        peer.owed[0] += bytes[0];
        peer.owed[1] += bytes[1];
        let is_due = peer.owed.iter().any(|owed| *owed >= interval);
        is_due.then(|| std::mem::take(&mut peer.owed))
    }

    /// Longest message that is sent without a request: a quarter of the credit may be on its way
    /// back.
    pub(super) fn longest(&self) -> u64 {
        self.credit - self.credit / 4 - 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::line::MAX_BYTES;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn words_survive(
            context: u32, tag: u32, bytes in 0..=MAX_BYTES, kind in 1..=10_u64, number: u64,
            second: u64,
        ) {
            let envelope = Envelope { context, tag, bytes };
            let words = words_with(kind, envelope, number);
            prop_assert_eq!((kind_of(words), envelope_of(words), words[2]), (kind, envelope, number));
            let words = words_of(kind, number, second);
            prop_assert_eq!((kind_of(words), words[2], words[0]), (kind, number, second));
        }
    }
}
