//! The sending ends of flows.

mod end;

pub(super) use end::{Outbound, frame};

use super::ends::{End, Ends, Next};
use super::memory::Charge;
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::records::flows::{FlowId, FlowKind};
use end::Sent;
use queues::one_poll::{Members, OnePoll, PollSet};
use std::collections::BTreeSet;

/// The sources of a port, which one rank has opened for the ranks of its node.
#[derive(Debug)]
struct SourceSet {
    poll: OnePoll,
    opener: u32,
    port: u64,
    /// Ranks of this node. Their exits are reported to the receivers.
    ranks: Vec<u32>,
    /// Those that may still send.
    senders: Vec<u32>,
    members: Vec<usize>,
    /// Of the opener. Declared last: dropped when the sources are used no more.
    _charge: Charge,
}

/// All sending ends of a node. The members of a set are served as it announces them.
#[derive(Debug, Default)]
pub(super) struct OutboundFlows {
    pub(super) ends: Ends<Outbound>,
    /// By number; `None` after it was closed.
    sets: Vec<Option<SourceSet>>,
}

/// The members of a set, while their messages are sent.
struct Serving<'a> {
    ends: &'a mut Ends<Outbound>,
    members: &'a [usize],
    batches: &'a mut Batches,
    transport: &'a mut dyn Transport,
    limit: u64,
}

impl Members for Serving<'_> {
    type Item = ();

    fn take(&mut self, index: usize) -> Option<()> {
        let number = *self.members.get(index)?;
        match self.ends.get_mut(number)?.send(self.batches, self.transport, self.limit) {
            Sent::Some => return Some(()),
            Sent::Blocked => self.ends.activate(number),
            Sent::Nothing | Sent::Ended => {}
        }
        None
    }

    fn is_ready(&mut self, index: usize) -> bool {
        let Some(number) = self.members.get(index).copied() else { return false };
        let Some(one) = self.ends.get(number) else { return false };
        // One that is polled in every turn is served without its bit.
        if one.activity.is_active || one.has_ended || !one.source.is_ready() {
            return false;
        }
        let can_send = one.can_send(self.transport, self.limit);
        if !can_send {
            // Its bit stays clear after this, and its senders may have found it set.
            self.ends.activate(number);
        }
        can_send
    }
}

impl OutboundFlows {
    /// Returns true if a rank has opened the sources of this port.
    pub(super) fn has_set(&self, opener: u32, port: u64) -> bool {
        self.sets.iter().flatten().any(|set| (set.opener, set.port) == (opener, port))
    }

    /// Adds the sources of a port, which are the members of a poll set in this order, for `ranks` of
    /// this node. The exits of those that have `exited` before are reported here, and those that have
    /// `left` send nothing.
    pub(super) fn open_set(
        &mut self,
        (opener, port): (u32, u64),
        set: &PollSet,
        sources: Vec<Outbound>,
        ranks: Vec<u32>,
        (exited, left): (&BTreeSet<u32>, &BTreeSet<u32>),
        charge: Charge,
    ) {
        let number = self.sets.iter().position(Option::is_none).unwrap_or(self.sets.len());
        let own = ranks.iter().copied();
        let exits: Vec<u32> = own.clone().filter(|rank| exited.contains(rank)).collect();
        let has_left = |rank: &u32| exited.contains(rank) || left.contains(rank);
        let senders: Vec<u32> = own.filter(|rank| !has_left(rank)).collect();
        let is_closing = senders.is_empty();
        let mut join = |one| {
            let one = Outbound { set: Some(number), exits: exits.clone(), is_closing, ..one };
            self.ends.insert(one)
        };
        let members: Vec<usize> = sources.into_iter().map(&mut join).collect();
        if !exits.is_empty() || is_closing {
            members.iter().for_each(|member| self.ends.activate(*member));
        }
        let poll = OnePoll::new(set);
        let opened = SourceSet { poll, opener, port, ranks, senders, members, _charge: charge };
        match self.sets.get_mut(number) {
            Some(free) => *free = Some(opened),
            None => self.sets.push(Some(opened)),
        }
    }

    /// Polls every member of a set in the next turn: a rank that was killed may have sent without a
    /// notification.
    pub(super) fn check_all(&mut self) {
        let members = self.sets.iter().flatten().flat_map(|set| &set.members);
        members.for_each(|member| self.ends.activate(*member));
    }

    /// Sends what the sources contain, as far as there is credit, and nothing to a node with `limit`
    /// bytes in its queue.
    pub(super) fn serve(
        &mut self,
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
    ) {
        let OutboundFlows { ends, sets } = self;
        ends.poll_active(
            |_| true,
            |one| {
                // Terminates: credit bounds what is sent.
                let stopped = loop {
                    match one.send(batches, transport, limit) {
                        Sent::Some => {}
                        other => break other,
                    }
                };
                if one.has_ended && one.set.is_none() {
                    Next::IsRemoved
                } else if stopped == Sent::Blocked || one.is_watched() {
                    Next::StaysActive
                } else {
                    Next::BecomesInactive
                }
            },
        );
        for SourceSet { poll, members, .. } in sets.iter_mut().flatten() {
            let mut serving = Serving { ends, members, batches, transport, limit };
            while poll.poll(&mut serving).is_some() {}
        }
        self.close_sets();
    }

    /// Closes the sets without senders of which all members have ended.
    fn close_sets(&mut self) {
        let OutboundFlows { ends, sets } = self;
        for found in sets.iter_mut() {
            let has_ended = |member: &usize| ends.get(*member).is_none_or(|one| one.has_ended);
            let is_over =
                |set: &mut SourceSet| set.senders.is_empty() && set.members.iter().all(has_ended);
            let Some(closed) = found.take_if(is_over) else { continue };
            closed.members.iter().for_each(|member| drop(ends.remove(*member)));
        }
    }

    /// Returns true if something can be sent. What was stored before its end could find the request
    /// is not announced, so the request is withdrawn.
    pub(super) fn is_ready(&mut self, transport: &dyn Transport, limit: u64) -> bool {
        let mut is_ready = false;
        self.ends.for_active(|_, one| {
            if one.can_send(transport, limit) && one.is_busy() {
                one.source.withdraw();
                is_ready = true;
            }
        });
        is_ready
    }

    /// Requests a notification of each set before the agent sleeps. Returns false if there is
    /// something to do.
    pub(super) fn request_of_sets(
        &mut self,
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
    ) -> bool {
        let OutboundFlows { ends, sets } = self;
        sets.iter_mut().flatten().all(|SourceSet { poll, members, .. }| {
            let mut serving = Serving { ends, members, batches, transport, limit };
            !poll.ask_for_event(&mut serving)
        })
    }

    /// Notes that a rank of this node sends nothing more to the queues of a port. Returns false if
    /// the port is not open for the rank.
    pub(super) fn leave(&mut self, rank: u32, port: u64) -> bool {
        let OutboundFlows { ends, sets } = self;
        let mut is_open = false;
        for set in sets.iter_mut().flatten() {
            if set.port == port && set.ranks.contains(&rank) {
                is_open = true;
                set.remove_sender(rank, ends);
            }
        }
        is_open
    }

    /// Reports the exit of a rank of this node behind what it has sent, and ends its own flows.
    pub(super) fn exit(&mut self, rank: u32) {
        let OutboundFlows { ends, sets } = self;
        for set in sets.iter_mut().flatten() {
            // Without senders the end of the flow follows without reports of exits.
            if !set.ranks.contains(&rank) || set.senders.is_empty() {
                continue;
            }
            for member in &set.members {
                if let Some(one) = ends.get_mut(*member).filter(|one| !one.has_ended) {
                    one.exits.push(rank);
                }
                ends.activate(*member);
            }
            set.remove_sender(rank, ends);
        }
        for number in ends.find(|one| one.id.sender == rank && one.set.is_none()) {
            ends.activate(number);
            if let Some(one) = ends.get_mut(number) {
                one.is_closing = true;
                // A rank that was killed may have stored a value without a notification.
                one.source.withdraw();
            }
        }
    }

    /// Adds credit; false if the node has no right to grant it.
    pub(super) fn add_credit(&mut self, node: u32, id: &FlowId, bytes: u64) -> bool {
        // A flow that was closed here may still get credit for its last messages.
        let Some(one) = self.ends.of_mut(id) else { return true };
        let is_valid = one.node == node && bytes <= one.in_flight;
        if is_valid {
            one.in_flight -= bytes;
        }
        is_valid
    }

    /// Closes the end of a flow of which the receiver has closed its own; false if that is none of
    /// the node.
    pub(super) fn close(&mut self, node: u32, id: &FlowId) -> bool {
        let Some(number) = self.ends.number(id) else { return true };
        let is_valid = self.ends.get(number).is_none_or(|one| one.node == node);
        if is_valid {
            self.remove(number, true);
        }
        is_valid
    }

    /// Removes the ends for which `is_over` returns true, without a report: their receivers have
    /// gone. Senders to a queue find out by the exit of its owner. Commands that wait for their answers
    /// are executed.
    pub(super) fn remove_where(&mut self, is_over: impl Fn(&Outbound) -> bool) {
        for number in self.ends.find(is_over) {
            let has_answers = |one: &Outbound| one.id.kind == FlowKind::Answers;
            let is_closed = self.ends.get(number).is_some_and(has_answers);
            self.remove(number, is_closed);
        }
    }

    /// Removes the end of a flow, without a report.
    pub(super) fn remove_flow(&mut self, id: &FlowId) {
        if let Some(number) = self.ends.number(id) {
            self.remove(number, false);
        }
    }

    /// Removes an end. If `is_closed`, the receiver takes nothing any more, so the source is closed. A
    /// member of a set remains until the set is closed.
    fn remove(&mut self, number: usize, is_closed: bool) {
        let Some(one) = self.ends.get_mut(number) else { return };
        one.stop();
        if is_closed {
            one.source.close();
        }
        if one.set.is_none() {
            self.ends.remove(number);
        }
    }

    /// Returns true if there are messages, or reports behind messages, for a rank that may take
    /// them.
    pub(super) fn has_unsent(&self) -> bool {
        self.ends.values().any(End::is_busy)
    }
}

impl SourceSet {
    /// Notes that a rank sends nothing more.
    fn remove_sender(&mut self, rank: u32, ends: &mut Ends<Outbound>) {
        self.senders.retain(|other| *other != rank);
        if !self.senders.is_empty() {
            return;
        }
        for member in &self.members {
            if let Some(one) = ends.get_mut(*member) {
                one.is_closing = !one.has_ended;
            }
            // Without senders no bit announces what is left to be found: a damaged queue.
            ends.activate(*member);
        }
    }
}

#[cfg(test)]
mod tests;
