//! The receiving ends of flows.

mod end;

pub(super) use end::Inbound;

use super::ends::{End, Ends, Next};
use crate::transport::batches::Batches;
use crate::transport::records::flows::{Content, FlowId, FlowKind};
use std::collections::BTreeSet;

/// All receiving ends of a node.
#[derive(Debug, Default)]
pub(super) struct InboundFlows {
    pub(super) ends: Ends<Inbound>,
    /// Ranks of other nodes, of which a flow to a queue that is not open has reported the exit. They
    /// send nothing to a queue that is opened later, and that report is not repeated.
    exited: BTreeSet<u32>,
    /// Number of flows with kept bytes that were no messages.
    pub(super) refused: u64,
}

/// Returns the name of a queue itself. No rank sends to its own queue in a flow, so no flow has it.
pub(super) fn queue_name(owner: u32, port: u64) -> FlowId {
    FlowId { kind: FlowKind::Queue, sender: owner, receiver: owner, port }
}

impl InboundFlows {
    /// Adds a queue.
    pub(super) fn open_queue(&mut self, mut opened: Inbound) {
        opened.exited.extend(&self.exited);
        self.ends.insert(opened);
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
            let is_queue = id.kind == FlowKind::Queue;
            let is_open = is_queue && self.ends.contains(&queue_name(id.receiver, id.port));
            if let Content::Exit(rank) = content
                && is_queue
                && !is_open
            {
                // Bounded: the caller has checked that this is a rank of the node.
                self.exited.insert(rank);
            }
            return !is_open;
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
        let is_active = one.is_full || one.is_watched();
        let is_over = (one.flows[at].has_ended || !one.flows[at].exits.is_empty()) && one.settle();
        if is_over && one.queue.is_none() {
            self.ends.remove(number);
        } else if is_active {
            self.ends.activate(number);
        }
        is_valid
    }

    /// Puts what waits for space as far as there is some, and returns credit. Returns true if there
    /// was any, or a flow was ended.
    pub(super) fn advance(&mut self, batches: &mut Batches) -> bool {
        self.advance_where(|_| true, batches)
    }

    /// Returns the credit of the commands that were executed.
    pub(super) fn advance_commands(&mut self, batches: &mut Batches) {
        self.advance_where(Inbound::has_commands, batches);
    }

    fn advance_where(&mut self, is_due: impl Fn(&Inbound) -> bool, batches: &mut Batches) -> bool {
        let InboundFlows { ends, refused, .. } = self;
        let mut had_any = false;
        ends.poll_active(is_due, |one| {
            had_any |= one.advance(batches, refused);
            if one.settle() && one.queue.is_none() {
                Next::IsRemoved
            } else if one.is_full || one.is_watched() {
                Next::StaysActive
            } else {
                Next::BecomesInactive
            }
        });
        had_any
    }

    /// Closes the end of a flow, or a [queue](queue_name), of a rank of this node, and reports that
    /// to its senders.
    pub(super) fn close(&mut self, id: &FlowId, batches: &mut Batches) {
        let closed = self.remove(id);
        for flow in closed.iter().flat_map(|one| &one.flows).filter(|flow| !flow.is_over) {
            flow.id.append(Content::ReceiverClosed, batches.of(flow.node));
        }
    }

    /// Removes the end of a flow, without a report.
    pub(super) fn remove(&mut self, id: &FlowId) -> Option<Inbound> {
        self.ends.remove(self.ends.number(id)?)
    }

    /// Removes the ends with a name for which `is_over` returns true, without a report.
    pub(super) fn remove_where(&mut self, is_over: impl Fn(&FlowId) -> bool) {
        let over = self.ends.find(|one| one.names().any(|id| is_over(&id)));
        over.into_iter().for_each(|number| drop(self.ends.remove(number)));
    }

    /// Ends the flows of a node that has ended.
    pub(super) fn lose(&mut self, node: u32) {
        let of_node = self.ends.find(|one| one.is_open_to(node));
        for number in of_node {
            let Some(one) = self.ends.get_mut(number) else { continue };
            if one.lose(node) && one.queue.is_none() {
                self.ends.remove(number);
            }
        }
    }

    /// Returns true if nothing follows in a queue from a rank of a node that has exited.
    pub(super) fn has_last_of(&self, (owner, port): (u32, u64), node: u32, rank: u32) -> bool {
        let queue = self.ends.of(&queue_name(owner, port));
        queue.is_none_or(|one| one.has_last_of(node, rank))
    }
}
