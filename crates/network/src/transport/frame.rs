//! What agents say to each other, and its bytes.
//!
//! A frame is a head of 40 bytes and a payload. All numbers are little endian.
//!
//! | byte | field |
//! |---|---|
//! | 0 | u8 kind |
//! | 1 | u24 stamp: what was called, see [`Carrier::prepare`](crate::carrier::Carrier::prepare) |
//! | 4 | u32 destination: the rank of the job that it is for |
//! | 8 | u32 communicator |
//! | 12 | u32 source: the rank of the communicator that it comes from |
//! | 16 | u64 sequence: which run of the communicator |
//! | 24 | u32 first, 28: u32 second; see below |
//! | 32 | u64 length of the payload that follows (announce: that of the message, and nothing follows; credit: bytes) |
//!
//! | kind | is | first | second | payload |
//! |---|---|---|---|---|
//! | 1 | [`Packet::Eager`] | tag | ordinal | the message |
//! | 2 | [`Packet::RequestToSend`]; its send stands in the upper half of the length | tag | ordinal | none |
//! | 3 | [`Packet::ClearToSend`] | send | receive | none |
//! | 4 | [`Packet::Data`] | receive | 0 | the message |
//! | 5 | [`Frame::Join`] | ordinal | 0 | the contribution |
//! | 6 | [`Frame::Fail`] | 0 | 0 | what went wrong |
//! | 7 | [`Frame::Departed`]; destination is the rank | 0 | 0 | how, and what it had started |
//! | 8 | [`Frame::Credit`] | 0 | 0 | none |
//! | 9, 10 | [`Frame::Bye`], [`Frame::Farewell`] | 0 | 0 | none |
//! | 11 | a segment | 0 | 0 | a part of a payload |
//!
//! Where the highest bit of the kind is set, nothing follows the head at once: the payload comes in
//! segments, one frame's after the other's, and whole frames between them.
//!
//! A message is at most 2⁴⁰ − 1 bytes long, an operation's number is below 2²⁴: an announcement's
//! last word holds both.

use crate::carrier::{Error, Exit};
use crate::outcome;
use interpreter::{Handle, Packet};

/// Bytes of a frame's head.
pub const HEAD_BYTES: usize = 40;
/// The longest message.
pub const MAX_MESSAGE: u64 = (1 << LENGTH_BITS) - 1;
/// The most operations of a schedule between nodes.
pub const MAX_OPERATIONS: u32 = 1 << 24;
/// The longest payload that is no message.
const MAX_NOTICE: u64 = 1 << 20;
const LENGTH_BITS: u32 = 40;

/// Which run of which rank a frame is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The rank of the job that it is for.
    pub destination: u32,
    /// Number of the communicator.
    pub communicator: u32,
    /// The rank of the communicator that it comes from.
    pub source: u32,
    /// Number of the run.
    pub sequence: u64,
    /// What the source called; 24 bits.
    pub stamp: u32,
}

/// What one agent says to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Something for an interpreter.
    Packet(Route, Packet),
    /// A rank's contribution to a meeting.
    Join {
        /// Whose run, and who contributes.
        route: Route,
        /// The number of the meeting among the run's joins.
        ordinal: u32,
        /// The bytes.
        contribution: Vec<u8>,
    },
    /// The source's part of the run went wrong, so that the run cannot end.
    Fail(Route, Error),
    /// A rank of the sending node starts nothing any more.
    Departed {
        /// The rank of the job.
        rank: u32,
        /// How it went.
        how: Exit,
        /// Communicators, and how many of their runs it had started. What it had started is carried
        /// through.
        started: Vec<(u32, u64)>,
    },
    /// So many bytes of eager messages have found their receives.
    Credit(u64),
    /// All ranks of the sending node are gone, and all their messages have been sent before. What
    /// they still receive it asks for and credits afterwards.
    Bye,
    /// A [`Frame::Bye`] has been read, and everything before it.
    Farewell,
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No such kind.
    #[error("there is no frame of kind {0}: use one version of tradewind on all nodes")]
    Kind(u8),
    /// A payload that is too long.
    #[error("a frame of kind {kind} with a payload of {length} bytes; at most {limit} can be")]
    Length {
        /// Its kind.
        kind: u8,
        /// What its head says.
        length: u64,
        /// The most it may be.
        limit: u64,
    },
    /// A payload that does not say what it should, or bytes that should be zero.
    #[error("a frame of kind {0} is damaged")]
    Damaged(u8),
}

/// Set in the kind of a frame whose payload follows in segments.
const IN_SEGMENTS: u8 = 0x80;
/// The kind of a segment's head, which says nothing but its length.
const SEGMENT: u8 = 11;

/// The same head for a frame whose payload follows in segments. Between them other frames may pass.
pub(crate) fn in_segments(mut head: [u8; HEAD_BYTES]) -> [u8; HEAD_BYTES] {
    head[0] |= IN_SEGMENTS;
    head
}

/// The head of a segment of so many bytes.
pub(crate) fn segment_head(length: u64) -> [u8; HEAD_BYTES] {
    Head { kind: SEGMENT, length, ..Head::default() }.bytes()
}

/// What a head that has arrived begins.
pub(crate) enum Beginning {
    /// A frame whose payload, of so many bytes, follows.
    Frame(u64),
    /// A frame, by its own head, of which the payload of so many bytes follows in segments.
    InSegments([u8; HEAD_BYTES], u64),
    /// A segment of so many bytes.
    Segment(u64),
}

impl Beginning {
    pub(crate) fn read(head: &[u8; HEAD_BYTES]) -> Result<Self, FrameError> {
        if head[0] == SEGMENT {
            let mut plain = *head;
            plain[0] = BYE;
            return Ok(Beginning::Segment(Head::read(&plain)?.length));
        }
        if head[0] & IN_SEGMENTS == 0 {
            return Ok(Beginning::Frame(payload_bytes(head)?));
        }
        let mut own = *head;
        own[0] &= !IN_SEGMENTS;
        Ok(Beginning::InSegments(own, payload_bytes(&own)?))
    }

    /// What is wrong with a segment that belongs nowhere.
    pub(crate) fn damaged_segment() -> FrameError {
        FrameError::Damaged(SEGMENT)
    }
}

const EAGER: u8 = 1;
const ANNOUNCE: u8 = 2;
const REQUEST: u8 = 3;
const DATA: u8 = 4;
const JOIN: u8 = 5;
const FAIL: u8 = 6;
const DEPARTED: u8 = 7;
const CREDIT: u8 = 8;
const BYE: u8 = 9;
const FAREWELL: u8 = 10;

/// The fields of a head.
#[derive(Clone, Copy, Default)]
struct Head {
    kind: u8,
    route: Route,
    first: u32,
    second: u32,
    length: u64,
}

impl Head {
    fn bytes(&self) -> [u8; HEAD_BYTES] {
        let Route { destination, communicator, source, sequence, stamp } = self.route;
        let mut bytes = [0; HEAD_BYTES];
        for (at, word) in [
            (0, stamp << 8 | u32::from(self.kind)),
            (4, destination),
            (8, communicator),
            (12, source),
            (24, self.first),
            (28, self.second),
        ] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        for (at, word) in [(16, sequence), (32, self.length)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn read(bytes: &[u8; HEAD_BYTES]) -> Result<Head, FrameError> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let kind = bytes[0];
        if !(EAGER..=FAREWELL).contains(&kind) {
            return Err(FrameError::Kind(kind));
        }
        let (destination, communicator, source, sequence) = (word(4), word(8), word(12), long(16));
        let route = Route { destination, communicator, source, sequence, stamp: word(0) >> 8 };
        Ok(Head { kind, route, first: word(24), second: word(28), length: long(32) })
    }

    /// Bytes that follow the head.
    fn payload_bytes(&self) -> Result<u64, FrameError> {
        let limit = match self.kind {
            EAGER | DATA | JOIN => MAX_MESSAGE,
            FAIL | DEPARTED => MAX_NOTICE,
            _ => return Ok(0),
        };
        let (kind, length) = (self.kind, self.length);
        if length <= limit { Ok(length) } else { Err(FrameError::Length { kind, length, limit }) }
    }
}

/// How many bytes follow this head.
///
/// # Errors
/// When it is no head.
pub fn payload_bytes(head: &[u8; HEAD_BYTES]) -> Result<u64, FrameError> {
    Head::read(head)?.payload_bytes()
}

impl Frame {
    /// Whether frames that were sent before this one must arrive before it. Messages are told apart
    /// by what they say and may overtake each other.
    pub(crate) fn keeps_its_place(&self) -> bool {
        !matches!(self, Frame::Packet(..) | Frame::Join { .. } | Frame::Credit(_))
    }

    /// The head, and the payload that follows it.
    pub fn encode(self) -> ([u8; HEAD_BYTES], Vec<u8>) {
        let (kind, route, first, second, payload) = match self {
            Frame::Packet(route, Packet::Eager { tag, ordinal, payload }) => {
                (EAGER, route, tag, ordinal, payload)
            }
            Frame::Packet(route, Packet::RequestToSend { tag, ordinal, bytes, send }) => {
                let length = u64::from(send.0) << LENGTH_BITS | bytes;
                let head = Head { kind: ANNOUNCE, route, first: tag, second: ordinal, length };
                return (head.bytes(), Vec::new());
            }
            Frame::Packet(route, Packet::ClearToSend { send, receive }) => {
                (REQUEST, route, send.0, receive.0, Vec::new())
            }
            Frame::Packet(route, Packet::Data { receive, payload }) => {
                (DATA, route, receive.0, 0, payload)
            }
            Frame::Join { route, ordinal, contribution } => (JOIN, route, ordinal, 0, contribution),
            Frame::Fail(route, error) => (FAIL, route, 0, 0, outcome::encode(&Err(error))),
            Frame::Departed { rank, how, started } => {
                let route = Route { destination: rank, ..Route::default() };
                (DEPARTED, route, 0, 0, encode_departure(&how, &started))
            }
            Frame::Credit(bytes) => {
                return (
                    Head { kind: CREDIT, length: bytes, ..Head::default() }.bytes(),
                    Vec::new(),
                );
            }
            Frame::Bye => (BYE, Route::default(), 0, 0, Vec::new()),
            Frame::Farewell => (FAREWELL, Route::default(), 0, 0, Vec::new()),
        };
        (Head { kind, route, first, second, length: payload.len() as u64 }.bytes(), payload)
    }

    /// The frame of a head and as much payload as it says.
    ///
    /// # Errors
    /// When they are no frame.
    pub fn decode(head: &[u8; HEAD_BYTES], payload: Vec<u8>) -> Result<Frame, FrameError> {
        let head = Head::read(head)?;
        let Head { kind, route, first, second, length } = head;
        let damaged = FrameError::Damaged(kind);
        if head.payload_bytes()? != payload.len() as u64 {
            return Err(damaged);
        }
        Ok(match kind {
            EAGER => Frame::Packet(route, Packet::Eager { tag: first, ordinal: second, payload }),
            ANNOUNCE => {
                let (bytes, send) = (length & MAX_MESSAGE, Handle((length >> LENGTH_BITS) as u32));
                Frame::Packet(
                    route,
                    Packet::RequestToSend { tag: first, ordinal: second, bytes, send },
                )
            }
            REQUEST => Frame::Packet(
                route,
                Packet::ClearToSend { send: Handle(first), receive: Handle(second) },
            ),
            DATA => Frame::Packet(route, Packet::Data { receive: Handle(first), payload }),
            JOIN => Frame::Join { route, ordinal: first, contribution: payload },
            FAIL => match outcome::decode(&payload) {
                Some(Err(error)) => Frame::Fail(route, error),
                _ => return Err(damaged),
            },
            DEPARTED => {
                let (how, started) = decode_departure(&payload).ok_or(damaged)?;
                Frame::Departed { rank: route.destination, how, started }
            }
            CREDIT => Frame::Credit(length),
            BYE => Frame::Bye,
            _ => Frame::Farewell,
        })
    }
}

/// Whether it left in order (u8, 1) or failed (0), the length (u32) of the text that says how, the
/// text, then a communicator (u32) and a count (u64) each.
fn encode_departure(how: &Exit, started: &[(u32, u64)]) -> Vec<u8> {
    let (left, text) = match how {
        Exit::Left => (1, ""),
        Exit::Failed(text) => (0, text.as_str()),
    };
    let mut bytes = vec![left];
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    for (communicator, count) in started {
        bytes.extend_from_slice(&communicator.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    bytes
}

fn decode_departure(bytes: &[u8]) -> Option<(Exit, Vec<(u32, u64)>)> {
    let (left, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let (pairs, rest) = rest.as_chunks::<12>();
    let pair = |bytes: &[u8; 12]| {
        let (communicator, count) = bytes.split_first_chunk()?;
        Some((u32::from_le_bytes(*communicator), u64::from_le_bytes(count.try_into().ok()?)))
    };
    let started = pairs.iter().map(pair).collect::<Option<Vec<_>>>()?;
    let how = match left {
        1 if text.is_empty() => Exit::Left,
        0 => Exit::Failed(String::from_utf8_lossy(text).into_owned()),
        _ => return None,
    };
    rest.is_empty().then_some((how, started))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn route() -> impl Strategy<Value = Route> {
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>(), 0..1u32 << 24).prop_map(
            |(destination, communicator, source, sequence, stamp)| Route {
                destination,
                communicator,
                source,
                sequence,
                stamp,
            },
        )
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..100);
        let operation = || (0..MAX_OPERATIONS).prop_map(Handle);
        let packet = prop_oneof![
            (any::<u32>(), any::<u32>(), bytes())
                .prop_map(|(tag, ordinal, payload)| Packet::Eager { tag, ordinal, payload }),
            (any::<u32>(), any::<u32>(), 0..=MAX_MESSAGE, operation()).prop_map(
                |(tag, ordinal, bytes, send)| Packet::RequestToSend { tag, ordinal, bytes, send }
            ),
            (operation(), operation())
                .prop_map(|(send, receive)| Packet::ClearToSend { send, receive }),
            (operation(), bytes()).prop_map(|(receive, payload)| Packet::Data { receive, payload }),
        ];
        let how = prop_oneof![Just(Exit::Left), ".{0,40}".prop_map(Exit::Failed)];
        prop_oneof![
            (route(), packet).prop_map(|(route, packet)| Frame::Packet(route, packet)),
            (route(), any::<u32>(), bytes()).prop_map(|(route, ordinal, contribution)| {
                Frame::Join { route, ordinal, contribution }
            }),
            (route(), ".{0,40}")
                .prop_map(|(route, text)| Frame::Fail(route, Error::Operation(text))),
            (any::<u32>(), how, proptest::collection::vec((any::<u32>(), any::<u64>()), 0..5))
                .prop_map(|(rank, how, started)| Frame::Departed { rank, how, started }),
            any::<u64>().prop_map(Frame::Credit),
            Just(Frame::Bye),
            Just(Frame::Farewell),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_encoded_is_decoded(frame in frame()) {
            let (head, payload) = frame.clone().encode();
            prop_assert_eq!(payload_bytes(&head), Ok(payload.len() as u64));
            prop_assert_eq!(Frame::decode(&head, payload), Ok(frame));
        }

        #[test]
        fn noise_is_refused_or_read_but_never_more(head in any::<[u8; HEAD_BYTES]>(), payload: Vec<u8>) {
            if let Ok(frame) = Frame::decode(&head, payload.clone()) {
                prop_assert_eq!(payload_bytes(&head), Ok(payload.len() as u64));
                let (again, kept) = frame.clone().encode();
                prop_assert_eq!(Frame::decode(&again, kept), Ok(frame));
            }
        }
    }
}
