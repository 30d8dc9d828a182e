//! Queues of a node's ranks that receive from other nodes.

use super::{CREDIT, Charge};
use crate::transport::batches::Batches;
use crate::transport::records::queues::{Content, Link, QueueId};
use queues::internode::{IncomingError, IncomingQueue};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Credit that is returned at once: at least one message always has some.
const RETURNED: u64 = CREDIT / 4;

/// Receive queues of the ranks of a node.
#[derive(Debug, Default)]
pub(super) struct IncomingQueues {
    queues: HashMap<QueueId, Incoming>,
    /// Queues with messages that wait for space.
    full: Vec<QueueId>,
    /// Ranks of other nodes, of which a link to a queue that is not open has reported the exit. They
    /// send nothing to a queue that is opened later, and that report is not repeated.
    exited: BTreeSet<u32>,
    /// Number of links with kept bytes that were no messages.
    pub(super) refused: u64,
}

/// A node has sent bytes that are no messages.
#[derive(Clone, Copy, Debug)]
struct NoMessages;

/// A queue of a rank of this node.
#[derive(Debug)]
struct Incoming {
    queue: Box<dyn IncomingQueue>,
    /// Admitted links, by opener, a rank of another node.
    senders: BTreeMap<u32, SenderNode>,
    /// Ranks of other nodes that have exited and from which nothing follows.
    exited: BTreeSet<u32>,
    /// A sending node was lost.
    is_lost: bool,
    /// Opener that is served first.
    next: u32,
    /// Messages of a node wait for space.
    is_full: bool,
    /// Declared last: dropped when the queue is used no more.
    charge: Charge,
}

/// One link to a queue: the messages of its node that wait, and their credit.
#[derive(Debug)]
struct SenderNode {
    node: u32,
    /// Bytes for which credit was not returned: those kept and those owed.
    held: u64,
    /// Messages that wait for space, from `start` on. At most the credit.
    kept: Vec<u8>,
    start: usize,
    /// Exits behind these.
    exits: Vec<u32>,
    /// Nothing follows behind these.
    has_ended: bool,
}

impl IncomingQueues {
    /// Opens a queue that admits the links of these openers, each with its node. Ranks that have
    /// `exited` before send nothing to it.
    pub(super) fn open(
        &mut self,
        id: QueueId,
        queue: Box<dyn IncomingQueue>,
        openers: impl Iterator<Item = (u32, u32)>,
        mut exited: BTreeSet<u32>,
        charge: Charge,
    ) {
        exited.extend(&self.exited);
        let senders = openers.map(|(opener, node)| (opener, SenderNode::of(node))).collect();
        let opened =
            Incoming { queue, senders, exited, is_lost: false, next: 0, is_full: false, charge };
        self.queues.insert(id, opened);
    }

    /// Returns true if the queue is open.
    pub(super) fn contains(&self, id: QueueId) -> bool {
        self.queues.contains_key(&id)
    }

    /// Closes a queue, and reports that to its senders.
    pub(super) fn close(&mut self, id: QueueId, batches: &mut Batches) -> Option<Charge> {
        let Incoming { queue, senders, charge, .. } = self.queues.remove(&id)?;
        for (opener, SenderNode { node, .. }) in senders {
            Link { queue: id, opener }.append(Content::Closed, batches.of(node));
        }
        drop(queue);
        self.full.retain(|other| *other != id);
        Some(charge)
    }

    /// Closes the queues of a rank that has exited, which every node learns.
    pub(super) fn close_all(&mut self, rank: u32) {
        self.queues.retain(|id, _| id.owner != rank);
        self.full.retain(|id| id.owner != rank);
    }

    /// Delivers messages; false if they are refused.
    pub(super) fn deliver(
        &mut self,
        node: u32,
        link: Link,
        bytes: &[u8],
        batches: &mut Batches,
    ) -> bool {
        // Messages for a queue that was closed are lost.
        let Some(incoming) = self.queues.get_mut(&link.queue) else { return true };
        let Incoming { queue, senders, is_full, .. } = &mut *incoming;
        let Some(sender) = admitted(senders, node, link.opener) else { return false };
        if sender.held + bytes.len() as u64 > CREDIT {
            return false;
        }
        sender.held += bytes.len() as u64;
        // The messages of other nodes that wait come first, too.
        if *is_full {
            sender.keep(bytes);
            return true;
        }
        let Ok(taken) = put(&mut **queue, bytes) else {
            sender.refuse(link, batches);
            incoming.settle();
            return false;
        };
        if taken < bytes.len() {
            // Nothing was kept before: the queue was not full.
            sender.keep(&bytes[taken..]);
            *is_full = true;
            self.full.push(link.queue);
        }
        sender.return_credit(link, batches);
        true
    }

    /// Notes the exit of a rank of another node, behind what it has sent; false if the node has no
    /// right to report it.
    pub(super) fn exit(&mut self, node: u32, link: Link, rank: u32) -> bool {
        let Some(queue) = self.queues.get_mut(&link.queue) else {
            // Bounded: the caller has checked that this is a rank of the node.
            self.exited.insert(rank);
            return true;
        };
        let Some(sender) = admitted(&mut queue.senders, node, link.opener) else {
            return false;
        };
        // A node that repeats itself takes no memory.
        if !sender.exits.contains(&rank) {
            sender.exits.push(rank);
        }
        queue.settle();
        true
    }

    /// Notes that nothing follows on a link; false if it is no link of the node.
    pub(super) fn end(&mut self, node: u32, link: Link) -> bool {
        let Some(queue) = self.queues.get_mut(&link.queue) else { return true };
        let Some(sender) = admitted(&mut queue.senders, node, link.opener) else {
            return false;
        };
        sender.has_ended = true;
        queue.settle();
        true
    }

    /// Ends the links of a node that has ended.
    pub(super) fn lose(&mut self, node: u32) {
        for queue in self.queues.values_mut() {
            let ended = queue.senders.values_mut().filter(|sender| sender.node == node);
            for sender in ended {
                sender.has_ended = true;
                queue.is_lost = true;
            }
            queue.settle();
        }
    }

    /// Returns true if nothing follows in a queue from a rank of a node that has exited.
    pub(super) fn has_last_of(&self, id: QueueId, node: u32, rank: u32) -> bool {
        self.queues.get(&id).is_none_or(|queue| {
            let has_link = queue.senders.values().any(|sender| sender.node == node);
            !has_link || queue.exited.contains(&rank)
        })
    }

    /// Sends kept messages to their queues, as far as these have space. Returns true if there was
    /// any space, or a link was ended.
    pub(super) fn retry(&mut self, batches: &mut Batches) -> bool {
        let mut had_any = false;
        let IncomingQueues { full, queues, refused, .. } = self;
        full.retain(|id| {
            let Some(queue) = queues.get_mut(id) else { return false };
            had_any |= queue.retry(*id, batches, refused);
            queue.settle();
            queue.is_full
        });
        had_any
    }

    /// Requests notifications before the agent sleeps. Returns true if a queue is full: then the
    /// caller [retries](Self::retry) once more.
    pub(super) fn request_space(&self) -> bool {
        let full = self.full.iter().filter_map(|id| self.queues.get(id));
        full.clone().for_each(|one| one.queue.request_space());
        let is_any_full = full.count() > 0;
        if is_any_full {
            // Receivers release slots by plain stores. Pairs with their light fence.
            shm::fence::heavy();
        }
        is_any_full
    }

    #[cfg(test)]
    pub(super) fn held(&self, id: QueueId) -> u64 {
        self.queues[&id].senders.values().map(|sender| sender.held).sum()
    }

    #[cfg(test)]
    pub(super) fn kept_capacity(&self) -> usize {
        let senders = self.queues.values().flat_map(|one| one.senders.values());
        senders.map(|sender| sender.kept.capacity()).sum()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.full.is_empty()
    }
}

impl Incoming {
    fn retry(&mut self, id: QueueId, batches: &mut Batches, refused: &mut u64) -> bool {
        let Incoming { queue, senders, next, is_full, .. } = self;
        *is_full = false;
        let mut had_any = false;
        let (before, after): (Vec<_>, Vec<_>) = senders
            .iter_mut()
            .filter(|(_, sender)| !sender.kept.is_empty())
            .partition(|(opener, _)| **opener < *next);
        for (opener, sender) in after.into_iter().chain(before) {
            let waiting = &sender.kept[sender.start..];
            let link = Link { queue: id, opener: *opener };
            let Ok(taken) = put(&mut **queue, waiting) else {
                *refused += 1;
                sender.refuse(link, batches);
                had_any = true;
                continue;
            };
            if taken > 0 {
                // The others come first next time.
                *next = *opener + 1;
            }
            had_any |= taken > 0;
            sender.start += taken;
            if sender.start == sender.kept.len() {
                sender.kept = Vec::new();
                sender.start = 0;
            } else {
                *is_full = true;
            }
            sender.return_credit(link, batches);
        }
        had_any
    }

    /// Accounts for the exits and ends of senders whose messages the queue has taken.
    fn settle(&mut self) {
        let Incoming { queue, senders, exited, .. } = self;
        let had_senders = !senders.is_empty();
        senders.retain(|_, sender| {
            if !sender.kept.is_empty() {
                return true;
            }
            exited.extend(sender.exits.drain(..));
            !sender.has_ended
        });
        // The end of a rank that has exited is its exit, and that of a lost node is its loss.
        if had_senders && senders.is_empty() && exited.is_empty() && !self.is_lost {
            queue.end();
        }
    }
}

/// Sends messages to a queue, as far as it has space. A queue that takes nothing any more loses its
/// messages, as one of a rank that has exited. Returns the number of bytes that need no space any
/// more.
fn put(queue: &mut dyn IncomingQueue, bytes: &[u8]) -> Result<usize, NoMessages> {
    match queue.put(bytes) {
        Ok(taken) => Ok(taken),
        Err(IncomingError::Invalid) => Err(NoMessages),
        Err(_) => Ok(bytes.len()),
    }
}

/// Returns the state of an opener's link, if it is admitted and a link of the node.
fn admitted(
    senders: &mut BTreeMap<u32, SenderNode>,
    node: u32,
    opener: u32,
) -> Option<&mut SenderNode> {
    let sender = senders.get_mut(&opener)?;
    (sender.node == node && !sender.has_ended).then_some(sender)
}

impl SenderNode {
    fn of(node: u32) -> Self {
        SenderNode {
            node,
            held: 0,
            kept: Vec::new(),
            start: 0,
            exits: Vec::new(),
            has_ended: false,
        }
    }

    /// Ends the link of a node that has sent something else than messages: nothing that follows is
    /// accepted, and its senders find the queue closed.
    fn refuse(&mut self, link: Link, batches: &mut Batches) {
        link.append(Content::Closed, batches.of(self.node));
        *self = SenderNode { has_ended: true, ..SenderNode::of(self.node) };
    }

    /// Keeps messages that wait for space. The caller has checked that they have credit.
    fn keep(&mut self, bytes: &[u8]) {
        if self.kept.len() + bytes.len() > CREDIT as usize {
            self.kept.drain(..std::mem::take(&mut self.start));
        }
        if self.kept.capacity() == 0 {
            self.kept.reserve_exact(CREDIT as usize);
        }
        self.kept.extend_from_slice(bytes);
    }

    /// Returns credit for what the queue has taken, as soon as there is enough of it.
    fn return_credit(&mut self, link: Link, batches: &mut Batches) {
        let owed = self.held - (self.kept.len() - self.start) as u64;
        if owed >= RETURNED && !self.has_ended {
            self.held -= owed;
            link.append(Content::Credit(owed), batches.of(self.node));
        }
    }
}
