//! A program that excludes others, and processes that send anything to the name server.

use crate::child::{Child, argument, report, until_input_ends};
use crate::harness::{TestServer, connect, number, receive};
use names::wire::{Request, Response, ServerMessage};
use names::{PeerError, PeerEvent};
use shm::broker::Connection;
use shm::process::start_time;
use std::time::Duration;

testing::tests![
    an_excluded_program_is_cut_off_and_others_continue,
    an_admitted_program_connects_again,
    only_processes_with_the_key_open_a_program,
    unregistered_clients_affect_no_others,
    a_client_closes_its_own_connections_only,
];
testing::parts![child_sends_twice];

/// Connects, sends a number and reports what becomes of it and of further messages.
fn child_sends_twice() {
    let argument = argument();
    let (server, name) = argument.split_once(' ').expect("two words");
    let mut port = match connect(server, name) {
        Ok(port) => port,
        Err(error) => return report(&error.to_string()),
    };
    port.send(&7u64.to_le_bytes()).expect("it receives");
    let answer = port.recv().map(number);
    report(&answer.map_or_else(|error| error.to_string(), |answer| answer.to_string()));
    let error = std::iter::repeat_with(|| port.send(&8u64.to_le_bytes())).find_map(Result::err);
    report(&error.expect("it is cut off").to_string());
    until_input_ends();
}

fn an_excluded_program_is_cut_off_and_others_continue() {
    let server = TestServer::start();
    let mut port = server.publish("solver");
    let mut other = server.connect("solver");
    let start = || Child::start("rights::child_sends_twice", &format!("{} solver", server.name()));
    let mut child = start();
    let (client, 7) = receive(&mut port) else { panic!("another number") };
    port.refuse(client).expect("it is connected");
    for _ in 0..2 {
        assert_eq!(child.read_line(), "solver excludes this program");
    }
    // What it has sent meanwhile is not received.
    other.send(&9u64.to_le_bytes()).expect("it is not excluded");
    let ended = loop {
        match port.recv().expect("a client") {
            PeerEvent::Ended(error) => break error,
            PeerEvent::Message { bytes, .. } => assert_ne!(number(bytes), 7),
            PeerEvent::Moved => panic!("it has not moved"),
        }
    };
    assert!(matches!(ended, PeerError::Excluded { .. }), "{ended}");
    other.send(&10u64.to_le_bytes()).expect("it is not excluded");
    while receive(&mut port).1 != 10 {}
    child.end_input();
    assert!(child.succeeds());
}

fn an_admitted_program_connects_again() {
    let server = TestServer::start();
    let mut port = server.publish("solver");
    let mut client = server.connect("solver");
    client.send(&1u64.to_le_bytes()).expect("it receives");
    let (sender, 1) = receive(&mut port) else { panic!("another number") };
    port.refuse(sender).expect("it is connected");
    // This process is excluded, so no other connection of it is admitted either.
    let refused = connect(server.name(), "solver");
    assert!(matches!(refused, Err(PeerError::Excluded { .. })), "{refused:?}");
    let error = client.send(&2u64.to_le_bytes()).expect_err("it is excluded");
    assert!(matches!(error, PeerError::Excluded { .. }), "{error}");
    port.admit(sender).expect("it is still connected for replies");
    let mut again = server.connect("solver");
    again.send(&3u64.to_le_bytes()).expect("it receives");
    loop {
        match port.recv().expect("a client") {
            PeerEvent::Message { bytes, .. } => return assert_eq!(number(bytes), 3),
            other => assert!(matches!(other, PeerEvent::Ended(_)), "{other:?}"),
        }
    }
}

fn raw(server: &TestServer) -> Connection {
    shm::broker::connect(server.name(), Duration::from_secs(60)).expect("it listens")
}

/// Sends a request and returns the response.
fn ask(socket: &Connection, request: &Request) -> Response {
    socket.send_message(&request.encode(5), &[]).expect("it reads");
    loop {
        let message = socket.receive_message(Some(Duration::from_secs(60))).expect("a response");
        match ServerMessage::decode(&message.bytes).expect("a message") {
            ServerMessage::Response(5, response) => return response,
            ServerMessage::Response(..) => panic!("the response to another request"),
            ServerMessage::Notification(_) => {}
        }
    }
}

fn only_processes_with_the_key_open_a_program() {
    let server = TestServer::start();
    let started = start_time(std::process::id()).expect("/proc");
    let owner = raw(&server);
    let add = Request::Add { name: "solver".to_owned(), started };
    let Response::Added { key } = ask(&owner, &add) else { panic!("the name is free") };
    let open = |key| Request::Open { name: "solver".to_owned(), key, started };
    let wrong = "00000000000000000000000000000abc".parse().expect("32 digits");
    let other = raw(&server);
    let refused = ask(&other, &open(wrong));
    assert!(matches!(refused, Response::Refused(names::wire::Refusal::WrongKey)), "{refused:?}");
    let refused = ask(&raw(&server), &add);
    let taken = Response::Refused(names::wire::Refusal::Taken { pid: std::process::id() });
    assert_eq!(refused, taken);
    assert_eq!(ask(&other, &open(key)), Response::Opened, "after a refusal");
    assert_eq!(ask(&raw(&server), &open(key)), taken);
}

fn unregistered_clients_affect_no_others() {
    let server = TestServer::start();
    let mut port = server.publish("solver");
    // The server closes those beyond its limit, so that sending to them may fail.
    let silent: Vec<Connection> = (0..40).map(|_| raw(&server)).collect();
    for (number, socket) in silent.iter().enumerate() {
        let noise: Vec<u8> = (0..number as u8).collect();
        let _ = socket.send_message(&noise, &[]);
    }
    let mut client = server.connect("solver");
    client.send(&1u64.to_le_bytes()).expect("it receives");
    assert_eq!(receive(&mut port).1, 1);
    // Requests of registered processes are refused to others.
    drop(silent);
    let stranger = raw(&server);
    let request = Request::Move { to: "solver".to_owned() };
    let refused = ask(&stranger, &request);
    assert!(matches!(refused, Response::Refused(_)), "{refused:?}");
}

fn a_client_closes_its_own_connections_only() {
    let server = TestServer::start();
    let mut port = server.publish("solver");
    let mut client = server.connect("solver");
    let started = start_time(std::process::id()).expect("/proc");
    let (owner, stranger) = (raw(&server), raw(&server));
    let name = "stranger".to_owned();
    let add = Request::Add { name: name.clone(), started };
    let Response::Added { key } = ask(&owner, &add) else { panic!("the name is free") };
    assert_eq!(ask(&stranger, &Request::Open { name, key, started }), Response::Opened);
    for connection in 0..20 {
        for dropped in [names::wire::DroppedEnd::Sender, names::wire::DroppedEnd::Receiver] {
            let request = Request::Close { connection, dropped };
            stranger.send_message(&request.encode(0), &[]).expect("it reads");
        }
    }
    let Response::Named { .. } =
        ask(&stranger, &Request::LookUp { program: "solver".to_owned(), waits: false })
    else {
        panic!("it is published")
    };
    client.send(&1u64.to_le_bytes()).expect("it receives");
    let (sender, 1) = receive(&mut port) else { panic!("another number") };
    port.reply(sender, &2u64.to_le_bytes()).expect("it is connected");
    assert_eq!(number(client.recv().expect("a reply")), 2);
}
