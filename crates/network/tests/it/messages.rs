//! Matched messages over the connections of the ranks themselves.

use crate::frames::records;
use goal::compile::compile;
use goal::graph::{Access, Graph};
use network::agent::AgentClient;
use network::backend::{Backend, CommunicatorContext};
use network::direct::{DirectBackend, DirectPort, MessageDriver};
use network::job_nodes::random_key;
use network::local;
use network::node_map::NodeMap;
use network::transport::frame::Frame;
use network::transport::payloads::NoPayloads;
use network::transport::records::messages::{Class, Head};
use network::transport::tcp::{Listener, Tcp, Timeouts};
use network::transport::{Arrival, Transport};
use queues::remote_waits::{Drive, Driven, RemoteDriver};
use shm::mapped::Mapped;
use shm::segment::{Backing, Offset, Segment};
use shm::sync::AtomicU32;
use shm::wakeup::Wakeup;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

testing::tests![
    no_arrival_is_missed_by_a_thread_that_sleeps,
    messages_that_wait_for_others_leave_without_a_further_call,
    what_the_system_does_not_take_follows_while_the_rank_computes,
    space_that_was_found_is_there_while_collectives_send,
    space_that_was_found_is_there_while_messages_leave,
    frames_that_no_rank_sends_end_the_messages_of_their_sender_only,
    an_exit_comes_behind_the_messages_of_its_rank,
];

/// Ends the wait of a broken test.
const LIMIT: Duration = Duration::from_secs(20);

/// A rank with its end of messages.
struct Rank {
    port: DirectPort,
    threads: MessageDriver,
    word: Mapped<AtomicU32>,
    // Behind the port, which uses both.
    backend: DirectBackend,
    _agent: AgentClient,
}

impl Rank {
    fn open(backend: DirectBackend, agent: AgentClient) -> Rank {
        shm::fence::register();
        let segment = Arc::new(Segment::create(4096, Backing::Memory).expect("memory"));
        let word: Mapped<AtomicU32> = Mapped::new(&segment, Offset(64)).expect("inside");
        let reports = agent.open_messages(0).expect("memory");
        let (port, threads) = backend.open_messages(reports, word.clone(), &NodeMap::new(0..8_u32));
        Rank { port, threads, word, backend, _agent: agent }
    }

    /// Ranks on a node each.
    fn all(count: u32) -> Vec<Rank> {
        let nodes = NodeMap::new(0..count);
        let agents = local::connect(&nodes).expect("sockets");
        let backends = local::connect_directly(count).expect("sockets");
        backends.into_iter().zip(agents).map(|(one, agent)| Rank::open(one, agent)).collect()
    }

    /// Rank 0, and a rank 1 that reads nothing: without an end of messages it has no thread that does.
    fn beside_silent() -> (Rank, DirectBackend) {
        let agents = local::connect(&NodeMap::new(0..2)).expect("sockets");
        let mut backends = local::connect_directly(2).expect("sockets");
        let silent = backends.pop().expect("two ranks");
        let mut own = backends.into_iter().zip(agents).map(|(one, agent)| Rank::open(one, agent));
        (own.next().expect("two ranks"), silent)
    }

    fn send(&mut self, to: u32, number: u64) {
        assert!(self.port.put(to, [number, 0, 0], &[]), "there is space");
        self.port.publish();
    }

    /// Takes the next record, in a thread that sleeps at the connections.
    fn receive(&mut self) -> (Head, Vec<u8>) {
        let Rank { port, threads, .. } = self;
        let end = Instant::now() + LIMIT;
        let drive =
            Drive { polls_always: false, polling: Duration::ZERO, sleeps: true, until: Some(end) };
        while port.first().is_none() {
            assert!(Instant::now() < end, "nothing arrives");
            threads.drive(drive, &mut || port.first().is_some());
        }
        take(port).expect("there is one")
    }
}

fn take(port: &mut DirectPort) -> Option<(Head, Vec<u8>)> {
    let head = port.first()?;
    let mut bytes = vec![0; head.bytes];
    port.read(0, &mut bytes);
    port.release();
    Some((head, bytes))
}

/// A rank receives from another node and from its own, by turns in a sleep at the connections and in
/// one from which the background thread wakes it. No sleep has another end than what it waits for.
fn no_arrival_is_missed_by_a_thread_that_sleeps() {
    const ROUNDS: u64 = 6000;
    let mut ranks = Rank::all(2);
    let mut far = ranks.pop().expect("two ranks");
    let Rank { port, threads, word, .. } = &mut ranks[0];
    // Number of the round that has begun, and messages of this node.
    let (round, near) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = |number| {
        while round.load(Ordering::Acquire) < number {
            std::hint::spin_loop();
            std::thread::yield_now();
        }
        // The receiver polls, falls asleep, or sleeps.
        (0..number * 7919 % 4000).for_each(|_| std::hint::spin_loop());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (1..=ROUNDS).filter(|number| number % 3 != 0) {
                begun(number);
                far.send(0, number);
            }
        });
        scope.spawn(|| {
            for number in (1..=ROUNDS).filter(|number| number % 3 == 0) {
                begun(number);
                near.store(number, Ordering::Release);
                Wakeup::by_store(word).notify();
            }
        });
        for number in 1..=ROUNDS {
            round.store(number, Ordering::Release);
            let end = Instant::now() + LIMIT;
            let mut has_arrived = || {
                let has_record = take(port).is_some_and(|(head, _)| head.words[0] == number);
                has_record || near.load(Ordering::Acquire) == number
            };
            // A local rank cannot end a sleep at the connections.
            if number % 6 == 1 {
                let until = Some(end);
                let polling = Duration::ZERO;
                let drive = Drive { polls_always: false, polling, sleeps: true, until };
                while threads.drive(drive, &mut has_arrived) != Driven::Complete {
                    assert!(Instant::now() < end, "round {number}: a message is missed");
                }
                continue;
            }
            while !has_arrived() {
                threads.begin_sleep();
                let wakeup = Wakeup::by_store(word);
                let armed = wakeup.arm();
                let has_arrived = has_arrived();
                let is_late = !has_arrived && wakeup.sleep(armed, Some(LIMIT));
                wakeup.disarm(armed);
                threads.end_sleep();
                assert!(!is_late, "round {number}: a message is missed");
                if has_arrived {
                    break;
                }
            }
        }
    });
}

fn messages_that_wait_for_others_leave_without_a_further_call() {
    let mut ranks = Rank::all(2);
    let mut receiver = ranks.pop().expect("two ranks");
    let sender = &mut ranks[0];
    let mut sent = 0;
    for round in 0..200_u64 {
        // Up to more than what waits at most.
        let first = sent;
        for _ in 0..1 + round * 13 % 60 {
            assert!(sender.port.put(1, [sent, 0, 0], &sent.to_le_bytes()), "there is space");
            sender.port.publish_soon();
            sent += 1;
        }
        for number in first..sent {
            let (head, bytes) = receiver.receive();
            assert_eq!((head.words[0], bytes), (number, number.to_le_bytes().to_vec()));
        }
    }
}

/// Rank 0 sends more than connections hold and makes no further call.
fn what_the_system_does_not_take_follows_while_the_rank_computes() {
    const RECORDS: u64 = 120;
    let mut ranks = Rank::all(2);
    let mut receiver = ranks.pop().expect("two ranks");
    let sender = &mut ranks[0];
    let bytes = vec![7; 32 << 10];
    let mut sent = 0;
    while sender.port.has_space(1, 1, 33 << 10) && sent < RECORDS {
        assert!(sender.port.put(1, [sent, 0, 0], &bytes));
        sender.port.publish();
        sent += 1;
    }
    assert_eq!(sent, RECORDS, "there is space for the longest message");
    for number in 0..RECORDS {
        let (head, found) = receiver.receive();
        assert_eq!((head.words[0], head.peer, found == bytes), (number, 0, true));
    }
    // The queue is empty: there is space for as much again.
    assert!(sender.port.has_space(1, 97, 3 << 20));
}

/// Bytes of a part of a long message, and of its record.
const PART: usize = 32 << 10;
const PART_RECORD: u64 = (32 << 10) + 32;

/// Puts the records of a long message for rank 1, for which there must be space.
fn put_long(port: &mut DirectPort, parts: u64) {
    assert!(port.put(1, [0; 3], &[]), "the head");
    for number in 1..=parts {
        assert!(port.put(1, [number, 0, 0], &[7; PART]), "part {number} of {parts}");
        port.publish();
    }
}

/// Collectives have left more in the queue of the connection than messages may have there.
fn space_that_was_found_is_there_while_collectives_send() {
    const BYTES: u64 = 1_100_000;
    const PARTS: u64 = 90;
    let (mut sender, silent) = Rank::beside_silent();
    let mut graph = Graph::new(0, 2);
    let input = graph.buffer(Access::Input, BYTES);
    graph.send(input, 1, 0);
    let schedule = compile(&graph).expect("in order");
    let context = CommunicatorContext { number: 3, members: [0, 1].into(), rank: 0 };
    let id = sender.backend.register(&context, &schedule, 0).expect("valid");
    let data = vec![1; BYTES as usize];
    for sequence in 0..7 {
        sender.backend.start(id, sequence, &[&data]).expect("started");
    }
    assert!(sender.port.has_space(1, PARTS + 1, PARTS * PART_RECORD + 32), "messages have space");
    put_long(&mut sender.port, PARTS);
    drop((silent, sender));
}

/// The queue is filled up to the space for a long message.
fn space_that_was_found_is_there_while_messages_leave() {
    const PARTS: u64 = 64;
    let (records, bytes) = (PARTS + 1, PARTS * PART_RECORD + 32);
    let (mut sender, silent) = Rank::beside_silent();
    let port = &mut sender.port;
    let mut filled = 0;
    for length in [PART, 304] {
        // Each publication passes some to the system.
        while filled < 4000 && port.has_space(1, records + 1, bytes + length as u64 + 32) {
            assert!(port.put(1, [0; 3], &vec![7; length]), "{filled} records");
            port.publish();
            filled += 1;
        }
    }
    assert!(filled < 4000, "what the system does not take stays in the queue");
    assert!(port.has_space(1, records, bytes), "for that much");
    put_long(port, PARTS);
    drop((silent, sender));
}

/// Rank 1 of 3 sends them.
fn frames_that_no_rank_sends_end_the_messages_of_their_sender_only() {
    let agents = local::connect(&NodeMap::new(0..3u32)).expect("sockets");
    let key = random_key().expect("random bytes");
    let listeners: Vec<Listener> =
        (0..3).map(|_| Listener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let addresses = &addresses;
    let connect = |rank, listener| {
        DirectBackend::connect(listener, rank, addresses, key, Timeouts::default(), |_| {})
    };
    let [first, second, third] = listeners.try_into().expect("three");
    let (victim, mut hostile, other) = std::thread::scope(|scope| {
        let other = scope.spawn(move || connect(2, third).expect("sockets"));
        let hostile = scope.spawn(move || {
            Tcp::connect_ranks(second, 1, addresses, key, Timeouts::default()).expect("sockets")
        });
        let victim = connect(0, first).expect("sockets");
        (victim, hostile.join().expect("no panic"), other.join().expect("no panic"))
    });
    let mut agents = agents.into_iter();
    let [first, _, third] = [(); 3].map(|()| agents.next().expect("three"));
    let mut victim = Rank::open(victim, first);
    let mut other = Rank::open(other, third);
    let mut flush = |source, heads: &[(u32, [u64; 3], usize)]| {
        hostile.send(0, Frame::Messages { source, records: records(heads) });
        hostile.flush(&mut NoPayloads);
    };
    // In the name of another rank: it is dropped. The next one arrives.
    flush(2, &[(0, [1, 1, 1], 8)]);
    flush(1, &[(0, [2, 2, 2], 8)]);
    let (head, bytes) = victim.receive();
    assert_eq!((head.peer, head.words, bytes), (1, [2; 3], vec![3; 8]));
    // For another rank: the words are those that no rank sends.
    flush(1, &[(2, [3, 3, 3], 8)]);
    let (head, _) = victim.receive();
    assert_eq!((head.peer, head.words, head.class), (1, [u64::MAX; 3], Class::Message));
    // Beyond every credit, while the rank takes nothing.
    let drive = Drive {
        polls_always: false,
        polling: Duration::ZERO,
        sleeps: false,
        until: Some(Instant::now() + LIMIT),
    };
    for _ in 0..1000 {
        flush(1, &[(0, [4, 4, 4], 30_000); 2]);
        victim.threads.drive(drive, &mut || false);
    }
    let end = Instant::now() + LIMIT;
    let mut kept = 0;
    loop {
        let (head, bytes) = victim.receive();
        kept += bytes.len();
        if head.words == [u64::MAX; 3] {
            break;
        }
        assert!(Instant::now() < end && head.words == [4; 3]);
    }
    assert!(kept < 49 << 20, "{kept} bytes are kept");
    other.send(0, 5);
    let (head, _) = victim.receive();
    assert_eq!((head.peer, head.words[0]), (2, 5));
    let mut arrivals: Vec<Arrival> = Vec::new();
    hostile.poll(&mut NoPayloads, &mut arrivals).expect("it works");
    drop((victim, other));
}

/// Rank 1 leaves behind its messages, which rank 0 reads afterwards.
fn an_exit_comes_behind_the_messages_of_its_rank() {
    const MESSAGES: u64 = 1000;
    let mut ranks = Rank::all(2);
    let mut leaver = ranks.pop().expect("two ranks");
    let receiver = &mut ranks[0];
    for number in 0..MESSAGES {
        leaver.send(0, number);
    }
    assert!(receiver.backend.held() > 0);
    drop(leaver);
    for number in 0..MESSAGES {
        let (head, _) = receiver.receive();
        assert_eq!((head.class, head.words[0]), (Class::Message, number));
    }
    let (head, why) = receiver.receive();
    let why = network::error::decode_exit(&why).expect("an error");
    assert_eq!((head.peer, head.class, why.has_left()), (1, Class::Exit, true), "{why}");
}
