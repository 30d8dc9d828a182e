//! Nodes of a job that connect while other processes reach their ports, with another key, or with a
//! node that is absent.

use crate::failures::barrier_of;
use crate::jobs::{nodes, register, run, world};
use network::agent::Limits;
use network::error::Error;
use network::job_nodes::random_key;
use network::local::connect_over;
use network::transport::Transport;
use network::transport::tcp::{Listener, Tcp, Timeouts};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

testing::tests![
    strangers_are_refused_and_the_job_connects_all_the_same,
    a_node_that_was_turned_away_comes_again,
    another_jobs_key_opens_nothing,
    a_node_that_is_not_there_is_named,
    a_node_that_accepts_with_another_version_is_named,
    a_node_that_connects_with_another_version_is_named,
];

/// Connections of other processes: random bytes, silence, another job's key, and hellos that are
/// incomplete or repeated.
fn strangers_are_refused_and_the_job_connects_all_the_same() {
    let key = random_key().expect("random bytes");
    let listeners: Vec<Listener> =
        (0..3).map(|_| Listener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let mut strangers = Vec::new();
    for number in 0..200u32 {
        let mut stranger = TcpStream::connect(addresses[number as usize % 2]).expect("it listens");
        let noise: Vec<u8> = (0..number).map(|byte| (byte * 37 + number) as u8).collect();
        let hello = [
            &b"TWN1\x01\0\0\0"[..],
            &(1 + number % 3).to_le_bytes(),
            &(number % 2).to_le_bytes(),
            &[5; 16],
        ]
        .concat();
        let said = match number % 4 {
            0 => stranger.write_all(&noise),
            1 => stranger.write_all(&hello),
            2 => stranger.write_all(&[&hello[..], &[7; 200]].concat()),
            _ => stranger.write_all(&hello[..20]),
        };
        said.expect("the other end is open");
        strangers.push(stranger);
    }
    let connect = |(node, listener)| {
        let addresses = addresses.clone();
        std::thread::spawn(move || {
            Tcp::connect(listener, node, &addresses, key, Timeouts::default())
        })
    };
    let threads: Vec<_> = (0..).zip(listeners).map(connect).collect();
    let transports: Vec<Tcp> = threads
        .into_iter()
        .map(|thread| thread.join().expect("no panic").expect("the three find each other"))
        .collect();
    let refused: u64 = transports.iter().map(Tcp::refused).sum();
    assert!(refused > 0, "no connection was counted");
    let boxed =
        transports.into_iter().map(|transport| Box::new(transport) as Box<dyn Transport>).collect();
    let clients = connect_over(&nodes(3, 1), boxed, Limits::new(16 << 10)).expect("memory");
    std::thread::scope(|scope| {
        for (rank, client) in (0..).zip(&clients) {
            scope.spawn(move || {
                let prepared = register(client, &world(1, rank, 3), &barrier_of(rank, 3));
                run(client, prepared, 0, &[], &mut []).expect("all are there");
            });
        }
    });
    for mut stranger in strangers {
        // The answer to a hello, then the end.
        let mut bytes = Vec::new();
        let _ = stranger.read_to_end(&mut bytes);
        assert!(bytes.len() <= 32, "{bytes:?}");
    }
}

/// A node that was refused, because other connections had filled the other node, tries again.
fn a_node_that_was_turned_away_comes_again() {
    let key = random_key().expect("random bytes");
    let listeners: Vec<Listener> =
        (0..2).map(|_| Listener::bind("127.0.0.1:0").expect("a port")).collect();
    let [there, here] = [0, 1].map(|node: usize| listeners[node].address());
    // A relay in between, which ends the first connection.
    let between = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addresses = [between.local_addr().expect("it has one"), here];
    let pass = move || {
        drop(between.accept().expect("a node connects"));
        let (mut connecting, _) = between.accept().expect("it connects again");
        let mut listening = TcpStream::connect(there).expect("it listens");
        let mut answers = (
            listening.try_clone().expect("a descriptor"),
            connecting.try_clone().expect("a descriptor"),
        );
        let back = std::thread::spawn(move || std::io::copy(&mut answers.0, &mut answers.1));
        let _ = std::io::copy(&mut connecting, &mut listening);
        let _ = back.join();
    };
    std::thread::spawn(pass);
    let timeouts = Timeouts::default();
    let threads: Vec<_> = (0..)
        .zip(listeners)
        .map(|(node, listener)| {
            std::thread::spawn(move || Tcp::connect(listener, node, &addresses, key, timeouts))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic").expect("they find each other");
    }
}

fn another_jobs_key_opens_nothing() {
    let listeners: Vec<Listener> =
        (0..2).map(|_| Listener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let timeouts = Timeouts { connecting: Duration::from_millis(300), ..Timeouts::default() };
    let connect = |(node, listener)| {
        let addresses = addresses.clone();
        std::thread::spawn(move || {
            Tcp::connect(listener, node, &addresses, [node as u8; 16], timeouts)
        })
    };
    let threads: Vec<_> = (0..).zip(listeners).map(connect).collect();
    for (node, thread) in (0..).zip(threads) {
        let error = thread.join().expect("no panic").expect_err("the keys differ").to_string();
        assert!(
            error.contains(&format!("node {} ({})", 1 - node, addresses[1 - node as usize])),
            "{error}"
        );
    }
}

/// An address without a listener.
fn a_node_that_is_not_there_is_named() {
    let gone = Listener::bind("127.0.0.1:0").expect("a port").address();
    let listener = Listener::bind("127.0.0.1:0").expect("a port");
    let addresses = [gone, listener.address()];
    let error = Tcp::connect(listener, 1, &addresses, [0; 16], Timeouts::default())
        .expect_err("no node is there");
    assert!(
        matches!(&error, Error::NodeUnreachable { node: 0, address, .. } if *address == gone.to_string()),
        "{error}"
    );
}

/// The text about two versions.
fn names_versions(text: &str, theirs: u16) -> bool {
    let theirs = format!("has version {theirs} of the protocol between nodes, and this node has");
    text.contains(&theirs) && text.contains("install the same tradewind on all nodes")
}

fn a_node_that_accepts_with_another_version_is_named() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listener = Listener::bind("127.0.0.1:0").expect("a port");
    let addresses = [other.local_addr().expect("it has one"), listener.address()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut node, _) = other.accept().expect("a node");
            let mut hello = [0; 32];
            node.read_exact(&mut hello).expect("it is sent");
            let mut answer = [0; 32];
            answer[..6].copy_from_slice(b"TWN1\x03\0");
            node.write_all(&answer).expect("it is open");
        });
        let error = Tcp::connect(listener, 1, &addresses, [0; 16], Timeouts::default())
            .expect_err("another version");
        assert!(matches!(error, Error::NodeUnreachable { node: 0, .. }), "{error}");
        assert!(names_versions(&error.to_string(), 3), "{error}");
    });
}

/// The node that connects gets an answer with the version of the one that accepts, which names both
/// when the time for the connection is over: any process can send such a hello.
fn a_node_that_connects_with_another_version_is_named() {
    let listener = Listener::bind("127.0.0.1:0").expect("a port");
    let address = listener.address();
    let mut other = TcpStream::connect(address).expect("it listens");
    let hello =
        [&b"TWN1\x03\0\0\0"[..], &1u32.to_le_bytes(), &0u32.to_le_bytes(), &[5; 16]].concat();
    other.write_all(&hello).expect("it is open");
    let timeouts = Timeouts { connecting: Duration::from_millis(300), ..Timeouts::default() };
    let error = Tcp::connect(listener, 0, &[address, address], [0; 16], timeouts)
        .expect_err("no other node is there");
    assert!(names_versions(&error.to_string(), 3), "{error}");
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).expect("an answer, then the end");
    assert_eq!(answer.len(), 32);
    assert_eq!(answer[..4], *b"TWN1");
    assert!(answer[4..6] > [3, 0][..] && answer[6..] == [0; 26], "{answer:?}");
}
