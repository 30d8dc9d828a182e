//! What an agent does, without thread and sleep: runs, messages for runs not started yet,
//! departures.

use super::area::{ENTRIES, Submission};
use super::departures::{Departures, Farewell, Ledger};
use super::desk::{Desk, Nonsense, Place};
use super::early::{Early, EarlyMessages};
use super::run::{Incoming, Origin, Outcome, Outside, Run, RunKey, Timers, tell_others};
use super::windows::Windows;
use crate::carrier::{Error, Exit, Outbox};
use crate::nodes::Nodes;
use crate::transport::frame::{Frame, Route};
use crate::transport::{Arrival, Transport};
use interpreter::{Event, Limits, Packet};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A node that has as much in its queue gets no further large message before the queue is shorter.
const QUEUE_LIMIT: u64 = 32 << 20;

/// The agent of one node.
#[derive(Debug)]
pub(crate) struct Core {
    limits: Limits,
    outside: Outside,
    /// By number among this node's ranks; none before the rank has come and after it has gone.
    desks: Vec<Option<Desk>>,
    /// Ranks of this node.
    seats: Vec<u32>,
    runs: HashMap<RunKey, Run>,
    /// What came for runs that have not started.
    early: EarlyMessages,
    ledgers: HashMap<(u32, u32), Ledger>,
    departures: Departures,
    /// Requests for large messages of nodes whose queue is long.
    postponed: VecDeque<(u32, Route, Packet)>,
    farewell: Farewell,
    /// Runs that have ended and whose ranks do not know it yet.
    ended: Vec<(u32, Place, Outcome)>,
    /// Frames that were about nothing we know.
    refused: u64,
}

impl Core {
    pub(crate) fn new(nodes: Nodes, transport: Box<dyn Transport>, limits: Limits) -> Core {
        let seats: Vec<u32> = nodes.members(transport.node()).collect();
        let lost = vec![false; transport.nodes() as usize];
        Core {
            limits,
            desks: seats.iter().map(|_| None).collect(),
            seats,
            runs: HashMap::new(),
            early: EarlyMessages::new(transport.nodes()),
            ledgers: HashMap::new(),
            departures: Departures::default(),
            postponed: VecDeque::new(),
            farewell: Farewell::of_node(transport.node(), transport.nodes()),
            ended: Vec::new(),
            refused: 0,
            outside: Outside {
                windows: Windows::new(transport.nodes()),
                nodes,
                transport,
                local: VecDeque::new(),
                timers: Timers::default(),
                lost,
                now: 0,
            },
        }
    }

    pub(crate) fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.outside.transport
    }

    /// How many ranks this node has.
    pub(crate) fn seats(&self) -> usize {
        self.seats.len()
    }

    /// Marks at every ring that the agent goes to sleep; false when something has been submitted
    /// meanwhile.
    pub(crate) fn doze(&mut self) -> bool {
        self.desks.iter_mut().flatten().all(Desk::doze)
    }

    /// The agent is up again.
    pub(crate) fn rise(&self) {
        self.desks.iter().flatten().for_each(Desk::rise);
    }

    pub(crate) fn seat_of(&self, rank: u32) -> Option<usize> {
        self.seats.iter().position(|seat| *seat == rank)
    }

    pub(crate) fn set_now(&mut self, now: u64) {
        self.outside.now = now;
    }

    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.outside.timers.next()
    }

    /// Whether there are messages to send that wait for room.
    pub(crate) fn is_postponing(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// A rank has come.
    pub(crate) fn open(&mut self, desk: Desk) {
        if let Some(seat) = self.seat_of(desk.rank) {
            self.desks[seat] = Some(desk);
        }
    }

    /// Takes in what a rank of this node has submitted, but for a lap of its ring at most: others
    /// have their turn.
    pub(crate) fn serve(&mut self, seat: usize) {
        for _ in 0..ENTRIES {
            let Some(desk) = self.desks[seat].as_mut() else { return };
            let submission = match desk.next() {
                Ok(Some(submission)) => submission,
                Ok(None) => return,
                Err(nonsense) => return self.distrust(seat, nonsense),
            };
            let handled = match submission {
                Submission::Prepare { .. } => desk.prepare(submission, &self.outside.nodes),
                Submission::Release { id } => {
                    desk.release(id);
                    Ok(())
                }
                Submission::Start { id, slot, generation, sequence, at } => {
                    self.start(seat, id, sequence, Place { slot, generation, at, bytes: 0 })
                }
                Submission::Ask { slot, generation } => {
                    let asked = |run: &&Run| {
                        (run.key.rank, run.place.slot, run.place.generation)
                            == (desk.rank, slot, generation)
                    };
                    let awaited =
                        self.runs.values().find(asked).map(Run::awaited).unwrap_or_default();
                    desk.answer(&awaited.into_iter().collect::<Vec<u32>>());
                    Ok(())
                }
                Submission::Leave => return self.depart(seat, Exit::Left),
            };
            if let Err(nonsense) = handled {
                return self.distrust(seat, nonsense);
            }
            // Only now: until then the rank must leave alone what the entry refers to.
            if let Some(desk) = self.desks[seat].as_mut() {
                desk.take();
            }
        }
    }

    fn distrust(&mut self, seat: usize, _: Nonsense) {
        let how = "has written nonsense into the memory it shares with its node service";
        self.depart(seat, Exit::Failed(how.into()));
    }

    fn start(&mut self, seat: usize, id: u64, sequence: u64, place: Place) -> Result<(), Nonsense> {
        let Some(desk) = self.desks[seat].as_mut() else { return Ok(()) };
        let Some(taken) = desk.schedule(id) else {
            desk.end(place, &Err(Error::Operation("the schedule of this run is not known".into())));
            return Ok(());
        };
        let place = Place { bytes: taken.bytes(), ..place };
        let key = RunKey { rank: desk.rank, communicator: taken.communicator, sequence };
        if !self.ledgers.entry((key.rank, key.communicator)).or_default().start(sequence) {
            let why =
                format!("run {sequence} of communicator {} was started before", key.communicator);
            desk.end(place, &Err(Error::Operation(why)));
            return Ok(());
        }
        desk.begin(place)?;
        let (interpreter, buffers) = match desk.interpreter(&taken, place, self.limits) {
            Ok(spare) => spare,
            Err(error) => {
                tell_others(key, &taken, &error, &mut self.outside);
                self.ended.push((key.rank, place, Err(error)));
                self.drop_early(key);
                return Ok(());
            }
        };
        let verdict =
            self.departures.verdict(&taken.members, &taken.nodes, key.communicator, sequence);
        let verdict = verdict.or_else(|| self.early.verdict(key));
        let mut run = Run::new(key, taken, place, interpreter);
        let ended = match verdict {
            Some(error) => Some(Err(error)),
            None => run.start(buffers, &mut self.outside),
        };
        self.runs.insert(key, run);
        if let Some(outcome) = ended {
            self.finish(key, outcome);
        }
        for Early { origin, incoming } in self.early.take(key) {
            self.deliver(key, origin, incoming);
        }
        Ok(())
    }

    /// Hands something to a run, or keeps it until that starts.
    fn deliver(&mut self, key: RunKey, origin: Origin, incoming: Incoming) {
        let Some(run) = self.runs.get_mut(&key) else { return self.keep(key, origin, incoming) };
        if run.taken.nodes.get(origin.source as usize) != Some(&origin.node) {
            // No such rank of this communicator is there.
            self.refused += 1;
            return self.drop_message(origin, &incoming);
        }
        if let Some(error) = run.mismatch(origin) {
            self.drop_message(origin, &incoming);
            return self.finish(key, Err(error));
        }
        let is_told = matches!(incoming, Incoming::Fail(_));
        if let Some(outcome) = run.take(origin.source, incoming, &mut self.outside) {
            if is_told { self.close(key, outcome) } else { self.finish(key, outcome) }
        }
    }

    /// Keeps what came for a run that has not started, and drops what came for one that is over.
    fn keep(&mut self, key: RunKey, origin: Origin, incoming: Incoming) {
        let is_over = self
            .ledgers
            .get(&(key.rank, key.communicator))
            .is_some_and(|l| l.has_started(key.sequence));
        let is_ours = self.seat_of(key.rank).is_some();
        if is_over || !is_ours || self.departures.has_left(key.rank) {
            return self.drop_message(origin, &incoming);
        }
        if let Err(Early { origin, incoming }) = self.early.keep(key, Early { origin, incoming }) {
            self.drop_message(origin, &incoming);
        }
    }

    /// A message that no run takes weighs on its sender no longer.
    fn drop_message(&mut self, origin: Origin, incoming: &Incoming) {
        if let Incoming::Packet(Packet::Eager { payload, .. }) = incoming {
            self.outside.windows.consumed(origin.node, payload.len() as u64);
        }
    }

    /// Drops what waits for a run.
    fn drop_early(&mut self, key: RunKey) {
        for Early { origin, incoming } in self.early.take(key) {
            self.drop_message(origin, &incoming);
        }
    }

    /// Ends a run, telling the other ranks if its part could not be done.
    fn finish(&mut self, key: RunKey, outcome: Outcome) {
        if let (Err(error), Some(run)) = (&outcome, self.runs.get(&key))
            && !matches!(error, Error::DivisionByZero { .. } | Error::RankFailed { .. })
        {
            tell_others(key, &run.taken, error, &mut self.outside);
        }
        self.close(key, outcome);
    }

    /// Ends a run and tells its rank.
    fn close(&mut self, key: RunKey, outcome: Outcome) {
        let Some(mut run) = self.runs.remove(&key) else { return };
        run.let_go(&mut self.outside);
        let Some(desk) = self.seat_of(key.rank).and_then(|seat| self.desks[seat].as_mut()) else {
            return;
        };
        let has_results = matches!(outcome, Ok(()) | Err(Error::DivisionByZero { .. }));
        desk.finish(&run.taken, run.place, run.interpreter, has_results);
        self.ended.push((key.rank, run.place, outcome));
    }

    /// Tells the ranks which runs have ended. After what the others wait for has been sent: to wake
    /// a rank takes time.
    pub(crate) fn publish(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        for (rank, place, outcome) in ended.drain(..) {
            if let Some(desk) = self.seat_of(rank).and_then(|seat| self.desks[seat].as_mut()) {
                desk.end(place, &outcome);
                desk.conclude(place);
            }
        }
        self.ended = ended;
        self.sweep();
    }

    /// Does everything that needs nobody outside: messages between ranks of this node, computations
    /// that have ended.
    pub(crate) fn settle(&mut self) {
        loop {
            if let Some((key, origin, incoming)) = self.outside.local.pop_front() {
                self.deliver(key, origin, incoming);
            } else if let Some((key, operation)) = self.outside.timers.pop(self.outside.now) {
                let event = Event::CalcFinished { operation };
                let ended =
                    self.runs.get_mut(&key).and_then(|run| run.event(event, &mut self.outside));
                if let Some(outcome) = ended {
                    self.finish(key, outcome);
                }
            } else {
                break;
            }
        }
        let own = self.outside.transport.node();
        while let Some((node, bytes)) = self.outside.windows.report() {
            if node == own {
                self.outside.windows.credit(node, bytes);
            } else {
                self.outside.transport.send(node, Frame::Credit(bytes));
            }
        }
    }

    /// Takes in what the transport has brought.
    pub(crate) fn arrive(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Bell(_) => {}
            Arrival::Gone { node, why } => self.lose(node, why),
            Arrival::Frame { node, frame } => self.frame(node, frame),
        }
    }

    fn frame(&mut self, node: u32, frame: Frame) {
        match frame {
            Frame::Packet(route, packet @ Packet::ClearToSend { .. })
                if self.outside.transport.queued(node) > QUEUE_LIMIT =>
            {
                self.postponed.push_back((node, route, packet));
            }
            Frame::Packet(route, packet) => self.route(node, route, Incoming::Packet(packet)),
            Frame::Join { route, ordinal, contribution } => {
                self.route(node, route, Incoming::Join { ordinal, contribution });
            }
            Frame::Fail(route, error) => self.route(node, route, Incoming::Fail(error)),
            Frame::Departed { rank, how, started } => {
                if self.outside.nodes.of(rank) == Some(node) {
                    self.departures.rank(rank, how, started);
                    self.judge();
                }
            }
            Frame::Credit(bytes) => self.outside.windows.credit(node, bytes),
            Frame::Bye => {
                self.farewell.heard[node as usize] = true;
                self.outside.transport.send(node, Frame::Farewell);
            }
            Frame::Farewell => self.farewell.answered[node as usize] = true,
        }
    }

    fn route(&mut self, node: u32, route: Route, incoming: Incoming) {
        let Route { destination: rank, communicator, source, sequence, stamp } = route;
        self.deliver(
            RunKey { rank, communicator, sequence },
            Origin { node, source, stamp },
            incoming,
        );
    }

    /// Answers requests that had to wait for room.
    pub(crate) fn resume(&mut self) {
        for _ in 0..self.postponed.len() {
            let Some((node, route, packet)) = self.postponed.pop_front() else { return };
            self.frame(node, Frame::Packet(route, packet));
        }
    }

    /// A node is gone.
    fn lose(&mut self, node: u32, why: String) {
        self.postponed.retain(|(of, ..)| *of != node);
        self.farewell.answered[node as usize] = true;
        self.outside.lost[node as usize] = true;
        // A node that has said `Bye` has sent all it had to send, so runs go on without it. But it
        // asks for no message any more: a run that has announced one to it would never end.
        let announced = |run: &Run| Some((run.key, run.announced_to(node)?));
        let waiting: Vec<(RunKey, u32)> = self.runs.values().filter_map(announced).collect();
        if self.farewell.heard[node as usize] {
            for (key, rank) in waiting {
                self.finish(key, Err(Error::RankFailed { rank, how: Exit::Left }));
            }
        }
        if !std::mem::replace(&mut self.farewell.heard[node as usize], true) {
            let address = self.outside.transport.address(node);
            self.departures.node(node, Error::NodeUnreachable { node, address, why });
            self.judge();
        }
    }

    /// Ends every run that cannot end any more.
    fn judge(&mut self) {
        let verdicts: Vec<(RunKey, Error)> = self
            .runs
            .values()
            .filter_map(|run| {
                let (taken, key) = (&run.taken, run.key);
                let error = self.departures.verdict(
                    &taken.members,
                    &taken.nodes,
                    key.communicator,
                    key.sequence,
                )?;
                Some((key, error))
            })
            .collect();
        for (key, error) in verdicts {
            self.finish(key, Err(error));
        }
    }

    /// A rank of this node is gone, or says that it submits nothing more. What it has submitted is
    /// carried through.
    pub(crate) fn depart(&mut self, seat: usize, how: Exit) {
        let Some(rank) = self.seats.get(seat).copied() else { return };
        if self.departures.has_left(rank) {
            return;
        }
        if let Some(desk) = self.desks[seat].as_mut() {
            desk.has_left = true;
        }
        let others = self.seats.iter().filter(|other| **other != rank);
        let is_last = others.copied().all(|other| self.departures.has_left(other));
        // While another rank of the node is there, the node service stays: the rank may end. The
        // last one waits until `part` releases it.
        if !is_last && let Some(desk) = &self.desks[seat] {
            desk.set_drained();
        }
        let started: Vec<(u32, u64)> = self
            .ledgers
            .iter()
            .filter(|((of, _), _)| *of == rank)
            .map(|((_, communicator), ledger)| (*communicator, ledger.started()))
            .collect();
        let (own, nodes) = (self.outside.transport.node(), self.outside.transport.nodes());
        for node in (0..nodes).filter(|node| *node != own) {
            let departed = Frame::Departed { rank, how: how.clone(), started: started.clone() };
            self.outside.transport.send(node, departed);
        }
        self.early.runs_of(rank).into_iter().for_each(|key| self.drop_early(key));
        self.departures.rank(rank, how, started);
        self.judge();
    }

    /// Whether all ranks of this node have left, or failed.
    fn all_have_left(&self) -> bool {
        self.seats.iter().all(|rank| self.departures.has_left(*rank))
    }

    /// Gives up the desks of ranks that are gone and have no run left, and parts from the other
    /// nodes when the last rank has left and its node has nothing to send any more.
    fn sweep(&mut self) {
        let all_have_left = self.all_have_left();
        if all_have_left {
            self.part();
        }
        // A rank that waits until it may end is the last one of its node: its desk is needed.
        let is_wanted = all_have_left && !self.farewell.is_drained;
        for desk in &mut self.desks {
            if !is_wanted && desk.as_ref().is_some_and(|desk| desk.has_left && desk.runs == 0) {
                *desk = None;
            }
        }
    }

    /// Tells the other nodes that nothing more comes from here, as soon as that is so, and releases
    /// the last rank when they have acknowledged everything.
    fn part(&mut self) {
        if !self.farewell.said && !self.runs.values().any(Run::has_unsent) {
            self.farewell.said = true;
            for node in 0..self.outside.transport.nodes() {
                if !self.farewell.answered[node as usize] {
                    self.outside.transport.send(node, Frame::Bye);
                }
            }
        }
        if !self.farewell.is_drained && self.farewell.drain(&self.outside.lost) {
            self.desks.iter().flatten().for_each(Desk::set_drained);
        }
    }

    /// Time until the agent is to look again whether another engine has sent everything.
    pub(crate) fn until_look(&mut self) -> Option<Duration> {
        self.farewell.until_look()
    }

    /// From now on this agent is not over before the ranks of all nodes are gone; the outbox is
    /// another engine's.
    pub(crate) fn stay(&mut self, outbox: Box<dyn Outbox>) {
        self.farewell.outbox = Some(outbox);
    }

    /// Whether all ranks of this node are gone, all other nodes know it, and this one has nothing
    /// more to say.
    pub(crate) fn is_over(&self) -> bool {
        let transport = &self.outside.transport;
        let are_gone = self.desks.iter().all(Option::is_none);
        self.farewell.is_done()
            && are_gone
            && (0..transport.nodes()).all(|node| transport.queued(node) == 0)
    }

    /// Frames that were about nothing this agent knows, and connections and frames that its
    /// transport refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused + self.outside.transport.refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::early::{EARLY_BYTES, EARLY_MESSAGES};
    use crate::agent::windows::WINDOW;
    use crate::transport::memory;

    /// An outbox that never empties.
    #[derive(Debug)]
    struct Full;

    impl Outbox for Full {
        fn is_empty(&mut self, _: &[bool]) -> bool {
            false
        }
    }

    /// An agent that stays is over when the ranks of all nodes are gone, however they went.
    #[test]
    fn who_stays_ends_with_the_last_node() {
        let transport = memory::connect(3).expect("descriptors").remove(0);
        let mut core =
            Core::new(Nodes::new(["a", "b", "c"]), Box::new(transport), Limits::default());
        core.stay(Box::new(Full));
        core.depart(0, Exit::Left);
        core.publish();
        for node in [1, 2] {
            core.arrive(Arrival::Frame { node, frame: Frame::Farewell });
        }
        assert!(!core.is_over(), "ranks of two nodes may need something");
        core.arrive(Arrival::Frame { node: 1, frame: Frame::Bye });
        assert!(!core.is_over(), "those of node 2 may still");
        core.arrive(Arrival::Gone { node: 2, why: String::new() });
        core.publish();
        assert!(core.is_over());
    }

    /// A rank that starts nothing while others send it a message for each of millions of runs.
    #[test]
    fn what_waits_for_a_rank_is_bounded() {
        let transport = memory::connect(2).expect("descriptors").remove(0);
        let mut core = Core::new(Nodes::new(["a", "b"]), Box::new(transport), Limits::default());
        for sequence in 0..EARLY_MESSAGES as u64 + 100 {
            let route = Route { destination: 0, communicator: 4, source: 1, sequence, stamp: 0 };
            let packet = Packet::Eager { tag: 0, ordinal: 0, payload: Vec::new() };
            core.arrive(Arrival::Frame { node: 1, frame: Frame::Packet(route, packet) });
        }
        assert_eq!((core.early.by_run.len(), core.early.overrun.len()), (EARLY_MESSAGES, 1));
        assert_eq!(
            core.early.overrun[&(0, 4)],
            EARLY_MESSAGES as u64,
            "runs from here on fail when they are started"
        );
        core.depart(0, Exit::Left);
        assert!(core.early.by_run.is_empty() && core.early.by_rank[&0] == (0, 0));
    }

    /// The same with few messages that are long: nobody holds back who contributes to a meeting.
    #[test]
    fn the_bytes_that_wait_for_a_rank_are_bounded() {
        let transport = memory::connect(2).expect("descriptors").remove(0);
        let mut core = Core::new(Nodes::new(["a", "b"]), Box::new(transport), Limits::default());
        let most = EARLY_BYTES + 2 * WINDOW;
        for sequence in 0..(2 * most) >> 20 {
            let route = Route { destination: 0, communicator: 4, source: 1, sequence, stamp: 0 };
            let contribution = vec![0; 1 << 20];
            core.arrive(Arrival::Frame {
                node: 1,
                frame: Frame::Join { route, ordinal: 0, contribution },
            });
        }
        assert_eq!(
            (core.early.by_run.len() as u64, core.early.overrun[&(0, 4)]),
            (most >> 20, most >> 20)
        );
    }
}
