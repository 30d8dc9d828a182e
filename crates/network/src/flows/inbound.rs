//! The receiving ends of flows.

mod end;

pub(super) use end::{Inbound, QueueName};

use super::ends::Ends;
use super::marks::{EndNumber, Resting};
use crate::transport::batches::Batches;
use crate::transport::records::flows::{Content, FlowId, FlowKind};
use queues::internode::{Announcement, Requested};
use std::collections::{BTreeSet, HashMap};

/// All receiving ends of a node.
#[derive(Debug, Default)]
pub(super) struct InboundFlows {
    ends: Ends<Inbound>,
    queues: HashMap<QueueName, usize>,
    /// Ends that are looked at in every turn.
    active: Vec<usize>,
    /// Ranks of other nodes, of which a flow to a queue that is not open has reported the exit. They
    /// send nothing to a queue that is opened later, and that report is not repeated.
    exited: BTreeSet<u32>,
    /// Number of flows with kept bytes that were no messages.
    pub(super) refused: u64,
}

impl InboundFlows {
    pub(super) fn contains(&self, id: &FlowId) -> bool {
        self.ends.number(id).is_some()
    }

    /// Returns true if a queue is open.
    pub(super) fn has_queue(&self, queue: QueueName) -> bool {
        self.queues.contains_key(&queue)
    }

    /// Adds an end.
    pub(super) fn open(&mut self, opened: Inbound) {
        let (names, is_watched) = (opened.names(), opened.is_watched());
        let number = self.ends.insert(names, opened);
        if is_watched {
            self.activate(number);
        }
    }

    /// Adds a queue.
    pub(super) fn open_queue(&mut self, queue: QueueName, mut opened: Inbound) {
        opened.queue = Some(queue);
        opened.exited.extend(&self.exited);
        let number = self.ends.insert(opened.names(), opened);
        self.queues.insert(queue, number);
    }

    /// Looks at an end in every turn.
    pub(super) fn activate(&mut self, number: usize) {
        if let Some(one) = self.ends.get_mut(number)
            && !std::mem::replace(&mut one.is_active, true)
        {
            self.active.push(number);
        }
    }

    /// Processes what a node has sent to the receiver of a flow; false if it may not send it. What
    /// arrives for an end that was closed is lost.
    pub(super) fn receive(
        &mut self,
        node: u32,
        id: FlowId,
        content: Content<'_>,
        batches: &mut Batches,
    ) -> bool {
        let Some(number) = self.ends.number(&id) else {
            let has_queue = id.kind == FlowKind::Queue && self.has_queue((id.receiver, id.port));
            if let Content::Exit(rank) = content
                && id.kind == FlowKind::Queue
                && !has_queue
            {
                // Bounded: the caller has checked that this is a rank of the node.
                self.exited.insert(rank);
            }
            return !has_queue;
        };
        let Some(one) = self.ends.get_mut(number) else { return true };
        let Some(at) = one.flow(node, &id) else { return false };
        let is_valid = match content {
            Content::Data(bytes) => one.deliver(at, bytes, batches),
            Content::Exit(rank) => {
                // A node that repeats itself takes no memory.
                if !one.flows[at].exits.contains(&rank) {
                    one.flows[at].exits.push(rank);
                }
                true
            }
            Content::SenderClosed => {
                one.flows[at].has_ended = true;
                true
            }
            Content::Credit(_) | Content::ReceiverClosed => false,
        };
        let is_watched = one.is_full || one.is_watched();
        let is_over = (one.flows[at].has_ended || !one.flows[at].exits.is_empty()) && one.settle();
        if is_over && one.queue.is_none() {
            self.remove(number);
        } else if is_watched {
            self.activate(number);
        }
        is_valid
    }

    /// Puts what waits for space as far as there is some, and returns credit. Returns true if there
    /// was any, or a flow was ended.
    pub(super) fn advance(&mut self, batches: &mut Batches) -> bool {
        let mut had_any = false;
        for number in std::mem::take(&mut self.active) {
            let Some(one) = self.ends.get_mut(number) else { continue };
            had_any |= one.advance(batches, &mut self.refused);
            let is_over = one.settle() && one.queue.is_none();
            one.is_active = one.is_full || one.is_watched();
            if is_over {
                self.remove(number);
            } else if one.is_active {
                self.active.push(number);
            }
        }
        had_any
    }

    /// Closes a queue of a rank of this node, and reports that to its senders.
    pub(super) fn close_queue(&mut self, queue: QueueName, batches: &mut Batches) {
        if let Some(number) = self.queues.get(&queue).copied() {
            self.close(number, batches);
        }
    }

    /// Closes the end of a flow, and reports that.
    pub(super) fn close_flow(&mut self, id: &FlowId, batches: &mut Batches) {
        if let Some(number) = self.ends.number(id) {
            self.close(number, batches);
        }
    }

    fn close(&mut self, number: usize, batches: &mut Batches) {
        let closed = self.remove(number);
        for flow in closed.iter().flat_map(|one| &one.flows).filter(|flow| !flow.is_over) {
            flow.id.append(Content::ReceiverClosed, batches.of(flow.node));
        }
    }

    fn remove(&mut self, number: usize) -> Option<Inbound> {
        let names = self.ends.get(number)?.names();
        let removed = self.ends.remove(number, &names)?;
        if let Some(queue) = removed.queue {
            self.queues.remove(&queue);
        }
        if removed.is_active {
            self.active.retain(|other| *other != number);
        }
        Some(removed)
    }

    /// Removes the end of a flow, without a report.
    pub(super) fn remove_flow(&mut self, id: &FlowId) {
        if let Some(number) = self.ends.number(id) {
            self.remove(number);
        }
    }

    /// Removes the ends with a flow for which `is_over` returns true, without a report.
    pub(super) fn remove_where(&mut self, is_over: impl Fn(&FlowId) -> bool) {
        let over = self.ends.iter_mut().filter(|(_, one)| one.names().iter().any(&is_over));
        let over: Vec<usize> = over.map(|(number, _)| number).collect();
        over.into_iter().for_each(|number| drop(self.remove(number)));
    }

    /// Closes the ends of a rank that has exited, which every node learns.
    pub(super) fn exit(&mut self, rank: u32) {
        let queues = self.queues.iter().filter(|((owner, _), _)| *owner == rank);
        let queues: Vec<usize> = queues.map(|(_, number)| *number).collect();
        queues.into_iter().for_each(|number| drop(self.remove(number)));
        self.remove_where(|id| id.receiver == rank);
    }

    /// Ends the flows of a node that has ended.
    pub(super) fn lose(&mut self, node: u32) {
        let mut over = Vec::new();
        for (number, one) in self.ends.iter_mut() {
            let mut is_lost = false;
            for flow in one.flows.iter_mut().filter(|flow| flow.node == node && !flow.is_over) {
                flow.has_ended = true;
                is_lost = true;
            }
            one.is_lost |= is_lost;
            if is_lost && one.settle() && one.queue.is_none() {
                over.push(number);
            }
        }
        over.into_iter().for_each(|number| drop(self.remove(number)));
    }

    /// Requests notifications of space before the agent sleeps, and passes the result of each to
    /// `count`.
    pub(super) fn request(&mut self, mut count: impl FnMut(Requested)) {
        for number in &self.active {
            if let Some(one) = self.ends.get_mut(*number) {
                count(one.sink.request());
            }
        }
    }

    /// Returns true if an end is looked at without a notification.
    pub(super) fn is_watching(&self) -> bool {
        self.active.iter().any(|number| self.ends.get(*number).is_some_and(Inbound::is_watched))
    }

    /// Returns the active ends that may rest; if `unused`, those without traffic since the last call
    /// with it.
    pub(super) fn may_rest(&mut self, unused: bool) -> Vec<Resting> {
        let mut all = Vec::new();
        for number in &self.active {
            let Some(one) = self.ends.get_mut(*number) else { continue };
            let was_used = unused && std::mem::take(&mut one.was_used);
            if let Announcement::Marked(at) = one.sink.announcement()
                && let Some(flow) = one.flows.first()
                && !was_used
                && !one.is_full
            {
                let rank = flow.id.receiver;
                all.push(Resting { end: EndNumber::Sink(*number), rank, at });
            }
        }
        all
    }

    /// Requests a notification of an end; false if there will be none.
    pub(super) fn request_of(&mut self, number: usize) -> bool {
        let one = self.ends.get_mut(number);
        one.is_some_and(|one| one.sink.request() != Requested::Refused)
    }

    /// Returns true if an end rests: the caller has [advanced](Self::advance) all ends after the
    /// barrier, and its request has not been served.
    pub(super) fn rest(&mut self, number: usize) -> bool {
        let Some(one) = self.ends.get_mut(number) else { return false };
        let rests = !one.is_full && one.sink.request() == Requested::Before;
        one.is_active = !rests;
        rests
    }

    /// Forgets the ends that are no longer active.
    pub(super) fn sort_out(&mut self) {
        let ends = &self.ends;
        self.active.retain(|number| ends.get(*number).is_some_and(|one| one.is_active));
    }

    /// Credit of the end of a flow.
    #[cfg(test)]
    pub(super) fn credit(&self, id: &FlowId) -> u64 {
        let one = self.ends.number(id).and_then(|number| self.ends.get(number));
        one.map_or(0, |one| one.sink.credit())
    }

    /// Number of ends that are looked at in every turn.
    #[cfg(test)]
    pub(super) fn active(&self) -> usize {
        self.active.len()
    }

    /// Bytes for which a queue has returned no credit.
    #[cfg(test)]
    pub(super) fn held(&self, queue: QueueName) -> u64 {
        self.queues.get(&queue).and_then(|number| self.ends.get(*number)).map_or(0, Inbound::held)
    }

    #[cfg(test)]
    pub(super) fn kept_capacity(&self) -> usize {
        self.ends.values().map(Inbound::kept_capacity).sum()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.ends.values().next().is_none() && self.active.is_empty()
    }

    /// Returns true if nothing follows in a queue from a rank of a node that has exited.
    pub(super) fn has_last_of(&self, queue: QueueName, node: u32, rank: u32) -> bool {
        let open = self.queues.get(&queue).and_then(|number| self.ends.get(*number));
        open.is_none_or(|one| one.has_last_of(node, rank))
    }
}
