//! Records of ranks on other nodes that no rank sends: they end the messages of their sender only.

use proptest::prelude::*;
use queues::matching::{
    Endpoint, EndpointOptions, Envelope, MAILBOX_BYTES, Pattern, Processes, RemoteExit, RemoteLink,
    RemoteOptions, RemoteRecord, RemoteWaits,
};
use shm::arena::Arena;
use shm::segment::{Backing, Segment};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

testing::tests![
    damaged_records_end_the_messages_of_their_sender_only,
    a_sender_beyond_its_credit_is_refused,
    a_message_that_claims_more_than_its_credit_takes_no_memory,
];

/// Place of the first remote rank: there is one rank on the node.
const HOSTILE: u32 = 1;
const OTHER: u32 = 2;

type Inbox = Arc<Mutex<VecDeque<(RemoteRecord, Vec<u8>)>>>;

/// Delivers what the test puts into the inbox, and drops what is sent.
#[derive(Debug)]
struct Link {
    inbox: Inbox,
    first: Option<(RemoteRecord, Vec<u8>)>,
}

impl RemoteLink for Link {
    fn put(&mut self, _: u32, _: [u64; 3], _: &[u8]) -> bool {
        true
    }

    fn has_space(&mut self, _: usize, _: usize, _: usize) -> bool {
        true
    }

    fn publish(&mut self) {}

    fn first(&mut self) -> Option<RemoteRecord> {
        if self.first.is_none() {
            self.first = self.inbox.lock().expect("no panic").pop_front();
        }
        self.first.as_ref().map(|(record, _)| *record)
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        let (_, bytes) = self.first.as_ref().expect("a record");
        into.copy_from_slice(&bytes[at..at + into.len()]);
    }

    fn release(&mut self) {
        self.first = None;
    }

    fn has_failed(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Nothing;

impl RemoteWaits for Nothing {
    fn begin(&self) {}

    fn end(&self) {}

    fn shares_core(&self) -> bool {
        false
    }
}

impl Processes for Nothing {
    fn process_of(&self, _: u32) -> u32 {
        std::process::id()
    }

    fn has_exited(&self, _: u32) -> bool {
        false
    }
}

/// An endpoint with two remote ranks, and what arrives from them.
fn endpoint() -> (Endpoint, Inbox) {
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(segment, 0..1 << 20).expect("inside"));
    let mailboxes = arena.allocate_zeroed(MAILBOX_BYTES, 128).expect("space");
    let inbox = Inbox::default();
    let link = Box::new(Link { inbox: Arc::clone(&inbox), first: None });
    let options = EndpointOptions {
        arena,
        rank: 0,
        ranks: 1,
        cores: 1,
        mailboxes,
        reads_directly: None,
        processes: Arc::new(Nothing),
        remote: Some(RemoteOptions { ranks: 2, link, waits: Arc::new(Nothing) }),
    };
    (Endpoint::new(options).expect("mailboxes"), inbox)
}

/// A record of a remote rank.
fn record(from: u32, words: [u64; 3], bytes: Vec<u8>) -> (RemoteRecord, Vec<u8>) {
    (RemoteRecord { from, is_exit: false, words, bytes: bytes.len() }, bytes)
}

/// A whole message, as a rank sends it.
fn message(from: u32, tag: u32, bytes: Vec<u8>) -> (RemoteRecord, Vec<u8>) {
    const EAGER: u64 = 1 << 60;
    record(from, [u64::from(tag) << 32, EAGER | bytes.len() as u64, 0], bytes)
}

/// The other rank's message arrives.
fn receives(endpoint: &Endpoint, inbox: &Inbox) {
    inbox.lock().expect("no panic").push_back(message(OTHER - 1, 77, vec![5; 100]));
    let mut buffer = [0; 100];
    let pattern = Pattern { context: 0, source: Some(OTHER), tag: Some(77) };
    let found = endpoint.recv(pattern, &mut buffer, |_| None).expect("it is there");
    assert_eq!(found, Envelope { context: 0, tag: 77, source: 0, bytes: 100 });
    assert_eq!(buffer, [5; 100]);
    assert_eq!(endpoint.remote_exit(OTHER), None);
}

/// Records of which the parts are those of true ones, more often than chance has it.
fn hostile() -> impl Strategy<Value = (RemoteRecord, Vec<u8>)> {
    let number = || prop_oneof![0..4_u64, any::<u64>()];
    let second = (0..16_u64, prop_oneof![0..200_u64, Just(100_000), 0..1_u64 << 60])
        .prop_map(|(kind, rest)| kind << 60 | rest);
    (number(), second, number(), proptest::collection::vec(any::<u8>(), 0..200)).prop_map(
        |(first, second, third, bytes)| record(HOSTILE - 1, [first, second, third], bytes),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    fn damaged_records_end_the_messages_of_their_sender_only(
        records in proptest::collection::vec(hostile(), 1..30), posted in 0..4_usize,
    ) {
        let (endpoint, inbox) = endpoint();
        let any = Pattern { context: 0, source: Some(HOSTILE), tag: None };
        let mut receives_of_it = Vec::new();
        for _ in 0..posted {
            receives_of_it.push(endpoint.post_recv(any, 150).expect("space"));
        }
        // An offer of this rank, which the hostile one may answer or request.
        let bytes = vec![1; 70_000];
        let envelope = Envelope { context: 0, tag: 0, source: 0, bytes: 70_000 };
        let _send = endpoint.start_send(HOSTILE, envelope, &bytes, true).expect("space");
        for record in records {
            inbox.lock().expect("no panic").push_back(record);
            endpoint.progress().expect("only the sender is to blame");
        }
        let mut buffer = [0; 150];
        for mut posted in receives_of_it {
            let _ = endpoint.test_recv(&mut posted, Some(HOSTILE), &mut buffer, |_| None);
        }
        receives(&endpoint, &inbox);
        // It is gone before the endpoint: nothing waits for it.
        let gone = RemoteRecord { from: HOSTILE - 1, is_exit: true, words: [0; 3], bytes: 0 };
        inbox.lock().expect("no panic").push_back((gone, Vec::new()));
    }
}

fn a_sender_beyond_its_credit_is_refused() {
    let (endpoint, inbox) = endpoint();
    // Without a receive: no receiver grants five mebibytes.
    for _ in 0..5 << 20 >> 15 {
        inbox.lock().expect("no panic").push_back(message(HOSTILE - 1, 0, vec![0; 32 << 10]));
        endpoint.progress().expect("only the sender is to blame");
    }
    assert_eq!(endpoint.remote_exit(HOSTILE), Some(RemoteExit::Invalid));
    receives(&endpoint, &inbox);
}

fn a_message_that_claims_more_than_its_credit_takes_no_memory() {
    const LONG: u64 = 7 << 60;
    let (endpoint, inbox) = endpoint();
    let claimed = (1 << 40) - 1;
    inbox.lock().expect("no panic").push_back(record(HOSTILE - 1, [0, LONG | claimed, 9], vec![]));
    endpoint.progress().expect("only the sender is to blame");
    assert_eq!(endpoint.remote_exit(HOSTILE), Some(RemoteExit::Invalid));
    receives(&endpoint, &inbox);
}
