//! Connections to a name server from other programs than name servers of the same version with the
//! same secret.

use super::{SECRET, TwoNodes};
use crate::names::harness::{Place, failure};
use launch::store::SharedSecret;
use network::streams::authentication::{Acceptor, connect};
use network::streams::frame::{Frame, PROTOCOL};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

testing::tests![
    nodes_without_the_right_secret_are_refused,
    an_intermediary_can_add_nothing_to_a_connection,
    bytes_that_are_no_frames_affect_no_other_connection,
    strangers_that_connect_without_pause_exclude_no_client,
    a_name_server_of_another_version_is_named,
];

fn nodes_without_the_right_secret_are_refused() {
    let nodes = TwoNodes::new();
    let _squares = nodes.there.squares("squares");
    let target = nodes.target("squares");
    let ask = |secret: &str| {
        let mut command = nodes.here.part("ask_program", &[&target, "3"]);
        failure(command.env("TRADEWIND_SECRET", secret))
    };
    let place = format!("127.0.0.1:{}", nodes.port);
    assert_eq!(
        ask("another secret of some length"),
        format!(
            "the name server at {place} cannot be reached: what listens there has another secret, or \
             is no name server of this version ({place})"
        )
    );
    assert_eq!(
        ask("short"),
        "the secret in TRADEWIND_SECRET has 5 characters, it must have 16 or more"
    );
    let missing = ask("");
    assert!(
        missing.starts_with(&format!("programs on {place} are reached with a secret")),
        "{missing}"
    );
    assert!(missing.contains("TRADEWIND_SECRET_FILE"), "{missing}");
    // The right one still works.
    assert_eq!(nodes.here.ask(&target, &["3"]), ["3 squared is 9"]);
}

/// Another program that stands between two name servers passes their handshake on, and adds a frame.
fn an_intermediary_can_add_nothing_to_a_connection() {
    let nodes = TwoNodes::new();
    let _squares = nodes.there.squares("squares");
    let between = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = between.local_addr().expect("it is bound");
    let port = nodes.port;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut from, _) = between.accept().expect("a client");
            // The client tries again when this connection has ended.
            drop(between);
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let mut to = TcpStream::connect(to).expect("it listens");
            // The messages of the handshake.
            for (from_here, bytes) in [(true, 32), (false, 32), (true, 16)] {
                let mut message = vec![0; bytes];
                let (source, target) =
                    if from_here { (&mut from, &mut to) } else { (&mut to, &mut from) };
                source.read_exact(&mut message).expect("it is sent");
                target.write_all(&message).expect("it is connected");
            }
            let mut forged = Vec::new();
            Frame::Hello { protocol: PROTOCOL, version: "1" }.encode(&mut forged);
            Frame::Open { stream: 1, request: b"squares" }.encode(&mut forged);
            to.write_all(&forged).expect("it is connected");
            // The server sends its hello, and closes the connection without an answer.
            let mut answers = Vec::new();
            let _ = to.read_to_end(&mut answers);
            assert!(answers.len() < 100, "{} bytes", answers.len());
        });
        let error = failure(&mut nodes.here.part("ask_program", &[&format!("squares@{address}")]));
        assert!(error.contains("cannot be reached"), "{error}");
    });
    assert_eq!(nodes.here.ask(&nodes.target("squares"), &["6"]), ["6 squared is 36"]);
}

fn bytes_that_are_no_frames_affect_no_other_connection() {
    let nodes = TwoNodes::new();
    let _squares = nodes.there.squares("squares");
    let target = nodes.target("squares");
    let mut client = nodes.here.start("asks", &[&target]);
    assert_eq!(client.line(), "connected");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, nodes.port));
    let key = SharedSecret::new(SECRET, "here").expect("long enough").names_key();
    let limit = Duration::from_secs(60);
    for number in 0..200u32 {
        let mut stranger = TcpStream::connect(address).expect("it listens");
        let _ = stranger.write_all(&number.to_le_bytes().repeat(20));
        let mut insider =
            TcpStream::from(connect(address, &key, limit, limit).expect("the secret").socket);
        insider.set_nonblocking(false).expect("a socket");
        insider.set_read_timeout(Some(limit)).expect("a socket");
        let bytes = number.wrapping_mul(2_654_435_761).to_le_bytes().repeat(50);
        let _ = insider.write_all(&bytes);
        // It closes the connection after its own hello.
        let mut rest = Vec::new();
        let _ = insider.read_to_end(&mut rest);
        assert!(rest.len() < 100, "{} bytes", rest.len());
    }
    assert_eq!(client.ask("12"), "144");
    assert_eq!(nodes.here.ask(&target, &["5"]), ["5 squared is 25"]);
}

/// Strangers without the secret, and an end with the secret that sends damaged frames.
fn strangers_that_connect_without_pause_exclude_no_client() {
    /// More than a server keeps in their handshake.
    const STRANGERS: usize = 400;
    let nodes = TwoNodes::new();
    let _squares = nodes.there.squares("squares");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, nodes.port));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also if the test fails.
        let _over = SetAtEnd(&is_over);
        scope.spawn(|| {
            let mut strangers = VecDeque::new();
            while !is_over.load(Ordering::Relaxed) {
                // Fails while the listener's queue is full.
                strangers.extend(TcpStream::connect(address).ok());
                if strangers.len() > STRANGERS {
                    strangers.pop_front();
                }
            }
        });
        // Each opens a connection between the servers: the one here ends with its only program.
        for number in 0..5 {
            let answer = nodes.here.ask(&nodes.target("squares"), &[&number.to_string()]);
            assert_eq!(answer, [format!("{number} squared is {}", number * number)]);
            nodes.here.await_end_of_server();
        }
    });
}

fn a_name_server_of_another_version_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let key = SharedSecret::new(SECRET, "here").expect("long enough").names_key();
    let limit = Duration::from_secs(60);
    let mut acceptor = Acceptor::new(listener, key, limit).expect("a socket");
    let place = Place::new().variable("TRADEWIND_SECRET", SECRET);
    let error = std::thread::scope(|scope| {
        let ask = scope
            .spawn(|| failure(&mut place.part("ask_program", &[&format!("squares@{address}")])));
        let never = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        let socket = loop {
            let accepted = acceptor.wait(never.as_fd()).expect("it can wait");
            if let Some(connection) = accepted.into_iter().next() {
                break connection.socket;
            }
        };
        let mut hello = Vec::new();
        Frame::Hello { protocol: PROTOCOL + 1, version: "9.1" }.encode(&mut hello);
        TcpStream::from(socket).write_all(&hello).expect("it is connected");
        ask.join().expect("it fails with one line")
    });
    let expected = format!(
        "the name server at {address} cannot be reached: it is version 9.1 of tradewind and this is "
    );
    assert!(error.starts_with(&expected), "{error}");
}

/// Sets a flag when it is dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
