//! The agent engine between nodes of their own: network namespaces, whose link loses frames or goes
//! down.

use crate::jobs::{Agents, Wires, nodes, register, run, world};
use collectives::{Algorithm, Reduction, allreduce, barrier};
use goal::arithmetic::{Arithmetic, DataType};
use network::agent::{AgentClient, Limits};
use network::error::Error;
use network::local::connect_over;
use network::node_map::NodeMap;
use network::transport::Transport;
use network::transport::tcp::{Listener, Tcp, Timeouts};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use testing::conformance::Capabilities;
use testing::relay::{Faults, relayed_nodes};
use virtual_nodes::VirtualNodes;

testing::tests![
    needs(Nodes):
    conforms_between_nodes_of_their_own,
    a_link_that_is_down_for_a_second_is_waited_for,
    a_node_that_vanishes_is_unreachable,
];
testing::tests![
    needs(Nodes, Tap):
    losses_are_made_good,
];

/// Connects agents, each in a node of the testbed, with so many ranks each.
fn connect(testbed: &VirtualNodes, ranks: &NodeMap, timeouts: Timeouts) -> Vec<AgentClient> {
    let bind = |node: &virtual_nodes::Node| {
        node.run(|| Listener::bind((node.address(), 0))).expect("a port")
    };
    let listeners: Vec<Listener> =
        testbed.nodes().iter().take(ranks.count() as usize).map(bind).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let addresses = &addresses;
    let transports = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((number, node), listener) in (0..).zip(testbed.nodes()).zip(listeners) {
            let connect = move || Tcp::connect(listener, number, addresses, [9; 16], timeouts);
            threads.push(scope.spawn(move || node.run(connect)));
        }
        let joined = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        joined
            .map(|transport| {
                Box::new(transport.expect("the nodes find each other")) as Box<dyn Transport>
            })
            .collect::<Vec<_>>()
    });
    connect_over(ranks, transports, Limits::new(16 << 10)).expect("memory")
}

/// An allreduce of so many runs on a communicator of its own, whose results are checked; the first
/// error ends it.
fn reduce(
    clients: &[AgentClient],
    number: u32,
    runs: u64,
    elements: u64,
    between: impl Fn(u64) + Sync,
) -> Vec<Result<(), Error>> {
    let ranks = clients.len() as u32;
    let between = &between;
    std::thread::scope(|scope| {
        let reduce = move |rank: u32, client: &AgentClient| {
            let reduction = Reduction::new(Arithmetic::Add, DataType::U64);
            let graph = allreduce::graph(
                Algorithm::RecursiveDoubling,
                rank,
                ranks,
                8 * elements,
                reduction,
            );
            let prepared = register(client, &world(number, rank, ranks), &graph.expect("in range"));
            let words = |value: &dyn Fn(u64) -> u64| {
                (0..elements).flat_map(|at| value(at).to_le_bytes()).collect::<Vec<u8>>()
            };
            for sequence in 0..runs {
                if rank == 0 {
                    between(sequence);
                }
                let input = words(&|at| at + sequence + u64::from(rank));
                let mut output = vec![0; input.len()];
                run(client, prepared, sequence, &[&input, &[]], &mut [&mut [], &mut output])?;
                let (all, of_ranks) = (u64::from(ranks), u64::from(ranks * (ranks - 1) / 2));
                assert!(output == words(&|at| all * (at + sequence) + of_ranks), "run {sequence}");
            }
            Ok(())
        };
        let threads: Vec<_> = (0..)
            .zip(clients)
            .map(|(rank, client)| scope.spawn(move || reduce(rank, client)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

fn conforms_between_nodes_of_their_own() {
    for (mtu, each) in [(1500, 1), (9000, 2)] {
        let testbed = VirtualNodes::new(8, mtu).expect("the test needs nodes");
        let testbed = Arc::new(testbed);
        let connect = move |ranks: &NodeMap| Ok(connect(&testbed, ranks, Timeouts::default()));
        let mut engine = Agents::new(each, Wires::Other(Box::new(connect)));
        engine.capabilities = Capabilities { random_programs: 16, ..Capabilities::default() };
        testing::conformance::run_suite(&engine);
    }
}

fn losses_are_made_good() {
    let (testbed, relay) = relayed_nodes(3, 1500, 11).expect("the test needs nodes");
    // A segment may be lost several times in a row.
    let timeouts = Timeouts { unanswered: Duration::from_secs(60), ..Timeouts::default() };
    let clients = connect(&testbed, &nodes(3, 1), timeouts);
    for (number, (share, runs)) in (0..).zip([(0.0, 100), (0.01, 100), (0.05, 30), (0.2, 5)]) {
        relay.set_faults(Faults::of_networks(share));
        let outcomes = reduce(&clients, number, runs, 100, |_| {});
        assert!(outcomes.iter().all(|outcome| outcome.is_ok()), "{share}: {outcomes:?}");
    }
}

fn a_link_that_is_down_for_a_second_is_waited_for() {
    let testbed = VirtualNodes::new(2, 1500).expect("the test needs nodes");
    let clients = connect(&testbed, &nodes(2, 1), Timeouts::default());
    let testbed = &testbed;
    std::thread::scope(|scope| {
        let (unplug, unplugged) = std::sync::mpsc::channel();
        scope.spawn(move || {
            unplugged.recv().expect("the ranks come so far");
            testbed.unplug(1).expect("allowed");
            std::thread::sleep(Duration::from_secs(1));
            testbed.plug(1).expect("allowed");
        });
        let between = |sequence| {
            if sequence == 20 {
                unplug.send(()).expect("it listens");
            }
        };
        let outcomes = reduce(&clients, 0, 2000, 2000, between);
        assert_eq!(outcomes, [Ok(()), Ok(())]);
    });
}

fn a_node_that_vanishes_is_unreachable() {
    let testbed = VirtualNodes::new(3, 1500).expect("the test needs nodes");
    let timeouts = Timeouts { unanswered: Duration::from_secs(2), ..Timeouts::default() };
    let clients = connect(&testbed, &nodes(3, 1), timeouts);
    let between = |sequence| {
        if sequence == 20 {
            testbed.unplug(2).expect("allowed");
        }
    };
    let outcomes = reduce(&clients, 0, 1000, 100, between);
    let vanished = |outcome: &Result<(), Error>| {
        matches!(outcome, Err(Error::NodeUnreachable { node: 2, .. }))
    };
    assert!(outcomes[..2].iter().all(vanished), "{outcomes:?}");
    assert!(matches!(outcomes[2], Err(Error::NodeUnreachable { node: 0 | 1, .. })), "{outcomes:?}");
    // The others go on without it.
    std::thread::scope(|scope| {
        for (rank, client) in (0..).zip(&clients[..2]) {
            scope.spawn(move || {
                let graph = barrier::graph(Algorithm::Dissemination, rank, 2).expect("in range");
                let prepared = register(client, &world(7, rank, 2), &graph);
                run(client, prepared, 0, &[], &mut []).expect("both are there");
            });
        }
    });
}
