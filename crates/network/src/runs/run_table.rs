//! The runs of a node's ranks, and the messages for them.
//!
//! The owner starts runs with their buffers, hands over what arrives, and takes the runs that have
//! ended with their results.

use super::credits::Credits;
use super::membership::Membership;
use super::payloads::{MemoryFault, RunPayloads};
use super::run::{PreparedRun, Run, RunOutcome, unreadable_buffer};
use super::run_context::{MessageOrigin, RunContext, RunInput, RunKey, Timers, report_failure};
use super::schedule::RegisteredSchedule;
use super::unexpected::{UnexpectedMessage, UnexpectedMessages};
use crate::error::{Error, system};
use crate::node_map::NodeMap;
use crate::run_counts::RunCounts;
use crate::transport::frame::{Frame, Route};
use crate::transport::payloads::PayloadLocation;
use crate::transport::{Arrival, Transport};
use interpreter::{Event, Handle, Interpreter, Packet};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Bytes in the queue of a node from which on it gets no further large message of a run, and no
/// message of a rank, for the moment.
pub(crate) const QUEUE_LIMIT: u64 = 32 << 20;

/// Most requests of one node that are postponed. They are for messages of 16 KiB and more.
const MOST_POSTPONED: usize = 1 << 20;

/// The runs of the ranks of one node.
#[derive(Debug)]
pub(crate) struct RunTable {
    pub(crate) context: RunContext,
    /// Ranks of the job on this node.
    ranks: Vec<u32>,
    pub(crate) runs: HashMap<RunKey, Run>,
    /// Number of runs that receive long payloads.
    long_runs: usize,
    /// Messages for runs that have not started.
    pub(crate) unexpected: UnexpectedMessages,
    /// Runs started, by rank.
    pub(crate) run_counts: HashMap<u32, RunCounts>,
    pub(crate) membership: Membership,
    /// Requests for large messages by nodes with a long queue, by node.
    postponed: BTreeMap<u32, VecDeque<(Route, Packet)>>,
    /// Most of them of one node. The runs of further ones fail.
    most_postponed: usize,
    /// Runs that have ended and that the owner has not taken.
    pub(crate) ended: Vec<EndedRun>,
    /// Runs that have failed while an adapter accesses their memory, which their ranks get back
    /// afterwards: it would change their data, or send what they write next.
    detained: Vec<EndedRun>,
    /// Payloads that have been sent from the memory of their runs.
    sent: Vec<PayloadLocation>,
    /// Runs of which the system cannot read or write the memory.
    faulted: Vec<(RunKey, MemoryFault)>,
    /// Bytes of long messages transferred up to the last call of `has_transferred`.
    transferred: u64,
    /// Number of frames that were refused.
    pub(crate) refused: u64,
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct EndedRun {
    pub(crate) key: RunKey,
    pub(crate) schedule: Arc<RegisteredSchedule>,
    /// The interpreter with the results; `None` if the run could not start.
    pub(crate) interpreter: Option<Interpreter>,
    pub(crate) outcome: RunOutcome,
}

impl EndedRun {
    /// Returns true if there are results.
    pub(crate) fn has_results(&self) -> bool {
        matches!(self.outcome, Ok(()) | Err(Error::DivisionByZero { .. }))
    }
}

impl RunTable {
    /// The runs of the ranks on the transport's node.
    pub(crate) fn new(nodes: NodeMap, transport: Box<dyn Transport>) -> Self {
        let count = transport.nodes();
        RunTable {
            ranks: nodes.members(transport.node()).collect(),
            runs: HashMap::new(),
            long_runs: 0,
            unexpected: UnexpectedMessages::new(count),
            run_counts: HashMap::new(),
            membership: Membership::default(),
            postponed: BTreeMap::new(),
            most_postponed: MOST_POSTPONED,
            ended: Vec::new(),
            detained: Vec::new(),
            sent: Vec::new(),
            faulted: Vec::new(),
            transferred: 0,
            refused: 0,
            context: RunContext {
                credits: Credits::new(count),
                nodes,
                transport,
                local: VecDeque::new(),
                timers: Timers::default(),
                lost: vec![false; count as usize],
                has_exit_reports: true,
                now: 0,
            },
        }
    }

    pub(crate) fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.context.transport
    }

    /// Notes the start of a run.
    ///
    /// # Errors
    /// If the run must not start: a second one with its number would take the messages of the first.
    pub(crate) fn count_start(&mut self, key: RunKey) -> Result<(), Error> {
        let RunKey { rank, communicator, sequence } = key;
        self.run_counts.entry(rank).or_default().start(communicator, sequence).map_err(|why| {
            let run = format!("run {sequence} of communicator {communicator}");
            Error::Operation(format!("{run} cannot start: {why}"))
        })
    }

    /// Notes that a rank neither has nor will have a communicator with one of these numbers: see
    /// [`RunCounts::end`].
    pub(crate) fn end_communicators(&mut self, rank: u32, numbers: RangeInclusive<u32>) -> bool {
        let is_right = self.run_counts.entry(rank).or_default().end(numbers.clone());
        // No run takes them any more.
        for key in self.unexpected.runs_of(rank, numbers.clone()) {
            self.drop_unexpected(key);
        }
        self.unexpected.forget_dropped_of(rank, &numbers);
        is_right
    }

    /// Starts a run that was [counted](Self::count_start), with an interpreter and its buffers, or
    /// ends it with the reason why there are none. Puts the run into `ended` exactly once.
    pub(crate) fn start(
        &mut self,
        key: RunKey,
        schedule: Arc<RegisteredSchedule>,
        prepared: Result<PreparedRun, Error>,
    ) {
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                report_failure(key, &schedule, &error, &mut self.context);
                let outcome = Err(error);
                self.ended.push(EndedRun { key, schedule, interpreter: None, outcome });
                return self.drop_unexpected(key);
            }
        };
        // A member may have exited before this start. `fail_affected_runs` could not find the run
        // then, so the exits are checked again here.
        let failure = self
            .membership
            .failure_of(&schedule.members, &schedule.nodes, key.communicator, key.sequence)
            .or_else(|| self.unexpected.failure_of(key, &schedule.nodes));
        self.long_runs += usize::from(schedule.receives_long);
        let (mut run, buffers) = Run::new(key, schedule, prepared);
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
        let counts = self.run_counts.get(&key.rank);
        let is_over = counts.is_some_and(|counts| counts.is_behind(key.communicator, key.sequence));
        let is_local = self.ranks.contains(&key.rank);
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
    pub(crate) fn drop_unexpected(&mut self, key: RunKey) {
        for UnexpectedMessage { origin, input } in self.unexpected.take(key) {
            self.drop_message(origin, &input);
        }
    }

    /// Ends a run, and reports a failure of this rank's part to the other ranks.
    pub(crate) fn finish(&mut self, key: RunKey, outcome: RunOutcome) {
        // Some failures are not reported. A division by zero concerns the results of this rank
        // only, and every agent learns of an exit, or of a node's failure that was reported.
        if let (Err(error), Some(run)) = (&outcome, self.runs.get(&key))
            && !matches!(error, Error::DivisionByZero { .. })
            && !(self.context.has_exit_reports && self.membership.is_known_to_all(error))
        {
            report_failure(key, &run.schedule, error, &mut self.context);
        }
        self.close(key, outcome);
    }

    /// Ends a run that has sent everything, before it has what the others send.
    pub(crate) fn withdraw(&mut self, key: RunKey, error: Error) {
        self.close(key, Err(error));
    }

    /// Ends a run for its rank.
    fn close(&mut self, key: RunKey, outcome: RunOutcome) {
        let Some(mut run) = self.runs.remove(&key) else { return };
        self.long_runs -= usize::from(run.schedule.receives_long);
        // Held payloads end with the run. Their credit returns to the senders, which otherwise
        // could send this node less and less.
        run.release_held(&mut self.context);
        // Other ranks may need the rest of what the run was sending.
        for (location, payload) in run.detached_payloads() {
            self.context.transport.detach(location, payload);
        }
        let Run { schedule, interpreter, .. } = run;
        let ended = EndedRun { key, schedule, interpreter: Some(interpreter), outcome };
        let is_used = self.context.transport.uses_run(key.payload(Handle(0)));
        if is_used { self.detained.push(ended) } else { self.ended.push(ended) }
    }

    /// Ends the runs of which the memory is no longer used.
    fn release_detained(&mut self) {
        if !self.detained.is_empty() {
            let transport = &self.context.transport;
            let is_free = |run: &mut EndedRun| !transport.uses_run(run.key.payload(Handle(0)));
            self.ended.extend(self.detained.extract_if(.., is_free));
        }
    }

    /// Processes everything that needs no other node, and sends.
    pub(crate) fn advance(&mut self) {
        loop {
            self.fail_faulted_runs();
            for location in std::mem::take(&mut self.sent) {
                let event = Event::Sent { send: Handle(location.operation) };
                self.event(RunKey::of(location), event);
            }
            self.settle();
            let (transport, mut payloads) = self.parts();
            transport.flush(&mut payloads);
            // Sends that have completed may let their runs send more, or end. Runs that fail report
            // that.
            if self.sent.is_empty() && self.faulted.is_empty() {
                return self.release_detained();
            }
        }
    }

    /// Sleeps until something arrives; see [`Transport::wait`].
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        let (transport, mut payloads) = self.parts();
        let waited = transport.wait(timeout, &mut payloads, arrivals);
        self.fail_faulted_runs();
        waited
    }

    /// Appends what has arrived; see [`Transport::poll`].
    pub(crate) fn poll(&mut self, arrivals: &mut Vec<Arrival>) -> Result<(), Error> {
        let (transport, mut payloads) = self.parts();
        let polled = transport.poll(&mut payloads, arrivals);
        self.fail_faulted_runs();
        polled
    }

    /// Fails the runs of which the system cannot read or write the memory. This precedes the
    /// arrivals of the same call, which may report the end of a payload that was dropped.
    fn fail_faulted_runs(&mut self) {
        for (key, fault) in std::mem::take(&mut self.faulted) {
            let error = match fault {
                MemoryFault::Read => unreadable_buffer(key.rank),
                MemoryFault::Write => system(
                    &format!("receive a message into a buffer of rank {}", key.rank),
                    "the node has no memory left for it; use smaller buffers or fewer ranks",
                ),
            };
            self.finish(key, Err(error));
        }
    }

    /// Returns true if bytes of long messages have been transferred since the last call.
    pub(crate) fn has_transferred(&mut self) -> bool {
        let transferred = self.context.transport.transferred();
        std::mem::replace(&mut self.transferred, transferred) != transferred
    }

    fn parts(&mut self) -> (&mut dyn Transport, RunPayloads<'_>) {
        let RunTable { context, runs, long_runs, sent, faulted, .. } = self;
        let long_runs = *long_runs;
        (&mut *context.transport, RunPayloads { runs, sent, faulted, long_runs })
    }

    /// Processes an event of a run, if it is under way.
    fn event(&mut self, key: RunKey, event: Event) {
        let run = self.runs.get_mut(&key);
        if let Some(outcome) = run.and_then(|run| run.event(event, &mut self.context)) {
            self.finish(key, outcome);
        }
    }

    /// Processes the end of a message that was received in place.
    pub(crate) fn receive_in_place(&mut self, node: u32, location: PayloadLocation, eager: u64) {
        if eager > 0 {
            self.context.credits.consumed(node, eager);
        }
        self.event(RunKey::of(location), Event::Received { receive: Handle(location.operation) });
    }

    /// Processes a message that its sender's node could not read. The run fails for all ranks:
    /// those that wait for a message of this one learn it from here, also if the sender's part is
    /// over.
    pub(crate) fn receive_unreadable(&mut self, node: u32, route: Route, eager: u64) {
        if eager > 0 {
            self.context.credits.consumed(node, eager);
        }
        self.route(node, route, RunInput::Unreadable);
    }

    /// Processes messages between ranks of this node, computations that have ended, requests that
    /// were postponed, and credit to be returned.
    fn settle(&mut self) {
        self.resume_postponed();
        loop {
            // A local message may let its run send the next one, so the loop goes on until the
            // queue and the due computations are exhausted.
            if let Some((key, origin, input)) = self.context.local.pop_front() {
                self.deliver(key, origin, input);
            } else if let Some((key, operation)) = self.context.timers.pop(self.context.now) {
                self.event(key, Event::CalcFinished { operation });
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

    /// Processes a frame for runs of this node. Returns every other one.
    pub(crate) fn handle_frame(&mut self, node: u32, frame: Frame) -> Option<Frame> {
        match frame {
            Frame::Packet(route, packet @ Packet::ClearToSend { .. })
                if self.context.transport.queued(node) > QUEUE_LIMIT =>
            {
                let postponed = self.postponed.entry(node).or_default();
                if postponed.len() < self.most_postponed {
                    postponed.push_back((route, packet));
                } else {
                    // The run's send never ends without this answer.
                    self.route(node, route, RunInput::Unserved);
                }
            }
            Frame::Packet(route, packet) => self.route(node, route, RunInput::Packet(packet)),
            Frame::Join { route, ordinal, contribution } => {
                self.route(node, route, RunInput::Join { ordinal, contribution });
            }
            Frame::Fail(route, error) => self.route(node, route, RunInput::Fail(error)),
            Frame::Waits(route) => self.route(node, route, RunInput::Waits),
            Frame::Credit(bytes) => self.context.credits.add(node, bytes),
            other => return Some(other),
        }
        None
    }

    fn route(&mut self, node: u32, route: Route, input: RunInput) {
        let Route { destination: rank, communicator, source, sequence, signature } = route;
        let key = RunKey { rank, communicator, sequence };
        self.deliver(key, MessageOrigin { node, source, signature }, input);
    }

    /// Answers the requests that were postponed, as far as the queues are short enough. A node that
    /// reads nothing delays those of no other one.
    fn resume_postponed(&mut self) {
        if self.postponed.is_empty() {
            return;
        }
        for (node, mut requests) in std::mem::take(&mut self.postponed) {
            while self.context.transport.queued(node) <= QUEUE_LIMIT
                && let Some((route, packet)) = requests.pop_front()
            {
                self.route(node, route, RunInput::Packet(packet));
            }
            if !requests.is_empty() {
                self.postponed.insert(node, requests);
            }
        }
    }

    /// Returns true if there are messages for a run that its rank has not started.
    pub(crate) fn has_unexpected(&self, key: RunKey) -> bool {
        self.unexpected.has_any(key)
    }

    /// Sends the ranks that a run waits for a sign of it, if it is under way.
    pub(crate) fn announce_wait(&mut self, key: RunKey) {
        if let Some(run) = self.runs.get(&key) {
            run.announce_wait(&mut self.context);
        }
    }

    /// Notes the end of a connection.
    pub(crate) fn lose(&mut self, node: u32) {
        self.postponed.remove(&node);
        self.context.lost[node as usize] = true;
    }

    /// Returns true if frames wait in the queue of a node.
    pub(crate) fn has_queued(&self) -> bool {
        let transport = &self.context.transport;
        (0..transport.nodes()).any(|node| transport.queued(node) > 0)
    }

    /// Returns true if a node that is connected, and `is_awaited`, has not acknowledged everything.
    pub(crate) fn has_unacknowledged(&self, is_awaited: impl Fn(u32) -> bool) -> bool {
        let transport = &self.context.transport;
        (0..transport.nodes()).any(|node| is_awaited(node) && transport.unacknowledged(node) > 0)
    }

    /// Ends every run that cannot end by itself any more.
    pub(crate) fn fail_affected_runs(&mut self) {
        let failure = |run: &Run| {
            let RunKey { communicator, sequence, .. } = run.key;
            let members = &run.schedule.members;
            let nodes = &run.schedule.nodes;
            let error = self.membership.failure_of(members, nodes, communicator, sequence)?;
            Some((run.key, error))
        };
        // Collected first, because `finish` removes runs from the table.
        let failures: Vec<(RunKey, Error)> = self.runs.values().filter_map(failure).collect();
        for (key, error) in failures {
            self.finish(key, Err(error));
        }
    }
}

#[cfg(test)]
mod tests;
