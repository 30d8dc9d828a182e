//! Queues of a node that lead to other nodes.

use super::{CREDIT, Charge};
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::frame::Frame;
use crate::transport::records::queues::{Content, HEAD_BYTES, Link, MAX_BYTES};
use queues::internode::{MAX_MESSAGE, OutgoingQueue};
use queues::one_poll::{Members, OnePoll, PollSet};
use std::collections::{BTreeSet, HashMap};

// A record contains at least one message, and a queue that has returned no credit yet may send one.
const _: () = assert!(MAX_MESSAGE <= MAX_BYTES && MAX_MESSAGE as u64 <= CREDIT - CREDIT / 4);

/// Place of an outgoing queue: its set, and its index there.
type Place = (usize, usize);

/// Outgoing queues of a node.
#[derive(Debug, Default)]
pub(super) struct OutgoingQueues {
    /// By number; `None` after it was closed.
    sets: Vec<Option<OutgoingSet>>,
    places: HashMap<Link, Place>,
    /// Queues with messages that wait for credit, for a shorter queue of their node, or behind an
    /// unpublished slot, and queues without senders. They are served without their bits.
    waiting: Vec<Place>,
}

/// A queue that leads to another node.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) link: Link,
    pub(super) node: u32,
    queue: Box<dyn OutgoingQueue>,
    /// Bytes that were sent and not taken yet.
    pub(super) in_flight: u64,
    is_waiting: bool,
    /// Its owner takes nothing any more, or its memory is damaged; then the owner's node has got the
    /// end of the link.
    has_ended: bool,
    /// Exits of ranks that may have sent what the queue contains.
    exits: Vec<u32>,
}

/// The outgoing queues of one port, which one rank has opened.
#[derive(Debug)]
struct OutgoingSet {
    poll: OnePoll,
    opener: u32,
    port: u64,
    /// Ranks of this node. Their exits are reported to the receivers.
    ranks: Vec<u32>,
    /// Those that may still send.
    senders: Vec<u32>,
    queues: Vec<Outgoing>,
    /// Of the opener. Declared last: dropped when the queues are used no more.
    charge: Charge,
}

/// Result of an attempt to send from an outgoing queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Some,
    Nothing,
    /// There are messages, and they wait for credit or a shorter queue of the node.
    Blocked,
    /// There are messages behind an unpublished slot, which further attempts void.
    Unpublished,
}

impl Outgoing {
    pub(super) fn new(link: Link, node: u32, queue: Box<dyn OutgoingQueue>) -> Self {
        Outgoing {
            link,
            node,
            queue,
            in_flight: 0,
            is_waiting: false,
            has_ended: false,
            exits: Vec::new(),
        }
    }

    fn can_send(&self, transport: &dyn Transport, limit: u64) -> bool {
        !self.has_ended
            && CREDIT - self.in_flight >= self.queue.longest() as u64
            && transport.queued(self.node) < limit
    }

    fn has_unsent(&self) -> bool {
        !self.has_ended && (!self.exits.is_empty() || self.queue.is_ready())
    }

    fn send(&mut self, batches: &mut Batches, transport: &mut dyn Transport, limit: u64) -> Sent {
        if self.has_ended {
            return Sent::Nothing;
        }
        // A damaged queue is ready, so what lies behind the damage is not taken for sent.
        if !self.queue.is_ready() {
            // Empty once since these exits, so everything that the ranks had sent is on its way.
            for rank in self.exits.drain(..) {
                self.link.append(Content::Exit(rank), batches.of(self.node));
            }
            return Sent::Nothing;
        }
        if !self.can_send(transport, limit) {
            return Sent::Blocked;
        }
        let batch = batches.of(self.node);
        let start = batch.len();
        batch.extend(self.link.head(0));
        let most = (CREDIT - self.in_flight).min(MAX_BYTES as u64) as usize;
        let taken = self.queue.take(most, batch);
        let bytes = batch.len() - start - HEAD_BYTES;
        if bytes == 0 {
            batch.truncate(start);
        } else {
            batch[start..start + HEAD_BYTES].copy_from_slice(&self.link.head(bytes));
            self.in_flight += bytes as u64;
        }
        if taken.is_err() {
            self.fail(batches);
        } else if bytes == 0 {
            return if self.queue.is_ready() { Sent::Unpublished } else { Sent::Nothing };
        }
        batches.send_long(self.node, transport, |records| Frame::Queues { records });
        if bytes > 0 { Sent::Some } else { Sent::Nothing }
    }

    /// Ends the link because its queue is damaged. Its senders find the queue closed, and the
    /// receiver waits for nothing that they have sent.
    fn fail(&mut self, batches: &mut Batches) {
        self.queue.close();
        self.link.append(Content::End, batches.of(self.node));
        self.end();
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.exits.clear();
    }
}

/// The members of a set, while their messages are sent.
struct Serving<'a> {
    queues: &'a mut [Outgoing],
    set: usize,
    waiting: &'a mut Vec<Place>,
    batches: &'a mut Batches,
    transport: &'a mut dyn Transport,
    limit: u64,
}

impl Members for Serving<'_> {
    type Item = ();

    fn take(&mut self, index: usize) -> Option<()> {
        let one = self.queues.get_mut(index)?;
        match one.send(self.batches, self.transport, self.limit) {
            Sent::Some => Some(()),
            Sent::Nothing => None,
            Sent::Blocked | Sent::Unpublished => {
                self.wait(index);
                None
            }
        }
    }

    fn is_ready(&mut self, index: usize) -> bool {
        // A queue that waits is served without its bit.
        let Some(one) = self.queues.get(index).filter(|one| !one.is_waiting) else {
            return false;
        };
        if one.has_ended || !one.queue.is_ready() {
            return false;
        }
        let can_send = one.can_send(self.transport, self.limit);
        if !can_send {
            // Its bit stays clear after this, and its senders may have found it set.
            self.wait(index);
        }
        can_send
    }
}

impl Serving<'_> {
    /// Schedules a queue without its bit.
    fn wait(&mut self, index: usize) {
        if !std::mem::replace(&mut self.queues[index].is_waiting, true) {
            self.waiting.push((self.set, index));
        }
    }
}

impl OutgoingQueues {
    /// Returns true if a rank has opened this port.
    pub(super) fn contains(&self, opener: u32, port: u64) -> bool {
        self.sets().any(|set| (set.opener, set.port) == (opener, port))
    }

    /// Adds the outgoing queues of a port, which are the members of a poll set in this order.
    /// `ranks` are those of this node that use them. The exits of those that have `exited` before
    /// are reported here, and those that have `left` send nothing.
    pub(super) fn open(
        &mut self,
        (opener, port): (u32, u64),
        set: &PollSet,
        mut queues: Vec<Outgoing>,
        ranks: Vec<u32>,
        (exited, left): (&BTreeSet<u32>, &BTreeSet<u32>),
        charge: Charge,
    ) {
        let set_at = self.sets.iter().position(Option::is_none).unwrap_or(self.sets.len());
        self.places.extend((0..).zip(&queues).map(|(index, one)| (one.link, (set_at, index))));
        let (exits, mut senders): (Vec<_>, Vec<_>) =
            ranks.iter().partition(|rank| exited.contains(rank));
        senders.retain(|rank| !left.contains(rank));
        queues.iter_mut().for_each(|one| one.exits.clone_from(&exits));
        let poll = OnePoll::new(set);
        let opened = OutgoingSet { poll, opener, port, ranks, senders, queues, charge };
        match self.sets.get_mut(set_at) {
            Some(free) => *free = Some(opened),
            None => self.sets.push(Some(opened)),
        }
        if !exits.is_empty() {
            self.check(set_at);
        }
    }

    fn sets(&self) -> impl Iterator<Item = &OutgoingSet> {
        self.sets.iter().flatten()
    }

    fn at(&mut self, link: &Link) -> Option<&mut Outgoing> {
        let (set, index) = *self.places.get(link)?;
        self.sets.get_mut(set)?.as_mut()?.queues.get_mut(index)
    }

    /// Sends what the queues contain, as far as there is credit, and nothing to a node with `limit`
    /// bytes in its queue.
    pub(super) fn serve(
        &mut self,
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
    ) {
        let OutgoingQueues { sets, waiting, .. } = self;
        for (set, index) in std::mem::take(waiting) {
            let Some(found) = sets.get_mut(set).and_then(Option::as_mut) else { continue };
            let Some(one) = found.queues.get_mut(index) else { continue };
            // Ends: credit bounds what is sent.
            let stopped = loop {
                match one.send(batches, transport, limit) {
                    Sent::Some => {}
                    other => break other,
                }
            };
            one.is_waiting = stopped != Sent::Nothing;
            if one.is_waiting {
                waiting.push((set, index));
            }
        }
        for (set, found) in sets.iter_mut().enumerate() {
            let Some(OutgoingSet { poll, queues, .. }) = found else { continue };
            let mut members = Serving { queues, set, waiting, batches, transport, limit };
            while poll.poll(&mut members).is_some() {}
        }
    }

    /// Closes the sets without senders from which everything was sent. Returns their openers.
    pub(super) fn close_unused(&mut self, batches: &mut Batches) -> Vec<(u32, Charge)> {
        let mut closed = Vec::new();
        let OutgoingQueues { sets, places, waiting } = self;
        for (number, found) in sets.iter_mut().enumerate() {
            let is_over = |set: &mut OutgoingSet| {
                set.senders.is_empty() && !set.queues.iter().any(Outgoing::has_unsent)
            };
            let Some(OutgoingSet { poll, opener, queues, charge, .. }) = found.take_if(is_over)
            else {
                continue;
            };
            for one in queues {
                places.remove(&one.link);
                if !one.has_ended {
                    one.link.append(Content::End, batches.of(one.node));
                }
            }
            waiting.retain(|(other, _)| *other != number);
            drop(poll);
            closed.push((opener, charge));
        }
        closed
    }

    /// Requests a notification of each set before the agent sleeps. Returns false if there is
    /// something to do.
    pub(super) fn arm(
        &mut self,
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
    ) -> bool {
        let OutgoingQueues { sets, waiting, .. } = self;
        let must_wait = |(set, index): &Place| {
            let one =
                sets.get(*set).and_then(Option::as_ref).and_then(|set| set.queues.get(*index));
            one.is_none_or(|one| !one.can_send(transport, limit) || !one.has_unsent())
        };
        if !waiting.iter().all(must_wait) {
            return false;
        }
        sets.iter_mut().enumerate().all(|(set, found)| {
            let Some(OutgoingSet { poll, queues, .. }) = found else { return true };
            let mut members = Serving { queues, set, waiting, batches, transport, limit };
            !poll.ask_for_event(&mut members)
        })
    }

    /// Looks at every queue in the next turn: a rank that was killed may have sent without a
    /// notification.
    pub(super) fn check_all(&mut self) {
        for number in 0..self.sets.len() {
            self.check(number);
        }
    }

    /// Looks at every queue of a set in the next turn.
    fn check(&mut self, number: usize) {
        let OutgoingQueues { sets, waiting, .. } = self;
        let queues = sets[number].iter_mut().flat_map(|set| &mut set.queues);
        for (index, one) in queues.enumerate() {
            if !std::mem::replace(&mut one.is_waiting, true) {
                waiting.push((number, index));
            }
        }
    }

    /// Notes that a rank of this node sends nothing more to the queues of a port. Returns false if
    /// the port is not open for the rank.
    pub(super) fn leave(&mut self, rank: u32, port: u64) -> bool {
        let mut is_open = false;
        for number in 0..self.sets.len() {
            let Some(set) = &mut self.sets[number] else { continue };
            if set.port != port || !set.ranks.contains(&rank) {
                continue;
            }
            is_open = true;
            set.senders.retain(|other| *other != rank);
            // Without senders no bit announces what is left to be found: a damaged queue.
            if set.senders.is_empty() {
                self.check(number);
            }
        }
        is_open
    }

    /// Reports the exit of a rank of this node behind what it has sent.
    pub(super) fn exit(&mut self, rank: u32) {
        for number in 0..self.sets.len() {
            let Some(set) = &mut self.sets[number] else { continue };
            // All of its ranks have ended their sends before: the end of the link follows.
            if !set.ranks.contains(&rank) || set.senders.is_empty() {
                continue;
            }
            set.senders.retain(|other| *other != rank);
            let open = set.queues.iter_mut().filter(|one| !one.has_ended);
            open.for_each(|one| one.exits.push(rank));
            self.check(number);
        }
    }

    /// Adds credit; false if the node has no right to grant it.
    pub(super) fn add_credit(&mut self, node: u32, link: &Link, bytes: u64) -> bool {
        // A link that was closed here may still get credit for its last messages.
        let Some(one) = self.at(link) else { return true };
        let is_valid = one.node == node && bytes <= one.in_flight;
        if is_valid {
            one.in_flight -= bytes;
        }
        is_valid
    }

    /// Closes the queue that leads to one that was closed; false if that is no queue of the node.
    pub(super) fn close(&mut self, node: u32, link: &Link) -> bool {
        let Some(one) = self.at(link) else { return true };
        let is_valid = one.node == node;
        if is_valid {
            one.end();
            one.queue.close();
        }
        is_valid
    }

    /// Ends the links to the queues of a rank of another node that takes nothing any more.
    pub(super) fn end(&mut self, rank: u32) {
        let sets = self.sets.iter_mut().flatten();
        let to_it = sets.flat_map(|set| &mut set.queues).filter(|one| one.link.queue.owner == rank);
        to_it.for_each(Outgoing::end);
    }

    /// Ends the links to a node that has ended.
    pub(super) fn lose(&mut self, node: u32) {
        let queues = self.sets.iter_mut().flatten().flat_map(|set| &mut set.queues);
        queues.filter(|one| one.node == node).for_each(Outgoing::end);
    }

    /// Returns true if there are messages, or reports behind messages, for a rank that may take
    /// them.
    pub(super) fn has_unsent(&self) -> bool {
        let is_open = |set: &OutgoingSet| {
            set.senders.is_empty() || set.queues.iter().any(Outgoing::has_unsent)
        };
        self.sets().any(is_open)
    }

    /// Polls the first queue of the first set, which is empty. Then `meanwhile` runs, and the poll
    /// looks once more. No other poll follows.
    #[cfg(test)]
    pub(super) fn first_step(
        &mut self,
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
        meanwhile: impl FnOnce(),
    ) {
        let OutgoingQueues { sets, waiting, .. } = self;
        let found = sets[0].as_mut().expect("it is open");
        let queues = &mut found.queues;
        let mut members = Serving { queues, set: 0, waiting, batches, transport, limit };
        assert!(members.take(0).is_none(), "it is empty");
        meanwhile();
        assert!(!members.is_ready(0), "there is no credit");
        while found.poll.poll(&mut Cleared).is_some() {}
    }

    #[cfg(test)]
    pub(super) fn queue(&mut self, link: Link) -> &mut Outgoing {
        self.at(&link).expect("it is open")
    }
}

/// Members that are always empty, so that a poll clears their bits.
#[cfg(test)]
struct Cleared;

#[cfg(test)]
impl Members for Cleared {
    type Item = ();

    fn take(&mut self, _: usize) -> Option<()> {
        None
    }

    fn is_ready(&mut self, _: usize) -> bool {
        false
    }
}
