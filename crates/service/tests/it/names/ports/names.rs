//! Names of ports that are moved, re-pointed and revoked.

use super::{bytes, flat, lost, name, next, number, one_port_each};
use crate::names::test_server::{TestServer, Transport, deadline};
use queues::connection::ConnectionError;
use queues::names::TableError;
use queues::names::{NameError, PortAddress, Refusal};
use queues::port::{PortError, PortEvent, PortReceiver, PortSender};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

testing::tests![
    a_moved_port_loses_duplicates_and_reorders_nothing,
    a_re_pointed_name_waits_for_earlier_messages,
    a_waiting_successor_receives_its_notice_to_move,
    a_revoked_name_and_a_refused_source_are_errors,
];

/// A rank moves to another process and again to another while three senders continue, one of them
/// with longer messages. Each message is delivered once, in the order of its sender, by any of the
/// processes.
fn a_moved_port_loses_duplicates_and_reorders_nothing() {
    const MESSAGES: u32 = 20_000;
    for transport in Transport::BOTH {
        let name_server = TestServer::start();
        let (ranks, ports) = name_server.open_ports(transport.job("job", 6, 1));
        let moving = name(&ranks[0], 0, 0);
        let mut ports = flat(ports);
        let senders = ports.split_off(3);
        // What comes next from each sender; all receivers share it, so that it is the order over
        // all of them.
        let expected = [const { AtomicU32::new(0) }; 3];
        let received = || expected.iter().map(|count| count.load(Ordering::SeqCst)).sum::<u32>();
        let check = |delivery: Option<PortEvent<'_>>| match delivery {
            Some(PortEvent::Message(message)) => {
                let (sender, number) = (usize::from(message.handler), number(message.bytes));
                let before = expected[sender].fetch_add(1, Ordering::SeqCst);
                assert_eq!(number, before, "{transport:?}: of sender {sender}");
            }
            // A sender that had sent everything before its name was re-pointed has only now ended.
            Some(PortEvent::Disconnected(ConnectionError::Closed { .. }))
                if received() == 3 * MESSAGES => {}
            Some(PortEvent::Disconnected(error)) => panic!("{transport:?}: {error}"),
            None => {}
        };
        std::thread::scope(|scope| {
            for ((mut port_sender, _port_receiver), handler) in senders.into_iter().zip(0u8..) {
                let done = || received() == 3 * MESSAGES;
                scope.spawn(move || {
                    for number in 0..MESSAGES {
                        let length = if handler == 2 && number % 1000 > 500 { 300 } else { 8 };
                        port_sender
                            .send_deadline(moving, handler, &bytes(number, length), deadline())
                            .expect("it receives");
                    }
                    // Until then it stays, so that its end is not reported.
                    crate::child::until("everything has been received", done);
                });
            }
            for (place, (_port_sender, mut port_receiver)) in ports.into_iter().enumerate() {
                let name_server = &name_server;
                let (check, received) = (&check, &received);
                scope.spawn(move || {
                    let share = (place as u32 + 1) * MESSAGES;
                    if place == 2 {
                        while received() < share {
                            check(port_receiver.recv_deadline(deadline()).expect("it can sleep"));
                        }
                        return;
                    }
                    while received() < share - 1000 {
                        check(port_receiver.recv_deadline(deadline()).expect("it can sleep"));
                    }
                    let addresses = [place, place + 1]
                        .map(|process| PortAddress::new("job", process as u32, 0));
                    name_server
                        .inner
                        .move_port(&addresses[0], &addresses[1])
                        .expect("both are open");
                    // Until the senders have observed it and everything that they sent here is
                    // received.
                    crate::child::until("the senders have left", || {
                        check(port_receiver.try_recv().expect("it can look"));
                        port_receiver.connections() == 0
                    });
                });
            }
        });
        assert_eq!(received(), 3 * MESSAGES);
    }
}

/// A sender whose name was re-pointed is refused until the former receiver has received its
/// messages, and no longer.
fn a_re_pointed_name_waits_for_earlier_messages() {
    let name_server = TestServer::start();
    let (ranks, ports) = name_server.open_ports(Transport::Queues.job("job", 3, 2));
    let mut ports = ports.into_iter();
    let mut pair =
        || <[(PortSender, PortReceiver); 2]>::try_from(ports.next().expect("three")).expect("two");
    let ([(mut port_sender, _), _], [(_, mut former), _], [(_, mut latter), _]) =
        (pair(), pair(), pair());
    let wanted = name(&ranks[0], 1, 0);
    for number in 0..10 {
        port_sender.send(wanted, 0, &bytes(number, 8)).expect("there is space");
    }
    name_server.inner.repoint("job", wanted, &PortAddress::new("job", 2, 0)).expect("open");
    let late =
        port_sender.send_deadline(wanted, 0, b"new", Instant::now() + Duration::from_millis(500));
    assert!(
        matches!(&late, Err(PortError::Names(NameError::Refused { refusal: Refusal::Moving, .. }))),
        "{late:?}"
    );
    for number in 0..10 {
        assert!(!port_sender.try_send(wanted, 0, b"new").expect("open"));
        // The unused class has no messages to wait for.
        port_sender.reply(wanted.into(), 1, &bytes(number, 8)).expect("open");
        assert_eq!(next(&mut former).bytes, bytes(number, 8));
        assert_eq!(next(&mut latter).bytes, bytes(number, 8));
    }
    assert_eq!(former.connections(), 1, "it has not found out yet");
    assert!(former.recv_deadline(Instant::now()).expect("it can look").is_none());
    assert_eq!(former.connections(), 0);
    port_sender.send_deadline(wanted, 0, b"new", deadline()).expect("nothing is left there");
    assert_eq!(next(&mut latter).bytes, b"new");
    // Back again, with nothing sent meanwhile: the connection continues.
    name_server.inner.repoint("job", wanted, &PortAddress::new("job", 1, 0)).expect("open");
    name_server.inner.repoint("job", wanted, &PortAddress::new("job", 2, 0)).expect("open");
    assert!(port_sender.try_send(wanted, 0, b"still here").expect("open"));
    assert_eq!(next(&mut latter).bytes, b"still here");
    // Longer messages wait as well, and then have a connection with a ring, which moves itself.
    for number in 0..5 {
        port_sender.send(wanted, 0, &bytes(number, 8)).expect("there is space");
    }
    name_server.inner.repoint("job", wanted, &PortAddress::new("job", 1, 0)).expect("open");
    for number in 0..5 {
        assert!(!port_sender.try_send(wanted, 0, &[7; 100]).expect("open"));
        assert_eq!(next(&mut latter).bytes, bytes(number, 8));
    }
    assert!(latter.recv_deadline(Instant::now()).expect("it can look").is_none());
    port_sender.send_deadline(wanted, 0, &[7; 100], deadline()).expect("nothing is left there");
    assert_eq!(next(&mut former).bytes, [7; 100]);
    name_server.inner.repoint("job", wanted, &PortAddress::new("job", 2, 0)).expect("open");
    crate::child::until("the connection is handed over", || {
        assert!(former.try_recv().expect("it can look").is_none());
        former.connections() == 0
    });
    port_sender.send_deadline(wanted, 0, &[8; 100], deadline()).expect("open");
    assert_eq!(next(&mut latter).bytes, [8; 100]);
    port_sender.close(wanted);
    assert!(matches!(lost(&mut latter), ConnectionError::Closed { .. }));
    // The receiver has dropped its end: messages that it has not received are lost, and the wait
    // for them ends.
    port_sender.send_deadline(wanted, 0, b"never received", deadline()).expect("open");
    name_server.inner.repoint("job", wanted, &PortAddress::new("job", 1, 0)).expect("open");
    drop(latter);
    port_sender.send_deadline(wanted, 0, b"here", deadline()).expect("open");
    assert_eq!(next(&mut former).bytes, b"here");
}

/// A connection with a ring that is to move while it waits for earlier messages in the receive
/// queue moves when these are received.
fn a_waiting_successor_receives_its_notice_to_move() {
    let (name_server, ranks, [(mut port_sender, _), (_, mut former), (_, mut latter)]) =
        one_port_each(Transport::Queues);
    let wanted = name(&ranks[0], 1, 0);
    // So many that the former receiver checks its notices while they arrive, before the successor
    // is polled.
    for number in 0..350 {
        port_sender.send(wanted, 0, &bytes(number, 8)).expect("there is space");
        if number < 100 {
            assert_eq!(next(&mut former).bytes, bytes(number, 8));
        }
    }
    port_sender.send(wanted, 0, &[7; 100]).expect("there is space");
    name_server.inner.repoint("job", wanted, &PortAddress::new("job", 2, 0)).expect("open");
    for number in 100..350 {
        assert_eq!(next(&mut former).bytes, bytes(number, 8));
    }
    assert!(former.try_recv().expect("it can look").is_none());
    assert_eq!(former.connections(), 0);
    assert_eq!(next(&mut latter).bytes, [7; 100]);
}

fn a_revoked_name_and_a_refused_source_are_errors() {
    for transport in Transport::BOTH {
        let (name_server, ranks, [(_, mut port_receiver), (mut one, _), (mut two, _)]) =
            one_port_each(transport);
        let wanted = name(&ranks[0], 0, 0);
        for port_sender in [&mut one, &mut two] {
            port_sender.send(wanted, 7, b"before").expect("allowed");
            assert_eq!(next(&mut port_receiver).bytes, b"before");
        }
        port_receiver.port().refuse_source(one.port().name().into()).expect("it answers");
        let refused =
            std::iter::repeat_with(|| one.try_send(wanted, 7, b"refused")).find_map(Result::err);
        let refused = refused.expect("it does not go on for ever");
        let is_that = |error: &ConnectionError| {
            matches!(error, ConnectionError::Refused { .. } | ConnectionError::Closed { .. })
        };
        assert!(
            matches!(&refused, PortError::Connection(error) if is_that(error)),
            "{transport:?}: {refused}"
        );
        let error = lost(&mut port_receiver);
        assert!(matches!(&error, ConnectionError::Refused { .. }), "{transport:?}: {error}");
        let again = one.try_send(wanted, 7, b"refused");
        assert!(
            matches!(
                again,
                Err(PortError::Names(NameError::Refused { refusal: Refusal::SourceRefused, .. }))
            ),
            "{again:?}"
        );
        two.send(wanted, 7, b"the others go on").expect("allowed");
        assert_eq!(next(&mut port_receiver).bytes, b"the others go on");
        name_server.inner.revoke("job", wanted).expect("a name of the job");
        let revoked = two.send(wanted, 7, b"revoked");
        assert!(
            matches!(revoked, Err(PortError::Connection(ConnectionError::Revoked { .. }))),
            "{transport:?}: {revoked:?}"
        );
        let revoked = two.send(wanted, 7, b"revoked");
        assert!(
            matches!(revoked, Err(PortError::Table(TableError::RevokedName { .. }))),
            "{revoked:?}"
        );
        let error = lost(&mut port_receiver);
        assert!(
            matches!(error, ConnectionError::Revoked { .. } | ConnectionError::Closed { .. }),
            "{transport:?}: {error}"
        );
        assert!(port_receiver.try_recv().expect("it can look").is_none());
    }
}
