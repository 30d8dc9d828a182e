//! Order and bounds of messages, and ends of processes.

use crate::child::{Child, argument, report, until, until_input_ends};
use crate::harness::{TestServer, connect, number, publish, receive};
use names::{MAX_MESSAGE_BYTES, PeerError, PeerEvent};
use std::time::{Duration, Instant};

testing::tests![
    messages_of_all_lengths_arrive_in_order,
    a_longer_message_is_refused_and_the_connection_stays,
    a_client_that_is_killed_is_reported_after_its_last_message,
    the_end_of_a_program_is_reported_to_all_clients,
    a_stopped_program_blocks_its_own_clients_only,
    a_client_waits_for_a_reserved_name,
    processes_killed_at_any_moment_leave_no_descriptors,
];
testing::parts![child_sends_until_killed, child_publishes, child_counts_descriptors];

fn messages_of_all_lengths_arrive_in_order() {
    let server = TestServer::start();
    let mut port = server.publish("solver");
    let mut client = server.connect("solver");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for length in (0..=MAX_MESSAGE_BYTES).step_by(7) {
                client.send(&vec![length as u8; length]).expect("it receives");
            }
            assert_eq!(client.recv().expect("a reply"), b"all");
        });
        for length in (0..=MAX_MESSAGE_BYTES).step_by(7) {
            let PeerEvent::Message { client, bytes } = port.recv().expect("a client") else {
                panic!("the client has not ended")
            };
            assert!(bytes.len() == length && bytes.iter().all(|byte| *byte == length as u8));
            if length + 7 > MAX_MESSAGE_BYTES {
                port.reply(client, b"all").expect("it is connected");
            }
        }
    });
}

fn a_longer_message_is_refused_and_the_connection_stays() {
    let server = TestServer::start();
    let mut port = server.publish("solver");
    let mut client = server.connect("solver");
    let error = client.send(&[0; MAX_MESSAGE_BYTES + 1]).expect_err("it is too long");
    assert!(matches!(error, PeerError::Oversized { most: MAX_MESSAGE_BYTES, .. }), "{error}");
    client.send(&5u64.to_le_bytes()).expect("it receives");
    let (sender, 5) = receive(&mut port) else { panic!("another number") };
    let error = port.reply(sender, &[0; MAX_MESSAGE_BYTES + 1]).expect_err("it is too long");
    assert!(matches!(error, PeerError::Oversized { .. }), "{error}");
    port.reply(sender, &6u64.to_le_bytes()).expect("it is connected");
    assert_eq!(number(client.recv().expect("a reply")), 6);
    let begun = Instant::now();
    let silent = client.recv_timeout(Duration::from_millis(20)).expect("it is connected");
    assert!(silent.is_none() && begun.elapsed() >= Duration::from_millis(20));
}

/// Sends numbers without pause.
fn child_sends_until_killed() {
    let argument = argument();
    let (server, name) = argument.split_once(' ').expect("two words");
    let mut port = connect(server, name).expect("it is published");
    (0u64..).try_for_each(|number| port.send(&number.to_le_bytes())).expect("it receives");
}

fn a_client_that_is_killed_is_reported_after_its_last_message() {
    let server = TestServer::start();
    let mut port = server.publish("solver");
    let mut quiet = server.connect("solver");
    for round in 0..20 {
        let argument = format!("{} solver", server.name());
        let mut child = Child::start("ends::child_sends_until_killed", &argument);
        let pid = child.pid();
        // The numbers of one client without a gap, up to its end.
        for expected in 0.. {
            match port.recv().expect("a client") {
                PeerEvent::Message { bytes, .. } => assert_eq!(number(bytes), expected),
                PeerEvent::Ended(error) => {
                    let text = format!("the client with process {pid} has ended");
                    assert_eq!(error.to_string(), text);
                    break;
                }
                PeerEvent::Moved => panic!("it has not moved"),
            }
            if expected == round * 37 {
                child.kill();
            }
        }
    }
    quiet.send(&1u64.to_le_bytes()).expect("the others do not matter");
    assert_eq!(receive(&mut port).1, 1);
}

/// Publishes a name, answers one message, and reports it.
fn child_publishes() {
    let argument = argument();
    let (server, name) = argument.split_once(' ').expect("two words");
    let mut port = publish(server, name).expect("the name is free");
    report("published");
    let (client, number) = receive(&mut port);
    port.reply(client, &number.to_le_bytes()).expect("it is connected");
    report("answered");
    until_input_ends();
}

fn the_end_of_a_program_is_reported_to_all_clients() {
    let server = TestServer::start();
    let mut child = Child::start("ends::child_publishes", &format!("{} solver", server.name()));
    assert_eq!(child.read_line(), "published");
    let mut clients = [(); 3].map(|()| server.connect("solver"));
    clients[0].send(&7u64.to_le_bytes()).expect("it receives");
    assert_eq!(child.read_line(), "answered");
    child.kill();
    assert_eq!(number(clients[0].recv().expect("a reply from before")), 7);
    for client in &mut clients {
        let error = client.recv().expect_err("it has ended");
        assert!(matches!(&error, PeerError::Ended { name } if name == "solver"), "{error}");
    }
    let refused = connect(server.name(), "solver");
    assert!(
        matches!(refused, Err(PeerError::Unknown { .. } | PeerError::Ended { .. })),
        "{refused:?}"
    );
}

fn a_stopped_program_blocks_its_own_clients_only() {
    let server = TestServer::start();
    let mut child = Child::start("ends::child_publishes", &format!("{} stopped", server.name()));
    assert_eq!(child.read_line(), "published");
    let mut blocked = server.connect("stopped");
    let mut port = server.publish("solver");
    let mut client = server.connect("solver");
    child.stop();
    let mut sent = 0u64;
    while blocked.try_send(&sent.to_le_bytes()).expect("it is there") {
        sent += 1;
    }
    assert!((64..=256).contains(&sent), "{sent} messages fit into a ring");
    for number in 0..1000u64 {
        client.send(&number.to_le_bytes()).expect("it receives");
        assert_eq!(receive(&mut port).1, number);
    }
    child.resume();
    assert_eq!(number(blocked.recv().expect("it goes on")), 0);
}

/// A launcher has added the program, which a process opens later.
fn a_client_waits_for_a_reserved_name() {
    let server = TestServer::start();
    let owner = names::add_program(server.name(), "later", crate::harness::no_starter);
    let owner = owner.expect("the name is free");
    let entries = names::published(server.name()).expect("it answers");
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].name.as_str(), entries[0].connections), ("later", 0));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| connect(server.name(), "later"));
        drop(owner);
        // Its owner has left before a process opened it.
        let ended = waiting.join().expect("no panic");
        assert!(matches!(ended, Err(PeerError::Unknown { .. })), "{ended:?}");
    });
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

fn processes_killed_at_any_moment_leave_no_descriptors() {
    // In a process of its own, whose descriptors no other test changes.
    assert!(Child::start("ends::child_counts_descriptors", "").succeeds());
}

fn child_counts_descriptors() {
    let server = TestServer::start();
    let mut port = server.publish("solver");
    let mut run = |rounds: u64| {
        for round in 0..rounds {
            let argument = format!("{} solver", server.name());
            let mut child = Child::start("ends::child_sends_until_killed", &argument);
            // Some are killed before they connect, the others at any moment after that.
            if round % 3 > 0 {
                for _ in 0..round * 50 {
                    port.recv().expect("a client");
                }
            }
            child.kill_if_alive();
        }
    };
    run(3);
    let before = descriptors();
    run(12);
    until("its descriptors are closed", || {
        while port.try_recv().expect("the server serves").is_some() {}
        descriptors() <= before
    });
}
