use super::*;
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
    let schedule = compile(&graph).expect("in order");
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
    table.transport().send(1, Frame::Queues { records });
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
