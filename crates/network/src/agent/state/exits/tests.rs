use super::*;
use crate::agent::Limits;
use crate::node_map::NodeMap;
use crate::runs::membership::Membership;
use crate::runs::run::PreparedRun;
use crate::runs::schedule::RegisteredSchedule;
use crate::transport::payloads::NoPayloads;
use crate::transport::{Arrival, Transport, memory};
use goal::compile::compile;
use goal::graph::{Access, Graph};
use std::sync::Arc;

/// Traffic that is never acknowledged.
#[derive(Debug)]
struct Full;

impl PendingTraffic for Full {
    fn is_empty(&mut self, _: &[bool]) -> bool {
        false
    }
}

#[test]
fn a_node_that_connects_receives_no_exit_that_is_held_back() {
    let mut transports = memory::connect(2).expect("descriptors");
    let mut other = transports.remove(1);
    let nodes = NodeMap::new(["a", "a", "b"]);
    let transport = Box::new(transports.remove(0));
    let mut state = AgentState::new(nodes, transport, Limits::new(16 << 10));
    let held = Frame::RankExited { rank: 0, how: RankExit::Left, started: Vec::new() };
    state.unreported_exits.push(held.clone());
    for rank in [0, 1] {
        state.table.membership.rank_exited(rank, RankExit::Left, Vec::new());
    }
    let mut received = |state: &mut AgentState| {
        let mut arrivals = Vec::new();
        state.transport().flush(&mut NoPayloads);
        other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
        arrivals
    };
    state.send_missed_reports(1);
    let exit = Frame::RankExited { rank: 1, how: RankExit::Left, started: Vec::new() };
    assert_eq!(received(&mut state), [Arrival::Frame { node: 0, frame: exit }]);
    state.report_exits();
    assert_eq!(received(&mut state), [Arrival::Frame { node: 0, frame: held }]);
}

#[test]
fn a_lost_node_is_reported_before_the_ranks_that_leave_because_of_it() {
    let why = || "the connection was reset".to_owned();
    let mut transports = memory::connect(3).expect("descriptors");
    let mut other = transports.remove(1);
    let nodes = NodeMap::new(["a", "b", "c"]);
    let transport = Box::new(transports.remove(0));
    let mut state = AgentState::new(nodes, transport, Limits::new(16 << 10));
    let mut received = |state: &mut AgentState| {
        let mut arrivals = Vec::new();
        state.transport().flush(&mut NoPayloads);
        other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
        arrivals
    };
    let loss = Frame::NodeEnded { node: 2, failure: Some(why()) };
    let exit = Frame::RankExited { rank: 0, how: RankExit::Left, started: Vec::new() };
    let both = [loss, exit].map(|frame| Arrival::Frame { node: 0, frame });
    // To a node that may notice the loss later, and to one that is connected only now.
    state.lose(2, why());
    state.exit(0, RankExit::Left);
    assert_eq!(received(&mut state), both);
    state.send_missed_reports(1);
    assert_eq!(received(&mut state)[..2], both);
}

/// A rank of another node sends a long message to it after its death, and gets no answer.
#[test]
fn a_run_that_needs_a_killed_rank_names_its_end_although_its_node_ended_in_order() {
    let mut graph = Graph::new(0, 2);
    let block = graph.buffer(Access::Input, 100);
    graph.send(block, 1, 0);
    let schedule = compile(&graph).expect("in order");
    let members = vec![0, 1];
    let schedule = RegisteredSchedule::new(schedule, [4, 5, 0], members.clone(), members, 0);
    let mut transports = memory::connect(2).expect("descriptors");
    let nodes = NodeMap::new(["a", "b"]);
    let mut state = AgentState::new(nodes, Box::new(transports.remove(0)), Limits::new(1));
    let how = RankExit::Failed("failed: its process was ended by signal 9".into());
    // It had started its part, so its death alone fails no run.
    let exit =
        Frame::RankExited { rank: 1, how: how.clone(), started: vec![StartedRuns::of(4, 1)] };
    state.handle(Arrival::Frame { node: 1, frame: exit });
    let key = RunKey { rank: 0, communicator: 4, sequence: 0 };
    state.table.count_start(key).expect("it is new");
    let prepared = schedule.take_idle(Limits::new(1)).map(PreparedRun::of);
    state.table.start(key, Arc::new(schedule), prepared);
    assert!(state.table.ended.is_empty());
    state.shutdown.received[1] = true;
    state.lose(1, "its node service has ended".into());
    let ended = state.table.ended.pop().expect("nothing answers");
    assert_eq!(ended.outcome, Err(Error::RankFailed { rank: 1, how }));
}

/// A rank that lags waits for a run of a communicator that another one has ended.
#[test]
fn an_exit_reports_the_runs_of_ended_communicators() {
    let mut transports = memory::connect(2).expect("descriptors");
    let mut other = transports.remove(1);
    let nodes = NodeMap::new(["a", "b"]);
    let mut state = AgentState::new(nodes, Box::new(transports.remove(0)), Limits::new(1));
    for (communicator, runs) in [(4, 2), (6, 1), (9, 5)] {
        for sequence in 0..runs {
            let key = RunKey { rank: 0, communicator, sequence };
            state.table.count_start(key).expect("it is new");
        }
    }
    // The rank has no run of communicator 8.
    assert!([1..=4, 5..=6, 7..=8].into_iter().all(|all| state.table.end_communicators(0, all)));
    state.exit(0, RankExit::Left);
    state.transport().flush(&mut NoPayloads);
    let mut arrivals = Vec::new();
    other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
    let list = arrivals.iter().find_map(|arrival| match arrival {
        Arrival::Frame { frame: Frame::RankExited { started, .. }, .. } => Some(started),
        _ => None,
    });
    let mut membership = Membership::default();
    membership.rank_exited(0, RankExit::Left, list.expect("a report").clone());
    let fails = |(communicator, sequence)| {
        membership.failure_of(&[0, 1], &[0, 1], communicator, sequence).is_some()
    };
    assert!(![(4, 1), (6, 0), (9, 4)].into_iter().any(fails), "they were started");
    assert!([(4, 2), (6, 1), (8, 0), (9, 5), (10, 0)].into_iter().all(fails));
}

#[test]
fn a_node_shuts_down_once_and_after_the_exits_of_all_its_ranks() {
    let mut transports = memory::connect(2).expect("descriptors");
    let mut other = transports.remove(1);
    let transport = Box::new(transports.remove(0));
    let nodes = NodeMap::new(["a", "b", "b"]);
    let mut state = AgentState::new(nodes, transport, Limits::new(16 << 10));
    let mut answers = |state: &mut AgentState, frame: Frame| {
        let mut arrivals = Vec::new();
        state.handle(Arrival::Frame { node: 1, frame });
        state.transport().flush(&mut NoPayloads);
        other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
        arrivals
    };
    let exit = |rank| Frame::RankExited { rank, how: RankExit::Left, started: Vec::new() };
    let acknowledgement = [Arrival::Frame { node: 0, frame: Frame::ShutdownAck }];
    // The exits follow where the connection was made after them.
    assert_eq!(answers(&mut state, Frame::Shutdown), [], "its ranks may send");
    assert_eq!(answers(&mut state, exit(1)), []);
    assert!(!state.shutdown.received[1], "its other rank may send");
    assert_eq!((answers(&mut state, Frame::Shutdown), state.refused()), (Vec::new(), 1));
    assert_eq!(answers(&mut state, exit(2)), acknowledgement);
    assert!(state.shutdown.received[1]);
    assert_eq!(answers(&mut state, exit(2)), []);
    assert_eq!((answers(&mut state, Frame::Shutdown), state.refused()), (Vec::new(), 2));
    // The usual order, on a new connection, which begins with what the node may have missed.
    state.handle(Arrival::Connected { node: 1 });
    assert_eq!(answers(&mut state, Frame::Shutdown)[2..], acknowledgement);
    assert_eq!(state.refused(), 2);
}

#[test]
fn a_node_that_is_lost_before_the_exits_of_its_ranks_has_failed() {
    let transport = memory::connect(2).expect("descriptors").remove(0);
    let nodes = NodeMap::new(["a", "b"]);
    let mut state = AgentState::new(nodes, Box::new(transport), Limits::new(16 << 10));
    state.handle(Arrival::Frame { node: 1, frame: Frame::Shutdown });
    state.handle(Arrival::NodeLost { node: 1, why: "the connection was reset".into() });
    let failed = state.table.membership.failure_of(&[0, 1], &[0, 1], 0, 0);
    assert!(matches!(failed, Some(Error::NodeUnreachable { node: 1, .. })), "{failed:?}");
    let queued = state.transport().queued(1);
    let exit = Frame::RankExited { rank: 1, how: RankExit::Left, started: Vec::new() };
    state.handle(Arrival::Frame { node: 1, frame: exit });
    assert_eq!(state.transport().queued(1), queued, "it is not answered any more");
}

#[test]
fn an_agent_with_another_backend_ends_when_the_ranks_of_all_nodes_have_exited() {
    let transport = memory::connect(3).expect("descriptors").remove(0);
    let nodes = NodeMap::new(["a", "b", "c"]);
    let mut state = AgentState::new(nodes, Box::new(transport), Limits::new(16 << 10));
    state.hold_until_all_exit(Box::new(Full));
    state.exit(0, RankExit::Left);
    state.complete_runs();
    for node in [1, 2] {
        state.handle(Arrival::Frame { node, frame: Frame::ShutdownAck });
    }
    assert!(!state.is_over(), "ranks of two nodes may need something");
    let exit = Frame::RankExited { rank: 1, how: RankExit::Left, started: Vec::new() };
    for frame in [exit, Frame::Shutdown] {
        state.handle(Arrival::Frame { node: 1, frame });
    }
    assert!(!state.is_over(), "those of node 2 may still");
    state.handle(Arrival::NodeLost { node: 2, why: String::new() });
    state.complete_runs();
    state.transport().flush(&mut NoPayloads);
    assert!(state.is_over());
}
