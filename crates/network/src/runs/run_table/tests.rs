use super::*;
use crate::run_counts::StartedRuns;
use crate::transport::memory;
use crate::transport::payloads::NoPayloads;
use goal::compile::compile;
use goal::graph::{Access, Graph};
use interpreter::Limits;

/// The runs of rank 0, which sends more than an eager message to rank 1 of another node.
fn sender() -> (RunTable, memory::Memory, Arc<RegisteredSchedule>) {
    let mut graph = Graph::new(0, 2);
    let block = graph.buffer(Access::Input, 100);
    graph.send(block, 1, 0);
    runs_of(&graph)
}

/// A table for runs of a graph of rank 0, the other node's end, and the schedule.
fn runs_of(graph: &Graph) -> (RunTable, memory::Memory, Arc<RegisteredSchedule>) {
    let schedule = compile(graph).expect("in order");
    let schedule = RegisteredSchedule::new(schedule, [4, 5, 0], vec![0, 1], vec![0, 1], 0);
    let mut transports = memory::connect(2).expect("descriptors");
    let other = transports.remove(1);
    let nodes = NodeMap::new(["a", "b"]);
    (RunTable::new(nodes, Box::new(transports.remove(0))), other, Arc::new(schedule))
}

#[test]
fn a_run_fails_if_its_request_is_one_too_many() {
    let (mut table, mut other, schedule) = sender();
    table.most_postponed = 1;
    let key = |sequence| RunKey { rank: 0, communicator: 4, sequence };
    for sequence in 0..3 {
        let prepared = schedule.take_idle(Limits::new(1)).map(PreparedRun::of);
        table.count_start(key(sequence)).expect("it is new");
        table.start(key(sequence), Arc::clone(&schedule), prepared);
    }
    // Node 1 does not read.
    let records = vec![0; 1 + QUEUE_LIMIT as usize];
    table.transport().send(1, Frame::Flows { records });
    let request = |table: &mut RunTable, sequence, source| {
        let packet = Packet::ClearToSend { send: Handle(0), receive: Handle(0) };
        let [destination, communicator, signature] = [0, 4, 5];
        let route = Route { destination, communicator, source, sequence, signature };
        assert_eq!(table.handle_frame(1, Frame::Packet(route, packet)), None);
    };
    request(&mut table, 0, 1);
    assert!(table.ended.is_empty(), "it is answered later");
    request(&mut table, 1, 0);
    assert_eq!((table.ended.len(), table.refused), (0, 1), "rank 0 is on another node");
    request(&mut table, 1, 1);
    let [ended] = &table.ended[..] else { panic!("{:?}", table.ended) };
    assert!(ended.key == key(1) && matches!(ended.outcome, Err(Error::Operation(_))));
    // The other rank, which waits for the message, learns it.
    table.transport().flush(&mut NoPayloads);
    let mut arrivals = Vec::new();
    other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
    let has_failed = |arrival: &Arrival| match arrival {
        Arrival::Frame { frame: Frame::Fail(route, _), .. } => Some(route.sequence),
        _ => None,
    };
    assert_eq!(arrivals.iter().filter_map(has_failed).collect::<Vec<u64>>(), [1]);
    // The request that was kept is answered.
    table.advance();
    assert!(table.postponed.is_empty());
    assert!(table.runs.contains_key(&key(2)), "the others continue");
    assert!(table.ended.iter().any(|run| run.key == key(0) && run.outcome.is_ok()));
}

/// The runs of rank 0, which receives from rank 1 of another node.
fn receiver() -> (RunTable, memory::Memory, Arc<RegisteredSchedule>) {
    let mut graph = Graph::new(0, 2);
    let block = graph.buffer(Access::Output, 100);
    graph.receive(block, 1, 0);
    runs_of(&graph)
}

fn start(table: &mut RunTable, schedule: &Arc<RegisteredSchedule>, key: RunKey) {
    let prepared = schedule.take_idle(Limits::new(1000)).map(PreparedRun::of);
    table.count_start(key).expect("it is new");
    table.start(key, Arc::clone(schedule), prepared);
}

#[test]
fn a_sign_of_a_wait_ends_no_run_of_the_same_collective() {
    let (mut table, _other, schedule) = receiver();
    let key = RunKey { rank: 0, communicator: 4, sequence: 0 };
    let route = Route { destination: 0, communicator: 4, source: 1, sequence: 0, signature: 5 };
    let arrives = |table: &mut RunTable, frame| assert_eq!(table.handle_frame(1, frame), None);
    // However long before the start: for the checks of other libraries it is a message.
    arrives(&mut table, Frame::Waits(route));
    assert!(table.has_unexpected(key));
    start(&mut table, &schedule, key);
    arrives(&mut table, Frame::Waits(route));
    assert!(table.ended.is_empty() && table.runs.contains_key(&key), "it waits for rank 1");
    // No rank of node 1: neither its sign nor its collective counts.
    arrives(&mut table, Frame::Waits(Route { source: 0, signature: 6, ..route }));
    assert_eq!((table.ended.len(), table.refused), (0, 1));
    let packet = Packet::Eager { tag: 0, ordinal: 0, payload: vec![7; 100] };
    arrives(&mut table, Frame::Packet(route, packet));
    let [ended] = &table.ended[..] else { panic!("{:?}", table.ended) };
    assert_eq!(ended.outcome, Ok(()));
    arrives(&mut table, Frame::Waits(route));
    assert!(!table.has_unexpected(key), "the run is over");
    // A rank in another collective of this number waits in vain.
    let next = RunKey { sequence: 1, ..key };
    arrives(&mut table, Frame::Waits(Route { sequence: 1, signature: 6, ..route }));
    start(&mut table, &schedule, next);
    let mismatch = Error::Mismatch { sequence: 1, ours: 5, rank: 1, theirs: 6 };
    assert_eq!(table.ended.pop().expect("it ends").outcome, Err(mismatch));
}

#[test]
fn a_sign_of_a_wait_goes_to_the_ranks_that_the_run_waits_for() {
    let (mut table, mut other, schedule) = receiver();
    let key = RunKey { rank: 0, communicator: 4, sequence: 0 };
    table.announce_wait(key);
    start(&mut table, &schedule, key);
    table.announce_wait(key);
    table.advance();
    let mut arrivals = Vec::new();
    other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
    let route = Route { destination: 1, communicator: 4, source: 0, sequence: 0, signature: 5 };
    let [Arrival::Frame { node: 0, frame }] = &arrivals[..] else { panic!("{arrivals:?}") };
    assert_eq!(*frame, Frame::Waits(route), "once, and not before the run is under way");
}

#[test]
fn a_late_message_of_an_ended_communicator_is_dropped() {
    let (mut table, mut other, schedule) = receiver();
    let key = |communicator, sequence| RunKey { rank: 0, communicator, sequence };
    let route = |communicator, sequence| Route {
        destination: 0,
        communicator,
        source: 1,
        sequence,
        signature: 5,
    };
    let arrives = |table: &mut RunTable, route| {
        let packet = Packet::Eager { tag: 0, ordinal: 0, payload: vec![7; 100] };
        assert_eq!(table.handle_frame(1, Frame::Packet(route, packet)), None);
    };
    arrives(&mut table, route(4, 0));
    start(&mut table, &schedule, key(4, 0));
    start(&mut table, &schedule, key(4, 1));
    // For a run that the rank never starts, and for the next communicator.
    [route(4, 2), route(6, 0)].into_iter().for_each(|route| arrives(&mut table, route));
    assert!(table.end_communicators(0, 1..=4));
    assert!(!table.has_unexpected(key(4, 2)) && table.has_unexpected(key(6, 0)));
    arrives(&mut table, route(4, 1));
    let ended: Vec<RunKey> = table.ended.iter().map(|run| run.key).collect();
    assert_eq!(ended, [key(4, 0), key(4, 1)], "a run that was started receives its message");
    // The first is a second message of an ended run, the others are of communicators without any.
    [route(4, 0), route(4, 2), route(3, 0)].into_iter().for_each(|late| arrives(&mut table, late));
    assert_eq!(table.unexpected.runs_of(0, 0..=u32::MAX), [key(6, 0)]);
    let error = table.count_start(key(4, 3)).expect_err("the communicator has ended");
    assert!(error.to_string().contains("had ended"), "{error}");
    start(&mut table, &schedule, RunKey { communicator: 6, ..key(6, 0) });
    assert!(table.ended.last().is_some_and(|run| run.key == key(6, 0) && run.outcome == Ok(())));
    // The sender gets the credit of all of them back, those that were dropped included.
    table.context.credits.consumed(1, crate::runs::credits::CREDIT);
    table.advance();
    let mut arrivals = Vec::new();
    other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
    let credit = |arrival: &Arrival| match arrival {
        Arrival::Frame { frame: Frame::Credit(bytes), .. } => *bytes,
        _ => 0,
    };
    let returned: u64 = arrivals.iter().map(credit).sum();
    assert_eq!(returned, crate::runs::credits::CREDIT + 7 * 100);
}

#[test]
fn communicators_that_come_and_go_take_no_memory() {
    let (mut table, _other, schedule) = runs_of(&Graph::new(0, 2));
    for communicator in 1..10_000 {
        for sequence in 0..3 {
            start(&mut table, &schedule, RunKey { rank: 0, communicator, sequence });
        }
        assert!(table.end_communicators(0, communicator..=communicator));
        table.ended.clear();
    }
    let list = table.run_counts[&0].list();
    assert!(list.len() == 2 && StartedRuns::find(&list, 9_999) == 3, "{list:?}");
}
