//! Connections while names are revoked or re-pointed, sources are refused, and ports move.

use super::{accept, lost, message, queue};
use crate::names::test_server::{TestServer, deadline, refusal};
use queues::connection::ConnectionError;
use queues::id::{NAMES, QueueName};
use queues::names::{JobConfig, NameError, PortAddress, Refusal, TableError};
use queues::port::{Class, NameClient, Port, PortError, PortEvent, PortReceiver};

testing::tests![
    a_revoked_name_closes_both_ends,
    a_receive_queue_may_restrict_its_sources,
    a_moved_port_loses_duplicates_and_reorders_nothing,
    a_re_pointed_name_has_its_new_destination,
];

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
