//! Exits of ranks, lost nodes, and the shutdown of the agent.
//!
//! A rank's exit ends its submissions, not its runs. When the last rank of the node has exited and
//! no run has a message left to send, the agent shuts down in order.

use super::AgentState;
use crate::agent::session::RankSession;
use crate::agent::shutdown::ShutdownAnswer;
use crate::backend::PendingTraffic;
use crate::error::{Error, RankExit};
use crate::run_counts::{RunCounts, StartedRuns};
use crate::runs::run::Run;
use crate::runs::run_context::RunKey;
use crate::transport::LinkState;
use crate::transport::frame::Frame;
use std::time::Duration;

impl AgentState {
    /// Processes the end of a connection. It is a failure of the node unless `Shutdown` has arrived
    /// before, or was reported.
    pub(super) fn lose(&mut self, node: u32, why: String) {
        let failure = if self.shutdown.received[node as usize] { None } else { Some(why) };
        self.pass_on_end(node, failure.clone(), None);
        self.end_node(node, failure, false);
    }

    /// Processes the end of a node that another one has reported.
    pub(super) fn end_reported_node(&mut self, from: u32, node: u32, failure: Option<String>) {
        let nodes = self.table.context.transport.nodes();
        let is_other = node < nodes && node != self.table.context.transport.node();
        if !is_other || !self.pass_on_end(node, failure.clone(), Some(from)) {
            return;
        }
        if self.transport().link(node) == LinkState::Open {
            // The state of the connection itself is decisive: the report may be of the path between
            // two others, and what the node has sent is read before its end.
            if failure.is_some() {
                self.doubted.push((node, self.table.context.now));
            }
            return;
        }
        self.transport().abandon(node);
        self.end_node(node, failure, true);
    }

    /// Notes the end of a node from which nothing arrives any more.
    fn end_node(&mut self, node: u32, failure: Option<String>, is_reported: bool) {
        self.table.lose(node);
        self.doubted.retain(|(doubted, _)| *doubted != node);
        // A lost node acknowledges nothing any more. The shutdown must not wait for it.
        self.shutdown.acknowledged[node as usize] = true;
        self.shutdown.received[node as usize] = true;
        // Nor is it answered: an exit that was held does not turn a failure into an end in order.
        self.shutdown.answers[node as usize] = ShutdownAnswer::NotDue;
        self.flows.lose(node);
        if let Some(why) = failure {
            let address = self.transport().address(node);
            let error = Error::NodeUnreachable { node, address, why };
            self.report_loss(node, &error);
            self.table.membership.node_failed(node, error, is_reported);
            return self.table.fail_affected_runs();
        }
        // The node had sent everything that its ranks had to send, so runs go on without it. But it
        // answers no request to send any more: such a run would never end.
        let unanswered = |run: &Run| Some((run.key, run.unanswered_by(node)?));
        let runs: Vec<(RunKey, u32)> = self.table.runs.values().filter_map(unanswered).collect();
        for (key, rank) in runs {
            let how = self.table.membership.exit_of(rank);
            self.table.finish(key, Err(Error::RankFailed { rank, how }));
        }
    }

    /// Processes the last ordered frame of a node.
    pub(super) fn receive_shutdown(&mut self, node: u32) {
        // A repeated frame is not answered: a node that reads nothing would make the queue for it
        // grow.
        if self.shutdown.answers[node as usize] != ShutdownAnswer::NotDue {
            self.table.refused += 1;
            return;
        }
        self.shutdown.answers[node as usize] = ShutdownAnswer::Postponed;
        self.answer_shutdown(node);
    }

    /// Answers the `Shutdown` of a node that has arrived, once the exits of all its ranks have been
    /// processed. Without them its end would be none in order, and runs would wait for what its
    /// ranks have not sent. They may follow: a connection that is made late begins with what was
    /// sent before it, and the exits come from [`send_missed_reports`](Self::send_missed_reports);
    /// and exits of other nodes' ranks may be [held](super::held_reports).
    pub(super) fn answer_shutdown(&mut self, node: u32) {
        let has_exited = |rank| self.table.membership.has_exited(rank);
        if self.shutdown.answers[node as usize] != ShutdownAnswer::Postponed
            || !self.table.context.nodes.members(node).all(has_exited)
        {
            return;
        }
        self.shutdown.answers[node as usize] = ShutdownAnswer::Sent;
        // Everything that the node has sent before has been processed by now.
        self.shutdown.received[node as usize] = true;
        self.transport().send(node, Frame::ShutdownAck);
        self.pass_on_end(node, None, Some(node));
    }

    /// Passes on the end of a node, once. Returns true the first time. A failure is passed on even
    /// where all nodes are connected: this node may have noticed it earlier than others, which then
    /// expect it when ranks leave because of it (`held_reports`).
    pub(super) fn pass_on_end(
        &mut self,
        node: u32,
        failure: Option<String>,
        from: Option<u32>,
    ) -> bool {
        if std::mem::replace(&mut self.shutdown.passed_on[node as usize], true) {
            return false;
        }
        let is_failure = failure.is_some();
        let report = Frame::NodeEnded { node, failure };
        if is_failure {
            self.report(&report, from);
        } else {
            self.pass_on(&report, from);
        }
        true
    }

    /// Passes on what another node has reported, where not all nodes are connected.
    pub(super) fn pass_on(&mut self, report: &Frame, from: Option<u32>) {
        if self.transport().is_sparse() {
            self.report(report, from);
        }
    }

    /// Sends a report to all nodes that are connected, except one.
    fn report(&mut self, report: &Frame, except: Option<u32>) {
        let transport = &mut self.table.context.transport;
        let own = transport.node();
        for node in (0..transport.nodes()).filter(|node| *node != own && Some(*node) != except) {
            if transport.link(node) == LinkState::Open {
                transport.send(node, report.clone());
            }
        }
    }

    /// Sends a node that is connected only now what it may have missed. Exits of which this node
    /// has sent no report are not among that: over other nodes they would overtake messages of
    /// their ranks.
    pub(super) fn send_missed_reports(&mut self, node: u32) {
        // A node that has shut down without a connection does so anew.
        self.shutdown.answers[node as usize] = ShutdownAnswer::NotDue;
        let ended = (0..).zip(&self.shutdown.received).zip(&self.shutdown.passed_on);
        let own = self.table.context.transport.node();
        let in_order = ended.filter(|((other, has_ended), is_passed_on)| {
            *other != own && *other != node && **has_ended && **is_passed_on
        });
        // The failures come before, and the first report counts.
        let in_order: Vec<Frame> =
            in_order.map(|((node, _), _)| Frame::NodeEnded { node, failure: None }).collect();
        let unreported = |report: &Frame| {
            let rank_of = |report: &Frame| match report {
                Frame::RankExited { rank, .. } => Some(*rank),
                _ => None,
            };
            let rank = rank_of(report);
            rank.is_some() && self.unreported_exits.iter().any(|exit| rank_of(exit) == rank)
        };
        let reports = self.table.membership.reports().into_iter().chain(in_order);
        for report in reports.filter(|report| !unreported(report)).collect::<Vec<Frame>>() {
            self.transport().send(node, report);
        }
        // If it was not connected when this agent shut down, and nothing waited for it.
        if self.shutdown.is_sent && self.shutdown.acknowledged[node as usize] {
            self.shutdown.acknowledged[node as usize] = false;
            self.transport().send(node, Frame::Shutdown);
        }
    }

    /// Processes the exit of a rank of this node, or the end of its submissions. The runs that it
    /// has started continue.
    pub(crate) fn exit(&mut self, local: usize, how: RankExit) {
        let Some(rank) = self.ranks.get(local).copied() else { return };
        if self.table.membership.has_exited(rank) {
            return;
        }
        self.messages.close(local);
        self.flows.exit(rank);
        let mut others = self.ranks.iter().filter(|other| **other != rank);
        let is_last = others.all(|other| self.table.membership.has_exited(*other));
        if let Some(session) = self.sessions[local].as_mut() {
            session.has_exited = true;
            // While another rank of the node runs, the node service stays: this process may exit.
            // The last one waits for `shut_down`.
            if !is_last {
                session.set_drained();
            }
        }
        // Final counts: the session returns no submission after the exit, and all earlier ones have
        // been processed.
        let counts = self.table.run_counts.get(&rank);
        let started = counts.map(RunCounts::list).unwrap_or_default();
        // It may arrive before messages that the rank's runs send: those belong to runs that
        // `started` covers.
        let report = Frame::RankExited { rank, how: how.clone(), started: started.clone() };
        self.unreported_exits.push(report);
        self.report_exits();
        // Messages for runs that the rank can no longer start return their credit.
        let unexpected = self.table.unexpected.runs_of(rank, 0..=u32::MAX);
        unexpected.into_iter().for_each(|key| self.table.drop_unexpected(key));
        self.table.unexpected.forget_dropped(rank);
        self.table.membership.rank_exited(rank, how, started);
        self.table.fail_affected_runs();
    }

    /// Reports exits, once all connections are made over which a rank has sent: over the path of
    /// other nodes the report would overtake its messages.
    fn report_exits(&mut self) {
        if self.unreported_exits.is_empty() {
            return;
        }
        let mut nodes = 0..self.transport().nodes();
        if nodes.any(|node| self.transport().link(node) == LinkState::Pending) {
            return;
        }
        for report in std::mem::take(&mut self.unreported_exits) {
            self.report(&report, None);
        }
    }

    /// Processes the announcement of a rank of this node that it leaves. It ends no run here: the
    /// counts are those of another backend.
    pub(super) fn announce_exit(&mut self, local: usize, started: Vec<StartedRuns>) {
        let Some(rank) = self.ranks.get(local).copied() else { return };
        self.report(&Frame::RankLeaves { rank, started: started.clone() }, None);
        self.table.membership.rank_leaves(rank, started);
    }

    /// Closes the sessions of ranks that have exited and have no run left. Shuts down when the last
    /// rank of the node has exited.
    pub(super) fn close_sessions(&mut self) {
        self.report_exits();
        let all_have_exited = self.ranks.iter().all(|rank| self.table.membership.has_exited(*rank));
        if all_have_exited {
            self.shut_down();
        }
        // The last rank waits in its session until everything is drained.
        let is_waiting = all_have_exited && !self.shutdown.is_drained;
        for session in &mut self.sessions {
            let is_over = |session: &RankSession| session.has_exited && session.runs == 0;
            if !is_waiting && session.as_ref().is_some_and(is_over) {
                *session = None;
            }
        }
    }

    /// Sends `Shutdown` when no run has a message left to send, and releases the last rank when the
    /// other nodes have acknowledged everything.
    fn shut_down(&mut self) {
        // `Shutdown` is the last ordered frame of this node. A run that only receives does not
        // delay it: no other rank depends on that run.
        let has_unsent = !self.unreported_exits.is_empty()
            || !self.held_reports.is_empty()
            || self.flows.has_unsent()
            || self.table.runs.values().any(Run::has_unsent);
        if !self.shutdown.is_sent && !has_unsent {
            self.shutdown.is_sent = true;
            for node in 0..self.table.context.transport.nodes() {
                if self.shutdown.acknowledged[node as usize] {
                    continue;
                }
                // A node without a connection has been sent nothing. Those that are connected
                // report the end to it.
                if self.transport().link(node) == LinkState::Absent {
                    self.shutdown.acknowledged[node as usize] = true;
                } else {
                    self.transport().send(node, Frame::Shutdown);
                }
            }
        }
        if !self.shutdown.is_drained && self.shutdown.poll_drained(&self.table.context.lost) {
            self.sessions.iter().flatten().for_each(RankSession::set_drained);
        }
    }

    /// Time until the traffic of another backend, or reports that wait, are to be polled again.
    pub(crate) fn next_poll(&mut self) -> Option<Duration> {
        const REPORTS: Duration = Duration::from_millis(50);
        let reports = (!self.held_reports.is_empty()).then_some(REPORTS);
        let flows = self.flows.next_poll();
        self.shutdown.next_poll().into_iter().chain(reports).chain(flows).min()
    }

    /// Keeps the agent until the ranks of all nodes have exited. `pending` is that of another
    /// backend of this node.
    pub(crate) fn hold_until_all_exit(&mut self, pending: Box<dyn PendingTraffic>) {
        self.shutdown.pending = Some(pending);
    }

    /// Returns true if all ranks of this node have exited, all other nodes know it, and nothing is
    /// left to send.
    pub(crate) fn is_over(&self) -> bool {
        // A frame in a queue of the transport would be lost with the agent, so the queues must be
        // empty too.
        self.shutdown.is_done()
            && self.sessions.iter().all(Option::is_none)
            && !self.table.has_queued()
    }
}

#[cfg(test)]
mod tests;
