//! Parts of the server without its thread.

use super::*;
use std::net::TcpStream;

#[test]
fn missing_ranks_are_listed() {
    assert_eq!(list(&[3]), "rank 3");
    assert_eq!(list(&[1, 4, 7]), "ranks 1, 4 and 7");
    let many: Vec<u32> = (0..20).collect();
    assert!(list(&many).ends_with("14, 15 and 4 others"), "{}", list(&many));
}

/// Both ends of a connection.
fn connection(listener: &TcpListener) -> (Peer, TcpStream) {
    let other = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (socket, address) = listener.accept().expect("it has connected");
    socket.set_nonblocking(true).expect("a socket");
    (Peer::new(socket, address), other)
}

/// Behind a failure only sending counts: one rank reads nothing yet, and another one has reset its
/// connection.
#[test]
fn a_connection_that_was_reset_ends_no_wait_to_send() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (mut full, _reader) = connection(&listener);
    while full.unsent.is_empty() {
        full.unsent = vec![0; 1 << 20];
        full.send_unsent();
    }
    let (mut reset, other) = connection(&listener);
    reset.unsent = vec![0; 8];
    reset.send_unsent();
    // The system sends a reset for bytes that were not read, and for those that arrive later.
    drop(other);
    while reset.socket.take_error().expect("a socket").is_none() {
        std::thread::yield_now();
    }
    let mut space = Space {
        listener,
        place: String::new(),
        secret: SharedSecret::new("the secret of this test", "the test").expect("long enough"),
        of_job: shm::random::bytes().expect("the system has some"),
        limit: LAST_WORDS,
        deadline: None,
        peers: vec![full, reset],
        ranks: Vec::new(),
        refused: BTreeSet::new(),
    };
    loop {
        let end = Instant::now() + Duration::from_millis(20);
        assert_eq!(space.wait(Some(end), None), Ok(false));
        if Instant::now() >= end {
            return;
        }
        // The system may take more meanwhile.
        let before = space.peers[0].unsent.len();
        space.peers[0].send_unsent();
        assert!(
            space.peers[0].unsent.len() < before,
            "the wait has ended, and nothing can be sent"
        );
        space.peers[0].unsent.resize(1 << 20, 0);
    }
}
