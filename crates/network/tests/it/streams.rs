//! Streams: the encoding of their frames, their credit and order, and damaged frames.

use network::streams::frame::{Frame, FrameError, HEADER_BYTES, PROTOCOL};
use network::streams::multiplexer::{Multiplexer, Side, StreamEvent};
use network::streams::seal::{Seal, SessionKeys};
use network::streams::{MAX_PAYLOAD, MAX_STREAMS, WINDOW};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{HashMap, VecDeque};

testing::tests![
    decoding_reverses_encoding,
    noise_is_refused_or_decoded_exactly,
    messages_arrive_complete_and_in_order,
    a_receiver_that_does_not_receive_stops_its_own_stream_only,
    the_two_ends_of_a_stream_close_independently,
    an_end_that_receives_no_more_can_still_send,
    damaged_frames_harm_nothing,
    forged_frames_are_refused,
    frames_of_others_are_refused,
    a_ping_is_answered,
    another_version_is_named,
];

/// Keys of the accepting end.
const KEYS: SessionKeys = SessionKeys { send: [1; 16], receive: [2; 16] };

/// Codes of the connecting end.
fn seal() -> Seal {
    Seal::new(KEYS.receive)
}

#[derive(Clone, Debug)]
enum OwnedFrame {
    Ping,
    Pong,
    Hello(u32, String),
    Open(u32, Vec<u8>),
    Accept(u32),
    Refuse(u32, u8, String),
    Message(u32, u8, Vec<u8>),
    Credit(u32, u32),
    Close(u32, u8),
    Leave(u32, u8),
}

impl OwnedFrame {
    fn borrow(&self) -> Frame<'_> {
        match self {
            OwnedFrame::Hello(protocol, version) => Frame::Hello { protocol: *protocol, version },
            OwnedFrame::Ping => Frame::Ping,
            OwnedFrame::Pong => Frame::Pong,
            OwnedFrame::Open(stream, request) => Frame::Open { stream: *stream, request },
            OwnedFrame::Accept(stream) => Frame::Accept { stream: *stream },
            OwnedFrame::Refuse(stream, code, reason) => {
                Frame::Refuse { stream: *stream, code: *code, reason }
            }
            OwnedFrame::Message(stream, tag, bytes) => {
                Frame::Message { stream: *stream, tag: *tag, bytes }
            }
            OwnedFrame::Credit(stream, bytes) => Frame::Credit { stream: *stream, bytes: *bytes },
            OwnedFrame::Close(stream, code) => Frame::Close { stream: *stream, code: *code },
            OwnedFrame::Leave(stream, code) => Frame::Leave { stream: *stream, code: *code },
        }
    }
}

fn frame() -> impl Strategy<Value = OwnedFrame> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..100);
    let stream = || 1..=u32::MAX;
    prop_oneof![
        Just(OwnedFrame::Ping),
        Just(OwnedFrame::Pong),
        (any::<u32>(), ".{0,20}").prop_map(|(protocol, text)| OwnedFrame::Hello(protocol, text)),
        (stream(), bytes()).prop_map(|(stream, request)| OwnedFrame::Open(stream, request)),
        stream().prop_map(OwnedFrame::Accept),
        (stream(), any::<u8>(), ".{0,20}")
            .prop_map(|(stream, code, text)| OwnedFrame::Refuse(stream, code, text)),
        (stream(), any::<u8>(), bytes())
            .prop_map(|(stream, tag, bytes)| OwnedFrame::Message(stream, tag, bytes)),
        (stream(), 1..=WINDOW as u32).prop_map(|(stream, bytes)| OwnedFrame::Credit(stream, bytes)),
        (stream(), any::<u8>()).prop_map(|(stream, code)| OwnedFrame::Close(stream, code)),
        (stream(), any::<u8>()).prop_map(|(stream, code)| OwnedFrame::Leave(stream, code)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    fn decoding_reverses_encoding(frame in frame()) {
        let frame = frame.borrow();
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        prop_assert_eq!(Frame::decode(&bytes), Ok(Some((frame, bytes.len()))));
        for length in 0..bytes.len() {
            prop_assert_eq!(Frame::decode(&bytes[..length]), Ok(None));
        }
    }

    fn noise_is_refused_or_decoded_exactly(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(Some((frame, length))) = Frame::decode(&bytes) {
            let mut again = Vec::new();
            frame.encode(&mut again);
            prop_assert_eq!(&again, &bytes[..length]);
        }
    }
}

/// Two ends, and the bytes between them.
struct Pair {
    ends: [Multiplexer; 2],
    events: [Vec<StreamEvent>; 2],
}

impl Pair {
    fn new() -> Pair {
        let ends = [
            Multiplexer::new(Side::Connecting, KEYS.swapped()),
            Multiplexer::new(Side::Accepting, KEYS),
        ];
        Pair { ends, events: Default::default() }
    }

    /// Moves at most this many bytes from an end to the other.
    fn carry(&mut self, from: usize, most: usize) {
        let bytes = self.ends[from].outgoing();
        let bytes = bytes[..bytes.len().min(most)].to_vec();
        self.ends[from].written(bytes.len());
        let to = 1 - from;
        let received = self.ends[to].receive(&bytes, &mut self.events[to]);
        received.expect("the other end follows the protocol");
    }

    fn carry_all(&mut self) {
        while self.ends.iter().any(|end| !end.outgoing().is_empty()) {
            self.carry(0, usize::MAX);
            self.carry(1, usize::MAX);
        }
    }

    /// Opens a stream from the first end.
    fn open(&mut self) -> u32 {
        let stream = self.ends[0].open(b"name").expect("there are few");
        self.carry_all();
        let request = b"name".to_vec();
        assert_eq!(
            self.events[1].drain(..).collect::<Vec<_>>(),
            [StreamEvent::Opened { stream, request }]
        );
        self.ends[1].accept(stream);
        self.carry_all();
        assert_eq!(
            self.events[0].drain(..).collect::<Vec<_>>(),
            [StreamEvent::Accepted { stream }]
        );
        stream
    }
}

/// Tag and bytes of a message.
type Sent = (u8, Vec<u8>);

/// Random lengths, pieces and delays on several streams in both directions, against queues.
fn messages_arrive_complete_and_in_order() {
    let mut random = StdRng::seed_from_u64(7);
    let mut pair = Pair::new();
    let streams: Vec<u32> = (0..5).map(|_| pair.open()).collect();
    let mut sent: HashMap<(usize, u32), VecDeque<Sent>> = HashMap::new();
    let mut waiting: Vec<(usize, u32, usize)> = Vec::new();
    let mut received = 0;
    while received < 20_000 {
        let from = random.random_range(0..2);
        let stream = streams[random.random_range(0..streams.len())];
        let tag = random.random();
        let bytes = vec![random.random(); random.random_range(0..=MAX_PAYLOAD / 8)];
        if pair.ends[from].send(stream, tag, &bytes) {
            sent.entry((from, stream)).or_default().push_back((tag, bytes));
        }
        pair.carry(from, random.random_range(0..4000));
        for end in 0..2 {
            for event in pair.events[end].drain(..) {
                let StreamEvent::Message { stream, tag, bytes } = event else {
                    panic!("{event:?}")
                };
                waiting.push((end, stream, bytes.len()));
                let expected = sent.get_mut(&(1 - end, stream)).and_then(VecDeque::pop_front);
                assert_eq!(expected, Some((tag, bytes)), "stream {stream}");
                received += 1;
            }
        }
        while waiting.len() > random.random_range(0..100) {
            let (end, stream, bytes) = waiting.swap_remove(random.random_range(0..waiting.len()));
            pair.ends[end].consumed(stream, bytes);
        }
    }
}

fn a_receiver_that_does_not_receive_stops_its_own_stream_only() {
    let mut pair = Pair::new();
    let [stopped, going] = [pair.open(), pair.open()];
    let mut count = 0;
    while pair.ends[0].send(stopped, 0, &[1; 500]) {
        count += 1;
        pair.carry_all();
    }
    assert!((WINDOW / 2..=WINDOW).contains(&(count * (500 + HEADER_BYTES))), "{count} messages");
    for _ in 0..1000 {
        assert!(pair.ends[0].send(going, 0, &[1; 500]));
        pair.carry_all();
        pair.ends[1].consumed(going, 500);
        pair.carry_all();
    }
    assert!(!pair.ends[0].can_send(stopped));
    // What has been received frees the stream.
    (0..count).for_each(|_| pair.ends[1].consumed(stopped, 500));
    pair.carry_all();
    assert!(pair.ends[0].can_send(stopped));
}

fn the_two_ends_of_a_stream_close_independently() {
    let mut pair = Pair::new();
    let stream = pair.open();
    assert!(pair.ends[1].send(stream, 3, b"on its way"));
    assert!(pair.ends[0].send(stream, 3, b"last"));
    pair.ends[0].close(stream, 9);
    // The message of the other end arrives after the close, and is dropped.
    pair.carry_all();
    assert_eq!(pair.events[0], []);
    let last = StreamEvent::Message { stream, tag: 3, bytes: b"last".to_vec() };
    assert_eq!(pair.events[1], [last, StreamEvent::Closed { stream, code: 9 }]);
    assert!(!pair.ends[1].send(stream, 3, b"late"));
    pair.ends[1].consumed(stream, 4);
    pair.ends[1].close(stream, 1);
    pair.carry_all();
    assert!(pair.ends.iter().all(Multiplexer::is_idle));
    // A refused stream leaves nothing either.
    let stream = pair.ends[0].open(b"").expect("there are few");
    pair.carry_all();
    pair.ends[1].refuse(stream, 2, "no");
    pair.carry_all();
    let reason = "no".to_owned();
    assert_eq!(pair.events[0], [StreamEvent::Refused { stream, code: 2, reason }]);
    assert!(pair.ends.iter().all(Multiplexer::is_idle));
}

fn an_end_that_receives_no_more_can_still_send() {
    let mut pair = Pair::new();
    let stream = pair.open();
    assert!(pair.ends[0].send(stream, 3, b"on its way"));
    pair.ends[1].leave(stream, 9);
    pair.ends[1].leave(stream, 9);
    pair.carry_all();
    assert_eq!(pair.events[0], [StreamEvent::Left { stream, code: 9 }]);
    // What was on its way is dropped, and nothing more can be sent.
    assert_eq!(pair.events[1], []);
    assert!(!pair.ends[0].send(stream, 3, b"late"));
    pair.events[0].clear();
    for _ in 0..2 * WINDOW / 100 {
        assert!(pair.ends[1].send(stream, 4, &[1; 100]));
        pair.carry_all();
        pair.ends[0].consumed(stream, 100);
    }
    assert_eq!(pair.events[0].len(), 2 * WINDOW / 100);
    pair.ends[1].close(stream, 9);
    pair.ends[0].close(stream, 9);
    pair.carry_all();
    assert!(pair.ends.iter().all(Multiplexer::is_idle));
}

/// Appends the codes to the frames of these bytes, as far as they are frames: an end with the secret
/// that sends wrong frames.
fn sealed(mut bytes: &[u8]) -> Vec<u8> {
    let mut seal = seal();
    let mut sealed = Vec::new();
    while let Ok(Some((frame, length))) = Frame::decode(bytes) {
        seal.encode(&frame, &mut sealed);
        bytes = &bytes[length..];
    }
    sealed.extend_from_slice(bytes);
    sealed
}

/// 10^5 conversations of which one byte is wrong: an error or another valid conversation, never a
/// panic, and never more bytes for a stream than its window.
fn damaged_frames_harm_nothing() {
    let mut random = StdRng::seed_from_u64(11);
    let mut refused = 0;
    for _ in 0..100_000 {
        let mut bytes = Vec::new();
        Frame::Hello { protocol: PROTOCOL, version: "1" }.encode(&mut bytes);
        for stream in [1, 3] {
            Frame::Open { stream, request: b"name" }.encode(&mut bytes);
            Frame::Message { stream, tag: 1, bytes: &[5; 20] }.encode(&mut bytes);
        }
        Frame::Credit { stream: 1, bytes: 32 }.encode(&mut bytes);
        Frame::Close { stream: 3, code: 1 }.encode(&mut bytes);
        let damaged = random.random_range(0..bytes.len());
        bytes[damaged] ^= 1 << random.random_range(0..8);
        let bytes = sealed(&bytes);
        let mut end = Multiplexer::new(Side::Accepting, KEYS);
        // In two pieces, so that streams can be accepted between them.
        let cut = random.random_range(0..=bytes.len());
        let mut events = Vec::new();
        for piece in [&bytes[..cut], &bytes[cut..]] {
            if end.receive(piece, &mut events).is_err() {
                refused += 1;
                break;
            }
            for event in events.drain(..) {
                match event {
                    StreamEvent::Opened { stream, .. } => end.accept(stream),
                    StreamEvent::Message { stream, bytes, .. } => end.consumed(stream, bytes.len()),
                    _ => {}
                }
            }
        }
    }
    assert!(refused > 50_000, "{refused} of 100000 were refused");
}

/// Frames that somebody adds, changes, repeats, omits or returns, who passes the bytes of two ends on
/// and has no secret.
fn frames_of_others_are_refused() {
    let message = |tag| Frame::Message { stream: 1, tag, bytes: b"message" };
    let mut seal = seal();
    let mut start = Vec::new();
    seal.encode(&Frame::Hello { protocol: PROTOCOL, version: "1" }, &mut start);
    seal.encode(&Frame::Open { stream: 1, request: b"name" }, &mut start);
    let [first, second] = [1, 2].map(|tag| {
        let mut bytes = Vec::new();
        seal.encode(&message(tag), &mut bytes);
        bytes
    });
    let begun = || {
        let mut end = Multiplexer::new(Side::Accepting, KEYS);
        end.receive(&start, &mut Vec::new()).expect("valid frames");
        end.accept(1);
        end
    };
    let mut own = Vec::new();
    Seal::new([9; 16]).encode(&message(1), &mut own);
    let mut changed = first.clone();
    changed[HEADER_BYTES] ^= 1;
    let mut bare = Vec::new();
    (0..2).for_each(|_| message(1).encode(&mut bare));
    for (what, bytes) in [
        ("of another key", own),
        ("without a code", bare),
        ("changed", changed),
        ("repeated", [first.clone(), first.clone()].concat()),
        ("omitted", second.clone()),
        ("returned", begun().outgoing().to_vec()),
    ] {
        let error = begun().receive(&bytes, &mut Vec::new());
        assert_eq!(error, Err(FrameError::Forged), "{what}");
    }
    let mut events = Vec::new();
    begun().receive(&[first, second].concat(), &mut events).expect("valid frames");
    assert_eq!(events.len(), 2);
}

fn a_ping_is_answered() {
    let mut pair = Pair::new();
    pair.carry_all();
    pair.ends[0].ping();
    pair.carry(0, usize::MAX);
    assert!(!pair.ends[1].outgoing().is_empty());
    pair.carry_all();
    assert!(pair.events.iter().all(Vec::is_empty));
}

fn forged_frames_are_refused() {
    let hello = OwnedFrame::Hello(PROTOCOL, "1".to_owned());
    let open = OwnedFrame::Open(1, Vec::new());
    let too_much = || {
        let message = OwnedFrame::Message(1, 0, vec![0; MAX_PAYLOAD]);
        std::iter::repeat_n(message, WINDOW / MAX_PAYLOAD + 1)
    };
    for (what, frames) in [
        ("no hello", vec![open.clone()]),
        ("two hellos", vec![hello.clone(), hello.clone()]),
        ("a number of the other side", vec![hello.clone(), OwnedFrame::Open(2, Vec::new())]),
        ("opened twice", vec![hello.clone(), open.clone(), open.clone()]),
        ("an unknown stream", vec![hello.clone(), OwnedFrame::Message(7, 0, Vec::new())]),
        ("an answer without a question", vec![hello.clone(), OwnedFrame::Accept(2)]),
        (
            "more than its credit",
            [hello.clone(), open.clone()].into_iter().chain(too_much()).collect(),
        ),
        ("credit for nothing", vec![hello.clone(), open.clone(), OwnedFrame::Credit(1, 1)]),
        (
            "a message after the end",
            vec![
                hello.clone(),
                open.clone(),
                OwnedFrame::Close(1, 0),
                OwnedFrame::Message(1, 0, Vec::new()),
            ],
        ),
    ] {
        let mut end = Multiplexer::new(Side::Accepting, KEYS);
        let mut seal = seal();
        let outcome: Result<Vec<()>, FrameError> = frames
            .iter()
            .map(|frame| {
                let mut bytes = Vec::new();
                seal.encode(&frame.borrow(), &mut bytes);
                end.receive(&bytes, &mut Vec::new())?;
                end.accept(1);
                Ok(())
            })
            .collect();
        assert!(matches!(outcome, Err(FrameError::State { .. })), "{what}: {outcome:?}");
    }
    // More streams than an end has are refused one by one, and the others go on.
    let mut end = Multiplexer::new(Side::Accepting, KEYS);
    let mut bytes = Vec::new();
    let mut seal = seal();
    seal.encode(&hello.borrow(), &mut bytes);
    (0..MAX_STREAMS as u32 + 1).for_each(|number| {
        seal.encode(&Frame::Open { stream: 2 * number + 1, request: &[] }, &mut bytes);
    });
    let mut events = Vec::new();
    end.receive(&bytes, &mut events).expect("the last one is refused");
    assert_eq!(events.len(), MAX_STREAMS);
}

fn another_version_is_named() {
    let mut bytes = Vec::new();
    Frame::Hello { protocol: PROTOCOL + 1, version: "9.1\n" }.encode(&mut bytes);
    let error = Multiplexer::new(Side::Accepting, KEYS).receive(&bytes, &mut Vec::new());
    let error = error.expect_err("another protocol").to_string();
    assert!(error.starts_with("it is version 9.1 of tradewind and this is "), "{error}");
}
