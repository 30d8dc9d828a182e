//! Agents and ranks with regions that the tests create: a service that is stopped, and memory that
//! does not exist.

use crate::failures::{barrier_of, end};
use crate::jobs::{deadline, nodes, register, world};
use goal::compile::compile;
use goal::graph::{Access, Graph};
use interpreter::{Handle, Packet};
use network::agent::shared_region::{SharedRegion, notifier};
use network::agent::{Agent, AgentAddress, AgentClient, Limits};
use network::backend::Backend;
use network::error::Error;
use network::local;
use network::transport::frame::{Frame, Route};
use network::transport::payloads::NoPayloads;
use network::transport::tcp::{Listener, Tcp, Timeouts};
use network::transport::{Arrival, Transport, memory};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
use shm::borrowed::{CallerBuffer, with_borrowed};
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

testing::tests![
    a_deadline_holds_while_the_service_is_stopped,
    a_message_into_memory_that_does_not_exist_fails_its_run,
    a_message_from_memory_that_does_not_exist_fails_its_run,
    a_message_that_outlives_its_run_is_read_with_care,
    a_protected_buffer_of_a_blocking_call_fails_its_run,
];

fn open(segment: &Arc<Segment>) -> SharedRegion {
    SharedRegion::open(Arc::clone(segment)).expect("a region")
}

/// A rank, and the descriptor for its agent.
pub(crate) fn rank_at(node: u32, segment: &Arc<Segment>) -> (AgentClient, OwnedFd) {
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

/// Start of the buffers in a region.
const BUFFERS: u64 = 71_372_800;

/// Memory for a rank that can be shortened, with space for buffers of so many bytes.
fn shrinking(bytes: u64) -> (OwnedFd, Arc<Segment>) {
    let file = memfd_create("region", MemfdFlags::CLOEXEC).expect("a descriptor");
    ftruncate(&file, BUFFERS + bytes).expect("it grows");
    let copy = file.try_clone().expect("a descriptor");
    (file, Arc::new(Segment::from_fd(copy).expect("address space")))
}

/// Two nodes over TCP.
fn tcp_pair() -> [Tcp; 2] {
    let listeners = [0, 1].map(|_| Listener::bind("127.0.0.1:0").expect("a port"));
    let addresses = listeners.each_ref().map(Listener::address);
    let connect = |(node, listener)| {
        std::thread::spawn(move || {
            let key = [3; 16];
            Tcp::connect(listener, node, &addresses, key, Timeouts::default()).expect("both exist")
        })
    };
    let threads: Vec<JoinHandle<Tcp>> = (0..).zip(listeners).map(connect).collect();
    let joined = threads.into_iter().map(|thread| thread.join().expect("no panic"));
    joined.collect::<Vec<_>>().try_into().expect("two")
}

/// The agent and the rank of one of two nodes.
fn agent_over(transport: impl Transport + 'static, region: SharedRegion) -> (AgentClient, Agent) {
    let rank = transport.node();
    let limits = Limits::new(16 << 10).with_in_place(16 << 10);
    let agent = Agent::start(nodes(2, 1), Box::new(transport), limits, || {}).expect("a thread");
    let (client, notifier) = rank_at(rank, region.segment());
    agent.open(rank, region, notifier);
    (client, agent)
}

/// A message of so many bytes from rank 0 to rank 1.
pub(crate) fn message(bytes: u64) -> [Graph; 2] {
    let (mut sends, mut receives) = (Graph::new(0, 2), Graph::new(1, 2));
    let block = sends.buffer(Access::Input, bytes);
    sends.send(block, 1, 0);
    let block = receives.buffer(Access::Output, bytes);
    receives.receive(block, 0, 0);
    [sends, receives]
}

/// Runs a barrier of both ranks on a communicator.
fn barrier_ends(number: u32, clients: [&AgentClient; 2]) {
    let runs = [0, 1].map(|rank| {
        let client = clients[rank as usize];
        let prepared = register(client, &world(number, rank, 2), &barrier_of(rank, 2));
        client.start(prepared, 0, &[]).expect("memory")
    });
    for (client, run) in clients.into_iter().zip(runs) {
        assert_eq!(end(client, run), Ok(()), "the nodes are still connected");
    }
}

/// The receiver's file is shortened after the start: the system has no memory for the end of the
/// message. The connection stays.
fn a_message_into_memory_that_does_not_exist_fails_its_run() {
    const BYTES: u64 = 4 << 20;
    let (file, segment) = shrinking(16 * BYTES);
    let [first, second] = tcp_pair();
    let (sender, _first) = agent_over(first, SharedRegion::create().expect("memory"));
    let (receiver, _second) = agent_over(second, open(&segment));
    let [sends, receives] = message(BYTES);
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
    barrier_ends(1, [&sender, &receiver]);
}

fn a_message_from_memory_that_does_not_exist_fails_its_run() {
    let [first, second] = tcp_pair();
    a_sender_without_its_memory(first, second);
}

/// The sender's file is shortened before the receiver requests the message, so the system finds no
/// memory in the middle of it. Both ranks get an error that names the sender, and their other runs
/// go on.
pub(crate) fn a_sender_without_its_memory(
    first: impl Transport + 'static,
    second: impl Transport + 'static,
) {
    // In several segments.
    const BYTES: u64 = 4 << 20;
    let (file, segment) = shrinking(16 * BYTES);
    let (sender, _first) = agent_over(first, open(&segment));
    let (receiver, _second) = agent_over(second, SharedRegion::create().expect("memory"));
    let clients = [&sender, &receiver];
    let graphs = message(BYTES);
    let [sending, receiving] = [0, 1].map(|rank| {
        let client = clients[rank as usize];
        register(client, &world(0, rank, 2), &graphs[rank as usize])
    });
    let barrier = register(&sender, &world(1, 0, 2), &barrier_of(0, 2));
    let waiting = sender.start(barrier, 0, &[]).expect("memory");
    let sent = sender.start(sending, 0, &[&vec![7; BYTES as usize]]).expect("memory");
    sender.waiting_for(sent);
    ftruncate(&file, BUFFERS + BYTES / 4).expect("it shrinks");
    let received = receiver.start(receiving, 0, &[&[]]).expect("memory");
    for (client, run, output) in [(&receiver, received, BYTES), (&sender, sent, 0)] {
        assert!(client.wait(run, deadline()).expect("the agent lives"), "the run does not end");
        let outcome = client.fetch(run, &mut [&mut vec![0; output as usize]]);
        let Err(Error::System { what, .. }) = &outcome else { panic!("{outcome:?}") };
        assert!(what.contains("rank 0"), "{what}");
    }
    let barrier = register(&receiver, &world(1, 1, 2), &barrier_of(1, 2));
    let other = receiver.start(barrier, 0, &[]).expect("memory");
    assert_eq!([end(&sender, waiting), end(&receiver, other)], [Ok(()), Ok(())]);
    barrier_ends(2, clients);
}

/// A run fails while its message is on its way, and the memory of the message is gone by then. The
/// node service reports that to the receiver.
fn a_message_that_outlives_its_run_is_read_with_care() {
    // More than the system keeps for a connection, also without the part that goes.
    const BYTES: u64 = 64 << 20;
    let (file, segment) = shrinking(2 * BYTES);
    let [first, mut second] = tcp_pair();
    let (sender, _agent) = agent_over(first, open(&segment));
    let [sends, _] = message(BYTES);
    let sending = register(&sender, &world(0, 0, 2), &sends);
    let run = sender.start(sending, 0, &[&vec![7; BYTES as usize]]).expect("memory");
    let mut arrivals = Vec::new();
    let mut next = |second: &mut Tcp| {
        while arrivals.is_empty() {
            second.wait(None, &mut NoPayloads, &mut arrivals).expect("it works");
        }
        arrivals.remove(0)
    };
    let request = next(&mut second);
    let Arrival::Frame { frame: Frame::Packet(route, Packet::RequestToSend { send, .. }), .. } =
        request
    else {
        panic!("{request:?}")
    };
    let answer = Route { destination: 0, source: 1, ..route };
    let clear = Packet::ClearToSend { send, receive: Handle(0) };
    second.send(0, Frame::Packet(answer, clear));
    while second.transferred() == 0 {
        second.wait(None, &mut NoPayloads, &mut Vec::new()).expect("it works");
    }
    ftruncate(&file, BUFFERS + BYTES / 2).expect("it shrinks");
    let failure = Error::Operation("enough".into());
    second.send(0, Frame::Fail(answer, failure.clone()));
    second.flush(&mut NoPayloads);
    assert!(sender.wait(run, deadline()).expect("the agent lives"), "the run does not end");
    assert_eq!(sender.fetch(run, &mut [&mut []]), Err(failure));
    assert_eq!(next(&mut second), Arrival::Unreadable { node: 0, route, eager: 0 });
}

/// A program protects its buffer while the collective is under way.
fn a_protected_buffer_of_a_blocking_call_fails_its_run() {
    const BYTES: usize = 4 << 20;
    // SAFETY: the kernel chooses free addresses.
    let memory = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        mmap_anonymous(std::ptr::null_mut(), BYTES, access, MapFlags::PRIVATE)
    };
    let memory = memory.expect("address space");
    // SAFETY: the pages were mapped above. No code of this process reads the second half.
    let buffer = unsafe {
        mprotect(memory.byte_add(BYTES / 2), BYTES / 2, MprotectFlags::empty()).expect("mapped");
        std::slice::from_raw_parts(memory.cast::<u8>(), BYTES)
    };
    let backends = local::connect_directly(2).expect("sockets");
    let graphs = message(BYTES as u64);
    let outcome = |rank: u32, sequence: u64, buffer: CallerBuffer<'_>| {
        let backend = &backends[rank as usize];
        let schedule = compile(&graphs[rank as usize]).expect("in order");
        let prepared = backend.register(&world(0, rank, 2), &schedule, 0)?;
        with_borrowed(vec![buffer], |buffers| {
            let run = backend.start_in_place(prepared, sequence, buffers)?;
            assert!(backend.wait(run, deadline())?, "run {sequence} does not end");
            backend.fetch(run, &mut [])
        })
    };
    let ends = |sequence: u64, input: &[u8]| {
        std::thread::scope(|scope| {
            let mut output = vec![0; BYTES];
            let other = scope.spawn(|| outcome(0, sequence, CallerBuffer::Read(input)));
            let received = outcome(1, sequence, CallerBuffer::Write(&mut output));
            ([other.join().expect("no panic"), received], output)
        })
    };
    for failed in ends(0, buffer).0 {
        let Err(Error::System { what, .. }) = &failed else { panic!("{failed:?}") };
        assert!(what.contains("rank 0"), "{what}");
    }
    let input = vec![7; BYTES];
    assert_eq!(ends(1, &input), ([Ok(()), Ok(())], input), "the ranks are still connected");
}
