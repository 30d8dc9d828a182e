//! A name that moves from one program to another while its clients send.

use crate::child::{Child, argument, report, until, until_input_ends};
use crate::harness::{TestServer, connect, number, publish, receive};
use names::{PeerError, PeerEvent, PublishedPort};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

testing::tests![
    a_name_that_moves_loses_duplicates_and_reorders_nothing,
    a_client_goes_over_behind_its_last_message,
    a_client_that_sends_nothing_does_not_notice,
    replies_come_from_both_processes,
    the_death_of_the_former_process_is_an_error_if_it_has_messages,
    a_name_moves_to_published_names_only,
];
testing::parts![child_receives_until_it_has_moved];

fn send_text(client: u64, message: u64) -> Vec<u8> {
    [client.to_le_bytes(), message.to_le_bytes()].concat()
}

/// Receives until the name has moved; for each client the numbers in order.
fn drain(port: &mut PublishedPort, into: &mut BTreeMap<u64, Vec<u64>>) {
    loop {
        match port.recv().expect("clients") {
            PeerEvent::Message { bytes, .. } => {
                into.entry(number(bytes)).or_default().push(number(&bytes[8..]));
            }
            PeerEvent::Moved => return,
            PeerEvent::Ended(error) => panic!("{error}"),
        }
    }
}

/// Several clients send as fast as they can, while the name moves from one program to the next.
fn a_name_that_moves_loses_duplicates_and_reorders_nothing() {
    const CLIENTS: u64 = 3;
    const PROGRAMS: usize = 6;
    let server = TestServer::start();
    let mut ports: Vec<PublishedPort> =
        (0..PROGRAMS).map(|number| server.publish(&format!("worker-{number}"))).collect();
    let stop = AtomicBool::new(false);
    let mut received = BTreeMap::new();
    let sent: Vec<u64> = std::thread::scope(|scope| {
        let run = |client: u64| {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut port = server.connect("worker-0");
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    port.send(&send_text(client, count)).expect("some program receives");
                    count += 1;
                }
                count
            })
        };
        let threads: Vec<_> = (0..CLIENTS).map(run).collect();
        for turn in 0..PROGRAMS - 1 {
            // Some messages of each client first, so that all are connected here.
            let (former, later) = ports.split_at_mut(turn + 1);
            let (former, successor) = (&mut former[turn], &later[0]);
            let mut here = BTreeMap::<u64, Vec<u64>>::new();
            while here.len() < CLIENTS as usize {
                let PeerEvent::Message { bytes, .. } = former.recv().expect("clients") else {
                    continue;
                };
                here.entry(number(bytes)).or_default().push(number(&bytes[8..]));
            }
            former.move_to(successor.name()).expect("it is published");
            drain(former, &mut here);
            for (client, numbers) in here {
                received.entry(client).or_insert_with(Vec::new).extend(numbers);
            }
        }
        stop.store(true, Ordering::Relaxed);
        // The last program receives until all clients have ended.
        let last = ports.last_mut().expect("several programs");
        let mut ended = 0;
        while ended < CLIENTS {
            match last.recv().expect("clients") {
                PeerEvent::Message { bytes, .. } => {
                    received.entry(number(bytes)).or_default().push(number(&bytes[8..]));
                }
                PeerEvent::Ended(_) => ended += 1,
                PeerEvent::Moved => panic!("it has not moved"),
            }
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (client, count) in (0..).zip(sent) {
        assert_eq!(received[&client], (0..count).collect::<Vec<_>>(), "client {client}");
    }
}

fn a_client_goes_over_behind_its_last_message() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.publish("first"), server.publish("second"));
    let mut client = server.connect("first");
    client.send(&1u64.to_le_bytes()).expect("it receives");
    client.send(&2u64.to_le_bytes()).expect("it receives");
    first.move_to("second").expect("it is published");
    // A client that connects from now on reaches the second one.
    let mut other = server.connect("first");
    other.send(&10u64.to_le_bytes()).expect("it receives");
    assert_eq!(receive(&mut second).1, 10);
    assert!(!client.try_send(&3u64.to_le_bytes()).expect("both are there"), "two are unread");
    assert_eq!(receive(&mut first).1, 1);
    assert!(!client.try_send(&3u64.to_le_bytes()).expect("both are there"), "one is unread");
    assert_eq!(receive(&mut first).1, 2);
    let sent = std::thread::scope(|scope| {
        let sent = scope.spawn(|| client.send(&3u64.to_le_bytes()));
        assert!(matches!(first.recv(), Ok(PeerEvent::Moved)), "the client has gone over");
        sent.join().expect("no panic")
    });
    sent.expect("the second receives");
    assert_eq!(receive(&mut second).1, 3);
    drop(first);
    client.send(&4u64.to_le_bytes()).expect("the end of the first does not matter");
    assert_eq!(receive(&mut second).1, 4);
    // The names of a program are free after its end.
    drop(second);
    server.publish_again("first");
    server.publish_again("second");
}

fn a_client_that_sends_nothing_does_not_notice() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.publish("first"), server.publish("second"));
    let mut client = server.connect("first");
    client.send(&1u64.to_le_bytes()).expect("it receives");
    let (sender, 1) = receive(&mut first) else { panic!("another number") };
    first.reply(sender, &2u64.to_le_bytes()).expect("it is connected");
    first.move_to("second").expect("it is published");
    let event = first.try_recv().expect("a client");
    assert!(event.is_none(), "the client has not gone over: {event:?}");
    drop(first);
    assert_eq!(number(client.recv().expect("a reply")), 2);
    let silent = client.recv_timeout(Duration::from_millis(600)).expect("no end of the name");
    assert!(silent.is_none());
    client.send(&3u64.to_le_bytes()).expect("it receives");
    assert_eq!(receive(&mut second).1, 3);
}

fn replies_come_from_both_processes() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.publish("first"), server.publish("second"));
    let mut client = server.connect("first");
    client.send(&1u64.to_le_bytes()).expect("it receives");
    let (at_first, 1) = receive(&mut first) else { panic!("another number") };
    first.move_to("second").expect("it is published");
    assert!(first.try_recv().expect("a client").is_none());
    client.send(&2u64.to_le_bytes()).expect("it receives");
    let (at_second, 2) = receive(&mut second) else { panic!("another number") };
    second.reply(at_second, &20u64.to_le_bytes()).expect("it is connected");
    // A late answer of the first one.
    let late = first.reply(at_first, &10u64.to_le_bytes());
    let mut replies = vec![number(client.recv().expect("a reply"))];
    if late.is_ok() {
        replies.push(number(client.recv().expect("a reply")));
        replies.sort_unstable();
        assert_eq!(replies, [10, 20]);
    }
    assert!(replies.contains(&20));
    // The first program is in the process of the second one, and its end is not that of the name.
    drop(first);
    let silent = client.recv_timeout(Duration::from_millis(100)).expect("no end of the name");
    assert!(silent.is_none());
}

/// Publishes a name. When its input has ended, receives a message, moves the name, and receives
/// nothing more.
fn child_receives_until_it_has_moved() {
    let argument = argument();
    let (server, name) = argument.split_once(' ').expect("two words");
    let mut port = publish(server, name).expect("the name is free");
    report("published");
    until_input_ends();
    receive(&mut port);
    port.move_to("second").expect("it is published");
    report("moved");
    std::thread::park();
}

fn the_death_of_the_former_process_is_an_error_if_it_has_messages() {
    let server = TestServer::start();
    let mut second = server.publish("second");
    let part = "moves::child_receives_until_it_has_moved";
    let mut first = Child::start(part, &format!("{} first", server.name()));
    assert_eq!(first.read_line(), "published");
    let mut client = connect(server.name(), "first").expect("it is published");
    for number in 1..4u64 {
        client.send(&number.to_le_bytes()).expect("it receives");
    }
    // The name moves behind the last of these: a message behind the move would wait for ever for a
    // process that receives nothing more.
    first.end_input();
    assert_eq!(first.read_line(), "moved");
    let error = std::thread::scope(|scope| {
        let blocked = scope.spawn(|| client.send(&4u64.to_le_bytes()));
        first.kill();
        blocked.join().expect("no panic").expect_err("two messages are lost")
    });
    assert!(matches!(error, PeerError::Ended { .. } | PeerError::Closed { .. }), "{error}");
    // The next message opens a connection with the second one.
    client.send(&5u64.to_le_bytes()).expect("it receives");
    assert_eq!(receive(&mut second).1, 5);
}

fn a_name_moves_to_published_names_only() {
    let server = TestServer::start();
    let mut first = server.publish("first");
    let error = first.move_to("second").expect_err("no program has it");
    assert!(matches!(&error, PeerError::Unknown { name, .. } if name == "second"), "{error}");
    let error = first.move_to("first").expect_err("it has it already").to_string();
    assert!(error.contains("to another program"), "{error}");
    let error = first.move_to(":1.0").expect_err("no name");
    assert!(matches!(error, PeerError::InvalidName { .. }), "{error}");
    // It goes on.
    let mut client = server.connect("first");
    client.send(&1u64.to_le_bytes()).expect("it receives");
    assert_eq!(receive(&mut first).1, 1);
    drop(client);
    until("its end is reported", || {
        matches!(first.try_recv(), Ok(Some(PeerEvent::Ended(PeerError::Closed { .. }))))
    });
}
