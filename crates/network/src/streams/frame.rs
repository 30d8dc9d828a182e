//! Encoding of the messages between the two ends of a connection.
//!
//! A frame is a header of 12 bytes and a payload; its [code](super::seal) follows. All numbers are
//! little endian.
//!
//! | byte | field |
//! |---|---|
//! | 0 | u8 kind |
//! | 1 | u8 tag: the program's number of a message, or the reason of a refusal or an end |
//! | 2 | u16 zero |
//! | 4 | u32 number of the stream; 0 for a hello, a ping and a pong |
//! | 8 | u32 length of the payload |
//!
//! | kind | frame | payload |
//! |---|---|---|
//! | 1 | [`Frame::Hello`] | u32 [`PROTOCOL`], then the version of tradewind as text |
//! | 2 | [`Frame::Open`] | the request |
//! | 3 | [`Frame::Accept`] | none |
//! | 4 | [`Frame::Refuse`] | the reason as text |
//! | 5 | [`Frame::Message`] | the message |
//! | 6 | [`Frame::Credit`] | u32 bytes |
//! | 7 | [`Frame::Close`] | none |
//! | 8 | [`Frame::Leave`] | none |
//! | 9 | [`Frame::Ping`] | none |
//! | 10 | [`Frame::Pong`] | none |

use super::{MAX_PAYLOAD, WINDOW};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// Version of this encoding and of the rules of the multiplexer.
pub const PROTOCOL: u32 = 2;

/// A message between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The first frame of each end.
    Hello {
        /// Its version of the protocol.
        protocol: u32,
        /// Its version of tradewind.
        version: &'a str,
    },
    /// Requests a [`Frame::Pong`].
    Ping,
    /// Answers a [`Frame::Ping`].
    Pong,
    /// Opens a stream.
    Open {
        /// Number of the stream.
        stream: u32,
        /// Request for the other end's program.
        request: &'a [u8],
    },
    /// Accepts a stream, which carries messages from now on.
    Accept {
        /// Number of the stream.
        stream: u32,
    },
    /// Refuses a stream.
    Refuse {
        /// Number of the stream.
        stream: u32,
        /// Reason, as a number of the programs.
        code: u8,
        /// Reason as text.
        reason: &'a str,
    },
    /// A message.
    Message {
        /// Number of the stream.
        stream: u32,
        /// Number that the program has given it.
        tag: u8,
        /// The message.
        bytes: &'a [u8],
    },
    /// Permits further messages.
    Credit {
        /// Number of the stream.
        stream: u32,
        /// Number of bytes that were received, headers included.
        bytes: u32,
    },
    /// This end receives nothing on the stream any more. It may still send.
    Leave {
        /// Number of the stream.
        stream: u32,
        /// Reason, as a number of the programs.
        code: u8,
    },
    /// The last frame of this end on a stream.
    Close {
        /// Number of the stream.
        stream: u32,
        /// Reason, as a number of the programs.
        code: u8,
    },
}

/// Reason why bytes are no frame, or a frame is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The header has an unknown kind, or a field that must be zero is not.
    #[error("a frame of kind {kind}, which this version does not have")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// The payload has no valid length for the kind.
    #[error("a frame of kind {kind} with {bytes} bytes")]
    Length {
        /// The kind.
        kind: u8,
        /// Length of the payload.
        bytes: u32,
    },
    /// The payload is invalid.
    #[error("a frame of kind {kind} with an invalid payload")]
    Payload {
        /// The kind.
        kind: u8,
    },
    /// The code of a frame is wrong.
    #[error(
        "a frame that the other end has not sent: somebody passes the connection on and changes it"
    )]
    Forged,
    /// The other end has another version.
    #[error(
        "it is version {theirs} of tradewind and this is {ours}: install one version on both nodes"
    )]
    Version {
        /// Version of the other end.
        theirs: String,
        /// Version of this program.
        ours: &'static str,
    },
    /// A frame in the wrong state of its stream, or beyond its credit.
    #[error("a frame that its stream {stream} does not allow: {why}")]
    State {
        /// Number of the stream.
        stream: u32,
        /// Rule that it violates.
        why: &'static str,
    },
}

const HELLO: u8 = 1;
const OPEN: u8 = 2;
const ACCEPT: u8 = 3;
const REFUSE: u8 = 4;
const MESSAGE: u8 = 5;
const CREDIT: u8 = 6;
const CLOSE: u8 = 7;
const LEAVE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

impl<'a> Frame<'a> {
    /// Appends the frame. A payload that is longer than [`MAX_PAYLOAD`] is cut.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let number;
        let hello;
        let (kind, tag, stream, payload): (u8, u8, u32, &[u8]) = match *self {
            Frame::Hello { protocol, version } => {
                hello = [&protocol.to_le_bytes(), version.as_bytes()].concat();
                (HELLO, 0, 0, &hello)
            }
            Frame::Ping => (PING, 0, 0, &[]),
            Frame::Pong => (PONG, 0, 0, &[]),
            Frame::Open { stream, request } => (OPEN, 0, stream, request),
            Frame::Accept { stream } => (ACCEPT, 0, stream, &[]),
            Frame::Refuse { stream, code, reason } => {
                let end = reason.floor_char_boundary(MAX_PAYLOAD);
                (REFUSE, code, stream, &reason.as_bytes()[..end])
            }
            Frame::Message { stream, tag, bytes } => (MESSAGE, tag, stream, bytes),
            Frame::Credit { stream, bytes } => {
                number = bytes.to_le_bytes();
                (CREDIT, 0, stream, &number)
            }
            Frame::Close { stream, code } => (CLOSE, code, stream, &[]),
            Frame::Leave { stream, code } => (LEAVE, code, stream, &[]),
        };
        let payload = &payload[..payload.len().min(MAX_PAYLOAD)];
        into.extend_from_slice(&[kind, tag, 0, 0]);
        into.extend_from_slice(&stream.to_le_bytes());
        into.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        into.extend_from_slice(payload);
    }

    /// Decodes the first frame of these bytes, and returns it with its length; `None` if it is
    /// incomplete.
    ///
    /// # Errors
    /// As soon as the header shows it: an incomplete frame has a valid header.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, FrameError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [kind, tag, zero, also_zero, s0, s1, s2, s3, l0, l1, l2, l3] = *header;
        let stream = u32::from_le_bytes([s0, s1, s2, s3]);
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let allowed = match kind {
            HELLO => 4..=MAX_PAYLOAD,
            OPEN | REFUSE | MESSAGE => 0..=MAX_PAYLOAD,
            ACCEPT | CLOSE | LEAVE | PING | PONG => 0..=0,
            CREDIT => 4..=4,
            _ => return Err(FrameError::Kind { kind }),
        };
        // A field without a meaning is zero, so that every frame has one encoding.
        let has_tag = matches!(kind, REFUSE | MESSAGE | CLOSE | LEAVE);
        if zero != 0
            || also_zero != 0
            || tag != 0 && !has_tag
            || (stream == 0) != matches!(kind, HELLO | PING | PONG)
        {
            return Err(FrameError::Kind { kind });
        }
        if !allowed.contains(&(length as usize)) {
            return Err(FrameError::Length { kind, bytes: length });
        }
        let Some((payload, _)) = rest.split_at_checked(length as usize) else { return Ok(None) };
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| FrameError::Payload { kind });
        let number = payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let frame = match kind {
            HELLO => Frame::Hello { protocol: number, version: text(&payload[4..])? },
            OPEN => Frame::Open { stream, request: payload },
            ACCEPT => Frame::Accept { stream },
            REFUSE => Frame::Refuse { stream, code: tag, reason: text(payload)? },
            MESSAGE => Frame::Message { stream, tag, bytes: payload },
            CREDIT if number == 0 || number as usize > WINDOW => {
                return Err(FrameError::Payload { kind });
            }
            CREDIT => Frame::Credit { stream, bytes: number },
            CLOSE => Frame::Close { stream, code: tag },
            LEAVE => Frame::Leave { stream, code: tag },
            PING => Frame::Ping,
            _ => Frame::Pong,
        };
        Ok(Some((frame, HEADER_BYTES + payload.len())))
    }
}
