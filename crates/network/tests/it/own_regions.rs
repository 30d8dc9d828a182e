//! Agents and ranks with regions that the tests create: a service that is stopped, and memory that
//! does not exist.

use crate::failures::{barrier_of, end};
use crate::jobs::{deadline, nodes, register, world};
use goal::graph::{Access, Graph};
use network::agent::shared_region::{SharedRegion, notifier};
use network::agent::{Agent, AgentAddress, AgentClient, Limits};
use network::backend::Backend;
use network::error::Error;
use network::transport::memory;
use network::transport::tcp::{Listener, Tcp, Timeouts};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

testing::tests![
    a_deadline_holds_while_the_service_is_stopped,
    a_message_into_memory_that_does_not_exist_fails_its_run,
];

fn open(segment: &Arc<Segment>) -> SharedRegion {
    SharedRegion::open(Arc::clone(segment)).expect("a region")
}

/// A rank, and the descriptor for its agent.
fn rank_at(node: u32, segment: &Arc<Segment>) -> (AgentClient, OwnedFd) {
    let notifier = notifier().expect("a descriptor");
    let copy = notifier.try_clone().expect("a descriptor");
    let home = AgentAddress { node, address: String::new() };
    (AgentClient::new(open(segment), copy, home, None).expect("a region"), notifier)
}

/// Another thread of the rank fills the ring meanwhile, and holds what the ring needs.
fn a_deadline_holds_while_the_service_is_stopped() {
    const ENTRIES: u64 = 1024;
    let region = SharedRegion::create().expect("memory");
    let (client, notifier) = rank_at(0, region.segment());
    let prepared = register(&client, &world(0, 0, 1), &barrier_of(0, 1));
    let first = client.start(prepared, 0, &[]).expect("memory");
    let begun = Instant::now();
    let in_time = || begun.elapsed() < Duration::from_secs(60);
    let (waits, agent) = std::thread::scope(|scope| {
        scope.spawn(|| (1..=ENTRIES).map(|run| client.start(prepared, run, &[])).for_each(drop));
        let published = region.segment().at::<AtomicU64>(Offset(0)).expect("inside");
        while published.load(Ordering::Relaxed) < ENTRIES && in_time() {
            std::thread::yield_now();
        }
        // Many waits: the thread takes the lock for the entry that does not fit a little later.
        let waits = scope
            .spawn(|| (0..1000).all(|_| client.wait(first, Some(Instant::now())) == Ok(false)));
        while !waits.is_finished() && in_time() {
            std::thread::yield_now();
        }
        let have_ended = waits.is_finished();
        // Starting the service ends the other thread.
        let transport = memory::connect(1).expect("descriptors").remove(0);
        let agent = Agent::start(nodes(1, 1), Box::new(transport), Limits::new(16 << 10), || {});
        let agent = agent.expect("a thread");
        agent.open(0, open(region.segment()), notifier);
        (waits.join().expect("no panic") && have_ended, agent)
    });
    assert!(waits, "a wait was longer than its deadline");
    assert_eq!(client.wait(first, deadline()), Ok(true));
    drop((client, agent));
}

/// The receiver's file is shortened after the start: the system has no memory for the end of the
/// message. The connection stays.
fn a_message_into_memory_that_does_not_exist_fails_its_run() {
    const BYTES: u64 = 4 << 20;
    // Start of the buffers in the region.
    const BUFFERS: u64 = 71_372_800;
    let nodes = nodes(2, 1);
    let file = memfd_create("region", MemfdFlags::CLOEXEC).expect("a descriptor");
    ftruncate(&file, BUFFERS + 16 * BYTES).expect("it grows");
    let copy = file.try_clone().expect("a descriptor");
    let segment = Arc::new(Segment::from_fd(copy).expect("address space"));
    let listeners = [0, 1].map(|_| Listener::bind("127.0.0.1:0").expect("a port"));
    let addresses = listeners.each_ref().map(Listener::address);
    let connect = |(node, listener)| {
        std::thread::spawn(move || {
            let key = [3; 16];
            Tcp::connect(listener, node, &addresses, key, Timeouts::default()).expect("both exist")
        })
    };
    let threads: Vec<_> = (0..).zip(listeners).map(connect).collect();
    let join = |(rank, thread): (u32, JoinHandle<Tcp>)| {
        let transport = Box::new(thread.join().expect("no panic"));
        let limits = Limits::new(16 << 10);
        let agent = Agent::start(nodes.clone(), transport, limits, || {}).expect("a thread");
        let region = match rank {
            0 => SharedRegion::create().expect("memory"),
            _ => open(&segment),
        };
        let (client, notifier) = rank_at(rank, region.segment());
        agent.open(rank, region, notifier);
        (client, agent)
    };
    let [(sender, _first), (receiver, _second)] =
        <[_; 2]>::try_from((0..).zip(threads).map(join).collect::<Vec<_>>()).expect("two");
    let (mut sends, mut receives) = (Graph::new(0, 2), Graph::new(1, 2));
    let block = sends.buffer(Access::Input, BYTES);
    sends.send(block, 1, 0);
    let block = receives.buffer(Access::Output, BYTES);
    receives.receive(block, 0, 0);
    let receiving = register(&receiver, &world(0, 1, 2), &receives);
    let run = receiver.start(receiving, 0, &[&[]]).expect("memory");
    // The agent has copied the schedule once it has received a query behind the start.
    receiver.waiting_for(run);
    ftruncate(&file, BUFFERS + BYTES / 4).expect("it shrinks");
    let sending = register(&sender, &world(0, 0, 2), &sends);
    sender.start(sending, 0, &[&vec![7; BYTES as usize]]).expect("memory");
    assert!(receiver.wait(run, deadline()).expect("the agent lives"), "the run does not end");
    let outcome = receiver.fetch(run, &mut [&mut vec![0; BYTES as usize]]);
    assert!(matches!(outcome, Err(Error::System { .. })), "{outcome:?}");
    let barriers = [(0, &sender), (1, &receiver)].map(|(rank, client)| {
        let prepared = register(client, &world(1, rank, 2), &barrier_of(rank, 2));
        (client, client.start(prepared, 0, &[]).expect("memory"))
    });
    for (client, run) in barriers {
        assert_eq!(end(client, run), Ok(()), "the nodes are still connected");
    }
}
