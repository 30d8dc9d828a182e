//! State of a rank's matched messages, behind one lock: the ends of its rings, its sends and its
//! receives.
//!
//! A thread writes into the buffer of its own receive only, during a call that borrows it. What
//! arrives for other receives is kept in memory of this module until their owners call. The bytes of
//! a send that has not been read are read again through the kernel, because the program may have
//! forgotten the request and freed the buffer.

mod arriving;
mod receiving;
mod remote;
mod sending;
#[cfg(test)]
mod tests;

use super::contexts::Contexts;
use super::error::MatchError;
use super::incoming::Incoming;
use super::line::{MessageHead, Offer};
use super::matcher::{Matcher, Posted, PostedState};
use super::memory::{Mailbox, RING_LINES, Ring, mailbox};
use super::outgoing::Outgoing;
use super::remote::{Remote, RemoteLink};
use super::slab::{Key, Slab};
use shm::arena::Arena;
use shm::mapped::Mapped;
use shm::process_memory::Guard;
use shm::segment::Offset;
use std::sync::Arc;

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
    /// Its receiver on another node has requested its bytes.
    is_requested: bool,
    guard: Guard,
    pub(super) is_complete: bool,
}

/// Result of the start of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartedSend {
    Complete,
    Pending(Key),
}

/// Result of the attempt to receive a message that is first in its ring.
#[derive(Debug)]
pub(super) enum FirstRecv {
    /// Nothing has arrived.
    Nothing,
    /// The receive must be posted: another message comes first.
    MustPost,
    /// The message is in the buffer.
    Complete(MessageHead),
    /// The receive is posted, and has matched a message of which lines are missing.
    Posted(Key),
}

/// Result of a poll of a receive.
#[derive(Debug)]
pub(super) enum PolledRecv {
    Pending,
    Complete(MessageHead),
    /// The caller reads the message from its sender's memory, without the lock, and reports it.
    Read(Key, Offer, MessageHead),
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
    /// Messages that it has been asked for and whose lines have not all arrived.
    requested: u32,
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
        Ok(mailbox(self.arena.segment(), self.mailbox_at(rank))?)
    }

    pub(super) fn mailbox_at(&self, rank: u32) -> Offset {
        Offset(self.mailboxes.0 + u64::from(rank) * size_of::<Mailbox>() as u64)
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
    /// Ranks on other nodes, if there are any.
    remote: Option<Box<Remote>>,
}

impl State {
    /// `remote` has the number of ranks on other nodes and the way to them.
    pub(super) fn new(
        layout: Arc<Layout>,
        remote: Option<(u32, Box<dyn RemoteLink>)>,
        contexts: Contexts,
    ) -> Result<Self, MatchError> {
        let places = layout.ranks + remote.as_ref().map_or(0, |(ranks, _)| *ranks);
        Ok(State {
            own: layout.mailbox(layout.rank)?,
            peers: (0..places).map(|_| Peer::default()).collect(),
            senders: Vec::new(),
            queued: Vec::new(),
            matcher: Matcher::new(places, contexts),
            sends: Slab::new(),
            guards: Vec::new(),
            unread: Vec::new(),
            chunk: Vec::new(),
            remote: remote.map(|(ranks, link)| Box::new(Remote::new(ranks, link))),
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

    /// Returns true if messages may come from ranks of this node.
    pub(super) fn has_local_senders(&self) -> bool {
        let own = &self.peers[self.layout.rank as usize];
        self.layout.ranks > 1 || own.outgoing.is_some()
    }

    /// Registers an operation that later lines complete: the rank polls for it in all its calls.
    #[inline]
    fn expect_lines(&self) {
        self.own.ring_doorbell();
    }

    #[cold]
    fn open_outgoing(&mut self, to: u32) -> Result<(), MatchError> {
        let receiver = self.layout.mailbox(to)?;
        let ring = Ring::create(&self.layout.arena, self.layout.rank, &receiver)?;
        self.peers[to as usize].outgoing = Some(Outgoing::new(ring, receiver, self.layout.credit));
        if let Some(remote) = self.remote.as_ref().filter(|_| to == self.layout.rank) {
            // A thread that waits for any rank may sleep at the connections: from now on a message
            // may come from this rank itself.
            remote.link.wake();
        }
        Ok(())
    }

    /// Polls once more if no operation is incomplete, and ends the polls of calls that wait for
    /// something else. Returns true if they go on.
    pub(super) fn settle(&mut self) -> Result<bool, MatchError> {
        if self.has_pending() {
            return Ok(true);
        }
        // The doorbell before the poll: a sender that finds its ring full after this poll sets it
        // again.
        self.own.silence_doorbell();
        self.progress(&mut None, &None)?;
        let has_pending = self.has_pending();
        if has_pending {
            self.expect_lines();
        }
        Ok(has_pending)
    }

    /// Returns true if an operation is not complete: later lines need this rank.
    pub(super) fn has_pending(&self) -> bool {
        !(self.matcher.posted.is_empty() && self.sends.is_empty() && self.queued.is_empty())
            || self.senders.iter().any(|sender| self.is_arriving_from(*sender))
            || self.has_pending_remote()
    }

    /// Returns true if lines of an operation that is not complete may come from ranks of this node.
    pub(super) fn has_pending_on_node(&self) -> bool {
        let is_near = |rank: u32| rank < self.layout.ranks;
        let receives = |posted: &Posted| {
            // A short message is there as a whole.
            let is_complete = matches!(posted.state, PostedState::Short(..));
            !is_complete && posted.pattern.source.is_none_or(is_near)
        };
        !self.queued.is_empty()
            || self.sends.values().any(|send| is_near(send.to) && !send.is_complete)
            || self.matcher.posted.values().any(receives)
            || self.senders.iter().any(|sender| self.is_arriving_from(*sender))
    }

    /// Returns true if a part of a message of a rank of this node has arrived.
    fn is_arriving_from(&self, sender: u32) -> bool {
        let incoming = self.peers[sender as usize].incoming.as_ref();
        incoming.is_some_and(|incoming| incoming.arrival.is_some())
    }

    /// Ends the receiving of messages, and reports that to the ranks that this rank has sent to.
    pub(super) fn close(&mut self) {
        // The mark before the wake-ups: a rank that waits in its own drop finds the mark in its
        // last poll, or is woken.
        self.own.set_draining();
        self.close_remote();
        self.peers.iter().filter_map(|peer| peer.outgoing.as_ref()).for_each(Outgoing::notify);
    }

    /// Returns true if sends of dropped requests wait for receivers that may still receive and have
    /// not `exited`.
    pub(super) fn has_unsent(&self, exited: impl Fn(u32) -> bool) -> bool {
        let receives = |to: u32| self.may_receive(to, &exited);
        self.sends.values().any(|pending| pending.is_dropped && receives(pending.to))
            || self.queued.iter().any(|to| receives(*to))
            || self.has_unsent_remote()
    }

    /// Returns true if other ranks may wait for this one to take what it has requested, also for
    /// receives that were dropped since.
    pub(super) fn has_requested(&self, exited: impl Fn(u32) -> bool) -> bool {
        let from = |sender: &&u32| self.peers[**sender as usize].requested > 0;
        self.senders.iter().filter(from).any(|sender| self.may_receive(*sender, &exited))
            || self.has_requested_remote()
    }

    /// Returns true if a rank that has not `exited` may still be in calls for messages. Once a rank
    /// drains it reads no message of this rank, and waits for no send to it. This rank itself drains
    /// when this is called.
    fn may_receive(&self, rank: u32, exited: &impl Fn(u32) -> bool) -> bool {
        if let Some(remote) = self.remote_rank(rank) {
            return self.remote_receives(remote);
        }
        let outgoing = self.peers[rank as usize].outgoing.as_ref();
        rank != self.layout.rank && !outgoing.is_some_and(Outgoing::is_closed) && !exited(rank)
    }

    /// Opens new rings, takes what has arrived in all rings, and continues what is queued.
    pub(super) fn progress(
        &mut self,
        recv: &mut Option<OwnRecv<'_>>,
        send: &Option<(Key, &[u8])>,
    ) -> Result<(), MatchError> {
        // A rank creates at most one ring to this one (`open_outgoing`), so each ring below is the
        // first from its sender.
        let mut next = self.own.take_new_rings();
        while next != super::ring_list::END {
            let (ring, sender, following) = Ring::open(self.layout.arena.segment(), next)?;
            // The number comes from shared memory. Places from `ranks` on belong to ranks on other
            // nodes.
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
        self.progress_remote(recv, send)?;
        // Last: the lines taken above may have queued answers and requested sends, which leave in
        // the same call.
        if self.queued.is_empty() { Ok(()) } else { self.flush(send) }
    }
}
