//! More nodes than are connected from the start: they connect when they are needed, and every node
//! learns of the exits and the ends of those with which it is not connected.

use crate::emulated_adapters::emulation;
use crate::fabric::{fabrics, wires as fabric_wires};
use crate::failures::barrier_of;
use crate::jobs::{Wires, deadline, nodes, register, run, run_job, world};
use goal::graph::{Access, Graph};
use network::agent::{AgentClient, Limits};
use network::backend::{Backend, RunId};
use network::error::{Error, RankExit};
use network::job_nodes::random_key;
use network::local::connect_over;
use network::transport::frame::Frame;
use network::transport::payloads::NoPayloads;
use network::transport::tcp::{Listener, Tcp, Timeouts, neighbors};
use network::transport::{Arrival, LinkState, Transport};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use testing::fabric::{EMULATED, libraries};

testing::tests![
    neighbors_are_mutual_and_reach_every_node,
    a_node_is_connected_when_something_is_sent,
    nodes_that_send_to_each_other_at_once_have_one_connection,
    a_node_that_refuses_is_lost_after_the_time_out,
    every_pair_exchanges_blocks,
    an_exit_is_reported_to_nodes_without_a_connection,
    a_node_that_vanishes_is_reported_to_nodes_without_a_connection,
    started_work_is_completed_after_an_exit,
];
testing::tests![needs(Libfabric): nodes_connect_through_libfabric_when_they_are_needed];
testing::tests![needs(FabricHeaders): nodes_connect_through_adapters_when_they_are_needed];

const NODES: u32 = 24;

/// A node that is not connected with node 0 from the start.
const FAR: u32 = 12;

fn neighbors_are_mutual_and_reach_every_node() {
    for nodes in (1..70).chain([256, 1000, 10_000]) {
        for node in [0, 1, nodes / 2, nodes - 1] {
            let near = neighbors(node, nodes);
            assert!(near.iter().all(|other| neighbors(*other, nodes).contains(&node)), "{nodes}");
        }
        let mut reached = BTreeSet::from([0]);
        let mut steps = 0;
        while (reached.len() as u32) < nodes {
            reached = reached.iter().flat_map(|node| neighbors(*node, nodes)).chain([0]).collect();
            steps += 1;
        }
        assert!(steps <= 10, "{nodes} nodes: {steps} steps");
    }
}

/// Transports of nodes that are connected with their neighbours.
fn transports(unanswered: Duration) -> Vec<Tcp> {
    let key = random_key().expect("random bytes");
    let listeners: Vec<Listener> =
        (0..NODES).map(|_| Listener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let timeouts = Timeouts { unanswered, ..Timeouts::default() };
    std::thread::scope(|scope| {
        let connect = |(node, listener)| {
            let addresses = &addresses;
            let connect = move || Tcp::connect_neighbors(listener, node, addresses, key, timeouts);
            scope.spawn(connect)
        };
        let threads: Vec<_> = (0..).zip(listeners).map(connect).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        joined.map(|tcp| tcp.expect("all are there")).collect()
    })
}

/// Waits at both transports until both have received a frame from the other, or lost it.
fn exchange(one: &mut Tcp, other: &mut Tcp, expected: usize) -> Vec<Arrival> {
    let end = Instant::now() + Duration::from_secs(60);
    let mut arrivals = Vec::new();
    let is_frame = |arrival: &&Arrival| matches!(arrival, Arrival::Frame { .. });
    while arrivals.iter().filter(is_frame).count() < expected {
        assert!(Instant::now() < end, "{arrivals:?}");
        for tcp in [&mut *one, &mut *other] {
            let pause = Some(Duration::from_millis(1));
            tcp.wait(pause, &mut NoPayloads, &mut arrivals).expect("it works");
        }
    }
    arrivals
}

fn a_node_is_connected_when_something_is_sent() {
    let mut transports = transports(Timeouts::default().unanswered);
    let mut far = transports.remove(FAR as usize);
    let near = &mut transports[0];
    assert!(near.is_sparse() && near.link(1) == LinkState::Open);
    assert_eq!(near.link(FAR), LinkState::Absent);
    for bytes in 1..=3 {
        near.send(FAR, Frame::Credit(bytes));
    }
    assert_eq!(near.link(FAR), LinkState::Pending);
    let arrivals = exchange(near, &mut far, 3);
    assert!(arrivals.contains(&Arrival::Connected { node: FAR }), "{arrivals:?}");
    assert!(arrivals.contains(&Arrival::Connected { node: 0 }), "{arrivals:?}");
    assert_eq!([near.link(FAR), far.link(0)], [LinkState::Open; 2]);
    let received: Vec<u64> = arrivals.iter().filter_map(credit).collect();
    assert_eq!(received, [1, 2, 3]);
}

fn credit(arrival: &Arrival) -> Option<u64> {
    if let Arrival::Frame { frame: Frame::Credit(bytes), .. } = arrival {
        Some(*bytes)
    } else {
        None
    }
}

/// Each sees the other one's connection at another moment.
fn nodes_that_send_to_each_other_at_once_have_one_connection() {
    for _ in 0..5 {
        let mut transports = transports(Timeouts::default().unanswered);
        let second = transports.split_off(FAR as usize);
        std::thread::scope(|scope| {
            for (mut one, mut other) in transports.into_iter().zip(second) {
                scope.spawn(move || {
                    let (node, far) = (one.node(), other.node());
                    one.send(far, Frame::Credit(1));
                    other.send(node, Frame::Credit(2));
                    let arrivals = exchange(&mut one, &mut other, 2);
                    let mut received: Vec<u64> = arrivals.iter().filter_map(credit).collect();
                    received.sort_unstable();
                    assert_eq!(received, [1, 2]);
                    // The connection carries more both ways, and no second one takes its place.
                    one.send(far, Frame::Credit(3));
                    other.send(node, Frame::Credit(4));
                    exchange(&mut one, &mut other, 2);
                    assert_eq!([one.link(far), other.link(node)], [LinkState::Open; 2]);
                });
            }
        });
    }
}

fn a_node_that_refuses_is_lost_after_the_time_out() {
    let mut transports = transports(Duration::from_millis(1500));
    drop(transports.remove(FAR as usize));
    let near = &mut transports[0];
    near.send(FAR, Frame::Credit(1));
    let end = Instant::now() + Duration::from_secs(60);
    let mut arrivals = Vec::new();
    while arrivals.is_empty() {
        assert!(Instant::now() < end);
        near.wait(None, &mut NoPayloads, &mut arrivals).expect("it works");
    }
    let is_it = |arrival: &Arrival| matches!(arrival, Arrival::NodeLost { node: FAR, why } if why.contains("no connection within 1.5 s"));
    assert!(is_it(&arrivals[0]), "{arrivals:?}");
    assert_eq!(near.link(FAR), LinkState::Absent);
    near.send(FAR, Frame::Credit(1));
    assert_eq!(near.queued(FAR), 0, "what is sent to it afterwards is dropped");
}

/// Every rank sends a block to every other one, long ones among them.
fn pairs_exchange_blocks(wires: Wires) {
    const BYTES: u64 = 40_000;
    let outcomes = run_job(&nodes(NODES, 1), wires, |rank, client| {
        let mut graph = Graph::new(rank, NODES);
        let length = |from: u32| if from.is_multiple_of(2) { 8 } else { BYTES };
        for other in (0..NODES).filter(|other| *other != rank) {
            let block = graph.buffer(Access::Input, length(rank));
            graph.send(block, other, 0);
            let block = graph.buffer(Access::Output, length(other));
            graph.receive(block, other, 0);
        }
        let prepared = register(&client, &world(0, rank, NODES), &graph);
        let others: Vec<u32> = (0..NODES).filter(|other| *other != rank).collect();
        let sent = vec![rank as u8; length(rank) as usize];
        let mut received: Vec<Vec<u8>> =
            others.iter().map(|other| vec![0; length(*other) as usize]).collect();
        for sequence in 0..2 {
            let inputs: Vec<&[u8]> = others.iter().flat_map(|_| [&sent[..], &[]]).collect();
            let mut outputs: Vec<&mut [u8]> =
                received.iter_mut().flat_map(|block| [&mut [][..], &mut block[..]]).collect();
            run(&client, prepared, sequence, &inputs, &mut outputs)?;
        }
        let is_right =
            |(other, block): (&u32, &Vec<u8>)| block.iter().all(|byte| u32::from(*byte) == *other);
        Ok::<bool, Error>(others.iter().zip(&received).all(is_right))
    });
    assert_eq!(outcomes, vec![Ok(true); NODES as usize]);
}

/// Also to those that wait for the rank through others only.
fn an_exit_is_reported(wires: Wires) {
    let outcomes = run_job(&nodes(NODES, 1), wires, |rank, client| {
        let prepared = register(&client, &world(0, rank, NODES), &barrier_of(rank, NODES));
        run(&client, prepared, 0, &[], &mut [])?;
        if rank == 3 { Ok(()) } else { run(&client, prepared, 1, &[], &mut []) }
    });
    let failed = Err(Error::RankFailed { rank: 3, how: RankExit::Left });
    let mut expected = vec![failed; NODES as usize];
    expected[3] = Ok(());
    assert_eq!(outcomes, expected);
}

fn started_work_is_completed(wires: Wires) {
    let outcomes = run_job(&nodes(NODES, 1), wires, |rank, client| {
        let prepared = register(&client, &world(0, rank, NODES), &barrier_of(rank, NODES));
        if rank % 2 == 1 {
            client.discard(client.start(prepared, 0, &[]).expect("memory"));
            return Ok(());
        }
        run(&client, prepared, 0, &[], &mut [])
    });
    assert_eq!(outcomes, vec![Ok(()); NODES as usize]);
}

fn every_pair_exchanges_blocks() {
    pairs_exchange_blocks(Wires::Tcp);
}

fn an_exit_is_reported_to_nodes_without_a_connection() {
    an_exit_is_reported(Wires::Tcp);
}

fn started_work_is_completed_after_an_exit() {
    started_work_is_completed(Wires::Tcp);
}

fn a_node_that_vanishes_is_reported_to_nodes_without_a_connection() {
    a_node_that_vanishes_is_reported(transports(Timeouts::default().unanswered));
}

/// The same through a provider.
fn connects_when_needed(path: &Path, provider: &'static str) {
    let wires = || fabric_wires(path.to_owned(), provider, Limits::new(16 << 10).with_in_place(1));
    pairs_exchange_blocks(wires());
    an_exit_is_reported(wires());
    started_work_is_completed(wires());
    let transports = fabrics(NODES, path, provider, &[[5; 16]]);
    assert!(transports[0].is_sparse() && transports[0].link(FAR) == LinkState::Absent);
    a_node_that_vanishes_is_reported(transports);
}

fn nodes_connect_through_libfabric_when_they_are_needed() {
    libraries().iter().for_each(|path| connects_when_needed(path, "tcp"));
}

fn nodes_connect_through_adapters_when_they_are_needed() {
    let path = emulation();
    EMULATED.iter().for_each(|provider| connects_when_needed(&path, provider));
}

/// A ring, so that every rank waits for one other only.
fn ring_of(rank: u32) -> Graph {
    let mut graph = Graph::new(rank, NODES);
    let block = graph.buffer(Access::Output, 8);
    let received = graph.receive(block, (rank + NODES - 1) % NODES, 0);
    let sent = graph.send(block, (rank + 1) % NODES, 0);
    graph.requires(sent, received);
    graph
}

fn a_node_that_vanishes_is_reported(mut transports: Vec<impl Transport + 'static>) {
    let vanishing = transports.pop().expect("many");
    let boxed =
        transports.into_iter().map(|transport| Box::new(transport) as Box<dyn Transport>).collect();
    let clients: Vec<AgentClient> =
        connect_over(&nodes(NODES, 1), boxed, Limits::new(16 << 10)).expect("memory");
    // Nothing starts the ring: each rank waits for the one before it.
    let runs: Vec<_> = (0..)
        .zip(&clients)
        .map(|(rank, client)| {
            let prepared = register(client, &world(0, rank, NODES), &ring_of(rank));
            (prepared, client.start(prepared, 0, &[&[]]).expect("memory"))
        })
        .collect();
    drop(vanishing);
    let last = NODES - 1;
    for (client, (prepared, run)) in clients.iter().zip(runs) {
        let unreachable = |outcome: Result<(), Error>| matches!(outcome, Err(Error::NodeUnreachable { node, .. }) if node == last);
        assert!(unreachable(end_ring(client, run)));
        let later = client.start(prepared, 1, &[&[]]).expect("memory");
        assert!(unreachable(end_ring(client, later)), "later runs end, too");
    }
    // The others go on without it.
    std::thread::scope(|scope| {
        for (rank, client) in (0..).zip(&clients) {
            scope.spawn(move || {
                let prepared = register(client, &world(9, rank, last), &barrier_of(rank, last));
                run(client, prepared, 0, &[], &mut []).expect("all are there");
            });
        }
    });
}

fn end_ring(client: &AgentClient, run: RunId) -> Result<(), Error> {
    assert!(client.wait(run, deadline()).expect("the agent lives"), "the run does not end");
    client.fetch(run, &mut [&mut [0; 8]])
}
