//! The messages between agents, and their encoding.
//!
//! A frame is a header of 40 bytes and a payload. All numbers are little endian.
//!
//! | byte | field |
//! |---|---|
//! | 0 | u8 kind |
//! | 1 | u24 signature of the call, see [`Backend::register`](crate::backend::Backend::register) |
//! | 4 | u32 destination: a rank of the job |
//! | 8 | u32 communicator |
//! | 12 | u32 source: a rank of the communicator |
//! | 16 | u64 sequence: number of the run on the communicator |
//! | 24 | u32 first, 28: u32 second; see below |
//! | 32 | u64 length of the payload that follows (request to send: that of the message, and nothing follows; credit: bytes) |
//!
//! | kind | frame | first | second | payload |
//! |---|---|---|---|---|
//! | 1 | [`Packet::Eager`] | tag | ordinal | the message |
//! | 2 | [`Packet::RequestToSend`]; its send is in the upper half of the length | tag | ordinal | none |
//! | 3 | [`Packet::ClearToSend`] | send | receive | none |
//! | 4 | [`Packet::Data`] | receive | 0 | the message |
//! | 5 | [`Frame::Join`] | ordinal | 0 | the contribution |
//! | 6 | [`Frame::Fail`] | 0 | 0 | the error |
//! | 7 | [`Frame::RankExited`]; destination is the rank | 0 | 0 | the manner, and the runs it had started |
//! | 8 | [`Frame::Credit`] | 0 | 0 | none |
//! | 9, 10 | [`Frame::Shutdown`], [`Frame::ShutdownAck`] | 0 | 0 | none |
//! | 11 | a segment | 0 | 0 | a part of a payload |
//! | 12 | [`Frame::RankLeaves`]; destination is the rank | 0 | 0 | the runs it had started |
//! | 13 | [`Frame::Messages`]; destination is the sender | 0 | 0 | [records](super::records::messages) |
//! | 14 | [`Frame::NodeEnded`]; destination is the node | 1 if in order | 0 | the symptom of a failure |
//! | 15 | [`Frame::Flows`] | 0 | 0 | records of flows |
//! | 16 | [`Frame::Waits`] | 0 | 0 | none |
//!
//! If the highest bit of the kind is set, nothing follows the header at once: the payload arrives
//! in segments, those of one frame before those of the next, and whole frames between them.
//!
//! If the second highest bit is set, the message is sent from the memory of its run, which may
//! become unreadable meanwhile. A status byte follows the payload, in its last segment if there are
//! any, and is not counted by the length: 0 if the payload is the message, anything else if it is
//! not.
//!
//! A message is at most 2⁴⁰ − 1 bytes long, and an operation's number is below 2²⁴: the last word
//! of a request to send holds both.

mod exits;

use super::records::{flows, messages};
use crate::error::{self, Error, RankExit};
use crate::run_counts::StartedRuns;
use exits::{decode_exit, decode_started, encode_exit, encode_started};
use interpreter::{Handle, Packet};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 40;
/// Length of the longest message.
pub const MAX_MESSAGE: u64 = (1 << LENGTH_BITS) - 1;
/// Largest number of operations of a schedule between nodes.
pub const MAX_OPERATIONS: u32 = 1 << 24;
/// Length of the longest payload that is no message.
const MAX_REPORT: u64 = 1 << 22;
const LENGTH_BITS: u32 = 40;
/// Offset of the payload's length in a header.
const LENGTH_AT: usize = 32;

/// The run that a frame belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The destination, a rank of the job.
    pub destination: u32,
    /// Number of the communicator.
    pub communicator: u32,
    /// The source, a rank of the communicator.
    pub source: u32,
    /// Number of the run.
    pub sequence: u64,
    /// Signature of the source's call; 24 bits.
    pub signature: u32,
}

/// A message between agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A packet for an interpreter.
    Packet(Route, Packet),
    /// A rank's contribution to a join.
    Join {
        /// The run and the contributing rank.
        route: Route,
        /// Number of the join in the run.
        ordinal: u32,
        /// The bytes.
        contribution: Vec<u8>,
    },
    /// The failure of the source's part of the run, so that the run cannot end.
    Fail(Route, Error),
    /// A sign that the source executes the run and has waited long for the destination.
    Waits(Route),
    /// The exit of a rank, which starts nothing any more.
    RankExited {
        /// The rank of the job.
        rank: u32,
        /// Manner of the exit.
        how: RankExit,
        /// The runs that it had started, by communicator. These are carried through.
        started: Vec<StartedRuns>,
    },
    /// The announcement of a rank that it leaves, and starts nothing any more on another backend
    /// than the agent.
    RankLeaves {
        /// The rank of the job.
        rank: u32,
        /// The runs that it had started there, by communicator.
        started: Vec<StartedRuns>,
    },
    /// Messages of a rank of the sending node to ranks of the receiving one.
    Messages {
        /// The sender, a rank of the job.
        source: u32,
        /// Whole records.
        records: Vec<u8>,
    },
    /// Bytes of flows to the receiving node, and credit of flows from there.
    Flows {
        /// Whole records.
        records: Vec<u8>,
    },
    /// Bytes of eager messages that have met their receives.
    Credit(u64),
    /// The end of the sending node's messages: its ranks have exited, and their messages come
    /// before this frame. Only frames about what they still receive follow, and, on a connection
    /// that was made after the exits, the reports of those.
    Shutdown,
    /// The acknowledgement of [`Frame::Shutdown`] and everything before it.
    ShutdownAck,
    /// The end of another node than the sending one, which passes it on.
    NodeEnded {
        /// The node.
        node: u32,
        /// The symptom of its failure; `None` if it has shut down in order.
        failure: Option<String>,
    },
}

/// A reason why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// An unknown kind.
    #[error("there is no frame of kind {0}: use one version of tradewind on all nodes")]
    Kind(u8),
    /// A payload that is too long.
    #[error("a frame of kind {kind} with a payload of {length} bytes; at most {limit} can be")]
    Length {
        /// Kind of the frame.
        kind: u8,
        /// Length in the header.
        length: u64,
        /// Largest possible length.
        limit: u64,
    },
    /// An invalid payload.
    #[error("a frame of kind {0} is damaged")]
    Damaged(u8),
}

/// Bit in the kind of a frame with a payload in segments.
const IN_SEGMENTS: u8 = 0x80;
/// The kind of a segment's header. Its only other field is the length.
const SEGMENT: u8 = 11;

/// Bit in the kind of a message with a status byte behind its payload.
const IN_PLACE: u8 = 0x40;
/// Status of a payload that was read from its memory.
pub(crate) const WHOLE: u8 = 0;
/// Status of a payload of which the memory could not be read.
pub(crate) const UNREADABLE: u8 = 1;

/// Marks the header of a frame with a payload in segments.
pub(crate) fn in_segments(mut header: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    header[0] |= IN_SEGMENTS;
    header
}

/// The header of a segment of `length` bytes.
pub(crate) fn segment_header(length: u64) -> [u8; HEADER_BYTES] {
    FrameHeader { kind: SEGMENT, length, ..FrameHeader::default() }.bytes()
}

/// The thing that a header begins.
pub(crate) enum FrameStart {
    /// A frame, with the payload behind it.
    Frame(AnnouncedFrame),
    /// A frame, with the payload in segments behind it.
    InSegments(AnnouncedFrame),
    /// A segment, and its length.
    Segment(u64),
}

/// A frame of which the header has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnnouncedFrame {
    /// The header of the frame itself, without marks of how it arrives.
    pub(crate) header: [u8; HEADER_BYTES],
    /// Length of its payload.
    pub(crate) bytes: u64,
    /// True if a status byte follows the payload.
    pub(crate) has_status: bool,
}

impl FrameStart {
    pub(crate) fn read(header: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let mut plain = *header;
        if header[0] == SEGMENT {
            // `FrameHeader` has no segments. A kind without payload stands in, so that any length
            // is accepted here; the receive buffer checks it against its frame.
            plain[0] = SHUTDOWN;
            return Ok(FrameStart::Segment(FrameHeader::read(&plain)?.length));
        }
        plain[0] &= !(IN_SEGMENTS | IN_PLACE);
        let has_status = header[0] & IN_PLACE != 0;
        // Only messages are sent from the memory of runs.
        if has_status && !matches!(plain[0], EAGER | DATA) {
            return Err(FrameError::Kind(header[0]));
        }
        let frame = AnnouncedFrame { header: plain, bytes: payload_bytes(&plain)?, has_status };
        let is_segmented = header[0] & IN_SEGMENTS != 0;
        Ok(if is_segmented { FrameStart::InSegments(frame) } else { FrameStart::Frame(frame) })
    }

    /// The error of a segment that belongs to no frame.
    pub(crate) fn damaged_segment() -> FrameError {
        FrameError::Damaged(SEGMENT)
    }
}

const EAGER: u8 = 1;
const REQUEST_TO_SEND: u8 = 2;
const CLEAR_TO_SEND: u8 = 3;
const DATA: u8 = 4;
const JOIN: u8 = 5;
const FAIL: u8 = 6;
const RANK_EXITED: u8 = 7;
const CREDIT: u8 = 8;
const SHUTDOWN: u8 = 9;
const SHUTDOWN_ACK: u8 = 10;
const RANK_LEAVES: u8 = 12;
const MESSAGES: u8 = 13;
const NODE_ENDED: u8 = 14;
const FLOWS: u8 = 15;
const WAITS: u8 = 16;

/// The fields of a header.
#[derive(Clone, Copy, Default)]
struct FrameHeader {
    kind: u8,
    route: Route,
    first: u32,
    second: u32,
    length: u64,
}

impl FrameHeader {
    fn bytes(&self) -> [u8; HEADER_BYTES] {
        let Route { destination, communicator, source, sequence, signature } = self.route;
        let mut bytes = [0; HEADER_BYTES];
        for (at, word) in [
            (0, signature << 8 | u32::from(self.kind)),
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

    fn read(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let kind = bytes[0];
        if !(EAGER..=WAITS).contains(&kind) || kind == SEGMENT {
            return Err(FrameError::Kind(kind));
        }
        let route = Route {
            destination: word(4),
            communicator: word(8),
            source: word(12),
            sequence: long(16),
            signature: word(0) >> 8,
        };
        Ok(FrameHeader { kind, route, first: word(24), second: word(28), length: long(32) })
    }

    /// Number of bytes that follow the header.
    fn payload_bytes(&self) -> Result<u64, FrameError> {
        // Limits what the header of a damaged or hostile frame can make the receiver allocate.
        let limit = match self.kind {
            EAGER | DATA | JOIN => MAX_MESSAGE,
            FAIL | RANK_EXITED | RANK_LEAVES | NODE_ENDED => MAX_REPORT,
            MESSAGES => messages::MAX_FRAME_BYTES,
            FLOWS => flows::MAX_FRAME_BYTES,
            // Nothing follows. Requests to send and credit have another number in the length.
            _ => return Ok(0),
        };
        let FrameHeader { kind, length, .. } = *self;
        if length <= limit { Ok(length) } else { Err(FrameError::Length { kind, length, limit }) }
    }
}

/// Number of bytes that follow this header.
///
/// # Errors
/// If it is invalid.
pub fn payload_bytes(header: &[u8; HEADER_BYTES]) -> Result<u64, FrameError> {
    FrameHeader::read(header)?.payload_bytes()
}

impl Frame {
    /// Returns true if frames that were sent before this one must arrive before it. Messages of
    /// runs identify their run and place there, so they may overtake each other. Those of ranks
    /// follow each other, because none is so long that another one passes it.
    pub(crate) fn is_ordered(&self) -> bool {
        !matches!(
            self,
            Frame::Packet(..)
                | Frame::Join { .. }
                | Frame::Waits(_)
                | Frame::Credit(_)
                | Frame::Messages { .. }
                | Frame::Flows { .. }
        )
    }

    /// Encodes the frame: its header, and the payload that follows.
    pub fn encode(self) -> ([u8; HEADER_BYTES], Vec<u8>) {
        let (kind, route, first, second, payload) = match self {
            Frame::Packet(route, Packet::Eager { tag, ordinal, payload }) => {
                (EAGER, route, tag, ordinal, payload)
            }
            Frame::Packet(route, Packet::RequestToSend { tag, ordinal, bytes, send }) => {
                // Neither reaches the bits of the other: a message is at most `MAX_MESSAGE` long,
                // and a schedule between nodes has at most `MAX_OPERATIONS`.
                let length = u64::from(send.0) << LENGTH_BITS | bytes;
                let header = FrameHeader {
                    kind: REQUEST_TO_SEND,
                    route,
                    first: tag,
                    second: ordinal,
                    length,
                };
                return (header.bytes(), Vec::new());
            }
            Frame::Packet(route, Packet::ClearToSend { send, receive }) => {
                (CLEAR_TO_SEND, route, send.0, receive.0, Vec::new())
            }
            Frame::Packet(route, Packet::Data { receive, payload }) => {
                (DATA, route, receive.0, 0, payload)
            }
            Frame::Join { route, ordinal, contribution } => (JOIN, route, ordinal, 0, contribution),
            Frame::Fail(route, error) => (FAIL, route, 0, 0, error::encode(&Err(error))),
            Frame::Waits(route) => (WAITS, route, 0, 0, Vec::new()),
            Frame::RankExited { rank, how, started } => {
                let route = Route { destination: rank, ..Route::default() };
                (RANK_EXITED, route, 0, 0, encode_exit(&how, &started))
            }
            Frame::RankLeaves { rank, started } => {
                let route = Route { destination: rank, ..Route::default() };
                (RANK_LEAVES, route, 0, 0, encode_started(&started))
            }
            Frame::Messages { source, records } => {
                let route = Route { destination: source, ..Route::default() };
                (MESSAGES, route, 0, 0, records)
            }
            Frame::Flows { records } => (FLOWS, Route::default(), 0, 0, records),
            Frame::Credit(number) => {
                let header = FrameHeader { kind: CREDIT, length: number, ..FrameHeader::default() };
                return (header.bytes(), Vec::new());
            }
            Frame::Shutdown => (SHUTDOWN, Route::default(), 0, 0, Vec::new()),
            Frame::ShutdownAck => (SHUTDOWN_ACK, Route::default(), 0, 0, Vec::new()),
            Frame::NodeEnded { node, failure } => {
                let route = Route { destination: node, ..Route::default() };
                let is_in_order = u32::from(failure.is_none());
                (NODE_ENDED, route, is_in_order, 0, failure.unwrap_or_default().into_bytes())
            }
        };
        (FrameHeader { kind, route, first, second, length: payload.len() as u64 }.bytes(), payload)
    }

    /// The message that a header begins, with an empty payload, and the payload's length; `None`
    /// for every other frame.
    pub(crate) fn message_of(header: &[u8; HEADER_BYTES]) -> Option<(Route, Packet, u64)> {
        let FrameHeader { kind, route, first, second, length } = FrameHeader::read(header).ok()?;
        let payload = Vec::new();
        let packet = match kind {
            EAGER => Packet::Eager { tag: first, ordinal: second, payload },
            DATA => Packet::Data { receive: Handle(first), payload },
            _ => return None,
        };
        Some((route, packet, length))
    }

    /// Encodes the header of a message with a payload of `length` bytes and its status byte, which
    /// follow.
    pub(crate) fn in_place(route: Route, packet: Packet, length: u64) -> [u8; HEADER_BYTES] {
        let mut header = Frame::with_length(route, packet, length);
        header[0] |= IN_PLACE;
        header
    }

    /// Encodes the header of a message with a payload of `length` bytes. `packet` has an empty one.
    pub(crate) fn with_length(route: Route, packet: Packet, length: u64) -> [u8; HEADER_BYTES] {
        let (mut header, _) = Frame::Packet(route, packet).encode();
        header[LENGTH_AT..].copy_from_slice(&length.to_le_bytes());
        header
    }

    /// Decodes a header and its payload.
    ///
    /// # Errors
    /// If they are invalid.
    pub fn decode(header: &[u8; HEADER_BYTES], payload: Vec<u8>) -> Result<Frame, FrameError> {
        let header = FrameHeader::read(header)?;
        let FrameHeader { kind, route, first, second, length } = header;
        let damaged = FrameError::Damaged(kind);
        if header.payload_bytes()? != payload.len() as u64 {
            return Err(damaged);
        }
        Ok(match kind {
            EAGER => Frame::Packet(route, Packet::Eager { tag: first, ordinal: second, payload }),
            REQUEST_TO_SEND => {
                // All bits below `LENGTH_BITS`.
                let bytes = length & MAX_MESSAGE;
                let send = Handle((length >> LENGTH_BITS) as u32);
                Frame::Packet(
                    route,
                    Packet::RequestToSend { tag: first, ordinal: second, bytes, send },
                )
            }
            CLEAR_TO_SEND => Frame::Packet(
                route,
                Packet::ClearToSend { send: Handle(first), receive: Handle(second) },
            ),
            DATA => Frame::Packet(route, Packet::Data { receive: Handle(first), payload }),
            JOIN => Frame::Join { route, ordinal: first, contribution: payload },
            FAIL => match error::decode(&payload) {
                Some(Err(error)) => Frame::Fail(route, error),
                _ => return Err(damaged),
            },
            RANK_EXITED => {
                let (how, started) = decode_exit(&payload).ok_or(damaged)?;
                Frame::RankExited { rank: route.destination, how, started }
            }
            RANK_LEAVES => {
                let started = decode_started(&payload).ok_or(damaged)?;
                Frame::RankLeaves { rank: route.destination, started }
            }
            MESSAGES if messages::is_valid(&payload) => {
                Frame::Messages { source: route.destination, records: payload }
            }
            FLOWS if flows::is_valid(&payload) => Frame::Flows { records: payload },
            MESSAGES | FLOWS => return Err(damaged),
            WAITS => Frame::Waits(route),
            CREDIT => Frame::Credit(length),
            SHUTDOWN => Frame::Shutdown,
            NODE_ENDED => {
                let node = route.destination;
                let failure = match first {
                    1 if payload.is_empty() => None,
                    0 => Some(String::from_utf8_lossy(&payload).into_owned()),
                    _ => return Err(damaged),
                };
                Frame::NodeEnded { node, failure }
            }
            // The only kind that is left of those that `FrameHeader::read` admits.
            _ => Frame::ShutdownAck,
        })
    }
}
