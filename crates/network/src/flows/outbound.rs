//! The sending ends of flows.

mod end;

pub(super) use end::{Outbound, frame};

use super::ends::Ends;
use super::marks::{EndNumber, Resting};
use super::memory::Charge;
use crate::transport::Transport;
use crate::transport::batches::Batches;
use crate::transport::records::flows::{FlowId, FlowKind};
use end::Sent;
use queues::internode::{Announcement, Requested};
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
    ends: Ends<Outbound>,
    /// By number; `None` after it was closed.
    sets: Vec<Option<SourceSet>>,
    /// Ends that are looked at in every turn.
    active: Vec<usize>,
}

/// The members of a set, while their messages are sent.
struct Serving<'a> {
    ends: &'a mut Ends<Outbound>,
    members: &'a [usize],
    active: &'a mut Vec<usize>,
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
            Sent::Blocked => activate(self.ends, self.active, number),
            Sent::Nothing | Sent::Ended => {}
        }
        None
    }

    fn is_ready(&mut self, index: usize) -> bool {
        let Some(number) = self.members.get(index).copied() else { return false };
        // One that is looked at in every turn is served without its bit.
        let Some(one) = self.ends.get(number).filter(|one| !one.is_active) else { return false };
        if one.has_ended || !one.source.is_ready() {
            return false;
        }
        let can_send = one.can_send(self.transport, self.limit);
        if !can_send {
            // Its bit stays clear after this, and its senders may have found it set.
            activate(self.ends, self.active, number);
        }
        can_send
    }
}

/// Looks at an end in every turn.
fn activate(ends: &mut Ends<Outbound>, active: &mut Vec<usize>, number: usize) {
    if let Some(one) = ends.get_mut(number)
        && !std::mem::replace(&mut one.is_active, true)
    {
        active.push(number);
    }
}

impl OutboundFlows {
    pub(super) fn contains(&self, id: &FlowId) -> bool {
        self.ends.number(id).is_some()
    }

    /// Returns true if a rank has opened the sources of this port.
    pub(super) fn has_set(&self, opener: u32, port: u64) -> bool {
        self.sets.iter().flatten().any(|set| (set.opener, set.port) == (opener, port))
    }

    /// Adds an end.
    pub(super) fn open(&mut self, opened: Outbound) {
        let is_watched = opened.is_watched();
        let number = self.ends.insert([opened.id], opened);
        if is_watched {
            self.activate(number);
        }
    }

    /// Adds the sources of a port, which are the members of a poll set in this order. `ranks` are
    /// those of this node that use them. The exits of those that have `exited` before are reported
    /// here, and those that have `left` send nothing.
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
        let (exits, mut senders): (Vec<_>, Vec<_>) =
            ranks.iter().partition(|rank| exited.contains(rank));
        senders.retain(|rank| !left.contains(rank));
        let is_closing = senders.is_empty();
        let join = |one: Outbound| one.of_set(number, exits.clone(), is_closing);
        let members: Vec<usize> =
            sources.into_iter().map(|one| self.ends.insert([one.id], join(one))).collect();
        if !exits.is_empty() || is_closing {
            members.iter().for_each(|member| activate(&mut self.ends, &mut self.active, *member));
        }
        let poll = OnePoll::new(set);
        let opened = SourceSet { poll, opener, port, ranks, senders, members, _charge: charge };
        match self.sets.get_mut(number) {
            Some(free) => *free = Some(opened),
            None => self.sets.push(Some(opened)),
        }
    }

    /// Looks at an end in every turn.
    pub(super) fn activate(&mut self, number: usize) {
        activate(&mut self.ends, &mut self.active, number);
    }

    /// Looks at the end of a flow in the next turn.
    pub(super) fn activate_flow(&mut self, id: &FlowId) {
        if let Some(number) = self.ends.number(id) {
            self.activate(number);
        }
    }

    /// Looks at every member of a set in the next turn: a rank that was killed may have sent without
    /// a notification.
    pub(super) fn check_all(&mut self) {
        let OutboundFlows { ends, sets, active } = self;
        let members = sets.iter().flatten().flat_map(|set| &set.members);
        members.for_each(|member| activate(ends, active, *member));
    }

    /// Sends what the sources contain, as far as there is credit, and nothing to a node with `limit`
    /// bytes in its queue.
    pub(super) fn serve(
        &mut self,
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
    ) {
        let OutboundFlows { ends, sets, active } = self;
        for number in std::mem::take(active) {
            let Some(one) = ends.get_mut(number) else { continue };
            // Ends: credit bounds what is sent.
            let stopped = loop {
                match one.send(batches, transport, limit) {
                    Sent::Some => {}
                    other => break other,
                }
            };
            one.is_active = stopped == Sent::Blocked || one.is_watched();
            let is_over = one.has_ended && one.set.is_none();
            if one.is_active {
                active.push(number);
            } else if is_over {
                let id = one.id;
                ends.remove(number, &[id]);
            }
        }
        for found in sets.iter_mut() {
            let Some(SourceSet { poll, members, .. }) = found else { continue };
            let mut serving = Serving { ends, members, active, batches, transport, limit };
            while poll.poll(&mut serving).is_some() {}
        }
        self.close_sets();
    }

    /// Closes the sets without senders of which all members have ended.
    fn close_sets(&mut self) {
        let OutboundFlows { ends, sets, active } = self;
        for found in sets.iter_mut() {
            let has_ended = |member: &usize| ends.get(*member).is_none_or(|one| one.has_ended);
            let is_over =
                |set: &mut SourceSet| set.senders.is_empty() && set.members.iter().all(has_ended);
            let Some(closed) = found.take_if(is_over) else { continue };
            for member in &closed.members {
                let id = ends.get(*member).map(|one| one.id);
                ends.remove(*member, id.as_slice());
            }
            active.retain(|number| !closed.members.contains(number));
        }
    }

    /// Returns true if something can be sent. What was stored before its end could find the request
    /// is not announced, so the request is withdrawn.
    pub(super) fn is_ready(&mut self, transport: &dyn Transport, limit: u64) -> bool {
        let OutboundFlows { ends, active, .. } = self;
        let mut is_ready = false;
        for number in active {
            let Some(one) = ends.get_mut(*number) else { continue };
            if one.can_send(transport, limit) && one.has_unsent() {
                one.source.withdraw();
                is_ready = true;
            }
        }
        is_ready
    }

    /// Requests notifications before the agent sleeps, and passes the result of each to `count`.
    pub(super) fn request(
        &mut self,
        transport: &dyn Transport,
        limit: u64,
        mut count: impl FnMut(Requested),
    ) {
        for number in &self.active {
            if let Some(one) = self.ends.get_mut(*number)
                && one.can_send(transport, limit)
            {
                count(one.source.request());
            }
        }
    }

    /// Requests a notification of each set before the agent sleeps. Returns false if there is
    /// something to do.
    pub(super) fn request_of_sets(
        &mut self,
        batches: &mut Batches,
        transport: &mut dyn Transport,
        limit: u64,
    ) -> bool {
        let OutboundFlows { ends, sets, active } = self;
        sets.iter_mut().flatten().all(|SourceSet { poll, members, .. }| {
            let mut serving = Serving { ends, members, active, batches, transport, limit };
            !poll.ask_for_event(&mut serving)
        })
    }

    /// Returns true if an end is looked at without a notification.
    pub(super) fn is_watching(&self) -> bool {
        self.active.iter().any(|number| self.ends.get(*number).is_some_and(Outbound::is_watched))
    }

    /// Returns the active ends that may rest; if `unused`, those without traffic since the last call
    /// with it.
    pub(super) fn may_rest(&mut self, unused: bool) -> Vec<Resting> {
        let mut all = Vec::new();
        for number in &self.active {
            let Some(one) = self.ends.get_mut(*number) else { continue };
            let was_used = unused && std::mem::take(&mut one.was_used);
            if let Announcement::Marked(at) = one.source.announcement()
                && !(was_used || one.has_unsent())
            {
                all.push(Resting { end: EndNumber::Source(*number), rank: one.id.sender, at });
            }
        }
        all
    }

    /// Requests a notification of an end; false if there will be none.
    pub(super) fn request_of(&mut self, number: usize) -> bool {
        let one = self.ends.get_mut(number);
        one.is_some_and(|one| one.source.request() != Requested::Refused)
    }

    /// Returns true if an end rests: it had nothing after the barrier.
    pub(super) fn rest(&mut self, number: usize) -> bool {
        let Some(one) = self.ends.get_mut(number) else { return false };
        let rests = one.source.is_requested() && !one.has_unsent();
        one.is_active = !rests;
        if !rests {
            // What was stored before its sender could find the request is not announced.
            one.source.withdraw();
        }
        rests
    }

    /// Withdraws the request of an end.
    pub(super) fn withdraw(&mut self, number: usize) {
        if let Some(one) = self.ends.get_mut(number) {
            one.source.withdraw();
        }
    }

    /// Forgets the ends that are no longer active.
    pub(super) fn sort_out(&mut self) {
        let ends = &self.ends;
        self.active.retain(|number| ends.get(*number).is_some_and(|one| one.is_active));
    }

    /// Notes that a rank of this node sends nothing more to the queues of a port. Returns false if
    /// the port is not open for the rank.
    pub(super) fn leave(&mut self, rank: u32, port: u64) -> bool {
        let OutboundFlows { ends, sets, active } = self;
        let mut is_open = false;
        for set in sets.iter_mut().flatten() {
            if set.port == port && set.ranks.contains(&rank) {
                is_open = true;
                set.remove_sender(rank, ends, active);
            }
        }
        is_open
    }

    /// Reports the exit of a rank of this node behind what it has sent, and ends its own flows.
    pub(super) fn exit(&mut self, rank: u32) {
        let OutboundFlows { ends, sets, active } = self;
        for set in sets.iter_mut().flatten() {
            // Without senders the end of the flow follows, whoever has exited.
            if !set.ranks.contains(&rank) || set.senders.is_empty() {
                continue;
            }
            for member in &set.members {
                if let Some(one) = ends.get_mut(*member).filter(|one| !one.has_ended) {
                    one.exits.push(rank);
                }
                activate(ends, active, *member);
            }
            set.remove_sender(rank, ends, active);
        }
        let is_own = |one: &Outbound| one.id.sender == rank && one.set.is_none();
        for (number, one) in ends.iter_mut().filter(|(_, one)| is_own(one)) {
            one.is_closing = true;
            // A rank that was killed may have stored a value without a notification.
            one.source.withdraw();
            if !std::mem::replace(&mut one.is_active, true) {
                active.push(number);
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

    /// Removes the ends of flows for which `is_over` returns true, without a report. Senders to a
    /// queue find out by the exit of its owner.
    pub(super) fn remove_where(&mut self, is_over: impl Fn(&FlowId, u32) -> bool) {
        let over = self.ends.iter_mut().filter(|(_, one)| is_over(&one.id, one.node));
        let over: Vec<usize> = over.map(|(number, _)| number).collect();
        over.into_iter().for_each(|number| self.remove(number, false));
    }

    /// Removes the end of a flow, without a report.
    pub(super) fn remove_flow(&mut self, id: &FlowId) {
        if let Some(number) = self.ends.number(id) {
            self.remove(number, false);
        }
    }

    /// Removes an end. A member of a set remains until that is closed.
    fn remove(&mut self, number: usize, is_closed: bool) {
        let Some(one) = self.ends.get_mut(number) else { return };
        one.stop();
        if is_closed || one.id.kind == FlowKind::Answers {
            one.source.close();
        }
        if one.set.is_none() {
            let removed = [one.id];
            self.ends.remove(number, &removed);
            self.active.retain(|other| *other != number);
        }
    }

    /// Returns true if there are messages, or reports behind messages, for a rank that may take
    /// them.
    pub(super) fn has_unsent(&self) -> bool {
        self.ends.values().any(Outbound::has_unsent)
    }
}

impl SourceSet {
    /// Notes that a rank sends nothing more.
    fn remove_sender(&mut self, rank: u32, ends: &mut Ends<Outbound>, active: &mut Vec<usize>) {
        self.senders.retain(|other| *other != rank);
        if !self.senders.is_empty() {
            return;
        }
        for member in &self.members {
            if let Some(one) = ends.get_mut(*member) {
                one.is_closing = !one.has_ended;
            }
            // Without senders no bit announces what is left to be found: a damaged queue.
            activate(ends, active, *member);
        }
    }
}

#[cfg(test)]
mod tests;
