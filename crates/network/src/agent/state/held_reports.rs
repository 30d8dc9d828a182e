//! Reports of other nodes that wait for something on another connection.
//!
//! *A handshake.* The node that connects considers the connection open once it has the answer, and
//! may have sent messages before its proof arrives here. A report on it over other nodes would
//! overtake them, and the reported end of the node would close the connection. So such a report
//! waits until the handshake is over: either the node is connected and reports itself, or the other
//! end was a stranger.
//!
//! *A lost node.* Ranks may leave because a node is lost. Their exits wait until this node's own
//! connection with the lost one has ended, so the cause is reported before its consequences.
//!
//! *Bounds.* The first report on a rank or node counts. So of each node one report on each of them
//! waits, and none on an exit that is known: a node that repeats itself takes no memory, and does
//! not delay the shutdown for longer than one report waits.

use super::AgentState;
use crate::agent::shutdown::ShutdownAnswer;
use crate::agent::waiting_reports::{Subject, WaitingReport};
use crate::transport::frame::Frame;

/// Longest time for which exits wait for the end of a doubted node, in nanoseconds.
const MOST_DOUBTED_NS: u64 = 1_000_000_000;

/// Longest time for which a report waits, in nanoseconds: strangers that claim to be the node may
/// connect again and again.
const MOST_HELD_NS: u64 = 15_000_000_000;

impl AgentState {
    /// Keeps a report until the handshake with its node is over. Returns every other frame.
    pub(super) fn hold_report(&mut self, from: u32, frame: Frame) -> Option<Frame> {
        let is_news = Subject::of(&frame).is_some_and(|subject| self.is_news(from, subject));
        if !is_news || !self.may_be_overtaken(from, &frame) {
            return Some(frame);
        }
        let since = self.table.context.now;
        self.held_reports.push(WaitingReport { from, frame, since });
        None
    }

    /// Returns true if a report of a node changes anything.
    fn is_news(&self, from: u32, subject: Subject) -> bool {
        let of_node = |list: &[bool], node: u32| list.get(node as usize).copied();
        match subject {
            Subject::Exit(rank) => {
                let exists = self.table.context.nodes.of(rank).is_some();
                exists && !self.table.membership.has_exited(rank)
            }
            Subject::Leaving(rank) => !self.table.membership.is_leaving(rank),
            Subject::NodeEnd(node) => of_node(&self.shutdown.passed_on, node) == Some(false),
            Subject::Shutdown => {
                self.shutdown.answers.get(from as usize) == Some(&ShutdownAnswer::NotDue)
            }
        }
    }

    /// Processes the reports that need not wait any more, in order.
    pub(super) fn process_held_reports(&mut self) {
        let now = self.table.context.now;
        self.doubted.retain(|(_, since)| now.saturating_sub(*since) < MOST_DOUBTED_NS);
        for held in self.held_reports.take() {
            let is_late = now.saturating_sub(held.since) >= MOST_HELD_NS;
            if is_late || !self.may_be_overtaken(held.from, &held.frame) {
                self.handle_report(held.from, held.frame);
            } else {
                self.held_reports.push(held);
            }
        }
    }

    /// Returns true if a frame has to wait: see the module's page.
    fn may_be_overtaken(&self, from: u32, frame: &Frame) -> bool {
        // Where another node has lost one, ranks may leave because of that: the cause comes first.
        // The end of this node's own connection is on its way.
        if !self.doubted.is_empty() && matches!(frame, Frame::RankExited { .. } | Frame::Shutdown) {
            return true;
        }
        let context = &self.table.context;
        let about = match frame {
            Frame::RankExited { rank, .. } | Frame::RankLeaves { rank, .. } => {
                context.nodes.of(*rank)
            }
            Frame::NodeEnded { node, .. } => Some(*node),
            _ => None,
        };
        about.is_some_and(|node| node != from && context.transport.has_answered(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Limits;
    use crate::error::{Error, RankExit};
    use crate::node_map::NodeMap;
    use crate::transport::frame::Route;
    use crate::transport::memory::{self, Memory};
    use crate::transport::payloads::{PayloadLocation, Payloads};
    use crate::transport::{Arrival, LinkState, Transport};
    use interpreter::Packet;
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    /// State of the connection with node 2, of which the test decides.
    #[derive(Debug, Default)]
    struct Far {
        has_answer: AtomicBool,
        is_open: AtomicBool,
        is_abandoned: AtomicBool,
    }

    #[derive(Debug)]
    struct Sparse(Memory, Arc<Far>);

    impl Transport for Sparse {
        fn node(&self) -> u32 {
            self.0.node()
        }

        fn nodes(&self) -> u32 {
            self.0.nodes()
        }

        fn address(&self, node: u32) -> String {
            self.0.address(node)
        }

        fn watch(&mut self, descriptor: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
            self.0.watch(descriptor, number)
        }

        fn send(&mut self, node: u32, frame: Frame) {
            self.0.send(node, frame);
        }

        fn send_in_place(
            &mut self,
            node: u32,
            route: Route,
            packet: Packet,
            location: PayloadLocation,
            bytes: u64,
        ) {
            self.0.send_in_place(node, route, packet, location, bytes);
        }

        fn detach(&mut self, location: PayloadLocation, payload: Option<Vec<u8>>) {
            self.0.detach(location, payload);
        }

        fn flush(&mut self, payloads: &mut dyn Payloads) {
            self.0.flush(payloads);
        }

        fn queued(&self, node: u32) -> u64 {
            self.0.queued(node)
        }

        fn wait(
            &mut self,
            timeout: Option<Duration>,
            payloads: &mut dyn Payloads,
            arrivals: &mut Vec<Arrival>,
        ) -> Result<(), Error> {
            self.0.wait(timeout, payloads, arrivals)
        }

        fn refused(&self) -> u64 {
            self.0.refused()
        }

        fn is_sparse(&self) -> bool {
            true
        }

        fn link(&self, node: u32) -> LinkState {
            let is_open = node != 2 || self.1.is_open.load(Ordering::Relaxed);
            if is_open { LinkState::Open } else { LinkState::Absent }
        }

        fn has_answered(&self, node: u32) -> bool {
            node == 2 && self.1.has_answer.load(Ordering::Relaxed)
        }

        fn abandon(&mut self, _: u32) {
            self.1.is_abandoned.store(true, Ordering::Relaxed);
        }
    }

    /// The agent of node 0.
    fn agent() -> (AgentState, Arc<Far>) {
        let far = Arc::new(Far::default());
        let memory = memory::connect(3).expect("descriptors").remove(0);
        let transport = Box::new(Sparse(memory, Arc::clone(&far)));
        let nodes = NodeMap::new(["a", "b", "c"]);
        (AgentState::new(nodes, transport, Limits::new(16 << 10)), far)
    }

    /// The agent of node 0 has answered node 2, and receives the end of it and of its rank.
    fn reported() -> (AgentState, Arc<Far>) {
        let (mut state, far) = agent();
        far.has_answer.store(true, Ordering::Relaxed);
        let exit = Frame::RankExited { rank: 2, how: RankExit::Left, started: Vec::new() };
        let end = Frame::NodeEnded { node: 2, failure: None };
        let mut arrivals = [exit, end].map(|frame| Arrival::Frame { node: 1, frame }).into();
        state.turn(1, &mut arrivals);
        assert!(!state.table.membership.has_exited(2), "it may have sent before");
        assert!(!far.is_abandoned.load(Ordering::Relaxed));
        (state, far)
    }

    #[test]
    fn a_node_that_proves_itself_reports_itself() {
        let (mut state, far) = reported();
        far.has_answer.store(false, Ordering::Relaxed);
        far.is_open.store(true, Ordering::Relaxed);
        state.turn(2, &mut Vec::new());
        assert!(state.held_reports.is_empty());
        assert!(!state.table.membership.has_exited(2));
        assert!(!far.is_abandoned.load(Ordering::Relaxed));
    }

    #[test]
    fn reports_count_when_the_other_end_was_a_stranger() {
        let (mut state, far) = reported();
        far.has_answer.store(false, Ordering::Relaxed);
        state.turn(2, &mut Vec::new());
        assert!(state.table.membership.has_exited(2));
        assert!(far.is_abandoned.load(Ordering::Relaxed));
    }

    #[test]
    fn exits_follow_the_loss_that_another_node_has_reported() {
        let (mut state, far) = agent();
        far.is_open.store(true, Ordering::Relaxed);
        let lost = || "the connection was reset".to_owned();
        let exit = Frame::RankExited { rank: 1, how: RankExit::Left, started: Vec::new() };
        let end = Frame::NodeEnded { node: 2, failure: Some(lost()) };
        let mut arrivals = [end, exit].map(|frame| Arrival::Frame { node: 1, frame }).into();
        state.turn(2, &mut arrivals);
        assert!(!state.table.membership.has_exited(1), "the cause comes first");
        state.turn(3, &mut vec![Arrival::NodeLost { node: 2, why: lost() }]);
        assert!(state.table.membership.has_exited(1));
        let failed = state.table.membership.failure_of(&[0, 1, 2], &[0, 1, 2], 0, 0);
        assert!(matches!(failed, Some(Error::NodeUnreachable { node: 2, .. })), "{failed:?}");
    }

    #[test]
    fn a_shutdown_that_arrives_behind_a_held_exit_counts() {
        let (mut state, far) = agent();
        far.is_open.store(true, Ordering::Relaxed);
        let lost = || "the connection was reset".to_owned();
        let from = |frame| Arrival::Frame { node: 1, frame };
        let exit = Frame::RankExited { rank: 1, how: RankExit::Left, started: Vec::new() };
        // The exit waits until the end of these arrivals, the shutdown does not.
        let mut arrivals = vec![
            from(Frame::NodeEnded { node: 2, failure: Some(lost()) }),
            from(exit),
            Arrival::NodeLost { node: 2, why: lost() },
            from(Frame::Shutdown),
        ];
        state.turn(2, &mut arrivals);
        assert!(state.table.membership.has_exited(1) && state.shutdown.received[1]);
        assert_eq!(state.refused(), 0);
    }

    #[test]
    fn a_node_that_repeats_its_reports_takes_no_memory() {
        let (mut state, far) = agent();
        let lost = || "the connection was reset".to_owned();
        let end = Frame::NodeEnded { node: 2, failure: Some(lost()) };
        far.is_open.store(true, Ordering::Relaxed);
        state.turn(1, &mut vec![Arrival::Frame { node: 1, frame: end.clone() }]);
        assert_eq!(state.doubted.len(), 1);
        far.has_answer.store(true, Ordering::Relaxed);
        for _ in 0..1000 {
            // Of the ranks that exist, and of others.
            for rank in 0..10 {
                let started = vec![crate::run_counts::StartedRuns::of(4, 1); 100];
                let leaves = Frame::RankLeaves { rank, started: started.clone() };
                let exit = Frame::RankExited { rank, how: RankExit::Left, started };
                let reports = [leaves, exit, end.clone(), Frame::Shutdown];
                let from_1 = |frame| Arrival::Frame { node: 1, frame };
                state.turn(2, &mut reports.map(from_1).into());
            }
        }
        // Exits of ranks 0 to 2, the announcement of the one on node 2, and the shutdown.
        assert_eq!(state.held_reports.reports.len(), 5);
    }

    #[test]
    fn a_report_of_a_known_exit_waits_for_nothing() {
        let (mut state, _far) = reported();
        state.turn(1 + MOST_HELD_NS, &mut Vec::new());
        assert!(state.table.membership.has_exited(2));
        let exit = Frame::RankExited { rank: 2, how: RankExit::Left, started: Vec::new() };
        let end = Frame::NodeEnded { node: 2, failure: None };
        let mut arrivals = [exit, end].map(|frame| Arrival::Frame { node: 1, frame }).into();
        state.turn(2 + MOST_HELD_NS, &mut arrivals);
        assert!(state.held_reports.is_empty(), "it would delay the shutdown again and again");
    }

    #[test]
    fn reports_do_not_wait_for_ever() {
        let (mut state, _far) = reported();
        state.turn(MOST_HELD_NS, &mut Vec::new());
        assert!(!state.table.membership.has_exited(2));
        state.turn(1 + MOST_HELD_NS, &mut Vec::new());
        assert!(state.table.membership.has_exited(2));
    }
}
