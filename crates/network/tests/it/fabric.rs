//! The agent engine over libfabric, through the providers that need no adapter.

use crate::jobs::{Agents, Wires, nodes, register, run, world};
use crate::own_regions::a_sender_without_its_memory;
use ::fabric::{Choice, Endpoint, Library, LongMessages, Request, Selection};
use collectives::{Algorithm, barrier};
use interpreter::Packet;
use network::agent::{Limits, limits};
use network::error::Error;
use network::local::connect_over;
use network::node_map::NodeMap;
use network::transport::Arrival;
use network::transport::Transport;
use network::transport::fabric::{Fabric, MESSAGE_BYTES, request};
use network::transport::frame::{Frame, Route};
use network::transport::payloads::NoPayloads;
use network::transport::tcp::{Listener, Tcp, Timeouts};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testing::conformance::Capabilities;

testing::tests![
    needs(Libfabric):
    tcp_conforms,
    tcp_under_rxm_conforms,
    reads_over_tcp_conform,
    a_provider_that_cannot_sleep_conforms,
    a_node_that_ends_is_lost,
    strangers_are_refused,
    the_word_of_a_job_is_needed,
    idle_nodes_that_cannot_sleep_shut_down,
    a_node_that_computes_is_not_lost,
    short_messages_do_not_hide_a_stall,
    messages_of_others_do_not_hide_a_stall,
    a_message_from_memory_that_does_not_exist_fails_its_run,
];

const KEY: [u8; 16] = [7; 16];

/// Messages of every length are read where the provider reads at all.
const READ_FROM: u64 = 1;

fn endpoint(library: &Library, selection: &Selection) -> Endpoint {
    let request = Request {
        // Shorter than between real nodes: a program of the suite opens up to a dozen endpoints.
        message_bytes: MESSAGE_BYTES / 8,
        ..request(selection.clone(), Ipv4Addr::LOCALHOST.into())
    };
    Endpoint::open(library, &request).expect("the provider is there")
}

/// Connects the meshes of so many nodes.
fn meshes(count: u32, timeouts: Timeouts) -> Vec<Tcp> {
    let listeners: Vec<Listener> =
        (0..count).map(|_| Listener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let addresses = &addresses;
    std::thread::scope(|scope| {
        let connect = |(node, listener)| {
            let connect = move || Tcp::connect_neighbors(listener, node, addresses, KEY, timeouts);
            scope.spawn(connect)
        };
        let threads: Vec<_> = (0..).zip(listeners).map(connect).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        joined.map(|mesh| mesh.expect("they find each other")).collect()
    })
}

/// Connects so many nodes through a provider; each with a key.
pub(crate) fn fabrics(count: u32, path: &Path, provider: &str, keys: &[[u8; 16]]) -> Vec<Fabric> {
    fabrics_within(count, path, provider, keys, Timeouts::default().unanswered)
}

/// The same, with another time after which a node is lost.
fn fabrics_within(
    count: u32,
    path: &Path,
    provider: &str,
    keys: &[[u8; 16]],
    unanswered: Duration,
) -> Vec<Fabric> {
    let providers = vec![provider; count as usize];
    fabrics_through(path, &providers, keys, unanswered)
}

/// Connects one node for each selection of a provider.
pub(crate) fn fabrics_through(
    path: &Path,
    providers: &[&str],
    keys: &[[u8; 16]],
    unanswered: Duration,
) -> Vec<Fabric> {
    let library = Library::open(Some(path)).expect("the need has opened it");
    let open = |provider: &&str| endpoint(&library, &provider.parse().expect("it is not refused"));
    let endpoints: Vec<Endpoint> = providers.iter().map(open).collect();
    let count = providers.len() as u32;
    let names: Vec<Vec<u8>> = endpoints.iter().map(|one| one.name().to_vec()).collect();
    let all = meshes(count, Timeouts::default()).into_iter().zip(endpoints).enumerate();
    all.map(|(node, (mesh, endpoint))| {
        let key = keys[node % keys.len()];
        Fabric::new(mesh, endpoint, &names, key, unanswered, READ_FROM)
            .expect("the names are right")
    })
    .collect()
}

pub(crate) fn engine(path: PathBuf, provider: &'static str, each: u32, limits: Limits) -> Agents {
    Agents::new(each, wires(path, provider, limits))
}

/// The agents of nodes that are connected through a provider.
pub(crate) fn wires(path: PathBuf, provider: &'static str, limits: Limits) -> Wires {
    let connect = move |ranks: &NodeMap| {
        // All nodes of a job share two cores with other tests.
        let unanswered = Duration::from_secs(600);
        let all = fabrics_within(ranks.count(), &path, provider, &[KEY], unanswered);
        let boxed = all.into_iter().map(|one| Box::new(one) as Box<dyn Transport>).collect();
        connect_over(ranks, boxed, limits)
    };
    Wires::Other(Box::new(connect))
}

fn tcp_conforms() {
    for path in testing::fabric::libraries() {
        let mut engine = engine(path, "tcp", 1, limits());
        engine.capabilities = Capabilities { random_programs: 16, ..Capabilities::default() };
        testing::conformance::run_suite(&engine);
    }
}

fn tcp_under_rxm_conforms() {
    for path in testing::fabric::libraries() {
        let mut engine = engine(path, "tcp;ofi_rxm", 2, Limits::new(16 << 10).with_in_place(1));
        engine.capabilities = Capabilities { random_programs: 8, ..Capabilities::default() };
        testing::conformance::run_suite(&engine);
    }
}

/// Long messages are read from the memory of their senders.
fn reads_over_tcp_conform() {
    for path in testing::fabric::libraries() {
        for (provider, each) in [("tcp+read", 1), ("tcp;ofi_rxm+read", 2)] {
            let limits = Limits::new(64).with_in_place(1);
            let mut engine = engine(path.clone(), provider, each, limits);
            engine.capabilities = Capabilities { random_programs: 8, ..Capabilities::default() };
            testing::conformance::run_suite(&engine);
        }
    }
}

fn a_provider_that_cannot_sleep_conforms() {
    let path = testing::fabric::libraries().remove(0);
    let mut engine = engine(path, "sockets", 2, limits());
    engine.capabilities = Capabilities { random_programs: 8, ..Capabilities::default() };
    testing::conformance::run_suite(&engine);
}

fn a_message_from_memory_that_does_not_exist_fails_its_run() {
    let path = testing::fabric::libraries().remove(0);
    let all = fabrics(2, &path, "tcp", &[KEY]);
    let [first, second] = all.try_into().expect("there are two");
    a_sender_without_its_memory(first, second);
}

fn a_node_that_ends_is_lost() {
    for path in testing::fabric::libraries() {
        for provider in ["tcp", "tcp;ofi_rxm"] {
            let mut all = fabrics(3, &path, provider, &[KEY]);
            let last = all.pop().expect("there are three");
            let mut first = all.remove(0);
            drop(last);
            let mut arrivals = Vec::new();
            while arrivals.is_empty() {
                first.wait(None, &mut NoPayloads, &mut arrivals).expect("it works");
            }
            let [Arrival::NodeLost { node: 2, why }] = &arrivals[..] else {
                panic!("{arrivals:?}")
            };
            assert!(why.contains("its node service has"), "{why}");
            // Frames for it are dropped, and those for others are not.
            first.send(2, Frame::Shutdown);
            first.send(1, Frame::Shutdown);
            let mut second = all.remove(0);
            let mut arrivals = Vec::new();
            while !arrivals.contains(&Arrival::Frame { node: 0, frame: Frame::Shutdown }) {
                first
                    .wait(Some(Duration::ZERO), &mut NoPayloads, &mut Vec::new())
                    .expect("it works");
                second
                    .wait(Some(Duration::ZERO), &mut NoPayloads, &mut arrivals)
                    .expect("it works");
            }
        }
    }
}

/// Polls two nodes until the first has refused something, or received a frame.
fn poll_until_refused(first: &mut Fabric, second: &mut Fabric) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    while first.refused() == 0 && arrivals.is_empty() {
        second.wait(Some(Duration::ZERO), &mut NoPayloads, &mut Vec::new()).expect("it works");
        first.wait(Some(Duration::ZERO), &mut NoPayloads, &mut arrivals).expect("it works");
    }
    arrivals
}

fn the_word_of_a_job_is_needed() {
    let path = testing::fabric::libraries().remove(0);
    let mut all = fabrics(2, &path, "tcp", &[KEY, [8; 16]]);
    let mut second = all.remove(1);
    let mut first = all.remove(0);
    second.send(0, Frame::Fail(Route::default(), Error::Operation("forged".into())));
    assert_eq!(poll_until_refused(&mut first, &mut second), []);
}

fn strangers_are_refused() {
    let path = testing::fabric::libraries().remove(0);
    let library = Library::open(Some(&path)).expect("the need has opened it");
    let choice = Choice::Named("tcp".into());
    let selection = Selection { choice, long: LongMessages::Messages };
    let own = endpoint(&library, &selection);
    let name = own.name().to_vec();
    let names = [name.clone(), name];
    let mesh = meshes(2, Timeouts::default()).remove(0);
    let unanswered = Duration::from_secs(15);
    let mut first = Fabric::new(mesh, own, &names, KEY, unanswered, READ_FROM).expect("right");
    let mut stranger = endpoint(&library, &selection);
    let peer = stranger.insert(&names[0]).expect("it is of this provider");
    let (mut events, mut arrivals) = (Vec::new(), Vec::new());
    let mut lengths = [3, 24, 64].into_iter().peekable();
    while first.refused() < 3 {
        if let Some(length) = lengths.peek().copied()
            && let Some(buffer) = stranger.take_buffer()
        {
            stranger.bytes_mut(&buffer)[..length].fill(1);
            match stranger.send(buffer, length, peer, 0) {
                Ok(_) => drop(lengths.next()),
                Err((buffer, None)) => stranger.discard(buffer),
                Err((_, Some(error))) => panic!("{error}"),
            }
        }
        stranger.poll(&mut events).expect("it works");
        first.wait(Some(Duration::ZERO), &mut NoPayloads, &mut arrivals).expect("it works");
    }
    let is_loss = |arrival: &Arrival| matches!(arrival, Arrival::NodeLost { .. });
    assert!(arrivals.iter().all(is_loss), "{arrivals:?}");
}

/// No run is under way when the ranks leave.
fn idle_nodes_that_cannot_sleep_shut_down() {
    let path = testing::fabric::libraries().remove(0);
    let boxed = fabrics(2, &path, "sockets", &[KEY]);
    let boxed = boxed.into_iter().map(|one| Box::new(one) as Box<dyn Transport>).collect();
    let clients = connect_over(&nodes(2, 1), boxed, limits()).expect("memory");
    std::thread::scope(|scope| {
        for (rank, client) in (0..).zip(clients) {
            scope.spawn(move || {
                let graph = barrier::graph(Algorithm::Dissemination, rank, 2).expect("in range");
                let prepared = register(&client, &world(7, rank, 2), &graph);
                run(&client, prepared, 0, &[], &mut []).expect("both are there");
                // Waits for the acknowledgements of the other node.
                drop(client);
            });
        }
    });
}

/// A frame that is too long to be injected.
fn long_frame() -> Frame {
    let payload = vec![1; MESSAGE_BYTES / 16];
    Frame::Packet(Route::default(), Packet::Eager { tag: 1, ordinal: 2, payload })
}

/// The send of a long message completes in calls of its receiver, which has no run under way.
fn a_node_that_computes_is_not_lost() {
    let path = testing::fabric::libraries().remove(0);
    for provider in ["sockets", "udp;ofi_rxd"] {
        let mut all = fabrics(2, &path, provider, &[KEY]);
        let (mut second, mut first) = (all.remove(1), all.remove(0));
        let frame = long_frame();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut arrivals = Vec::new();
                while arrivals.is_empty() {
                    second.wait(None, &mut NoPayloads, &mut arrivals).expect("it works");
                }
                let expected = Arrival::Frame { node: 0, frame: frame.clone() };
                assert!(arrivals == [expected], "{provider}: other arrivals than the frame");
            });
            first.send(1, frame.clone());
            first.flush(&mut NoPayloads);
            let mut arrivals = Vec::new();
            while first.queued(1) > 0 && arrivals.is_empty() {
                first.wait(None, &mut NoPayloads, &mut arrivals).expect("it works");
            }
            assert!(arrivals.is_empty(), "{provider}: {arrivals:?}");
        });
    }
}

/// Short messages leave at once even if the receiver does not call its provider.
fn short_messages_do_not_hide_a_stall() {
    let path = testing::fabric::libraries().remove(0);
    let unanswered = Duration::from_millis(100);
    let mut all = fabrics_within(2, &path, "sockets", &[KEY], unanswered);
    all[0].send(1, long_frame());
    let mut arrivals = Vec::new();
    for _ in 0..50 {
        all[0].send(1, Frame::Credit(1));
        all[0].wait(Some(unanswered / 10), &mut NoPayloads, &mut arrivals).expect("it works");
    }
    let [Arrival::NodeLost { node: 1, why }] = &arrivals[..] else { panic!("{arrivals:?}") };
    assert!(why.contains("no message has left"), "{why}");
}

/// Every call finds a message of another node.
fn messages_of_others_do_not_hide_a_stall() {
    type Call = fn(&mut Fabric, &mut Vec<Arrival>);
    let wait: Call = |node, arrivals| {
        node.wait(Some(Duration::ZERO), &mut NoPayloads, arrivals).expect("it works");
    };
    let poll: Call = |node, arrivals| node.poll(&mut NoPayloads, arrivals).expect("it works");
    let path = testing::fabric::libraries().remove(0);
    let unanswered = Duration::from_millis(100);
    for call in [wait, poll] {
        let mut all = fabrics_within(3, &path, "sockets", &[KEY], unanswered);
        let (mut third, mut first) = (all.remove(2), all.remove(0));
        first.send(1, long_frame());
        let (begun, mut arrivals) = (Instant::now(), Vec::new());
        let is_loss = |arrival: &Arrival| matches!(arrival, Arrival::NodeLost { node: 1, .. });
        while !arrivals.iter().any(is_loss) && begun.elapsed() < 200 * unanswered {
            third.send(0, Frame::Credit(1));
            third.flush(&mut NoPayloads);
            let before = arrivals.len();
            while arrivals.len() == before {
                wait(&mut third, &mut Vec::new());
                call(&mut first, &mut arrivals);
            }
        }
        assert!(arrivals.iter().any(is_loss), "the stall is not noticed");
    }
}
