//! Messages between two endpoints, through every provider of this machine that needs no adapter.

use fabric::{Choice, Endpoint, Error, Event, Library, Peer, Request, Selection};
use std::net::Ipv4Addr;
use std::path::PathBuf;

testing::tests![
    needs(Libfabric):
    messages_arrive_whole_and_once,
    a_process_sleeps_until_a_message_arrives,
    names_of_other_providers_are_refused,
    providers_that_are_absent_are_named,
];

/// Length of the longest message.
const LONGEST: usize = 64 << 10;

pub(crate) fn request(choice: Choice) -> Request {
    let address = Ipv4Addr::LOCALHOST.into();
    Request {
        selection: Selection { choice, ..Selection::default() },
        address,
        sends: 8,
        receives: 8,
        reads: 8,
        message_bytes: LONGEST,
    }
}

/// Two endpoints of one provider, each with the other as its peer.
pub(crate) struct Pair {
    pub(crate) ends: [Endpoint; 2],
    pub(crate) peers: [Peer; 2],
}

impl Pair {
    pub(crate) fn open(library: &Library, provider: &str) -> Result<Pair, Error> {
        let selection: Selection = provider.parse()?;
        let request = Request { selection, ..request(Choice::Any) };
        let mut ends = [(), ()].map(|()| Endpoint::open(library, &request));
        if let Some(error) = ends.iter().find_map(|end| end.as_ref().err()) {
            return Err(error.clone());
        }
        let names: Vec<Vec<u8>> = ends.iter().flatten().map(|end| end.name().to_vec()).collect();
        let mut insert = |end: usize| {
            ends[end].as_mut().expect("it is open").insert(&names[1 - end]).expect("it fits")
        };
        let peers = [insert(0), insert(1)];
        Ok(Pair { ends: ends.map(|end| end.expect("it is open")), peers })
    }

    /// Sends a message, as soon as the provider takes it.
    fn send(&mut self, from: usize, message: &[u8]) {
        while !self.try_send(from, message) {
            assert!(self.poll(from).is_empty(), "nothing is sent to this end");
            // Connections are accepted by polls of the other end.
            assert!(self.poll(1 - from).is_empty(), "the message has not left");
        }
    }

    /// Sends a message; false if the provider does not take it now.
    pub(crate) fn try_send(&mut self, from: usize, message: &[u8]) -> bool {
        let end = &mut self.ends[from];
        let Some(buffer) = end.take_buffer() else { return false };
        end.bytes_mut(&buffer)[..message.len()].copy_from_slice(message);
        match end.send(buffer, message.len(), self.peers[from], 7) {
            Ok(_) => true,
            Err((buffer, None)) => {
                end.discard(buffer);
                false
            }
            Err((_, Some(error))) => panic!("{error}"),
        }
    }

    /// The messages that have arrived at an end.
    pub(crate) fn poll(&mut self, at: usize) -> Vec<Vec<u8>> {
        let mut events = Vec::new();
        self.ends[at].poll(&mut events).expect("it works");
        let mut arrived = Vec::new();
        for event in events {
            match event {
                Event::Received(message) => {
                    arrived.push(self.ends[at].received(&message).to_vec());
                    self.ends[at].release(message);
                }
                Event::Sent { token, .. } => assert_eq!(token, 7),
                other => panic!("{other:?}"),
            }
        }
        arrived
    }
}

/// The libraries of this machine, and their providers over sockets.
fn pairs() -> Vec<(PathBuf, &'static str, Pair)> {
    let mut pairs = Vec::new();
    for path in testing::fabric::libraries() {
        let library = Library::open(Some(&path)).expect("the need has opened it");
        for provider in ["tcp", "tcp;ofi_rxm", "udp;ofi_rxd", "sockets"] {
            match Pair::open(&library, provider) {
                Ok(pair) => pairs.push((path.clone(), provider, pair)),
                Err(Error::NoProvider { .. }) => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }
    assert!(pairs.iter().any(|(_, provider, _)| *provider == "tcp"));
    pairs
}

fn messages_arrive_whole_and_once() {
    for (path, provider, mut pair) in pairs() {
        let place = format!("{} {provider}", path.display());
        for (number, length) in (0u8..).zip([1, 40, 128, 129, 5000, LONGEST - 1, LONGEST]) {
            let message: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_mul(number)).collect();
            for from in [0, 1] {
                pair.send(from, &message);
                let arrived = loop {
                    pair.poll(from);
                    if let Some(arrived) = pair.poll(1 - from).pop() {
                        break arrived;
                    }
                };
                assert!(arrived == message, "{place}: {length} bytes from {from}");
            }
        }
        assert!(pair.poll(0).is_empty() && pair.poll(1).is_empty(), "{place}");
    }
}

fn a_process_sleeps_until_a_message_arrives() {
    for (path, provider, mut pair) in pairs() {
        let can_sleep = pair.ends[0].provider().can_sleep;
        assert_eq!(pair.ends[0].descriptor().is_some(), can_sleep);
        assert_eq!(can_sleep, provider.starts_with("tcp"), "{} {provider}", path.display());
        if !can_sleep {
            continue;
        }
        // One message each way makes the connection.
        for from in [0, 1] {
            pair.send(from, b"first");
            while pair.poll(1 - from).is_empty() {
                pair.poll(from);
            }
        }
        while !pair.ends[1].may_sleep() {
            assert!(pair.poll(1).is_empty());
        }
        let is_readable = |pair: &Pair, limit| {
            testing::fabric::is_readable(pair.ends[1].descriptor().expect("it can sleep"), limit)
        };
        assert!(!is_readable(&pair, 0), "nothing has been sent");
        pair.send(0, b"second");
        let mut arrived = Vec::new();
        while arrived.is_empty() {
            pair.poll(0);
            if pair.ends[1].may_sleep() {
                assert!(is_readable(&pair, 10_000), "{} {provider}", path.display());
            }
            arrived = pair.poll(1);
        }
        assert_eq!(arrived, [b"second"]);
    }
}

fn names_of_other_providers_are_refused() {
    for path in testing::fabric::libraries() {
        let library = Library::open(Some(&path)).expect("the need has opened it");
        let mut end = Endpoint::open(&library, &request(Choice::Named("tcp".into()))).expect("tcp");
        let error = end.insert(b"not an address").expect_err("it is too short").to_string();
        assert!(error.contains("14 bytes") && error.contains("provider tcp"), "{error}");
    }
}

fn providers_that_are_absent_are_named() {
    let path = testing::fabric::libraries().remove(0);
    let library = Library::open(Some(&path)).expect("the need has opened it");
    let listed = fabric::providers(&library);
    assert!(listed.iter().any(|name| name == "tcp"), "{listed:?}");
    assert!(listed.iter().all(|name| name != "tcp+read"), "only the user decides for it");
    assert!(listed.iter().all(|name| !name.contains("sockets")), "{listed:?}");
    let open = |choice| Endpoint::open(&library, &request(choice)).expect_err("it is absent");
    let absent = open(Choice::Named("cxi".into())).to_string();
    assert!(absent.contains("no provider cxi") && absent.contains("127.0.0.1"), "{absent}");
}
