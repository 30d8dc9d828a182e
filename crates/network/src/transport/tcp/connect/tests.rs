//! Strangers that claim to be nodes.

use super::*;
use crate::transport::tcp::handshake::{ANSWER_BYTES, hello};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const LIMIT: Duration = Duration::from_secs(3600);
/// A node that listens and does not answer.
const OTHER: u32 = 1;

/// The connector of node 0, and the other node.
fn connector() -> (Connector, Poller, TcpListener) {
    let own = Listener::bind("127.0.0.1:0").expect("a port");
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addresses = [own.address(), other.local_addr().expect("an address")];
    let none = std::iter::empty();
    let connector = connect(own, 0, &addresses, [7; 16], LIMIT, none).expect("it listens");
    let poller = Poller::new().expect("a descriptor");
    (connector, poller, other)
}

/// A connection that claims to be of the other node, and has been answered.
fn stranger(connector: &mut Connector, poller: &Poller) -> TcpStream {
    let mut stranger = TcpStream::connect(connector.listener.address()).expect("it listens");
    stranger.write_all(&hello(OTHER, 0, &[3; 16])).expect("it is open");
    stranger.set_nonblocking(true).expect("a socket");
    let mut answer = [0; ANSWER_BYTES];
    let end = Instant::now() + Duration::from_secs(60);
    while stranger.read(&mut answer).is_err() {
        assert!(Instant::now() < end, "no answer");
        connector.progress(poller).expect("it works");
    }
    stranger
}

fn connects(connector: &Connector) -> bool {
    connector.pending.iter().any(|connection| connection.stage.target() == Some(OTHER))
}

/// Moves the start of every handshake into the past.
fn age(connector: &mut Connector, by: Duration) {
    for connection in &mut connector.pending {
        connection.since = connection.since.checked_sub(by).expect("the machine runs that long");
    }
}

#[test]
fn a_stranger_delays_a_connection_and_does_not_prevent_it() {
    let (mut connector, poller, _other) = connector();
    let _stranger = stranger(&mut connector, &poller);
    connector.want(OTHER);
    connector.retries.push((Instant::now(), OTHER));
    connector.progress(&poller).expect("it works");
    assert!(connector.has_answered(OTHER) && !connects(&connector), "it may be the node");
    assert_eq!(connector.retries.len(), 1, "the attempt remains");
    connector.retries.clear();
    let due = connector.deadline().expect("something is wanted");
    assert!(due <= Instant::now() + PROOF_TIME);
    age(&mut connector, PROOF_TIME);
    connector.progress(&poller).expect("it works");
    assert!(connects(&connector));
    connector.limit = PROOF_TIME;
    connector.wanted.clear();
    connector.progress(&poller).expect("it works");
    assert!(!connector.has_answered(OTHER), "its time is over");
    assert_eq!(connector.refused, 1);
}

#[test]
fn connections_that_may_carry_frames_are_closed_last() {
    let (mut connector, poller, _other) = connector();
    let mut answered = stranger(&mut connector, &poller);
    let _silent = TcpStream::connect(connector.listener.address()).expect("it listens");
    let end = Instant::now() + Duration::from_secs(60);
    while connector.pending.len() < 2 {
        assert!(Instant::now() < end, "it is not accepted");
        connector.accept();
    }
    assert!(connector.drop_unproven());
    assert!(connector.pending.len() == 1 && connector.has_answered(OTHER));
    assert!(!connector.drop_unproven(), "its proof may be on its way");
    age(&mut connector, PROOF_TIME);
    answered.write_all(&[0; 16]).expect("it is open");
    while !connector.pending[0].has_unread() {
        assert!(Instant::now() < end, "nothing arrives");
    }
    assert!(!connector.drop_unproven(), "its proof has arrived");
    let mut read = [0; 16];
    rustix::io::read(&connector.pending[0].socket, &mut read).expect("it is there");
    assert!(connector.drop_unproven());
}
