//! Names, rights and connections between jobs, and the reports of closed ends.

use crate::names::test_server::{TestServer, deadline, refusal};
use queues::connection::{ConnectionError, Receiver};
use queues::id::{NAMES, QueueName, SourceName};
use queues::names::TableError;
use queues::names::{JobConfig, MAX_MESSAGE_BYTES, NameError, PortAddress, Refusal};
use queues::port::{Class, NameClient, Port, PortError, PortEvent, PortReceiver, PortSender};
use shm::broker::Broker;
use std::sync::Arc;
use std::time::{Duration, Instant};

testing::tests![
    a_reply_goes_to_the_source,
    names_mean_the_same_in_every_process_of_a_job,
    a_job_without_the_right_has_no_name,
    a_look_up_can_wait_for_an_open_port,
    messages_of_all_lengths_pass_a_connection_in_order,
    waits_end_at_their_deadline,
    a_revoked_name_closes_both_ends,
    a_receive_queue_may_restrict_its_sources,
    a_moved_port_loses_duplicates_and_reorders_nothing,
    a_re_pointed_name_has_its_new_destination,
    connections_outlive_the_name_server,
];

/// Receives the next event, which has to be a message.
fn message(port_receiver: &mut PortReceiver) -> (SourceName, u8, Vec<u8>) {
    match port_receiver.recv_deadline(deadline()).expect("it can sleep") {
        Some(PortEvent::Message(message)) => {
            (message.source, message.handler, message.bytes.to_vec())
        }
        other => panic!("no message: {other:?}"),
    }
}

fn lost(port_receiver: &mut PortReceiver) -> ConnectionError {
    match port_receiver.recv_deadline(deadline()).expect("it can sleep") {
        Some(PortEvent::Disconnected(error)) => error,
        other => panic!("no process has ended: {other:?}"),
    }
}

fn accept(port: &Port) -> Receiver {
    let mut found = None;
    crate::child::until("a connection comes", || {
        found = port.accept_connection().expect("a usable connection");
        found.is_some()
    });
    found.expect("just seen")
}

fn a_reply_goes_to_the_source() {
    let name_server = TestServer::start();
    let (_server, port) = name_server.single("server");
    let (mut answers, mut requests) = port.split();
    let clients: Vec<(NameClient, PortSender, PortReceiver)> = (0..3)
        .map(|number| {
            let name = format!("client-{number}");
            let (registration, port) = name_server.single(&name);
            name_server.allow_both(&name, "server");
            let (mut port_sender, port_receiver) = port.split();
            let server = registration.look_up(&PortAddress::new("server", 0, 0)).expect("allowed");
            port_sender.send(server, number, &[number; 100]).expect("the server is there");
            (registration, port_sender, port_receiver)
        })
        .collect();
    let mut sources = Vec::new();
    for _ in &clients {
        let (source, handler, bytes) = message(&mut requests);
        assert_eq!(bytes, [handler; 100]);
        answers.send(source.into(), handler + 100, &bytes).expect("the client is there");
        sources.push(source);
    }
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), 3, "each has its own");
    for ((_registration, _outbox, mut port_receiver), number) in clients.into_iter().zip(0..) {
        assert_eq!(
            message(&mut port_receiver),
            (SourceName::new(1).expect("small"), number + 100, vec![number; 100])
        );
    }
}

fn names_mean_the_same_in_every_process_of_a_job() {
    let name_server = TestServer::start();
    let (_server, port) = name_server.single("server");
    let plan =
        JobConfig { processes: 3, ports: 2, segment_bytes: 1 << 16, ..JobConfig::new("client") };
    let key = name_server.inner.add_job(plan).expect("a new job");
    name_server.allow_both("client", "server");
    let ranks: Vec<NameClient> =
        (0..3).map(|rank| name_server.register("client", rank, key)).collect();
    let ports: Vec<Vec<Port>> = ranks
        .iter()
        .map(|rank| (0..2).map(|port| rank.open_port(port).expect("a new port")).collect())
        .collect();
    let server = ranks[1].look_up(&PortAddress::new("server", 0, 0)).expect("allowed");
    assert_eq!(ranks[2].look_up(&PortAddress::new("server", 0, 0)).expect("allowed"), server);
    for (rank, own) in ports.iter().enumerate() {
        for (number, port) in own.iter().enumerate() {
            let name = ranks[0].own_name(rank as u32, number as u16).expect("a port of the job");
            assert_eq!(name, port.name());
            // From every port of the job, its own included, each name has one destination, and each
            // message its source.
            for from in ports.iter().flatten() {
                let destination = from.lookup(name).expect("open");
                assert_eq!(
                    (destination.queue, destination.source),
                    (port.queue(), from.name().into())
                );
            }
            // The server's names of the ports differ.
            assert_eq!(
                port.lookup(server).expect("open").queue,
                port.lookup(server).expect("open").queue
            );
        }
    }
    let mut sources: Vec<SourceName> =
        ports.iter().flatten().map(|port| port.lookup(server).expect("open").source).collect();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), 6);
    for source in sources {
        assert!(port.lookup(source.into()).is_ok(), "the server can answer");
    }
    assert_eq!(ranks[0].own_name(0, 2), None);
    let (one, other) =
        (ranks[0].segment().expect("asked for"), ranks[2].segment().expect("asked for"));
    let word = |segment: &Arc<shm::segment::Segment>| {
        segment
            .at::<shm::sync::AtomicU64>(shm::segment::Offset(8))
            .map(|word| word.fetch_add(1, shm::sync::Ordering::AcqRel))
    };
    assert_eq!(
        (word(one).expect("inside"), word(other).expect("inside")),
        (0, 1),
        "the same memory"
    );
}

fn a_job_without_the_right_has_no_name() {
    let name_server = TestServer::start();
    let (server, server_port) = name_server.single("server");
    let (one, one_port) = name_server.single("one");
    let (_other, _other_port) = name_server.single("other");
    name_server.inner.allow("one", "server").expect("two jobs");
    assert_eq!(refusal(one.look_up(&PortAddress::new("other", 0, 0))), Refusal::NoRight);
    assert_eq!(
        refusal(server.look_up(&PortAddress::new("one", 0, 0))),
        Refusal::NoRight,
        "one way only"
    );
    assert_eq!(refusal(one.look_up(&PortAddress::new("missing", 0, 0))), Refusal::UnknownJob);
    assert_eq!(
        refusal(one.look_up(&PortAddress::new("server", 1, 0))),
        Refusal::NoSuchProcess { processes: 1 }
    );
    assert_eq!(
        refusal(one.look_up(&PortAddress::new("server", 0, 1))),
        Refusal::NoSuchPort { ports: 1 }
    );
    let name = one.look_up(&PortAddress::new("server", 0, 0)).expect("allowed");
    let known: Vec<u16> =
        (0..NAMES).filter(|&number| one_port.lookup(queue(number)).is_ok()).collect();
    assert_eq!(known, [one_port.name().number(), name.number()]);
    for number in [2, 511, NAMES - 1] {
        assert!(matches!(one_port.lookup(queue(number)), Err(TableError::UnknownName { .. })));
        let opened = one_port.open_connection(queue(number), Class::Request);
        assert!(
            matches!(opened, Err(PortError::Table(TableError::UnknownName { .. }))),
            "{opened:?}"
        );
    }
    // The server has a name for the client, but may not send to it.
    let source = one_port.lookup(name).expect("open").source;
    assert!(matches!(server_port.lookup(source.into()), Err(TableError::UnknownName { .. })));
}

fn queue(number: u16) -> QueueName {
    QueueName::new(number).expect("below 16,384")
}

fn a_look_up_can_wait_for_an_open_port() {
    let name_server = TestServer::start();
    let key = name_server.job("late");
    let (early, _port) = name_server.single("early");
    name_server.allow_both("early", "late");
    let address = PortAddress::new("late", 0, 0);
    let error = early.look_up_open(&address, Instant::now()).expect_err("it is not open");
    assert!(
        matches!(&error, PortError::NotOpen { address: found, .. } if *found == address),
        "{error:?}"
    );
    assert!(
        error.to_string().starts_with("port 0 of process 0 of job late has not been opened"),
        "{error}"
    );
    let name = early.look_up(&address).expect("allowed, though not open");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| early.look_up_open(&address, deadline()));
        let late = name_server.register("late", 0, key);
        let port = late.open_port(0).expect("a new port");
        assert_eq!(waiting.join().expect("no panic").expect("open now"), name);
        drop(port);
    });
}

fn messages_of_all_lengths_pass_a_connection_in_order() {
    const MESSAGES: usize = 50_000;
    let name_server = TestServer::start();
    let (_receiver, to) = name_server.single("receiver");
    let (sender, from) = name_server.single("sender");
    name_server.inner.allow("sender", "receiver").expect("two jobs");
    let name = sender.look_up(&PortAddress::new("receiver", 0, 0)).expect("allowed");
    let mut connection = from.open_connection(name, Class::Request).expect("open");
    assert_eq!(refusal(from.open_connection(name, Class::Request)), Refusal::ConnectionOpen);
    assert_eq!(
        connection.peer().to_string(),
        format!("process 0 of job receiver (pid {})", std::process::id())
    );
    let longest = connection.longest_message();
    assert_eq!((longest, MAX_MESSAGE_BYTES), (4088, 4088));
    let oversized = connection.send(0, &vec![0; longest + 1]);
    assert!(
        matches!(oversized, Err(ConnectionError::Oversized { bytes: 4089, most: 4088 })),
        "{oversized:?}"
    );
    let length = move |number: usize| number.wrapping_mul(0x9e37_79b9) % (longest + 1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..MESSAGES {
                connection
                    .send(number as u8, &vec![number as u8; length(number)])
                    .expect("it receives");
            }
        });
        let (mut receiver, mut bytes) = (accept(&to), Vec::new());
        for number in 0..MESSAGES {
            assert_eq!(receiver.recv(&mut bytes).expect("it sends"), number as u8);
            assert!(
                bytes.len() == length(number) && bytes.iter().all(|byte| *byte == number as u8),
                "{number}"
            );
        }
        let end = receiver.recv(&mut bytes);
        assert!(matches!(end, Err(ConnectionError::Closed { .. })), "{end:?}");
    });
}

fn waits_end_at_their_deadline() {
    let name_server = TestServer::start();
    let (_receiver, to) = name_server.single("receiver");
    let (sender, from) = name_server.single("sender");
    name_server.inner.allow("sender", "receiver").expect("two jobs");
    let name = sender.look_up(&PortAddress::new("receiver", 0, 0)).expect("allowed");
    let mut connection = from.open_connection(name, Class::Request).expect("open");
    while connection.try_send(0, &[0; 1000]).expect("open") {}
    let late = connection.send_deadline(0, &[0; 4088], Instant::now());
    assert!(matches!(late, Err(ConnectionError::TimedOut { .. })), "{late:?}");
    let mut receiver = accept(&to);
    let mut bytes = Vec::new();
    while receiver.try_recv(&mut bytes).expect("open").is_some() {}
    let late = receiver.recv_deadline(&mut bytes, Instant::now());
    assert!(matches!(late, Err(ConnectionError::TimedOut { .. })), "{late:?}");
    connection.send_deadline(0, b"still open", deadline()).expect("space again");
    receiver.recv_deadline(&mut bytes, deadline()).expect("a message");
    assert_eq!(bytes, b"still open");
    let (_outbox, mut port_receiver) = to.split();
    assert!(port_receiver.recv_deadline(Instant::now()).expect("it can sleep").is_none());
    drop(receiver);
    let closed = (0..1000).find_map(|_| connection.send(0, b"x").err());
    assert!(matches!(closed, Some(ConnectionError::Closed { .. })), "{closed:?}");
}

fn a_revoked_name_closes_both_ends() {
    let name_server = TestServer::start();
    let (_server, port) = name_server.single("server");
    let (_, mut port_receiver) = port.split();
    let clients: Vec<_> = ["one", "two"]
        .into_iter()
        .map(|name| {
            let (registration, port) = name_server.single(name);
            name_server.allow_both(name, "server");
            let server = registration.look_up(&PortAddress::new("server", 0, 0)).expect("allowed");
            (registration, port.split().0, server)
        })
        .collect();
    let [(one, mut one_out, server), (two, mut two_out, _)] =
        <[_; 2]>::try_from(clients).expect("two");
    one_out.send(server, 1, b"").expect("allowed");
    assert_eq!(message(&mut port_receiver).1, 1);
    two_out.send(server, 2, b"").expect("allowed");
    assert_eq!(message(&mut port_receiver).1, 2);

    name_server.inner.revoke("one", server).expect("a name of the job");
    let refused = one_out.send(server, 1, b"");
    assert!(
        matches!(refused, Err(PortError::Connection(ConnectionError::Revoked { .. }))),
        "{refused:?}"
    );
    let refused = one_out.send(server, 1, b"");
    assert!(
        matches!(refused, Err(PortError::Table(TableError::RevokedName { .. }))),
        "{refused:?}"
    );
    // The sender has dropped its end, and the name server closes the connection: either is observed
    // first.
    let is_of = |error: &ConnectionError, job: &str| match error {
        ConnectionError::Revoked { peer } | ConnectionError::Closed { peer } => peer.job == job,
        _ => false,
    };
    let error = lost(&mut port_receiver);
    assert!(is_of(&error, "one"), "{error}");
    two_out.send(server, 2, b"").expect("the others go on");
    assert_eq!(message(&mut port_receiver).1, 2);

    name_server.inner.forbid("two", "server").expect("two jobs");
    assert!(matches!(
        two_out.send(server, 2, b""),
        Err(PortError::Connection(ConnectionError::Revoked { .. }))
    ));
    let error = lost(&mut port_receiver);
    assert!(is_of(&error, "two"), "{error}");
    assert_eq!(refusal(two.look_up(&PortAddress::new("server", 0, 0))), Refusal::NoRight);
    name_server.inner.allow("two", "server").expect("two jobs");
    two_out.send(server, 3, b"").expect("allowed again");
    assert_eq!(message(&mut port_receiver).1, 3);
    drop(one);
}

fn a_receive_queue_may_restrict_its_sources() {
    let name_server = TestServer::start();
    let (_server, port) = name_server.single("server");
    let clients: Vec<_> = ["one", "two"]
        .into_iter()
        .map(|name| {
            let (registration, port) = name_server.single(name);
            name_server.allow_both(name, "server");
            let server = registration.look_up(&PortAddress::new("server", 0, 0)).expect("allowed");
            let source = port.lookup(server).expect("open").source;
            (registration, port, server, source)
        })
        .collect();
    let [(_, one, server, one_source), (_, two, _, two_source)] = &clients[..] else {
        panic!("two")
    };
    let mut connection = one.open_connection(*server, Class::Request).expect("all may");
    let mut receiver = accept(&port);
    connection.send(0, b"before").expect("accepted");
    port.accept_only(&[*two_source]).expect("it answers");
    assert!(!port.sources().accepts(*one_source) && port.sources().accepts(*two_source));
    let mut bytes = Vec::new();
    let refused = receiver.recv(&mut bytes);
    assert!(
        matches!(&refused, Err(ConnectionError::Refused { peer }) if peer.job == "one"),
        "{refused:?}"
    );
    drop(receiver);
    let refused = (0..1000).find_map(|_| connection.send(0, b"after").err());
    assert!(
        matches!(refused, Some(ConnectionError::Refused { .. } | ConnectionError::Closed { .. })),
        "{refused:?}"
    );
    drop(connection);
    assert_eq!(refusal(one.open_connection(*server, Class::Request)), Refusal::SourceRefused);
    two.open_connection(*server, Class::Request).expect("accepted").send(7, b"").expect("accepted");
    port.refuse_source(*two_source).expect("it answers");
    assert!(!port.sources().accepts(*two_source));
    port.accept_source(*one_source).expect("it answers");
    assert!(port.sources().accepts(*one_source));
    one.open_connection(*server, Class::Request).expect("accepted again");
    port.accept_all().expect("it answers");
    port.refuse_source(*one_source).expect("it answers");
    let accepted =
        (0..NAMES).filter(|&number| port.sources().accepts(queue(number).into())).count();
    assert_eq!(accepted, usize::from(NAMES) - 1);
}

/// A rank moves to another process while two senders of two jobs continue: every message arrives
/// once and in its sender's order, first at the former process and then at the new one.
fn a_moved_port_loses_duplicates_and_reorders_nothing() {
    const MESSAGES: u32 = 30_000;
    let name_server = TestServer::start();
    let plan = JobConfig { processes: 3, ..JobConfig::new("server") };
    let key = name_server.inner.add_job(plan).expect("a new job");
    let servers: Vec<NameClient> =
        (0..3).map(|rank| name_server.register("server", rank, key)).collect();
    let mut port_receivers: Vec<PortReceiver> =
        servers.iter().map(|server| server.open_port(0).expect("a new port").split().1).collect();
    let mut sent = [0; 2];
    std::thread::scope(|scope| {
        for (job, number) in ["one", "two"].into_iter().zip(0u8..) {
            let (registration, port) = name_server.single(job);
            name_server.inner.allow(job, "server").expect("two jobs");
            scope.spawn(move || {
                let server =
                    registration.look_up(&PortAddress::new("server", 0, 0)).expect("allowed");
                let generation = port.lookup(server).expect("open").generation;
                let mut connection = port.open_connection(server, Class::Request).expect("open");
                for count in 0..MESSAGES {
                    connection.send(number, &count.to_le_bytes()).expect("it receives");
                }
                crate::child::until("the name has been re-pointed twice", || {
                    port.lookup(server).expect("open").generation == generation + 2
                });
            });
        }
        let mut check = |handler: u8, bytes: &[u8]| {
            let expected = &mut sent[usize::from(handler)];
            assert_eq!(bytes, u32::to_le_bytes(*expected), "of sender {handler}");
            *expected += 1;
        };
        for (place, port_receiver) in port_receivers.iter_mut().enumerate() {
            let mut received = 0;
            loop {
                match port_receiver.recv_deadline(deadline()).expect("it can sleep") {
                    Some(PortEvent::Message(message)) => check(message.handler, message.bytes),
                    Some(PortEvent::Disconnected(error)) if place == 2 => {
                        assert!(
                            matches!(
                                error,
                                ConnectionError::Closed { .. } | ConnectionError::Gone { .. }
                            ),
                            "{error}"
                        );
                    }
                    other => panic!("at {place}: {other:?}"),
                }
                received += 1;
                if place < 2 && received == 10_000 {
                    let [from, to] =
                        [place, place + 1].map(|rank| PortAddress::new("server", rank as u32, 0));
                    name_server.inner.move_port(&from, &to).expect("open");
                }
                // Both connections have ended: it has handed them over.
                if place < 2 && received > 10_000 && port_receiver.connections() == 0
                    || place == 2 && received > 40_000
                {
                    break;
                }
                if place == 2 && port_receiver.connections() == 0 && received > 2 {
                    break;
                }
                if place < 2 && received >= 10_000 {
                    // Messages published before the move are received here; then the connections
                    // move.
                    while let Some(delivery) = port_receiver.try_recv().expect("it can look") {
                        let PortEvent::Message(message) = delivery else { panic!("{delivery:?}") };
                        check(message.handler, message.bytes);
                    }
                    crate::child::until("the connections are handed over", || {
                        let delivery = port_receiver.try_recv().expect("it can look");
                        if let Some(PortEvent::Message(message)) = delivery {
                            check(message.handler, message.bytes);
                        }
                        port_receiver.connections() == 0
                    });
                    break;
                }
            }
        }
    });
    assert_eq!(sent, [MESSAGES; 2]);
}

fn a_re_pointed_name_has_its_new_destination() {
    let name_server = TestServer::start();
    let plan = JobConfig { ports: 2, ..JobConfig::new("server") };
    let key = name_server.inner.add_job(plan).expect("a new job");
    let server = name_server.register("server", 0, key);
    let ports: Vec<Port> = (0..2).map(|port| server.open_port(port).expect("a new port")).collect();
    let (client, from) = name_server.single("client");
    name_server.inner.allow("client", "server").expect("two jobs");
    let names: Vec<QueueName> = (0..2)
        .map(|port| client.look_up(&PortAddress::new("server", 0, port)).expect("allowed"))
        .collect();
    let before = from.lookup(names[0]).expect("open");
    name_server.inner.repoint("client", names[0], &PortAddress::new("server", 0, 1)).expect("open");
    let after = from.lookup(names[0]).expect("open");
    assert_eq!((before.queue, after.queue), (ports[0].queue(), ports[1].queue()));
    assert_eq!(after.generation, before.generation + 1);
    assert_eq!(from.lookup(names[1]).expect("open").queue, after.queue, "two names for one queue");
    let other = name_server.inner.repoint("client", names[0], &PortAddress::new("client", 7, 0));
    assert!(matches!(other, Err(NameError::Address { .. })), "{other:?}");
    let away = name_server
        .inner
        .move_port(&PortAddress::new("server", 0, 0), &PortAddress::new("client", 0, 0));
    assert!(matches!(away, Err(NameError::Address { .. })), "{away:?}");
}

fn connections_outlive_the_name_server() {
    let mut name_server = TestServer::start();
    let (_receiver, to) = name_server.single("receiver");
    let (sender, from) = name_server.single("sender");
    name_server.inner.allow("sender", "receiver").expect("two jobs");
    let name = sender.look_up(&PortAddress::new("receiver", 0, 0)).expect("allowed");
    let mut connection = from.open_connection(name, Class::Request).expect("open");
    let mut receiver = accept(&to);
    name_server.close();
    let post_name = name_server.inner.name().to_owned();
    drop(name_server);
    let gone = sender.look_up(&PortAddress::new("receiver", 0, 0));
    assert!(matches!(gone, Err(PortError::Names(NameError::ServerGone))), "{gone:?}");
    let mut bytes = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..1000u32 {
                connection.send(0, &number.to_le_bytes()).expect("it receives");
            }
        });
        for number in 0..1000u32 {
            receiver.recv_deadline(&mut bytes, deadline()).expect("it sends");
            assert_eq!(bytes, number.to_le_bytes());
        }
    });
    drop((connection, from, sender));
    let end = receiver.recv(&mut bytes);
    assert!(matches!(end, Err(ConnectionError::Closed { .. })), "{end:?}");
    drop(receiver);
    let (_outbox, mut port_receiver) = to.split();
    assert!(matches!(
        port_receiver.recv_deadline(Instant::now() + Duration::from_secs(60)),
        Err(PortError::Names(NameError::ServerGone))
    ));
    Broker::bind(&post_name).expect("the name is free again");
}
