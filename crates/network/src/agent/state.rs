//! The agent's state machine, without thread and sleep: runs, unexpected messages, sessions of
//! ranks, and the shutdown.

mod exits;

use super::credits::Credits;
use super::membership::{Membership, RunCount, ShutdownState};
use super::run::{
    MessageOrigin, Run, RunContext, RunInput, RunKey, RunOutcome, Timers, report_failure,
};
use super::session::{ProtocolViolation, RankSession, RunLocation};
use super::shared_region::{ENTRIES, Submission};
use super::unexpected::{UnexpectedMessage, UnexpectedMessages};
use crate::error::{Error, RankExit};
use crate::node_map::NodeMap;
use crate::transport::frame::{Frame, Route};
use crate::transport::{Arrival, Transport};
use interpreter::{Event, Limits, Packet};
use std::collections::{HashMap, VecDeque};

/// Bytes in the queue of a node from which on it gets no further large message for the moment.
const QUEUE_LIMIT: u64 = 32 << 20;

/// The agent of one node.
#[derive(Debug)]
pub(crate) struct AgentState {
    limits: Limits,
    context: RunContext,
    /// By local rank; `None` before the rank has joined and after it has exited.
    sessions: Vec<Option<RankSession>>,
    /// Ranks of the job on this node, by local rank.
    ranks: Vec<u32>,
    runs: HashMap<RunKey, Run>,
    /// Messages for runs that have not started.
    unexpected: UnexpectedMessages,
    /// Runs started, by rank and communicator.
    run_counts: HashMap<(u32, u32), RunCount>,
    membership: Membership,
    /// Requests for large messages by nodes with a long queue.
    postponed: VecDeque<(u32, Route, Packet)>,
    shutdown: ShutdownState,
    /// Runs that have ended and are not completed for their ranks yet.
    ended: Vec<(u32, RunLocation, RunOutcome)>,
    /// Number of frames that were refused.
    refused: u64,
    /// True if the end of a connection fails no run.
    ignores_lost_nodes: bool,
}

/// Summary of a turn of the agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// True if something had arrived or was submitted.
    pub(crate) had_events: bool,
    /// True if runs have ended for their ranks.
    pub(crate) has_ended_runs: bool,
}

impl AgentState {
    pub(crate) fn new(nodes: NodeMap, transport: Box<dyn Transport>, limits: Limits) -> AgentState {
        let ranks: Vec<u32> = nodes.members(transport.node()).collect();
        let node = transport.node();
        let count = transport.nodes();
        AgentState {
            limits,
            sessions: ranks.iter().map(|_| None).collect(),
            ranks,
            runs: HashMap::new(),
            unexpected: UnexpectedMessages::new(count),
            run_counts: HashMap::new(),
            membership: Membership::default(),
            postponed: VecDeque::new(),
            shutdown: ShutdownState::of_node(node, count),
            ended: Vec::new(),
            refused: 0,
            ignores_lost_nodes: false,
            context: RunContext {
                credits: Credits::new(count),
                nodes,
                transport,
                local: VecDeque::new(),
                timers: Timers::default(),
                lost: vec![false; count as usize],
                now: 0,
            },
        }
    }

    pub(crate) fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.context.transport
    }

    /// Returns true if every rank of this node polls for the end of a run.
    pub(crate) fn all_ranks_poll(&self) -> bool {
        self.sessions.iter().all(|session| session.as_ref().is_some_and(RankSession::is_polling))
    }

    /// Requests a notification of every rank before the agent sleeps; false if one has submitted
    /// something meanwhile.
    pub(crate) fn arm(&mut self) -> bool {
        self.sessions.iter_mut().flatten().all(RankSession::arm)
    }

    /// Withdraws the requests: the agent is awake.
    pub(crate) fn disarm(&self) {
        self.sessions.iter().flatten().for_each(RankSession::disarm);
    }

    pub(crate) fn local_rank_of(&self, rank: u32) -> Option<usize> {
        self.ranks.iter().position(|other| *other == rank)
    }

    /// Processes everything that has arrived or was submitted at this time.
    pub(crate) fn turn(&mut self, now: u64, arrivals: &mut Vec<Arrival>) -> Turn {
        self.context.now = now;
        let mut had_events = !arrivals.is_empty();
        // Arrivals before submissions: a run that starts now finds its messages among the
        // unexpected ones.
        arrivals.drain(..).for_each(|arrival| self.handle(arrival));
        for local in 0..self.sessions.len() {
            had_events |= self.serve(local);
        }
        self.resume_postponed();
        self.settle();
        // All sends of this turn leave before ranks are woken: other nodes wait for the messages.
        self.context.transport.flush();
        let has_ended_runs = !self.ended.is_empty();
        self.complete_runs();
        Turn { had_events, has_ended_runs }
    }

    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.context.timers.next()
    }

    /// Lets the end of a connection fail no run: the caller learns of failures elsewhere.
    pub(crate) fn ignore_lost_nodes(&mut self) {
        self.ignores_lost_nodes = true;
    }

    /// Nodes with connections that have ended.
    pub(crate) fn lost_nodes(&self) -> Vec<u32> {
        let nodes = (0..).zip(&self.context.lost).filter(|(_, is_lost)| **is_lost);
        nodes.map(|(node, _)| node).collect()
    }

    /// Returns true if frames wait in the queue of a node.
    pub(crate) fn has_queued(&self) -> bool {
        let transport = &self.context.transport;
        (0..transport.nodes()).any(|node| transport.queued(node) > 0)
    }

    /// Returns true if a node that is connected has not acknowledged everything.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        let transport = &self.context.transport;
        (0..transport.nodes()).any(|node| transport.unacknowledged(node) > 0)
    }

    /// Adds the session of a rank that has joined.
    pub(crate) fn open(&mut self, session: RankSession) {
        if let Some(local) = self.local_rank_of(session.rank) {
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
        let handled = match submission {
            Submission::Register { .. } => session.register(submission, &self.context.nodes),
            Submission::Release { id } => {
                session.release(id);
                Ok(())
            }
            Submission::Start { id, slot, generation, sequence, at } => {
                let location = RunLocation { slot, generation, at, bytes: 0 };
                self.start(local, id, sequence, location)
            }
            Submission::QueryAwaited { slot, generation } => {
                let ranks = self.awaited_by(self.ranks[local], slot, generation);
                self.sessions[local].iter().for_each(|session| session.answer(&ranks));
                Ok(())
            }
            Submission::QueryExited { first } => {
                let exited = self.membership.exited(&self.context.nodes);
                let words = exited.range(first..).map(|(_, rank)| rank.word());
                session.answer(&words.collect::<Vec<u32>>());
                Ok(())
            }
            Submission::QueryUnexpected { communicator, sequence } => {
                let any =
                    self.unexpected.has_any(RunKey { rank: session.rank, communicator, sequence });
                session.answer(if any { &[0] } else { &[] });
                Ok(())
            }
            Submission::Exit => {
                self.exit(local, RankExit::Left);
                return false;
            }
        };
        if let Err(violation) = handled {
            self.reject_rank(local, violation);
            return false;
        }
        // Only now: the rank may reuse the memory that the entry refers to from here on.
        if let Some(session) = self.sessions[local].as_mut() {
            session.consume();
        }
        true
    }

    /// Ranks of the job that the run in a slot of a rank waits for.
    pub(crate) fn awaited_by(&self, rank: u32, slot: u32, generation: u32) -> Vec<u32> {
        let is_it = |run: &&Run| {
            (run.key.rank, run.location.slot, run.location.generation) == (rank, slot, generation)
        };
        let ranks = self.runs.values().find(is_it).map(Run::waiting_for);
        ranks.into_iter().flatten().collect()
    }

    /// Returns true if there are messages for a run that its rank has not started.
    pub(crate) fn has_unexpected(&self, key: RunKey) -> bool {
        self.unexpected.has_any(key)
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
        // Each number is started once. A second run with the same key would take the messages of
        // the first.
        if !self.run_counts.entry((key.rank, communicator)).or_default().start(sequence) {
            let why = format!("run {sequence} of communicator {communicator} was started before");
            session.complete(location, &Err(Error::Operation(why)));
            return Ok(());
        }
        // From here on the run counts as under way. Every path below puts it into `ended` exactly
        // once, and `complete_runs` counts its end.
        session.count_start(location)?;
        let (interpreter, buffers) = match session.prepare_run(&schedule, location, self.limits) {
            Ok(prepared) => prepared,
            Err(error) => {
                report_failure(key, &schedule, &error, &mut self.context);
                self.ended.push((key.rank, location, Err(error)));
                self.drop_unexpected(key);
                return Ok(());
            }
        };
        // A member may have exited before this start. `fail_affected_runs` could not find the run
        // then, so the exits are checked again here.
        let failure = self
            .membership
            .failure_of(&schedule.members, &schedule.nodes, communicator, sequence)
            .or_else(|| self.unexpected.failure_of(key));
        let mut run = Run::new(key, schedule, location, interpreter);
        let outcome = match failure {
            Some(error) => Some(Err(error)),
            None => run.start(buffers, &mut self.context),
        };
        self.runs.insert(key, run);
        if let Some(outcome) = outcome {
            self.finish(key, outcome);
        }
        // These messages arrived before the start, in this order, so they precede all that arrive
        // from now on. If the run is over already, `deliver` drops them.
        for UnexpectedMessage { origin, input } in self.unexpected.take(key) {
            self.deliver(key, origin, input);
        }
        Ok(())
    }

    /// Delivers a message to its run, or keeps it until the run starts.
    fn deliver(&mut self, key: RunKey, origin: MessageOrigin, input: RunInput) {
        let Some(run) = self.runs.get_mut(&key) else { return self.keep(key, origin, input) };
        // A node sends for its own ranks only. Without this check it could forge the messages of
        // others.
        if run.schedule.nodes.get(origin.source as usize) != Some(&origin.node) {
            // The communicator has no such rank on that node.
            self.refused += 1;
            return self.drop_message(origin, &input);
        }
        // One mismatch is enough for all ranks: `finish` reports it to those that wait for a
        // message of this run.
        if let Some(error) = run.mismatch(origin) {
            self.drop_message(origin, &input);
            return self.finish(key, Err(error));
        }
        let is_report = matches!(input, RunInput::Fail(_));
        if let Some(outcome) = run.receive(origin.source, input, &mut self.context) {
            // The rank that reports a failure reports it to all.
            if is_report { self.close(key, outcome) } else { self.finish(key, outcome) }
        }
    }

    /// Keeps a message for a run that has not started, and drops one for a run that is over.
    fn keep(&mut self, key: RunKey, origin: MessageOrigin, input: RunInput) {
        // A run that was started and is not in the table has ended, so the message is late. Keeping
        // it would take memory until the rank exits.
        let is_over = self
            .run_counts
            .get(&(key.rank, key.communicator))
            .is_some_and(|count| count.has_started(key.sequence));
        let is_local = self.local_rank_of(key.rank).is_some();
        if is_over || !is_local || self.membership.has_exited(key.rank) {
            return self.drop_message(origin, &input);
        }
        let message = UnexpectedMessage { origin, input };
        if let Err(UnexpectedMessage { origin, input }) = self.unexpected.keep(key, message) {
            self.drop_message(origin, &input);
        }
    }

    /// Returns the credit of a message that no run receives.
    fn drop_message(&mut self, origin: MessageOrigin, input: &RunInput) {
        // The sender has counted this payload. If dropped messages returned no credit, the sender
        // would run out of it and use the rendezvous protocol for ever.
        if let RunInput::Packet(Packet::Eager { payload, .. }) = input {
            self.context.credits.consumed(origin.node, payload.len() as u64);
        }
    }

    /// Drops the messages for a run that has not started.
    fn drop_unexpected(&mut self, key: RunKey) {
        for UnexpectedMessage { origin, input } in self.unexpected.take(key) {
            self.drop_message(origin, &input);
        }
    }

    /// Ends a run, and reports a failure of this rank's part to the other ranks.
    fn finish(&mut self, key: RunKey, outcome: RunOutcome) {
        // Two failures are not reported. A division by zero concerns the results of this rank only,
        // and every agent learns of an exit from the agent of the rank that has exited.
        if let (Err(error), Some(run)) = (&outcome, self.runs.get(&key))
            && !matches!(error, Error::DivisionByZero { .. } | Error::RankFailed { .. })
        {
            report_failure(key, &run.schedule, error, &mut self.context);
        }
        self.close(key, outcome);
    }

    /// Ends a run for its rank.
    fn close(&mut self, key: RunKey, outcome: RunOutcome) {
        let Some(mut run) = self.runs.remove(&key) else { return };
        // Held payloads end with the run. Their credit returns to the senders, which otherwise
        // could send this node less and less.
        run.release_held(&mut self.context);
        let local = self.local_rank_of(key.rank);
        let Some(session) = local.and_then(|local| self.sessions[local].as_mut()) else { return };
        let has_results = matches!(outcome, Ok(()) | Err(Error::DivisionByZero { .. }));
        session.finish_run(&run.schedule, run.location, run.interpreter, has_results);
        self.ended.push((key.rank, run.location, outcome));
    }

    /// Completes the runs that have ended for their ranks. This follows the sends of the same
    /// wake-up, because waking a rank takes time and other nodes wait for the messages.
    pub(crate) fn complete_runs(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        for (rank, location, outcome) in ended.drain(..) {
            let local = self.local_rank_of(rank);
            if let Some(session) = local.and_then(|local| self.sessions[local].as_mut()) {
                session.complete(location, &outcome);
                // Only after the completion: as long as the run counts, the session stays open.
                session.count_end(location);
            }
        }
        self.ended = ended;
        self.close_sessions();
    }

    /// Processes everything that needs no other node: messages between ranks of this node,
    /// computations that have ended, credit to be returned.
    pub(crate) fn settle(&mut self) {
        loop {
            // A local message may let its run send the next one, so the loop goes on until the
            // queue and the due computations are exhausted.
            if let Some((key, origin, input)) = self.context.local.pop_front() {
                self.deliver(key, origin, input);
            } else if let Some((key, operation)) = self.context.timers.pop(self.context.now) {
                let event = Event::CalcFinished { operation };
                let run = self.runs.get_mut(&key);
                if let Some(outcome) = run.and_then(|run| run.event(event, &mut self.context)) {
                    self.finish(key, outcome);
                }
            } else {
                break;
            }
        }
        let own = self.context.transport.node();
        // After the loop, so that one frame returns the credit of many messages.
        while let Some((node, bytes)) = self.context.credits.next_return() {
            if node == own {
                self.context.credits.add(node, bytes);
            } else {
                self.context.transport.send(node, Frame::Credit(bytes));
            }
        }
    }

    /// Processes an arrival of the transport.
    pub(crate) fn handle(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Notified(_) => {}
            Arrival::NodeLost { node, why } => self.lose(node, why),
            Arrival::Frame { node, frame } => self.handle_frame(node, frame),
        }
    }

    fn handle_frame(&mut self, node: u32, frame: Frame) {
        match frame {
            Frame::Packet(route, packet @ Packet::ClearToSend { .. })
                if self.context.transport.queued(node) > QUEUE_LIMIT =>
            {
                self.postponed.push_back((node, route, packet));
            }
            Frame::Packet(route, packet) => self.route(node, route, RunInput::Packet(packet)),
            Frame::Join { route, ordinal, contribution } => {
                self.route(node, route, RunInput::Join { ordinal, contribution });
            }
            Frame::Fail(route, error) => self.route(node, route, RunInput::Fail(error)),
            Frame::RankExited { rank, how, started } => {
                // A node reports on its own ranks only.
                if self.context.nodes.of(rank) == Some(node) {
                    self.membership.rank_exited(rank, how, started);
                    self.fail_affected_runs();
                }
            }
            Frame::Credit(bytes) => self.context.credits.add(node, bytes),
            Frame::Shutdown => {
                // Everything that the node has sent before has been processed by now.
                self.shutdown.received[node as usize] = true;
                self.context.transport.send(node, Frame::ShutdownAck);
            }
            Frame::ShutdownAck => self.shutdown.acknowledged[node as usize] = true,
        }
    }

    fn route(&mut self, node: u32, route: Route, input: RunInput) {
        let Route { destination: rank, communicator, source, sequence, signature } = route;
        let key = RunKey { rank, communicator, sequence };
        self.deliver(key, MessageOrigin { node, source, signature }, input);
    }

    /// Answers the requests that were postponed, as far as the queues are short enough.
    pub(crate) fn resume_postponed(&mut self) {
        for _ in 0..self.postponed.len() {
            let Some((node, route, packet)) = self.postponed.pop_front() else { return };
            self.handle_frame(node, Frame::Packet(route, packet));
        }
    }

    /// Number of frames and connections that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused + self.context.transport.refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::credits::CREDIT;
    use crate::agent::unexpected::{MAX_BYTES, MAX_MESSAGES};
    use crate::transport::memory;

    fn agent(names: &[&str]) -> AgentState {
        let transport = memory::connect(names.len() as u32).expect("descriptors").remove(0);
        AgentState::new(NodeMap::new(names), Box::new(transport), Limits::new(16 << 10))
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
        let unexpected = &state.unexpected;
        assert_eq!((unexpected.by_run.len(), unexpected.overrun.len()), (MAX_MESSAGES, 1));
        assert_eq!(
            unexpected.overrun[&(0, 4)],
            MAX_MESSAGES as u64,
            "runs from here on fail when they are started"
        );
        state.exit(0, RankExit::Left);
        assert!(state.unexpected.by_run.is_empty() && state.unexpected.by_rank[&0] == (0, 0));
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
        let unexpected = &state.unexpected;
        assert_eq!(
            (unexpected.by_run.len() as u64, unexpected.overrun[&(0, 4)]),
            (most >> 20, most >> 20)
        );
    }
}
