//! Records of ranks on other nodes: what follows from them, and from those that no rank sends, which
//! end the messages of their sender only.

use proptest::prelude::*;
use queues::matching::{
    Contexts, Endpoint, EndpointOptions, Envelope, MAILBOX_BYTES, MessageHead, Pattern, Processes,
    RemoteExit, RemoteLink, RemoteOptions, RemoteProgress, RemoteRecord,
};
use queues::remote_waits::RemoteWaits;
use shm::arena::Arena;
use shm::segment::{Backing, Offset, Segment};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

testing::tests![
    damaged_records_end_the_messages_of_their_sender_only,
    a_sender_beyond_its_credit_is_refused,
    a_message_that_claims_more_than_its_credit_takes_no_memory,
    messages_of_a_dropped_communicator_return_their_credit,
    a_second_request_of_a_message_is_refused,
    answers_that_a_rank_does_not_take_have_a_limit,
    a_message_between_the_parts_of_another_is_refused,
    a_close_is_reported_to_ranks_that_are_found_later,
    an_empty_message_that_was_offered_arrives,
    the_sender_of_a_message_is_that_of_its_record,
    a_refused_sender_has_no_messages,
    a_rank_that_reads_nothing_ends_the_wait_of_one_that_leaves,
    a_rank_that_reads_slowly_gets_everything,
];

/// Place of the first remote rank: there is one rank on the node.
const HOSTILE: u32 = 1;
const OTHER: u32 = 2;

const EAGER: u64 = 1 << 60;
const OFFER: u64 = 3 << 60;
const ANSWER: u64 = 4 << 60;
const REQUEST: u64 = 5 << 60;
const PART: u64 = 6 << 60;
const LONG: u64 = 7 << 60;
const CREDIT: u64 = 9 << 60;
const CLOSED: u64 = 10 << 60;

type Arriving = (RemoteRecord, Vec<u8>);

/// Records that arrive, and those that were sent.
#[derive(Debug, Default)]
struct Wire {
    receive_ring: Mutex<VecDeque<Arriving>>,
    /// Receivers, words and numbers of bytes.
    sent: Mutex<Vec<(u32, [u64; 3], usize)>>,
    /// Records that arrive as soon as the first one has been sent to a rank: its number, and kind.
    replies: Mutex<VecDeque<(u32, u64, Arriving)>>,
    /// Polls until all ranks are gone.
    polls: AtomicU32,
    /// Nothing can be sent.
    is_full: AtomicBool,
    /// Looks at what has not left, after which something can be sent. At each of them the other
    /// rank has read more.
    reading: AtomicU64,
    /// The ranks that were given up.
    given_up: Mutex<Vec<u32>>,
}

impl Wire {
    fn arrive(&self, record: Arriving) {
        self.receive_ring.lock().expect("no panic").push_back(record);
    }

    /// A rank is gone: nothing waits for it.
    fn exit(&self, from: u32) {
        self.arrive((RemoteRecord { from, is_exit: true, words: [0; 3], bytes: 0 }, Vec::new()));
    }

    /// Numbers and lengths of the records of a kind that were sent to a remote rank.
    fn sent(&self, to: u32, kind: u64) -> Vec<(u64, usize)> {
        let sent = self.sent.lock().expect("no panic");
        let of_kind = |(other, words, _): &&(u32, [u64; 3], usize)| {
            *other == to && words[1] >> 60 == kind >> 60
        };
        sent.iter().filter(of_kind).map(|(_, words, bytes)| (words[2], *bytes)).collect()
    }
}

/// Delivers what the test puts into the receive ring, and keeps what is sent.
#[derive(Debug)]
struct Link {
    wire: Arc<Wire>,
    first: Option<Arriving>,
}

impl RemoteLink for Link {
    fn put(&mut self, to: u32, words: [u64; 3], bytes: &[u8]) -> bool {
        if self.wire.is_full.load(Ordering::Relaxed) {
            return false;
        }
        self.wire.sent.lock().expect("no panic").push((to, words, bytes.len()));
        let mut replies = self.wire.replies.lock().expect("no panic");
        let is_awaited = |(rank, kind, _): &mut (u32, u64, Arriving)| {
            *rank == to && words[1] >> 60 == *kind >> 60
        };
        if let Some((.., reply)) = replies.pop_front_if(is_awaited) {
            self.wire.arrive(reply);
        }
        true
    }

    fn has_space(&mut self, _: u32, _: usize, _: usize, _: usize) -> bool {
        !self.wire.is_full.load(Ordering::Relaxed)
    }

    fn publish(&mut self) {}

    fn first(&mut self) -> Option<RemoteRecord> {
        // A test that would wait for ever fails.
        if self.wire.polls.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.wire.exit(HOSTILE - 1);
            self.wire.exit(OTHER - 1);
        }
        if self.first.is_none() {
            self.first = self.wire.receive_ring.lock().expect("no panic").pop_front();
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

    fn held_up(&self, to: u32) -> Option<u64> {
        if to != OTHER - 1 {
            return None;
        }
        if self.wire.reading.load(Ordering::Relaxed) > 0 {
            let left = self.wire.reading.fetch_sub(1, Ordering::Relaxed);
            self.wire.is_full.store(left > 1, Ordering::Relaxed);
            return Some(left);
        }
        self.wire.is_full.load(Ordering::Relaxed).then_some(0)
    }

    fn give_up(&mut self, to: u32) {
        self.wire.given_up.lock().expect("no panic").push(to);
    }
}

#[derive(Debug)]
struct Nothing;

impl RemoteWaits for Nothing {
    fn begin(&self) {}

    fn end(&self) {}

    fn set_polling(&self, _: bool) {}

    fn shares_core(&self) -> bool {
        false
    }

    fn mark(&self, _: Offset) {}
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
fn endpoint() -> (Endpoint, Arc<Wire>) {
    let segment = Arc::new(Segment::create(1 << 20, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(segment, 0..1 << 20).expect("inside"));
    let mailboxes = arena.allocate_zeroed(MAILBOX_BYTES, 128).expect("space");
    let wire = Arc::new(Wire::default());
    let link = Box::new(Link { wire: Arc::clone(&wire), first: None });
    let options = EndpointOptions {
        arena,
        rank: 0,
        ranks: 1,
        cores: 1,
        mailboxes,
        reads_directly: None,
        processes: Arc::new(Nothing),
        remote: Some(RemoteOptions {
            ranks: 2,
            link,
            progress: RemoteProgress::Process(Arc::new(Nothing)),
            // From one look to the next.
            leave_limit: Duration::ZERO,
        }),
        contexts: Contexts::new(u32::MAX),
    };
    (Endpoint::new(options).expect("mailboxes"), wire)
}

/// A record of a remote rank.
fn record(from: u32, words: [u64; 3], bytes: Vec<u8>) -> (RemoteRecord, Vec<u8>) {
    (RemoteRecord { from, is_exit: false, words, bytes: bytes.len() }, bytes)
}

/// A whole message, as a rank sends it.
fn message(from: u32, tag: u32, bytes: Vec<u8>) -> (RemoteRecord, Vec<u8>) {
    record(from, [u64::from(tag) << 32, EAGER | bytes.len() as u64, 0], bytes)
}

/// The other rank's message arrives.
fn receives(endpoint: &Endpoint, wire: &Wire) {
    wire.arrive(message(OTHER - 1, 77, vec![5; 100]));
    let mut buffer = [0; 100];
    let pattern = Pattern { context: 0, source: Some(OTHER), tag: Some(77) };
    let found = endpoint.recv(pattern, &mut buffer, |_| None).expect("it is there");
    let envelope = Envelope { context: 0, tag: 77, bytes: 100 };
    assert_eq!(found, MessageHead { sender: OTHER, envelope });
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
        let (endpoint, wire) = endpoint();
        let any = Pattern { context: 0, source: Some(HOSTILE), tag: None };
        let mut receives_of_it = Vec::new();
        for _ in 0..posted {
            receives_of_it.push(endpoint.post_recv(any, 150).expect("space"));
        }
        // An offer of this rank, which the hostile one may answer or request.
        let bytes = vec![1; 70_000];
        let envelope = Envelope { context: 0, tag: 0, bytes: 70_000 };
        let _send = endpoint.start_send(HOSTILE, envelope, &bytes, true).expect("space");
        for record in records {
            wire.arrive(record);
            endpoint.progress().expect("only the sender is to blame");
        }
        let mut buffer = [0; 150];
        for mut posted in receives_of_it {
            let _ = endpoint.test_recv(&mut posted, Some(HOSTILE), &mut buffer, |_| None);
        }
        receives(&endpoint, &wire);
        // It is gone before the endpoint: nothing waits for it.
        wire.exit(HOSTILE - 1);
    }
}

fn a_sender_beyond_its_credit_is_refused() {
    let (endpoint, wire) = endpoint();
    // Without a receive: no receiver grants five mebibytes.
    for _ in 0..5 << 20 >> 15 {
        wire.arrive(message(HOSTILE - 1, 0, vec![0; 32 << 10]));
        endpoint.progress().expect("only the sender is to blame");
    }
    assert_eq!(endpoint.remote_exit(HOSTILE), Some(RemoteExit::Invalid));
    receives(&endpoint, &wire);
}

fn a_message_that_claims_more_than_its_credit_takes_no_memory() {
    let (endpoint, wire) = endpoint();
    let claimed = (1 << 40) - 1;
    wire.arrive(record(HOSTILE - 1, [0, LONG | claimed, 9], vec![]));
    endpoint.progress().expect("only the sender is to blame");
    assert_eq!(endpoint.remote_exit(HOSTILE), Some(RemoteExit::Invalid));
    receives(&endpoint, &wire);
}

fn an_empty_message_that_was_offered_arrives() {
    let (endpoint, wire) = endpoint();
    let envelope = Envelope { context: 0, tag: 0, bytes: 0 };
    wire.is_full.store(true, Ordering::Relaxed);
    let send = endpoint.start_send(OTHER, envelope, &[], true).expect("space");
    let mut send = send.expect("it waits for its receiver");
    wire.is_full.store(false, Ordering::Relaxed);
    endpoint.progress().expect("nothing is damaged");
    let offers = wire.sent(OTHER - 1, OFFER);
    let [(number, 0)] = offers[..] else { panic!("{offers:?}") };
    wire.arrive(record(OTHER - 1, [0, REQUEST, number], vec![]));
    assert!(endpoint.test_send(&mut send, &[], || None).expect("nothing is damaged"));
    assert_eq!(wire.sent(OTHER - 1, PART), [(number, 0)]);

    // At its receiver, where this is the only part.
    let pattern = Pattern { context: 0, source: Some(OTHER), tag: None };
    let mut posted = endpoint.post_recv(pattern, 8).expect("space");
    wire.arrive(record(OTHER - 1, [0, OFFER, 5], vec![]));
    let mut test = || endpoint.test_recv(&mut posted, Some(OTHER), &mut [0; 8], |_| None);
    assert_eq!(test().expect("nothing is damaged"), None);
    assert_eq!(wire.sent(OTHER - 1, REQUEST), [(5, 0)]);
    wire.arrive(record(OTHER - 1, [0, PART, 5], vec![]));
    assert_eq!(test().expect("nothing is damaged"), Some(MessageHead { sender: OTHER, envelope }));
}

/// Whatever the free bits of its envelope contain.
fn the_sender_of_a_message_is_that_of_its_record() {
    let (endpoint, wire) = endpoint();
    let from_any = Pattern { context: 0, source: None, tag: None };
    let claim = u64::from(OTHER) << 40;
    for length in [8, 100] {
        wire.arrive(record(HOSTILE - 1, [0, EAGER | claim | length, 0], vec![1; length as usize]));
        let found = endpoint.recv(from_any, &mut [0; 100], |_| None).expect("it is there");
        let envelope = Envelope { context: 0, tag: 0, bytes: length };
        assert_eq!(found, MessageHead { sender: HOSTILE, envelope });
    }
    // It is gone before the endpoint: nothing waits for it.
    wire.exit(HOSTILE - 1);
}

fn a_refused_sender_has_no_messages() {
    let (endpoint, wire) = endpoint();
    let create = |contexts: &mut Contexts| {
        contexts.begin(5);
        contexts.end(Some(5));
    };
    endpoint.change_contexts(create).expect("nothing is damaged");
    let from_any = Pattern { context: 0, source: None, tag: None };
    wire.arrive(message(HOSTILE - 1, 1, vec![1; 8]));
    wire.arrive(message(HOSTILE - 1, 2, vec![2; 100]));
    endpoint.progress().expect("nothing is damaged");
    let elsewhere = |tag: u32, bytes: Vec<u8>| {
        let length = bytes.len() as u64;
        record(HOSTILE - 1, [u64::from(tag) << 32 | 5, EAGER | length, 0], bytes)
    };
    wire.arrive(elsewhere(3, vec![3; 8]));
    endpoint.progress().expect("nothing is damaged");
    endpoint.refuse(0, HOSTILE).expect("space");
    wire.arrive(message(HOSTILE - 1, 3, vec![3; 8]));
    assert_eq!(endpoint.probe_now(&from_any).expect("nothing is damaged"), None);
    // Its messages in another communicator are those of any rank.
    wire.arrive(elsewhere(4, vec![4; 100]));
    for (tag, length) in [(3, 8), (4, 100)] {
        let pattern = Pattern { context: 5, source: None, tag: Some(tag) };
        let found = endpoint.recv(pattern, &mut [0; 100], |_| None).expect("it is there");
        let envelope = Envelope { context: 5, tag, bytes: length };
        assert_eq!(found, MessageHead { sender: HOSTILE, envelope });
    }
    assert_eq!(endpoint.remote_exit(HOSTILE), None);
    // It is gone before the endpoint: nothing waits for it.
    wire.exit(HOSTILE - 1);
    receives(&endpoint, &wire);
}

/// Two ranks that close wait for each other, where one has sent and the other received only.
fn a_close_is_reported_to_ranks_that_are_found_later() {
    let (endpoint, wire) = endpoint();
    let envelope = Envelope { context: 0, tag: 0, bytes: 8 };
    let send = endpoint.start_send(OTHER, envelope, &[1; 8], true).expect("space");
    endpoint.drop_send(send.expect("it waits for its receiver"), &[1; 8]);
    // The message of a third rank was on its way at the close, which that rank waits for, and the
    // other rank for that one.
    let closed = record(OTHER - 1, [0, CLOSED, 0], vec![]);
    wire.replies.lock().expect("no panic").extend([
        (OTHER - 1, CLOSED, message(HOSTILE - 1, 0, vec![2; 8])),
        (HOSTILE - 1, CLOSED, closed),
    ]);
    wire.polls.store(10_000, Ordering::Relaxed);
    drop(endpoint);
    assert_eq!(wire.sent(HOSTILE - 1, CLOSED), [(0, 0)]);
    assert_eq!(wire.sent(OTHER - 1, CLOSED), [(0, 0)]);
}

/// An endpoint that has a message for a rank that does not take it, and leaves.
fn leave(reading: u64) -> Arc<Wire> {
    let (endpoint, wire) = endpoint();
    wire.is_full.store(true, Ordering::Relaxed);
    let bytes = vec![1; 70_000];
    let envelope = Envelope { context: 0, tag: 0, bytes: 70_000 };
    let send = endpoint.start_send(OTHER, envelope, &bytes, false).expect("space");
    endpoint.drop_send(send.expect("there is no space"), &bytes);
    wire.reading.store(reading, Ordering::Relaxed);
    // The receiver of the message leaves, too.
    let closed = record(OTHER - 1, [0, CLOSED, 0], vec![]);
    wire.replies.lock().expect("no panic").push_back((OTHER - 1, OFFER, closed));
    // The exits that end the wait of a broken test.
    wire.polls.store(1000, Ordering::Relaxed);
    drop(endpoint);
    wire
}

fn a_rank_that_reads_nothing_ends_the_wait_of_one_that_leaves() {
    let wire = leave(0);
    assert!(wire.given_up.lock().expect("no panic").contains(&(OTHER - 1)));
    assert!(wire.sent(OTHER - 1, OFFER).is_empty());
}

fn a_rank_that_reads_slowly_gets_everything() {
    let wire = leave(20);
    assert_eq!(*wire.given_up.lock().expect("no panic"), []);
    assert_eq!(wire.sent(OTHER - 1, CLOSED), [(0, 0)]);
    assert_eq!(wire.sent(OTHER - 1, OFFER).len(), 1);
}

fn a_second_request_of_a_message_is_refused() {
    let (endpoint, wire) = endpoint();
    let bytes = vec![1; 70_000];
    let envelope = Envelope { context: 0, tag: 0, bytes: 70_000 };
    let _send = endpoint.start_send(HOSTILE, envelope, &bytes, true).expect("space");
    let offers = wire.sent(HOSTILE - 1, OFFER);
    let [(number, 0)] = offers[..] else { panic!("{offers:?}") };
    wire.arrive(record(HOSTILE - 1, [0, REQUEST, number], vec![]));
    endpoint.progress().expect("nothing is damaged");
    assert_eq!(endpoint.remote_exit(HOSTILE), None);
    wire.arrive(record(HOSTILE - 1, [0, REQUEST, number], vec![]));
    endpoint.progress().expect("only the sender is to blame");
    assert_eq!(endpoint.remote_exit(HOSTILE), Some(RemoteExit::Invalid));
    receives(&endpoint, &wire);
}

fn answers_that_a_rank_does_not_take_have_a_limit() {
    let (endpoint, wire) = endpoint();
    wire.is_full.store(true, Ordering::Relaxed);
    for _ in 0..200_000 {
        // Each is answered: there is no such send.
        wire.arrive(record(HOSTILE - 1, [0, REQUEST, 9], vec![]));
    }
    endpoint.progress().expect("only the sender is to blame");
    wire.is_full.store(false, Ordering::Relaxed);
    assert_eq!(endpoint.remote_exit(HOSTILE), Some(RemoteExit::Invalid));
    receives(&endpoint, &wire);
}

fn a_message_between_the_parts_of_another_is_refused() {
    let (endpoint, wire) = endpoint();
    let first = 1 << 63 | 1;
    wire.arrive(record(HOSTILE - 1, [0, LONG | 200, first], vec![]));
    wire.arrive(record(HOSTILE - 1, [0, PART, first], vec![0; 200]));
    wire.arrive(record(HOSTILE - 1, [0, LONG | 200, first + 1], vec![]));
    endpoint.progress().expect("nothing is damaged");
    assert_eq!(endpoint.remote_exit(HOSTILE), None);
    wire.arrive(record(HOSTILE - 1, [0, LONG | 200, first + 2], vec![]));
    endpoint.progress().expect("only the sender is to blame");
    assert_eq!(endpoint.remote_exit(HOSTILE), Some(RemoteExit::Invalid));
    receives(&endpoint, &wire);
}

fn messages_of_a_dropped_communicator_return_their_credit() {
    const CONTEXT: u64 = 7;
    let (endpoint, wire) = endpoint();
    let change = |change: fn(&mut Contexts)| {
        endpoint.change_contexts(change).expect("nothing is damaged");
    };
    change(|contexts| contexts.begin(CONTEXT as u32));
    change(|contexts| contexts.end(Some(CONTEXT as u32)));
    change(|contexts| contexts.drop(CONTEXT as u32));
    wire.arrive(record(OTHER - 1, [CONTEXT, OFFER | 70_000, 5], vec![]));
    // More than the credit of a sender: without its return they would not all be accepted.
    for _ in 0..5 << 20 >> 15 {
        let bytes = 32 << 10;
        wire.arrive(record(OTHER - 1, [CONTEXT, EAGER | bytes, 0], vec![0; bytes as usize]));
        wire.arrive(record(OTHER - 1, [CONTEXT, EAGER | 8, 0], vec![0; 8]));
    }
    let long = 1 << 63 | 1;
    wire.arrive(record(OTHER - 1, [CONTEXT, LONG | 200, long], vec![]));
    wire.arrive(record(OTHER - 1, [0, PART, long], vec![0; 200]));
    while endpoint.progress().expect("nothing is damaged") {}
    assert_eq!(wire.sent(OTHER - 1, ANSWER), [(5, 0)]);
    assert!(!wire.sent(OTHER - 1, CREDIT).is_empty());
    receives(&endpoint, &wire);
}
