//! Names, rights and connections between jobs, and the reports of closed ends.

mod changes;

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
    for ((_registration, _port_sender, mut port_receiver), number) in clients.into_iter().zip(0..) {
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
    let (_port_sender, mut port_receiver) = to.split();
    assert!(port_receiver.recv_deadline(Instant::now()).expect("it can sleep").is_none());
    drop(receiver);
    let closed = (0..1000).find_map(|_| connection.send(0, b"x").err());
    assert!(matches!(closed, Some(ConnectionError::Closed { .. })), "{closed:?}");
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
    let (_port_sender, mut port_receiver) = to.split();
    assert!(matches!(
        port_receiver.recv_deadline(Instant::now() + Duration::from_secs(60)),
        Err(PortError::Names(NameError::ServerGone))
    ));
    Broker::bind(&post_name).expect("the name is free again");
}
