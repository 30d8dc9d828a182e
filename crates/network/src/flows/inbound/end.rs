//! One receiving end, and the flows that lead to it.

use crate::flows::ends::{Activity, End};
use crate::flows::memory::Charge;
use crate::transport::batches::Batches;
use crate::transport::records::flows::{Content, FlowId, FlowKind};
use queues::internode::{Announcement, Requested, Sink, SinkError};
use std::collections::BTreeSet;

/// A receiving end. Several nodes send to a queue, one to any other end.
#[derive(Debug)]
pub(in crate::flows) struct Inbound {
    /// Its [name](super::queue_name), if it is a queue. Its flows may end; it stays open.
    pub(in crate::flows) queue: Option<FlowId>,
    pub(in crate::flows) sink: Box<dyn Sink>,
    /// Sorted by their names.
    pub(super) flows: Vec<InboundFlow>,
    /// Index of the flow that is served first.
    next: usize,
    /// Bytes of a flow wait for space.
    pub(super) is_full: bool,
    /// Ranks of other nodes that have exited and from which nothing follows.
    pub(in crate::flows) exited: BTreeSet<u32>,
    /// A sending node was lost.
    pub(super) is_lost: bool,
    activity: Activity,
    /// Declared last: dropped when the sink is used no more.
    _charge: Option<Charge>,
}

/// A flow from another node.
#[derive(Debug)]
pub(super) struct InboundFlow {
    pub(super) id: FlowId,
    pub(super) node: u32,
    /// Bytes that have arrived, that the sink has taken, and of which the credit was returned.
    arrived: u64,
    put: u64,
    returned: u64,
    /// Bytes that wait for space, from `start` on. At most the credit.
    pub(super) kept: Vec<u8>,
    start: usize,
    /// Exits behind these.
    pub(super) exits: Vec<u32>,
    /// Nothing follows behind these.
    pub(super) has_ended: bool,
    /// Everything has been put, and nothing follows.
    pub(super) is_over: bool,
}

impl Inbound {
    /// An end to which these flows lead, each with its node.
    pub(in crate::flows) fn new(
        sink: Box<dyn Sink>,
        flows: impl IntoIterator<Item = (FlowId, u32)>,
        charge: Option<Charge>,
    ) -> Self {
        let mut flows: Vec<InboundFlow> =
            flows.into_iter().map(|(id, node)| InboundFlow::new(id, node)).collect();
        flows.sort_unstable_by_key(|flow| flow.id);
        Inbound {
            queue: None,
            sink,
            flows,
            next: 0,
            is_full: false,
            exited: BTreeSet::new(),
            is_lost: false,
            activity: Activity::default(),
            _charge: charge,
        }
    }

    /// Returns true if it is the end of commands on a window.
    pub(super) fn has_commands(&self) -> bool {
        self.flows.first().is_some_and(|flow| flow.id.kind == FlowKind::Commands)
    }

    /// Returns the index of an open flow of a node.
    pub(super) fn flow(&self, node: u32, id: &FlowId) -> Option<usize> {
        let at = self.flows.binary_search_by_key(id, |flow| flow.id).ok()?;
        let InboundFlow { node: of, has_ended, .. } = &self.flows[at];
        (*of == node && !has_ended).then_some(at)
    }

    /// Takes bytes that have arrived; false if they are refused.
    pub(super) fn deliver(&mut self, at: usize, bytes: &[u8], batches: &mut Batches) -> bool {
        self.activity.was_used = true;
        let Err(why) = self.take(at, bytes, batches) else { return true };
        self.refuse(at, why, batches);
        why == SinkError::Closed
    }

    fn take(&mut self, at: usize, bytes: &[u8], batches: &mut Batches) -> Result<(), SinkError> {
        let Inbound { sink, flows, is_full, .. } = self;
        let flow = &mut flows[at];
        flow.arrived += bytes.len() as u64;
        if flow.arrived - flow.returned > sink.credit() {
            return Err(SinkError::Invalid);
        }
        // What waits of other nodes comes first, too.
        let put = if *is_full { 0 } else { sink.put(bytes)? };
        flow.put += put as u64;
        if put < bytes.len() {
            flow.keep(&bytes[put..], sink.credit() as usize);
            *is_full = true;
        }
        flow.return_credit(&mut **sink, batches).map(drop)
    }

    /// Puts what has waited for space, as far as there is some, and returns credit. Returns true if
    /// there was any, or a flow was ended.
    pub(super) fn advance(&mut self, batches: &mut Batches, refused: &mut u64) -> bool {
        self.is_full = false;
        let mut had_any = false;
        let count = self.flows.len();
        let first = self.next.min(count);
        for at in (first..count).chain(0..first) {
            if self.flows[at].is_over {
                continue;
            }
            match self.flows[at].advance(&mut *self.sink, batches) {
                Ok((put, has_returned)) => {
                    if put > 0 {
                        // The others come first next time.
                        self.next = at + 1;
                    }
                    had_any |= put > 0 || has_returned;
                    self.is_full |= !self.flows[at].kept.is_empty();
                }
                Err(why) => {
                    *refused += u64::from(why == SinkError::Invalid);
                    self.refuse(at, why, batches);
                    had_any = true;
                }
            }
        }
        had_any
    }

    /// Ends a flow: its bytes are no messages, or the sink takes nothing any more. Nothing that
    /// follows is accepted, and its senders find the end closed.
    fn refuse(&mut self, at: usize, why: SinkError, batches: &mut Batches) {
        if why == SinkError::Invalid {
            self.sink.fail();
        }
        let InboundFlow { id, node, .. } = self.flows[at];
        id.append(Content::ReceiverClosed, batches.of(node));
        self.flows[at] = InboundFlow { has_ended: true, ..InboundFlow::new(id, node) };
    }

    /// Accounts for the exits and ends of flows of which the sink has everything. Returns true if
    /// none is left.
    pub(super) fn settle(&mut self) -> bool {
        let Inbound { sink, flows, exited, .. } = self;
        let had_any = flows.iter().any(|flow| !flow.is_over);
        for flow in flows.iter_mut().filter(|flow| flow.kept.is_empty()) {
            exited.extend(flow.exits.drain(..));
            flow.is_over = flow.has_ended;
        }
        let is_over = flows.iter().all(|flow| flow.is_over);
        // The end of a rank that has exited is its exit, and that of a lost node is its loss.
        if had_any && is_over && exited.is_empty() && !self.is_lost {
            sink.end();
        }
        is_over
    }

    /// Returns true if a flow of a node may still send.
    pub(super) fn is_open_to(&self, node: u32) -> bool {
        self.flows.iter().any(|flow| flow.node == node && !flow.is_over)
    }

    /// Ends the flows of a node that has ended. Returns true if none is left.
    pub(super) fn lose(&mut self, node: u32) -> bool {
        let of_node = self.flows.iter_mut().filter(|flow| flow.node == node);
        of_node.for_each(|flow| flow.has_ended = true);
        self.is_lost = true;
        self.settle()
    }

    /// Returns true if nothing follows from a rank of a node that has exited.
    pub(super) fn has_last_of(&self, node: u32, rank: u32) -> bool {
        !self.is_open_to(node) || self.exited.contains(&rank)
    }

    #[cfg(test)]
    pub(in crate::flows) fn held(&self) -> u64 {
        self.flows.iter().map(|flow| flow.arrived - flow.returned).sum()
    }

    #[cfg(test)]
    pub(in crate::flows) fn kept_capacity(&self) -> usize {
        self.flows.iter().map(|flow| flow.kept.capacity()).sum()
    }
}

impl End for Inbound {
    fn names(&self) -> impl Iterator<Item = FlowId> {
        self.flows.iter().map(|flow| flow.id).chain(self.queue)
    }

    fn rank(&self) -> Option<u32> {
        self.flows.first().map(|flow| flow.id.receiver)
    }

    fn announcement(&self) -> Announcement {
        self.sink.announcement()
    }

    fn request(&mut self) -> Requested {
        self.sink.request()
    }

    /// Does nothing: a pending request hides no space.
    fn withdraw(&mut self) {}

    fn is_busy(&self) -> bool {
        self.is_full
    }

    /// The caller has advanced the end after the barrier.
    fn may_rest(&mut self) -> bool {
        !self.is_full && self.sink.request() == Requested::Before
    }

    fn activity(&mut self) -> &mut Activity {
        &mut self.activity
    }
}

impl InboundFlow {
    fn new(id: FlowId, node: u32) -> Self {
        InboundFlow {
            id,
            node,
            arrived: 0,
            put: 0,
            returned: 0,
            kept: Vec::new(),
            start: 0,
            exits: Vec::new(),
            has_ended: false,
            is_over: false,
        }
    }

    /// Keeps bytes that wait for space. The caller has checked that they have credit.
    fn keep(&mut self, bytes: &[u8], credit: usize) {
        if self.kept.len() + bytes.len() > credit {
            self.kept.drain(..std::mem::take(&mut self.start));
        }
        if self.kept.capacity() == 0 {
            self.kept.reserve_exact(credit);
        }
        self.kept.extend_from_slice(bytes);
    }

    /// Puts kept bytes and returns credit. Returns the number of those bytes, and whether there was
    /// credit.
    fn advance(
        &mut self,
        sink: &mut dyn Sink,
        batches: &mut Batches,
    ) -> Result<(usize, bool), SinkError> {
        let mut put = 0;
        if !self.kept.is_empty() {
            put = sink.put(&self.kept[self.start..])?;
            self.start += put;
            self.put += put as u64;
            if self.start == self.kept.len() {
                self.kept = Vec::new();
                self.start = 0;
            }
        }
        Ok((put, self.return_credit(sink, batches)?))
    }

    /// Returns the credit of what was released, as soon as it is a quarter: at least one message
    /// always has some. Returns true if it was.
    fn return_credit(
        &mut self,
        sink: &mut dyn Sink,
        batches: &mut Batches,
    ) -> Result<bool, SinkError> {
        let released = sink.released(self.put)?;
        let owed = released.checked_sub(self.returned).ok_or(SinkError::Closed)?;
        let is_due = 4 * owed >= sink.credit() && !self.has_ended;
        if is_due {
            self.returned = released;
            self.id.append(Content::Credit(owed), batches.of(self.node));
        }
        Ok(is_due)
    }
}
