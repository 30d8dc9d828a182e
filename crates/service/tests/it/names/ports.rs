//! Ports of one job, whose messages pass through receive queues if the job shares memory and over
//! rings if not, with the same results.

mod names;

use crate::names::test_server::{TestServer, Transport, deadline};
use queues::connection::ConnectionError;
use queues::id::QueueName;
use queues::names::{JobConfig, NameError};
use queues::port::{Class, NameClient, PortError, PortEvent, PortReceiver, PortSender};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

testing::tests![
    requests_and_replies_of_many_arrive_in_their_order,
    messages_of_all_lengths_keep_their_order,
    full_request_queues_delay_no_reply,
    a_deadline_ends_the_wait_for_the_name_server,
    the_end_of_a_sender_is_reported_after_its_last_message,
    a_process_has_512_ports_of_which_16_are_resident,
    each_of_many_sleeping_receivers_is_woken,
];

/// A message, copied.
#[derive(Debug, PartialEq, Eq)]
struct Letter {
    from: QueueName,
    handler: u8,
    class: Class,
    bytes: Vec<u8>,
}

fn letter(delivery: PortEvent<'_>) -> Letter {
    match delivery {
        PortEvent::Message(message) => {
            let (from, bytes) = (message.source.into(), message.bytes.to_vec());
            Letter { from, handler: message.handler, class: message.class, bytes }
        }
        other => panic!("no message: {other:?}"),
    }
}

fn next(port_receiver: &mut PortReceiver) -> Letter {
    letter(port_receiver.recv_deadline(deadline()).expect("it can sleep").expect("a message"))
}

fn lost(port_receiver: &mut PortReceiver) -> ConnectionError {
    match port_receiver.recv_deadline(deadline()).expect("it can sleep") {
        Some(PortEvent::Disconnected(error)) => error,
        other => panic!("no process has ended: {other:?}"),
    }
}

fn name(rank: &NameClient, process: u32, port: u16) -> QueueName {
    rank.own_name(process, port).expect("a port of the job")
}

fn flat<T>(all: Vec<Vec<T>>) -> Vec<T> {
    all.into_iter().flatten().collect()
}

/// Starts a name server and a job of `N` processes, each of which opens a port.
fn one_port_each<const N: usize>(
    transport: Transport,
) -> (TestServer, Vec<NameClient>, [(PortSender, PortReceiver); N]) {
    let name_server = TestServer::start();
    let (ranks, ports) = name_server.open_ports(transport.job("job", N as u32, 1));
    let ports = flat(ports).try_into().map_err(|_| ()).expect("a port for each process");
    (name_server, ranks, ports)
}

/// Returns the bytes of a message with this number: `length` of them, at least four.
fn bytes(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; length.max(4)];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn requests_and_replies_of_many_arrive_in_their_order() {
    const MESSAGES: u32 = 5000;
    for transport in Transport::BOTH {
        let name_server = TestServer::start();
        let (ranks, ports) = name_server.open_ports(transport.job("job", 4, 1));
        let server_name = name(&ranks[0], 0, 0);
        let mut ports = flat(ports).into_iter();
        let (mut answers, mut requests) = ports.next().expect("the server");
        let all_done = Barrier::new(4);
        std::thread::scope(|scope| {
            for (mut port_sender, mut port_receiver) in ports {
                let all_done = &all_done;
                scope.spawn(move || {
                    let mut answered = 0;
                    for number in 0..MESSAGES {
                        port_sender.send(server_name, 3, &bytes(number, 8)).expect("it receives");
                        while number - answered > 20 {
                            let answer = next(&mut port_receiver);
                            assert_eq!((answer.from, answer.class), (server_name, Class::Reply));
                            assert_eq!(answer.bytes, bytes(answered, 48));
                            answered += 1;
                        }
                    }
                    while answered < MESSAGES {
                        assert_eq!(next(&mut port_receiver).bytes, bytes(answered, 48));
                        answered += 1;
                    }
                    // No end is to be reported.
                    all_done.wait();
                });
            }
            let mut expected = [0; 4];
            for _ in 0..3 * MESSAGES {
                let request = next(&mut requests);
                assert_eq!((request.handler, request.class), (3, Class::Request));
                let expected = &mut expected[usize::from(request.from.number())];
                assert_eq!(request.bytes, bytes(*expected, 8), "{transport:?}");
                *expected += 1;
                answers
                    .reply(request.from.into(), 4, &bytes(number(&request.bytes), 48))
                    .expect("it receives");
            }
            all_done.wait();
        });
    }
}

/// Two processes send to each other before they receive, messages of a line and longer ones in
/// turn.
fn messages_of_all_lengths_keep_their_order() {
    for transport in Transport::BOTH {
        let name_server = TestServer::start();
        let (ranks, ports) = name_server.open_ports(transport.job("job", 2, 1));
        let mut ports = flat(ports);
        for round in 0..500u32 {
            let lengths = [8, 48, 49, 0, 4000, 20, 100];
            for (process, (port_sender, _)) in ports.iter_mut().enumerate() {
                let other = name(&ranks[0], 1 - process as u32, 0);
                for (index, length) in lengths.into_iter().enumerate() {
                    port_sender
                        .send_deadline(
                            other,
                            0,
                            &bytes(7 * round + index as u32, length),
                            deadline(),
                        )
                        .expect("there is space");
                }
                // The other class has a connection of its own.
                port_sender
                    .reply_deadline(other.into(), 1, &bytes(round, 30), deadline())
                    .expect("there is space");
            }
            for (_, port_receiver) in &mut ports {
                let (mut requests, mut replies) = (Vec::new(), Vec::new());
                for _ in 0..=lengths.len() {
                    let letter = next(port_receiver);
                    if letter.class == Class::Reply { &mut replies } else { &mut requests }
                        .push(letter.bytes);
                }
                let sent = |(index, length)| bytes(7 * round + index as u32, length);
                assert_eq!(
                    requests,
                    lengths.into_iter().enumerate().map(sent).collect::<Vec<_>>(),
                    "{transport:?}"
                );
                assert_eq!(replies, [bytes(round, 30)]);
            }
        }
        let oversized = ports[0].0.send(name(&ranks[0], 1, 0), 0, &[0; 4089]);
        let most = Err(ConnectionError::Oversized { bytes: 4089, most: 4088 });
        assert!(
            matches!(&oversized, Err(PortError::Connection(error)) if Err::<(), _>(error.clone()) == most)
        );
        ports[0].0.send(name(&ranks[0], 1, 0), 0, b"fits").expect("the connection is as before");
        assert_eq!(next(&mut ports[1].1).bytes, b"fits");
    }
}

fn full_request_queues_delay_no_reply() {
    for transport in Transport::BOTH {
        let (_name_server, ranks, [(_, mut port_receiver), (mut one, _), (mut two, _)]) =
            one_port_each(transport);
        let full = name(&ranks[0], 0, 0);
        one.send(full, 0, &bytes(0, 8)).expect("there is space");
        let mut requests = 1;
        while one.try_send(full, 0, &bytes(requests, 8)).expect("it is there") {
            requests += 1;
        }
        assert!(requests > 100, "{transport:?}: {requests}");
        let late = one.send_deadline(full, 0, b"more", Instant::now());
        assert!(
            matches!(late, Err(PortError::Connection(ConnectionError::TimedOut { .. }))),
            "{late:?}"
        );
        for round in 0..10 {
            one.reply_deadline(full.into(), 1, &bytes(round, 8), deadline())
                .expect("replies have space of their own");
            two.reply_deadline(full.into(), 1, &bytes(round, 8), deadline())
                .expect("replies have space of their own");
        }
        let mut replies = 0;
        for _ in 0..requests + 20 {
            let letter = next(&mut port_receiver);
            replies += u32::from(letter.class == Class::Reply);
        }
        assert_eq!(replies, 20);
        assert!(port_receiver.try_recv().expect("it can look").is_none());
        one.send(full, 0, b"more").expect("there is space again");
    }
}

fn a_deadline_ends_the_wait_for_the_name_server() {
    for transport in Transport::BOTH {
        let (mut name_server, ranks, [(mut port_sender, _), (_, _port_receiver)]) =
            one_port_each(transport);
        name_server.close();
        let started = Instant::now();
        let to = name(&ranks[0], 1, 0);
        assert!(!port_sender.try_send(to, 0, b"hasty").expect("it is there"));
        assert!(!port_sender.try_reply(to.into(), 0, b"hasty").expect("it is there"));
        let late = port_sender.send_deadline(to, 0, b"hasty", started);
        assert!(matches!(late, Err(PortError::Names(NameError::NoAnswer { .. }))), "{late:?}");
        let late = port_sender.reply_deadline(to.into(), 0, b"hasty", started);
        assert!(matches!(late, Err(PortError::Names(NameError::NoAnswer { .. }))), "{late:?}");
    }
}

fn the_end_of_a_sender_is_reported_after_its_last_message() {
    for transport in Transport::BOTH {
        let (_name_server, ranks, [(_, mut port_receiver), (mut one, _), (mut two, _)]) =
            one_port_each(transport);
        let wanted = name(&ranks[0], 0, 0);
        for number in 0..50 {
            one.send(wanted, 1, &bytes(number, 8)).expect("there is space");
            two.send(wanted, 2, &bytes(number, 8)).expect("there is space");
        }
        drop(one);
        let mut of_one = 0;
        let error = loop {
            match port_receiver.recv_deadline(deadline()).expect("it can sleep") {
                Some(PortEvent::Message(message)) => of_one += u32::from(message.handler == 1),
                Some(PortEvent::Disconnected(error)) => break error,
                None => panic!("nothing comes"),
            }
        };
        assert_eq!(of_one, 50, "{transport:?}");
        assert!(
            matches!(&error, ConnectionError::Closed { peer } if peer.process == 1),
            "{transport:?}: {error}"
        );
        two.send(wanted, 2, b"last").expect("there is space");
        while next(&mut port_receiver).bytes != b"last" {}
        assert_eq!(port_receiver.connections(), 1, "{transport:?}");
    }
}

/// A process with 512 ports of which 16 are resident: every port receives its messages, in the
/// order of their sender.
fn a_process_has_512_ports_of_which_16_are_resident() {
    const PORTS: u16 = 512;
    let name_server = TestServer::start();
    let plan = JobConfig { resident: 16, ..Transport::Queues.job("job", 2, PORTS) };
    let key = name_server.inner.add_job(plan).expect("a new job");
    let [one, two] = [0, 1].map(|process| name_server.register("job", process, key));
    let (mut port_sender, _port_receiver) = two.open_port(0).expect("a new port").split();
    let mut port_receivers: Vec<PortReceiver> =
        (0..PORTS).map(|port| one.open_port(port).expect("a new port").split().1).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..20 {
                for port in 0..PORTS {
                    // Some of them repeatedly, so that they become resident.
                    for part in 0..if port % 50 == 0 { 5 } else { 1 } {
                        port_sender
                            .send(name(&one, 0, port), part, &bytes(number, 8))
                            .expect("it receives");
                    }
                }
            }
        });
        for number in 0..20 {
            for (port, port_receiver) in port_receivers.iter_mut().enumerate() {
                for part in 0..if port % 50 == 0 { 5 } else { 1 } {
                    let letter = next(port_receiver);
                    assert_eq!(
                        (letter.handler, letter.bytes),
                        (part, bytes(number, 8)),
                        "port {port}"
                    );
                }
            }
        }
    });
    for port_receiver in &mut port_receivers {
        assert!(port_receiver.try_recv().expect("it can look").is_none());
    }
}

/// Many receivers of one process sleep at the same time, and each is woken for its own messages.
fn each_of_many_sleeping_receivers_is_woken() {
    let name_server = TestServer::start();
    let (ranks, ports) = name_server.open_ports(Transport::Queues.job("job", 2, 8));
    let mut ports = ports.into_iter();
    let port_receivers = ports.next().expect("two");
    let mut senders = ports.next().expect("two");
    let received = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for (port, (_port_sender, mut port_receiver)) in port_receivers.into_iter().enumerate() {
            let received = &received;
            scope.spawn(move || {
                for number in 0..200 {
                    assert_eq!(next(&mut port_receiver).bytes, bytes(number, 8), "port {port}");
                    received.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut sent = 0;
        for number in 0..200 {
            for port in [3, 0, 7, 1, 6, 2, 5, 4] {
                let name = name(&ranks[0], 0, port);
                senders[0].0.send(name, 0, &bytes(number, 8)).expect("it receives");
                sent += 1;
                // One at a time, so that all others sleep.
                crate::child::until("it is received", || received.load(Ordering::SeqCst) == sent);
            }
        }
    });
}
