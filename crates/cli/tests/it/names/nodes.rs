//! Programs on different nodes that meet by name: on loopback, where two simulated nodes have a
//! name server each, and on virtual nodes.

mod handshake;

use super::harness::{Place, Program, failure, wait_until};
use super::programs::POSTED;
use launch::store::SharedSecret;
use network::streams::authentication::{Connection, connect};
use network::streams::multiplexer::{Multiplexer, Side, StreamEvent};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use virtual_nodes::VirtualNodes;

testing::tests![
    messages_of_several_clients_arrive_complete_and_in_order,
    an_unknown_name_is_answered_with_those_of_the_other_node,
    a_killed_program_is_named_on_the_other_node,
    a_client_that_ends_is_reported_on_the_other_node,
    messages_before_an_orderly_end_arrive,
    a_sender_with_unread_answers_is_told_of_the_end,
    a_killed_client_that_has_no_credit_is_reported,
    a_node_is_reached_again_while_its_last_messages_wait,
    a_server_runs_as_long_as_it_is_connected,
    a_killed_name_server_is_reported_on_both_nodes,
    a_stopped_name_server_is_reported,
    a_full_receiver_stops_its_own_senders_on_other_nodes_only,
    ports_in_use_are_named,
    a_node_listens_as_long_as_the_command_runs,
];
testing::tests![
    needs(Nodes):
    two_programs_meet_across_nodes,
    a_node_that_vanishes_is_reported,
];

const SECRET: &str = "0123456789abcdef";

/// Two simulated nodes; the second listens at a port of loopback.
struct TwoNodes {
    here: Place<'static>,
    there: Place<'static>,
    listening: Program,
    port: u16,
}

impl TwoNodes {
    fn new() -> TwoNodes {
        let place = || Place::new().variable("TRADEWIND_SECRET", SECRET);
        let (here, there) = (place(), place());
        let (listening, port) = there.listen("127.0.0.1:0");
        TwoNodes { here, there, listening, port }
    }

    /// Returns the target of a name of the second node.
    fn target(&self, name: &str) -> String {
        format!("{name}@127.0.0.1:{}", self.port)
    }
}

fn messages_of_several_clients_arrive_complete_and_in_order() {
    let nodes = TwoNodes::new();
    let mut checks = nodes.there.start("checks", &["checks"]);
    assert_eq!(checks.line(), "published");
    let count = "5000";
    let mut clients: Vec<Program> = ["1", "2", "3"]
        .map(|sender| nodes.here.start("pours", &[&nodes.target("checks"), sender, count]))
        .into();
    for client in &mut clients {
        assert_eq!(client.line(), "connected");
    }
    for client in &mut clients {
        assert_eq!(client.line(), "5000 messages came back");
    }
    drop((clients, checks, nodes.listening));
    // Both servers end with their last program.
    nodes.here.await_end_of_server();
    nodes.there.await_end_of_server();
}

fn an_unknown_name_is_answered_with_those_of_the_other_node() {
    let nodes = TwoNodes::new();
    let ask = || failure(&mut nodes.here.part("ask_program", &[&nodes.target("solver")]));
    let unknown =
        format!("no program of this user has published solver on 127.0.0.1:{}; ", nodes.port);
    assert_eq!(ask(), format!("{unknown}nothing is published there"));
    let _programs = [nodes.there.squares("squares"), nodes.there.squares("cubes")];
    assert_eq!(ask(), format!("{unknown}published are: cubes, squares"));
}

fn a_killed_program_is_named_on_the_other_node() {
    let nodes = TwoNodes::new();
    let target = nodes.target("silent");
    for role in ["receives", "sends"] {
        let silent = nodes.there.silent("silent");
        let mut client = nodes.here.start(role, &[&target]);
        assert_eq!(client.line(), "connected");
        if role == "sends" {
            assert_eq!(client.line(), "full");
        }
        silent.kill();
        assert_eq!(client.line(), format!("{target} has ended"), "{role}");
        assert_eq!(client.line(), format!("{target} has ended"), "{role}, once more");
        wait_until("the name is free", || {
            nodes.there.tradewind(&["names"]).starts_with("no program")
        });
    }
}

fn a_client_that_ends_is_reported_on_the_other_node() {
    let nodes = TwoNodes::new();
    let mut publisher = nodes.there.start("reports", &["log"]);
    assert_eq!(publisher.line(), "published");
    let mut client = nodes.here.start("receives", &[&nodes.target("log")]);
    assert_eq!(client.line(), "connected");
    assert_eq!(publisher.line(), "message of 5 bytes");
    client.kill();
    assert_eq!(publisher.line(), "a client on 127.0.0.1 has ended");
    assert_eq!(publisher.line(), "the client has ended");
}

fn messages_before_an_orderly_end_arrive() {
    let nodes = TwoNodes::new();
    let mut publisher = nodes.there.start("sleeps_and_receives", &["log"]);
    assert_eq!(publisher.line(), "published");
    let mut client = nodes.here.start("posts", &[&nodes.target("log")]);
    assert_eq!(client.line(), "connected");
    assert_eq!(publisher.line(), "slept");
    assert_eq!(client.ask("go"), "closed");
    wait_until("the end has arrived", || {
        let names = nodes.there.tradewind(&["names"]);
        let log = names.lines().find(|line| line.starts_with("log")).expect("it is published");
        log.split_whitespace().nth_back(2) == Some("0")
    });
    assert_eq!(
        publisher.ask("go"),
        format!(
            "{POSTED} messages, then a client on 127.0.0.1 has closed its end of the connection"
        )
    );
}

/// Starts a program that answers the first message this many times, and a client that sends without
/// receiving, until nothing more fits.
fn overwhelmed(nodes: &TwoNodes, answers: u32) -> (Program, Program) {
    let mut publisher = nodes.there.start("overwhelms", &["log", &answers.to_string()]);
    assert_eq!(publisher.line(), "published");
    let mut client = nodes.here.start("sends", &[&nodes.target("log")]);
    assert_eq!((client.line().as_str(), client.line().as_str()), ("connected", "full"));
    assert_eq!(publisher.line(), "asked");
    (publisher, client)
}

/// More than the ring of the client holds, and less than the ring and the credit of its stream.
const UNREAD_ANSWERS: u32 = 60;

fn a_sender_with_unread_answers_is_told_of_the_end() {
    let nodes = TwoNodes::new();
    let (mut publisher, mut client) = overwhelmed(&nodes, UNREAD_ANSWERS);
    assert_eq!(publisher.line(), "answered");
    publisher.kill();
    let ended = format!("{} has ended", nodes.target("log"));
    assert_eq!((client.line(), client.line()), (ended.clone(), ended));
}

fn a_killed_client_that_has_no_credit_is_reported() {
    let nodes = TwoNodes::new();
    let (mut publisher, client) = overwhelmed(&nodes, u32::MAX);
    client.kill();
    assert_eq!(publisher.line(), "the client has ended");
}

fn a_node_is_reached_again_while_its_last_messages_wait() {
    let nodes = TwoNodes::new();
    let (mut publisher, mut client) = overwhelmed(&nodes, UNREAD_ANSWERS);
    assert_eq!(publisher.line(), "answered");
    nodes.there.kill_server();
    assert!(client.line().contains("cannot be reached any more"));
    let _squares = nodes.there.squares("squares");
    let _listening = nodes.there.listen(&format!("127.0.0.1:{}", nodes.port));
    assert_eq!(nodes.here.ask(&nodes.target("squares"), &["4"]), ["4 squared is 16"]);
}

/// Sends what is to be sent, and receives something.
fn exchange(socket: &mut TcpStream, streams: &mut Multiplexer, events: &mut Vec<StreamEvent>) {
    socket.write_all(streams.outgoing()).expect("it is connected");
    streams.written(streams.outgoing().len());
    let mut bytes = [0; 1000];
    let count = socket.read(&mut bytes).expect("it is connected");
    assert_ne!(count, 0, "the server has ended");
    streams.receive(&bytes[..count], events).expect("valid frames");
}

fn a_server_runs_as_long_as_it_is_connected() {
    let TwoNodes { there, listening, port, .. } = TwoNodes::new();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let key = SharedSecret::new(SECRET, "here").expect("long enough").names_key();
    let limit = Duration::from_secs(60);
    let Connection { socket, keys } = connect(address, &key, limit, limit).expect("the secret");
    let mut streams = Multiplexer::new(Side::Connecting, keys);
    let mut socket = TcpStream::from(socket);
    socket.set_nonblocking(false).expect("a socket");
    let mut events = Vec::new();
    // After the hello a thread of the server serves the connection.
    exchange(&mut socket, &mut streams, &mut events);
    listening.kill();
    wait_until("the port is closed", || TcpStream::connect(address).is_err());
    let stream = streams.open(b"nobody").expect("there are few");
    while events.is_empty() {
        exchange(&mut socket, &mut streams, &mut events);
    }
    assert_eq!(events, [StreamEvent::Refused { stream, code: 1, reason: String::new() }]);
    drop(socket);
    there.await_end_of_server();
}

fn a_killed_name_server_is_reported_on_both_nodes() {
    for kills_here in [true, false] {
        let nodes = TwoNodes::new();
        let target = nodes.target("log");
        let mut publisher = nodes.there.start("reports", &["log"]);
        assert_eq!(publisher.line(), "published");
        let mut client = nodes.here.start("receives", &[&target]);
        assert_eq!(client.line(), "connected");
        assert_eq!(publisher.line(), "message of 5 bytes");
        if kills_here {
            nodes.here.kill_server();
            let ended = "the name server of this node has ended, and with it what it has passed on; \
                         publish or connect again, which starts another one";
            assert_eq!((client.line().as_str(), client.line().as_str()), (ended, ended));
            let lost = "a client on 127.0.0.1 cannot be reached any more: the name server of its node \
                        does not respond";
            assert_eq!(publisher.line(), lost);
        } else {
            nodes.there.kill_server();
            let lost = format!(
                "{target} cannot be reached any more: the name server of its node does not respond"
            );
            assert_eq!((client.line(), client.line()), (lost.clone(), lost));
            assert!(publisher.line().starts_with("the name server of this node has ended"));
        }
    }
}

fn a_stopped_name_server_is_reported() {
    let place = || Place::new().variable("TRADEWIND_SECRET", SECRET);
    let (here, there) = (place().variable("TRADEWIND_NODE_TIMEOUT", "0.5"), place());
    let (_listening, port) = there.listen("127.0.0.1:0");
    let _silent = there.silent("silent");
    let target = format!("silent@127.0.0.1:{port}");
    let mut client = here.start("receives", &[&target]);
    assert_eq!(client.line(), "connected");
    there.signal_server(Signal::STOP);
    let lines = (client.line(), client.line());
    there.signal_server(Signal::CONT);
    let lost = format!(
        "{target} cannot be reached any more: the name server of its node does not respond"
    );
    assert_eq!(lines, (lost.clone(), lost));
}

fn a_full_receiver_stops_its_own_senders_on_other_nodes_only() {
    let nodes = TwoNodes::new();
    let _silent = nodes.there.silent("silent");
    let _squares = nodes.there.squares("squares");
    let mut client = nodes.here.start("sends", &[&nodes.target("silent")]);
    assert_eq!((client.line().as_str(), client.line().as_str()), ("connected", "full"));
    let numbers: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let answers = nodes.here.ask(&nodes.target("squares"), &numbers);
    assert_eq!((answers.len(), answers[99].as_str()), (100, "99 squared is 9801"));
}

fn ports_in_use_are_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let place = Place::new().variable("TRADEWIND_SECRET", SECRET);
    let listen = |address: &str| place.command(&["names", "--listen", address]);
    let error = failure(&mut listen(&format!("127.0.0.1:{port}")));
    let expected = format!(
        "tradewind: cannot listen to other nodes at 127.0.0.1:{port}: Address already in use"
    );
    assert!(error.starts_with(&expected), "{error}");
    let range = format!("{port}-{port}");
    let error = failure(listen("127.0.0.1").env("TRADEWIND_PORTS", &range));
    assert!(
        error.contains(&format!("all ports of TRADEWIND_PORTS ({range}) are in use")),
        "{error}"
    );
    let error = failure(listen("127.0.0.1").env("TRADEWIND_SECRET", ""));
    assert!(error.contains("--secret-file") && error.contains("TRADEWIND_SECRET"), "{error}");
    let error = failure(&mut place.command(&[
        "names",
        "--listen",
        "127.0.0.1:0",
        "--secret-file",
        "/none",
    ]));
    assert!(error.contains("cannot read the secret in /none"), "{error}");
    let nobody = format!("squares@127.0.0.1:{port}");
    drop(listener);
    let error = failure(&mut place.part("ask_program", &[&nobody]));
    assert!(error.contains("nothing listens there") && error.contains("names --listen"), "{error}");
}

fn a_node_listens_as_long_as_the_command_runs() {
    let TwoNodes { here, there, listening, port } = TwoNodes::new();
    let _squares = there.squares("squares");
    let target = format!("squares@127.0.0.1:{port}");
    let mut client = here.start("asks", &[&target]);
    assert_eq!(client.line(), "connected");
    listening.kill();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_until("the port is closed", || TcpStream::connect(address).is_err());
    // Open connections continue. A new one shares the connection of the servers.
    assert_eq!(client.ask("7"), "49");
    drop(client);
    wait_until("no connection is left", || {
        let ask = here.part("ask_program", &[&target]).output().expect("the program is there");
        !ask.status.success()
    });
}

fn two_programs_meet_across_nodes() {
    let nodes = VirtualNodes::new(2, 1500).expect("the runner has made sure of virtual nodes");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), SECRET).expect("there is space");
    let path = file.path().to_str().expect("text");
    let [here, there] =
        [0, 1].map(|node| Place::on(&nodes.nodes()[node]).variable("TRADEWIND_SECRET_FILE", path));
    let _squares = there.squares("squares");
    let address = nodes.nodes()[1].address().to_string();
    // Without a port the names have the default one.
    let (_listening, port) = there.listen(&address);
    assert_eq!(port, ::names::NAMES_PORT);
    assert_eq!(here.ask(&format!("squares@{address}"), &["12"]), ["12 squared is 144"]);
    let v6 = nodes.nodes()[1].address_v6();
    let (_listening, _) = there.listen(&format!("[{v6}]:7500"));
    assert_eq!(here.ask(&format!("squares@[{v6}]:7500"), &["-3"]), ["-3 squared is 9"]);
}

fn a_node_that_vanishes_is_reported() {
    let nodes = VirtualNodes::new(2, 1500).expect("the runner has made sure of virtual nodes");
    let [here, there] = [0, 1].map(|node| {
        Place::on(&nodes.nodes()[node])
            .variable("TRADEWIND_SECRET", SECRET)
            .variable("TRADEWIND_NODE_TIMEOUT", "1")
    });
    let address = nodes.nodes()[1].address().to_string();
    let (_listening, _) = there.listen(&address);
    let mut publisher = there.start("reports", &["log"]);
    assert_eq!(publisher.line(), "published");
    let target = format!("log@{address}");
    let mut client = here.start("receives", &[&target]);
    assert_eq!(client.line(), "connected");
    assert_eq!(publisher.line(), "message of 5 bytes");
    nodes.unplug(1).expect("it is plugged in");
    let lost = "cannot be reached any more: the name server of its node does not respond";
    assert_eq!(client.line(), format!("{target} {lost}"));
    assert_eq!(client.line(), format!("{target} {lost}"));
    assert_eq!(publisher.line(), format!("a client on {} {lost}", nodes.nodes()[0].address()));
}
