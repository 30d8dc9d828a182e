//! Connections with the proof of a secret, beside those of strangers.

use network::job_nodes::Key;
use network::streams::authentication::{Acceptor, ConnectError, Connection, connect};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

testing::tests![
    only_ends_with_the_secret_connect,
    an_end_of_another_version_is_named,
    silent_strangers_close_no_connection,
    strangers_that_send_a_hello_do_not_exclude_a_client,
];

const LIMIT: Duration = Duration::from_secs(60);
const KEY: Key = [1; 16];
/// Bytes of the first message of a client, and of its answer.
const MESSAGE_BYTES: usize = 32;
/// Number of connections that an acceptor keeps in their handshake.
const MAX_PENDING: usize = network::transport::tcp::MAX_PENDING;

/// Listens with a key, and returns the first connection that has proven it.
fn accept_one(listener: TcpListener, key: Key) -> Connection {
    let mut acceptor = Acceptor::new(listener, key, LIMIT).expect("a socket");
    let never = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
    let deadline = Instant::now() + LIMIT;
    loop {
        assert!(Instant::now() < deadline, "no client has connected");
        if let Some(socket) = acceptor.wait(never.as_fd()).expect("it can wait").pop() {
            return socket;
        }
    }
}

fn only_ends_with_the_secret_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address: SocketAddr = listener.local_addr().expect("it is bound");
    std::thread::scope(|scope| {
        let accepted = scope.spawn(move || accept_one(listener, [1; 16]));
        // Silent, noisy, and with another secret.
        let _silent = TcpStream::connect(address).expect("it listens");
        let mut noisy = TcpStream::connect(address).expect("it listens");
        noisy.write_all(&[7; 200]).expect("it is connected");
        let wrong = connect(address, &[2; 16], LIMIT, LIMIT);
        assert!(matches!(wrong, Err(ConnectError::OtherSecret)), "{wrong:?}");
        let right = connect(address, &[1; 16], LIMIT, LIMIT).expect("the secret");
        let other = accepted.join().expect("no panic");
        assert_eq!(right.keys.send, other.keys.receive);
        assert_eq!(right.keys.receive, other.keys.send);
        assert_ne!(right.keys.send, right.keys.receive);
        let [mut right, mut other] = [right, other].map(|it| TcpStream::from(it.socket));
        right.set_nonblocking(false).expect("a socket");
        other.set_nonblocking(false).expect("a socket");
        other.write_all(b"hello").expect("it is connected");
        let mut bytes = [0; 5];
        right.read_exact(&mut bytes).expect("it has been sent");
        assert_eq!(&bytes, b"hello");
    });
    let nothing = connect(address, &[1; 16], LIMIT, LIMIT);
    assert!(matches!(nothing, Err(ConnectError::NotListening)), "{nothing:?}");
}

fn an_end_of_another_version_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, _) = listener.accept().expect("a client");
            let mut hello = [0; MESSAGE_BYTES];
            client.read_exact(&mut hello).expect("it is sent");
            let mut answer = [0; MESSAGE_BYTES];
            answer[..6].copy_from_slice(b"TWN1\xff\x01");
            client.write_all(&answer).expect("it is open");
        });
        let error = connect(address, &KEY, LIMIT, LIMIT).expect_err("another version");
        assert!(matches!(error, ConnectError::OtherVersion { theirs: 0x1ff }), "{error}");
        let text = error.to_string();
        let ours = "it has version 511 of the protocol between nodes, and this node has version ";
        assert!(text.starts_with(ours) && text.ends_with("on all nodes"), "{text}");
    });
}

/// A client whose connection is delayed between its hello and its proof, while strangers connect.
struct Crowd {
    /// Where the client connects.
    relay: TcpListener,
    acceptor: SocketAddr,
    /// Strangers, of which the newest fill the acceptor.
    strangers: VecDeque<TcpStream>,
    sends_hello: bool,
}

impl Crowd {
    /// Passes one handshake on, and what the acceptor sends behind it. As many strangers connect
    /// before the client gets its answer.
    fn pass(&mut self, strangers: usize) -> std::io::Result<()> {
        let (mut client, _) = self.relay.accept()?;
        let mut server = TcpStream::connect(self.acceptor)?;
        let mut hello = [0; MESSAGE_BYTES];
        client.read_exact(&mut hello)?;
        server.write_all(&hello)?;
        let mut answer = [0; MESSAGE_BYTES];
        server.read_exact(&mut answer)?;
        for _ in 0..strangers {
            self.add_stranger(self.sends_hello.then_some(&hello))?;
        }
        // Connections are accepted in their order, so all strangers have been, too.
        self.add_stranger(Some(&hello))?;
        client.write_all(&answer)?;
        let mut proof = [0; 16];
        client.read_exact(&mut proof)?;
        server.write_all(&proof)?;
        std::io::copy(&mut server, &mut client).map(drop)
    }

    /// Connects, and waits for the answer to a hello, or for the end of the connection.
    fn add_stranger(&mut self, hello: Option<&[u8]>) -> std::io::Result<()> {
        let mut stranger = TcpStream::connect(self.acceptor)?;
        if let Some(hello) = hello {
            // It may be closed at any time.
            let _ = stranger.write_all(hello);
            let _ = stranger.read(&mut [0; MESSAGE_BYTES]);
        }
        self.strangers.push_back(stranger);
        if self.strangers.len() > 3 * MAX_PENDING {
            self.strangers.pop_front();
        }
        Ok(())
    }
}

/// Number of attempts, of at most `attempts`, after which a client is connected among strangers;
/// `None` if it is not.
fn attempts_among(sends_hello: bool, strangers: usize, attempts: usize) -> Option<usize> {
    let bind = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let (listener, relay) = (bind(), bind());
    let address = relay.local_addr().expect("it is bound");
    let acceptor = listener.local_addr().expect("it is bound");
    let mut crowd = Crowd { relay, acceptor, strangers: VecDeque::new(), sends_hello };
    let over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut acceptor = Acceptor::new(listener, KEY, LIMIT).expect("a socket");
            loop {
                let proven = acceptor.wait(over.as_fd()).expect("it can wait");
                if let Some(connection) = proven.into_iter().next() {
                    return TcpStream::from(connection.socket).write_all(b"x").expect("open");
                }
                if rustix::io::read(&over, &mut [0; 8]).is_ok() {
                    return;
                }
            }
        });
        let connected = (1..=attempts).find(|_| {
            let client = scope.spawn(|| {
                let connection = connect(address, &KEY, LIMIT, LIMIT)?;
                connection.await_first_byte(LIMIT)
            });
            // It ends early if the acceptor closes the connection.
            let _ = crowd.pass(strangers);
            match client.join().expect("no panic") {
                Ok(()) => true,
                Err(error) if error.is_crowded() => false,
                Err(error) => panic!("{error}"),
            }
        });
        rustix::io::write(&over, &1u64.to_ne_bytes()).expect("a counter");
        connected
    })
}

/// The first attempt succeeds: an answered connection is closed for no silent one.
fn silent_strangers_close_no_connection() {
    assert_eq!(attempts_among(false, 3 * MAX_PENDING, 1), Some(1));
}

/// As many strangers as the acceptor keeps, in every attempt: the oldest connection would be closed
/// each time.
fn strangers_that_send_a_hello_do_not_exclude_a_client() {
    assert!(attempts_among(true, MAX_PENDING, 100).is_some());
}
