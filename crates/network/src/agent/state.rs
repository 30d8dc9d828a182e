//! The agent's state machine, without thread and sleep: runs, unexpected messages, sessions of
//! ranks, and the shutdown.

mod exits;
mod flows;
mod held_reports;
mod messages;

use super::messages::router::MessageRouter;
use super::session::{ProtocolViolation, RankSession, RunLocation};
use super::shared_region::ENTRIES;
use super::shutdown::ShutdownState;
use super::submission::Submission;
use super::waiting_reports::WaitingReports;
use crate::error::{Error, RankExit};
use crate::flows::Flows;
use crate::flows::ports::PortRequest;
use crate::node_map::NodeMap;
use crate::runs::run::Run;
use crate::runs::run_context::RunKey;
use crate::runs::run_table::{QUEUE_LIMIT, RunTable};
use crate::transport::frame::Frame;
use crate::transport::{Arrival, LinkState, Transport};
use interpreter::Limits;
use rustix::thread::sched_getcpu;
use std::collections::HashMap;
use std::time::Duration;

/// The agent of one node.
#[derive(Debug)]
pub(crate) struct AgentState {
    limits: Limits,
    table: RunTable,
    /// By local rank; `None` before the rank has joined and after it has exited.
    sessions: Vec<Option<RankSession>>,
    /// Ranks of the job on this node, by local rank.
    ranks: Vec<u32>,
    /// Location in its rank's memory of every run that is not completed for its rank.
    locations: HashMap<RunKey, RunLocation>,
    shutdown: ShutdownState,
    messages: MessageRouter,
    flows: Flows,
    /// Exits of ranks of this node, in order, that are not reported to other nodes.
    unreported_exits: Vec<Frame>,
    /// Reports that wait for something on another connection, in order.
    held_reports: WaitingReports,
    /// Nodes that another one has lost, but that are connected with this one, and since when.
    doubted: Vec<(u32, u64)>,
}

/// Summary of a turn of the agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// True if something had arrived or was submitted, or a part of a long message was sent.
    pub(crate) had_events: bool,
    /// True if runs have ended, or values of channels have arrived, while ranks poll: what they
    /// submit or send next is likely to follow at once.
    pub(crate) expects_more: bool,
}

/// Returns the place of a rank of the job among the ranks of a node, which are in order.
fn local_rank_of(ranks: &[u32], rank: u32) -> Option<usize> {
    ranks.binary_search(&rank).ok()
}

impl AgentState {
    pub(crate) fn new(nodes: NodeMap, transport: Box<dyn Transport>, limits: Limits) -> AgentState {
        let ranks: Vec<u32> = nodes.members(transport.node()).collect();
        let node = transport.node();
        let count = transport.nodes();
        AgentState {
            limits,
            sessions: ranks.iter().map(|_| None).collect(),
            messages: MessageRouter::new(node, count, ranks.len()),
            flows: Flows::new(nodes.clone(), &*transport),
            ranks,
            locations: HashMap::new(),
            shutdown: ShutdownState::of_node(node, count),
            unreported_exits: Vec::new(),
            held_reports: WaitingReports::default(),
            doubted: Vec::new(),
            table: RunTable::new(nodes, transport),
        }
    }

    pub(crate) fn transport(&mut self) -> &mut dyn Transport {
        self.table.transport()
    }

    /// Sleeps until something arrives.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        self.table.wait(timeout, arrivals)
    }

    /// Appends what has arrived.
    pub(crate) fn poll(&mut self, arrivals: &mut Vec<Arrival>) -> Result<(), Error> {
        self.table.poll(arrivals)
    }

    /// Returns true if every rank of this node waits for the end of a run.
    pub(crate) fn all_ranks_wait(&self) -> bool {
        self.sessions.iter().all(|session| session.as_ref().is_some_and(RankSession::is_waiting))
    }

    /// Requests a notification of every rank before the agent sleeps; false if one has submitted
    /// something meanwhile.
    pub(crate) fn arm(&mut self) -> bool {
        // The fence of each session also precedes the look at the send ring of its rank.
        self.sessions.iter_mut().flatten().all(RankSession::arm)
            && self.messages.is_idle(&*self.table.context.transport, QUEUE_LIMIT)
            && self.flows.arm(&mut *self.table.context.transport, QUEUE_LIMIT)
    }

    /// Withdraws the requests: the agent is awake.
    pub(crate) fn disarm(&self) {
        self.sessions.iter().flatten().for_each(RankSession::disarm);
    }

    pub(crate) fn local_rank_of(&self, rank: u32) -> Option<usize> {
        local_rank_of(&self.ranks, rank)
    }

    /// Processes everything that has arrived or was submitted at this time.
    pub(crate) fn turn(&mut self, now: u64, arrivals: &mut Vec<Arrival>) -> Turn {
        self.table.context.now = now;
        let core = sched_getcpu() as u32;
        self.sessions.iter().flatten().for_each(|session| session.set_core(core));
        // Before what has arrived ends their polls.
        let is_polled = self.sessions.iter().flatten().any(RankSession::is_polling);
        let mut had_events = !arrivals.is_empty();
        // Before what has arrived since: reports on a node stay in order.
        self.process_held_reports();
        // Arrivals before submissions: a run that starts now finds its messages among the
        // unexpected ones.
        arrivals.drain(..).for_each(|arrival| self.handle(arrival));
        self.process_held_reports();
        // Before submissions: a rank that finds another one gone has what it sent before.
        had_events |= self.flows.advance();
        for local in 0..self.sessions.len() {
            had_events |= self.serve(local);
            had_events |= self.serve_messages(local);
        }
        had_events |= self.serve_flows();
        // All sends of this turn leave before ranks are woken: other nodes wait for the messages.
        self.table.advance();
        had_events |= self.table.has_transferred();
        let has_delivered = self.flows.take_delivered();
        let expects_more = self.complete_runs() || is_polled && has_delivered;
        had_events |= self.wake_receivers();
        Turn { had_events, expects_more }
    }

    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.table.context.timers.next()
    }

    /// Adds the session of a rank that has joined.
    pub(crate) fn open(&mut self, session: RankSession) {
        if let Some(local) = self.local_rank_of(session.rank) {
            self.flows.join(session.rank, session.marks());
            self.sessions[local] = Some(session);
        }
    }

    /// Processes the submissions of a rank, at most one lap of its ring: the other ranks have their
    /// turn then. Returns true if there were any.
    pub(crate) fn serve(&mut self, local: usize) -> bool {
        // A rank that keeps submitting cannot monopolise the agent: after one lap the next rank is
        // served. The rest of the ring keeps the agent awake, because `arm` finds it.
        let served = (0..ENTRIES).take_while(|_| self.serve_next(local)).count();
        served > 0
    }

    /// Processes the next submission of a rank; false if there is none, or none is read any more.
    fn serve_next(&mut self, local: usize) -> bool {
        let Some(session) = self.sessions[local].as_mut() else { return false };
        let submission = match session.next() {
            Ok(Some(submission)) => submission,
            Ok(None) => return false,
            Err(violation) => {
                self.reject_rank(local, violation);
                return false;
            }
        };
        if let Submission::Exit { has_panicked } = submission {
            self.drain_messages(local);
            self.exit(
                local,
                match has_panicked {
                    false => RankExit::Left,
                    true => RankExit::Failed("has panicked".into()),
                },
            );
            return false;
        }
        if let Err(violation) = self.process(local, submission) {
            self.reject_rank(local, violation);
            return false;
        }
        // Only now: the rank may reuse the memory that the entry refers to from here on.
        if let Some(session) = self.sessions[local].as_mut() {
            session.consume();
        }
        true
    }

    /// Processes a submission of a rank with a session.
    fn process(&mut self, local: usize, submission: Submission) -> Result<(), ProtocolViolation> {
        let Some(session) = self.sessions[local].as_mut() else { return Ok(()) };
        match submission {
            Submission::Register { id, .. } => {
                let registered = session.register(submission, &self.table.context.nodes);
                let schedule = session.schedule(id).filter(|_| registered.is_ok());
                let transport = self.table.transport();
                // The end of a node from which a run expects something must be noticed. A transport
                // that is not sparse is connected with all nodes.
                if let Some(schedule) = schedule
                    && transport.is_sparse()
                {
                    schedule.peer_nodes().into_iter().for_each(|node| transport.require(node));
                }
                registered?;
            }
            Submission::Release { id } => session.release(id),
            Submission::Start { id, slot, generation, sequence, at } => {
                let location = RunLocation { slot, generation, at, bytes: 0 };
                self.start(local, id, sequence, location)?;
            }
            Submission::QueryAwaited { slot, generation } => {
                let ranks = self.awaited_by(self.ranks[local], slot, generation);
                self.sessions[local].iter().for_each(|session| session.answer(&ranks));
            }
            Submission::AnnounceWait { slot, generation } => {
                let key = self.run_in(self.ranks[local], slot, generation);
                key.into_iter().for_each(|key| self.table.announce_wait(key));
            }
            Submission::QueryExited { first } => {
                let exited = self.table.membership.exited(&self.table.context.nodes);
                let words = exited.range(first..).map(|(_, rank)| rank.word());
                session.answer(&words.collect::<Vec<u32>>());
            }
            Submission::QueryUnexpected { communicator, sequence } => {
                let key = RunKey { rank: session.rank, communicator, sequence };
                session.answer(if self.table.has_unexpected(key) { &[0] } else { &[] });
            }
            Submission::CountStarted(started) => session.count_elsewhere(started)?,
            Submission::EndCommunicators { first, last } => {
                if !self.table.end_communicators(session.rank, first..=last) {
                    return Err(ProtocolViolation);
                }
            }
            Submission::AnnounceExit => {
                let started = session.take_elsewhere();
                self.announce_exit(local, started);
            }
            Submission::QueryNeverStart { communicator, sequence } => {
                session.answer(&self.table.membership.never_start(communicator, sequence));
            }
            Submission::OpenMessages { at, ring } => {
                self.messages.open(local, session.segment(), at, ring)?;
            }
            Submission::OpenPort { port, at, table, uses } => {
                self.open_port(local, PortRequest { port, queue: at, table, uses })
            }
            Submission::CloseReceiver { port } => self.flows.close_receiver(session.rank, port),
            Submission::CloseSenders { port } => self.flows.close_senders(session.rank, port),
            Submission::QueryQueueExits { port, first } => {
                self.answer_queue_exits(local, port, first)
            }
            Submission::OpenChannel { port, end, at } => self.open_channel(local, port, end, at),
            Submission::OpenWindow { port, at, table } => self.open_window(local, port, at, table),
            Submission::CloseWindow { port } => self.flows.close_window(session.rank, port),
            // The caller ends the session.
            Submission::Exit { .. } => {}
        }
        Ok(())
    }

    /// Ranks of the job that the run in a slot of a rank waits for.
    fn awaited_by(&self, rank: u32, slot: u32, generation: u32) -> Vec<u32> {
        let key = self.run_in(rank, slot, generation);
        let ranks = key.and_then(|key| self.table.runs.get(&key)).map(Run::waiting_for);
        ranks.into_iter().flatten().collect()
    }

    /// The run in a slot of a rank.
    fn run_in(&self, rank: u32, slot: u32, generation: u32) -> Option<RunKey> {
        let is_it = |(key, location): &(&RunKey, &RunLocation)| {
            (key.rank, location.slot, location.generation) == (rank, slot, generation)
        };
        self.locations.iter().find(is_it).map(|(key, _)| *key)
    }

    fn reject_rank(&mut self, local: usize, _: ProtocolViolation) {
        let how = "has corrupted the memory that it shares with its node service";
        self.exit(local, RankExit::Failed(how.into()));
    }

    fn start(
        &mut self,
        local: usize,
        id: u64,
        sequence: u64,
        location: RunLocation,
    ) -> Result<(), ProtocolViolation> {
        let Some(session) = self.sessions[local].as_mut() else { return Ok(()) };
        let Some(schedule) = session.schedule(id) else {
            let why = "the schedule of this run is not registered";
            session.complete(location, &Err(Error::Operation(why.into())));
            return Ok(());
        };
        let location = RunLocation { bytes: schedule.layout.bytes, ..location };
        let communicator = schedule.communicator;
        let key = RunKey { rank: session.rank, communicator, sequence };
        // From here on the run counts as under way. The table ends it exactly once, and
        // `complete_runs` counts its end. A violation comes before the table counts the start: the
        // other ranks would wait for a run that is never executed.
        session.count_start(location)?;
        if let Err(error) = self.table.count_start(key) {
            session.complete(location, &Err(error));
            session.count_end(location);
            return Ok(());
        }
        let prepared = session.prepare_run(&schedule, location, self.limits);
        self.locations.insert(key, location);
        self.table.start(key, schedule, prepared);
        Ok(())
    }

    /// Completes the runs that have ended for their ranks. This follows the sends of the same
    /// wake-up, because waking a rank takes time and other nodes wait for the messages.
    /// Returns true if a rank polls for one of them.
    pub(crate) fn complete_runs(&mut self) -> bool {
        let mut has_released_ranks = false;
        let mut ended = std::mem::take(&mut self.table.ended);
        for run in ended.drain(..) {
            let Some(location) = self.locations.remove(&run.key) else { continue };
            let local = self.local_rank_of(run.key.rank);
            let Some(session) = local.and_then(|local| self.sessions[local].as_mut()) else {
                continue;
            };
            let has_results = run.has_results();
            if let Some(interpreter) = run.interpreter {
                session.finish_run(&run.schedule, location, interpreter, has_results);
            }
            has_released_ranks |= session.is_polling();
            session.complete(location, &run.outcome);
            // Only after the completion: as long as the run counts, the session stays open.
            session.count_end(location);
        }
        self.table.ended = ended;
        self.close_sessions();
        has_released_ranks
    }

    /// Processes an arrival of the transport.
    pub(crate) fn handle(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Notified(_) => {}
            Arrival::NodeLost { node, why } => self.lose(node, why),
            Arrival::Connected { node } => self.send_missed_reports(node),
            Arrival::Frame { node, frame } => self.handle_frame(node, frame),
            Arrival::InPlace { node, location, eager } => {
                self.table.receive_in_place(node, location, eager);
            }
            Arrival::Unreadable { node, route, eager } => {
                self.table.receive_unreadable(node, route, eager);
            }
        }
    }

    fn handle_frame(&mut self, node: u32, frame: Frame) {
        let Some(frame) = self.table.handle_frame(node, frame) else { return };
        if let Some(frame) = self.hold_report(node, frame) {
            self.handle_report(node, frame);
        }
    }

    /// Processes a frame that is for no run.
    fn handle_report(&mut self, node: u32, frame: Frame) {
        match frame {
            Frame::RankExited { rank, how, started } if self.may_report(node, rank) => {
                self.report_exit(rank, &how);
                let of = self.table.context.nodes.of(rank);
                let counts = started.clone();
                if self.table.membership.rank_exited(rank, how.clone(), counts) {
                    self.pass_on(&Frame::RankExited { rank, how, started }, Some(node));
                    self.table.fail_affected_runs();
                    // Behind the exit, where it is passed on.
                    of.into_iter().for_each(|of| self.answer_shutdown(of));
                }
            }
            Frame::Messages { source, records } => self.receive(node, source, &records),
            Frame::Flows { records } => self.table.refused += self.flows.receive(node, &records),
            Frame::RankLeaves { rank, started } if self.may_report(node, rank) => {
                let is_news = self.table.membership.rank_leaves(rank, started.clone());
                if is_news {
                    self.pass_on(&Frame::RankLeaves { rank, started }, Some(node));
                }
            }
            Frame::NodeEnded { node: ended, failure } => {
                self.end_reported_node(node, ended, failure);
            }
            Frame::Shutdown => self.receive_shutdown(node),
            Frame::ShutdownAck => self.shutdown.acknowledged[node as usize] = true,
            _ => {}
        }
    }

    /// Returns true if a node may report on a rank: on its own ranks, and where reports are passed
    /// on, on those of nodes without a connection. A node that is connected reports itself, behind
    /// what its ranks have sent before.
    fn may_report(&self, node: u32, rank: u32) -> bool {
        let transport = &self.table.context.transport;
        let Some(of) = self.table.context.nodes.of(rank) else { return false };
        let passes_on = transport.is_sparse() && of != transport.node();
        of == node || passes_on && transport.link(of) != LinkState::Open
    }

    /// Number of frames and connections that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.table.refused + self.flows.refused() + self.table.context.transport.refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::credits::CREDIT;
    use crate::runs::unexpected::{MAX_BYTES, MAX_MESSAGES, Total};
    use crate::transport::frame::Route;
    use crate::transport::memory;
    use interpreter::Packet;

    fn agent(names: &[&str]) -> AgentState {
        let transport = memory::connect(names.len() as u32).expect("descriptors").remove(0);
        AgentState::new(NodeMap::new(names), Box::new(transport), Limits::new(16 << 10))
    }

    /// The first run of communicator 4 for which a message was dropped. It and later ones fail when
    /// they are started.
    fn first_to_fail(state: &AgentState) -> u64 {
        let key = |sequence| RunKey { rank: 0, communicator: 4, sequence };
        let fails = |run: &u64| state.table.unexpected.failure_of(key(*run), &[0, 1]).is_some();
        (0..).find(fails).expect("a message was dropped")
    }

    /// A rank starts nothing while others send it a message for each of millions of runs.
    #[test]
    fn the_number_of_unexpected_messages_of_a_rank_is_bounded() {
        let mut state = agent(&["a", "b"]);
        for sequence in 0..MAX_MESSAGES as u64 + 100 {
            let route =
                Route { destination: 0, communicator: 4, source: 1, sequence, signature: 0 };
            let packet = Packet::Eager { tag: 0, ordinal: 0, payload: Vec::new() };
            state.handle(Arrival::Frame { node: 1, frame: Frame::Packet(route, packet) });
        }
        assert_eq!(state.table.unexpected.by_run.len(), MAX_MESSAGES);
        assert_eq!(first_to_fail(&state), MAX_MESSAGES as u64);
        state.exit(0, RankExit::Left);
        let unexpected = &state.table.unexpected;
        assert!(unexpected.by_run.is_empty() && unexpected.by_rank[&0] == Total::default());
        let key = RunKey { rank: 0, communicator: 4, sequence: MAX_MESSAGES as u64 };
        assert_eq!(unexpected.failure_of(key, &[0, 1]), None, "the rank starts no run any more");
    }

    /// Contributions to joins need no credit.
    #[test]
    fn the_bytes_of_unexpected_messages_of_a_rank_are_bounded() {
        let mut state = agent(&["a", "b"]);
        let most = MAX_BYTES + 2 * CREDIT;
        for sequence in 0..(2 * most) >> 20 {
            let route =
                Route { destination: 0, communicator: 4, source: 1, sequence, signature: 0 };
            let contribution = vec![0; 1 << 20];
            let frame = Frame::Join { route, ordinal: 0, contribution };
            state.handle(Arrival::Frame { node: 1, frame });
        }
        let kept = state.table.unexpected.by_run.len() as u64;
        assert_eq!((kept, first_to_fail(&state)), (most >> 20, most >> 20));
    }
}
