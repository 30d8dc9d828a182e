//! State of one end of a connection with many streams.
//!
//! Either end opens streams: the connecting one those with odd numbers, the accepting one those with
//! even numbers. A stream is closed when both ends have closed it; messages that arrive at an end
//! that has closed the stream are dropped, because the other end may have sent them before.

use super::frame::{Frame, FrameError, HEADER_BYTES, PROTOCOL};
use super::output::Output;
use super::seal::{CODE_BYTES, Seal, SessionKeys};
use super::{MAX_PAYLOAD, MAX_STREAMS, WINDOW};
use std::collections::HashMap;

/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The code of a refusal by the multiplexer itself.
pub const REFUSED_BY_LIMIT: u8 = u8::MAX;

/// Number of bytes to be written at which the other end must not send more: answers to its frames
/// would need memory without a bound.
const MAX_OUTGOING: usize = 8 << 20;

/// Side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that has connected.
    Connecting,
    /// The end that has accepted the connection.
    Accepting,
}

/// Event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The other end opens a stream: to be accepted or refused.
    Opened {
        /// Number of the stream.
        stream: u32,
        /// Its request.
        request: Vec<u8>,
    },
    /// The other end has accepted a stream.
    Accepted {
        /// Number of the stream.
        stream: u32,
    },
    /// The other end has refused a stream. Its number may be used again.
    Refused {
        /// Number of the stream.
        stream: u32,
        /// Reason, as a number.
        code: u8,
        /// Reason as text.
        reason: String,
    },
    /// A message. Its place is free for another one after [`Multiplexer::consumed`].
    Message {
        /// Number of the stream.
        stream: u32,
        /// Number that the sender has given it.
        tag: u8,
        /// The message.
        bytes: Vec<u8>,
    },
    /// The other end receives nothing on the stream any more. It may still send.
    Left {
        /// Number of the stream.
        stream: u32,
        /// Reason, as a number.
        code: u8,
    },
    /// The other end sends nothing on the stream any more, and receives nothing.
    Closed {
        /// Number of the stream.
        stream: u32,
        /// Reason, as a number.
        code: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// This end has opened it and waits for the answer.
    Opening,
    /// The other end has opened it and waits for the answer.
    Offered,
    Open,
}

#[derive(Debug)]
struct Stream {
    stage: Stage,
    /// Bytes that this end may send.
    credit: usize,
    /// Bytes that the other end may send.
    granted: usize,
    /// Bytes that were received and for which no credit was returned yet.
    unreported: usize,
    /// This end receives nothing any more.
    has_left_here: bool,
    has_left_there: bool,
    is_closed_here: bool,
    is_closed_there: bool,
}

impl Stream {
    fn new(stage: Stage) -> Stream {
        Stream {
            stage,
            credit: WINDOW,
            granted: WINDOW,
            unreported: 0,
            has_left_here: false,
            has_left_there: false,
            is_closed_here: false,
            is_closed_there: false,
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Multiplexer {
    side: Side,
    has_hello: bool,
    streams: HashMap<u32, Stream>,
    next: u32,
    /// Bytes of an incomplete frame.
    incoming: Vec<u8>,
    /// Codes of the frames that arrive.
    expected: Seal,
    outgoing: Output,
}

fn another_version(version: &str) -> FrameError {
    // The text comes from the other end and appears in a message.
    let theirs = version.chars().filter(|letter| !letter.is_control()).take(32).collect();
    FrameError::Version { theirs, ours: VERSION }
}

/// Credit that a message takes. It includes the header, so that empty messages are bounded too.
const fn cost(bytes: usize) -> usize {
    HEADER_BYTES + bytes
}

impl Multiplexer {
    /// Returns the state of a new connection with these keys, with the hello to be sent.
    pub fn new(side: Side, keys: SessionKeys) -> Multiplexer {
        let mut outgoing = Output::new(Seal::new(keys.send));
        let expected = Seal::new(keys.receive);
        outgoing.put(&Frame::Hello { protocol: PROTOCOL, version: VERSION });
        let next = if side == Side::Connecting { 1 } else { 2 };
        let streams = HashMap::new();
        let incoming = Vec::new();
        Multiplexer { side, has_hello: false, streams, next, incoming, expected, outgoing }
    }

    /// Opens a stream with a request, which is cut at [`MAX_PAYLOAD`] bytes; `None` if there are
    /// [`MAX_STREAMS`].
    pub fn open(&mut self, request: &[u8]) -> Option<u32> {
        if self.streams.len() >= MAX_STREAMS {
            return None;
        }
        // Numbers are reused late, and skipped while they are in use. 0 is no stream: an end's
        // numbers are odd, or begin again at 2.
        while self.streams.contains_key(&self.next) {
            self.advance();
        }
        let stream = self.next;
        self.advance();
        self.streams.insert(stream, Stream::new(Stage::Opening));
        self.outgoing.put(&Frame::Open { stream, request });
        Some(stream)
    }

    fn advance(&mut self) {
        let first = if self.side == Side::Connecting { 1 } else { 2 };
        self.next = self.next.checked_add(2).unwrap_or(first);
    }

    /// Accepts a stream that the other end has opened.
    pub fn accept(&mut self, stream: u32) {
        if let Some(state) = self.streams.get_mut(&stream).filter(|it| it.stage == Stage::Offered) {
            state.stage = Stage::Open;
            self.outgoing.put(&Frame::Accept { stream });
        }
    }

    /// Refuses a stream that the other end has opened.
    pub fn refuse(&mut self, stream: u32, code: u8, reason: &str) {
        if self.streams.get(&stream).is_some_and(|it| it.stage == Stage::Offered) {
            self.streams.remove(&stream);
            self.outgoing.put(&Frame::Refuse { stream, code, reason });
        }
    }

    /// Returns true if a message of any length may be sent on the stream.
    pub fn can_send(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(|state| {
            state.stage == Stage::Open
                && !state.is_closed_here
                && !state.is_closed_there
                && !state.has_left_there
                && state.credit >= cost(MAX_PAYLOAD)
        })
    }

    /// Sends a message of up to [`MAX_PAYLOAD`] bytes. Returns false if the stream has no credit
    /// for it, or is not open.
    pub fn send(&mut self, stream: u32, tag: u8, bytes: &[u8]) -> bool {
        if bytes.len() > MAX_PAYLOAD || !self.can_send(stream) {
            return false;
        }
        if let Some(state) = self.streams.get_mut(&stream) {
            state.credit -= cost(bytes.len());
        }
        self.outgoing.put(&Frame::Message { stream, tag, bytes });
        true
    }

    /// Frees the place of a received message of this length, so that the other end may send more.
    pub fn consumed(&mut self, stream: u32, bytes: usize) {
        let receives = |state: &&mut Stream| !state.is_closed_here && !state.has_left_here;
        let Some(state) = self.streams.get_mut(&stream).filter(receives) else { return };
        state.unreported += cost(bytes);
        // One frame for half a window: the sender has the other half meanwhile.
        if state.unreported >= WINDOW / 2 && !state.is_closed_there {
            let bytes = std::mem::take(&mut state.unreported);
            state.granted += bytes;
            self.outgoing.put(&Frame::Credit { stream, bytes: bytes as u32 });
        }
    }

    /// Ends the receiving half of an open stream: the other end gets no credit any more, and what
    /// arrives is dropped. This end may still send.
    pub fn leave(&mut self, stream: u32, code: u8) {
        let open = self.streams.get_mut(&stream).filter(|state| state.stage == Stage::Open);
        let Some(state) = open.filter(|it| !it.is_closed_here && !it.is_closed_there) else {
            return;
        };
        if !std::mem::replace(&mut state.has_left_here, true) {
            self.outgoing.put(&Frame::Leave { stream, code });
        }
    }

    /// Closes an open stream: this end sends nothing on it any more, and receives nothing.
    pub fn close(&mut self, stream: u32, code: u8) {
        let open = self.streams.get_mut(&stream).filter(|state| state.stage == Stage::Open);
        let Some(state) = open.filter(|state| !state.is_closed_here) else { return };
        state.is_closed_here = true;
        self.outgoing.put(&Frame::Close { stream, code });
        if state.is_closed_there {
            self.streams.remove(&stream);
        }
    }

    /// Requests an answer, which shows that the other end runs.
    pub fn ping(&mut self) {
        self.outgoing.put(&Frame::Ping);
    }

    /// Returns true if there is no stream.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns the bytes to be written to the other end.
    pub fn outgoing(&self) -> &[u8] {
        self.outgoing.bytes()
    }

    /// Removes bytes that were written.
    pub fn written(&mut self, bytes: usize) {
        self.outgoing.written(bytes);
    }

    /// Takes bytes of the other end, and appends what they contain to `events`.
    ///
    /// # Errors
    /// If the other end violates the protocol, or has another version. The connection cannot be
    /// used afterwards.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), FrameError> {
        if self.outgoing().len() > MAX_OUTGOING {
            return Err(FrameError::State { stream: 0, why: "it does not read its answers" });
        }
        let mut incoming = std::mem::take(&mut self.incoming);
        incoming.extend_from_slice(bytes);
        let mut start = 0;
        while let Some((frame, length)) = Frame::decode(&incoming[start..])? {
            // An end of another version may append other codes: its version is the better report.
            if let Frame::Hello { protocol, version } = frame
                && protocol != PROTOCOL
            {
                return Err(another_version(version));
            }
            let end = start + length;
            let Some(code) = incoming[end..].first_chunk::<CODE_BYTES>() else { break };
            // The comparison need not take constant time: a wrong code ends the connection, and the
            // next one has other keys.
            if *code != self.expected.code(&incoming[start..end]) {
                return Err(FrameError::Forged);
            }
            self.take(frame, events)?;
            start = end + CODE_BYTES;
        }
        incoming.drain(..start);
        self.incoming = incoming;
        Ok(())
    }

    fn take(&mut self, frame: Frame<'_>, events: &mut Vec<StreamEvent>) -> Result<(), FrameError> {
        match frame {
            Frame::Hello { .. } => self.take_hello(),
            _ if !self.has_hello => Err(FrameError::State { stream: 0, why: "no hello" }),
            Frame::Ping => {
                self.outgoing.put(&Frame::Pong);
                Ok(())
            }
            Frame::Pong => Ok(()),
            Frame::Open { stream, request } => self.offer(stream, request, events),
            Frame::Accept { stream } => {
                let state = self.stream(stream, Stage::Opening)?;
                state.stage = Stage::Open;
                events.push(StreamEvent::Accepted { stream });
                Ok(())
            }
            Frame::Refuse { stream, code, reason } => {
                self.stream(stream, Stage::Opening)?;
                self.streams.remove(&stream);
                let reason = reason.to_owned();
                events.push(StreamEvent::Refused { stream, code, reason });
                Ok(())
            }
            Frame::Message { stream, tag, bytes } => {
                let state = self.stream(stream, Stage::Open)?;
                let left = state.granted.checked_sub(cost(bytes.len()));
                state.granted = left.ok_or(FrameError::State { stream, why: "no credit" })?;
                if !state.is_closed_here && !state.has_left_here {
                    let bytes = bytes.to_vec();
                    events.push(StreamEvent::Message { stream, tag, bytes });
                }
                Ok(())
            }
            Frame::Credit { stream, bytes } => {
                let state = self.stream(stream, Stage::Open)?;
                state.credit += bytes as usize;
                let is_valid = state.credit <= WINDOW;
                is_valid.then_some(()).ok_or(FrameError::State { stream, why: "too much credit" })
            }
            Frame::Leave { stream, code } => {
                let state = self.stream(stream, Stage::Open)?;
                if std::mem::replace(&mut state.has_left_there, true) {
                    return Err(FrameError::State { stream, why: "it was left twice" });
                }
                if !state.is_closed_here {
                    events.push(StreamEvent::Left { stream, code });
                }
                Ok(())
            }
            Frame::Close { stream, code } => {
                let state = self.stream(stream, Stage::Open)?;
                state.is_closed_there = true;
                if state.is_closed_here {
                    self.streams.remove(&stream);
                } else {
                    events.push(StreamEvent::Closed { stream, code });
                }
                Ok(())
            }
        }
    }

    fn take_hello(&mut self) -> Result<(), FrameError> {
        if std::mem::replace(&mut self.has_hello, true) {
            return Err(FrameError::State { stream: 0, why: "a second hello" });
        }
        Ok(())
    }

    /// Takes a stream that the other end opens.
    fn offer(
        &mut self,
        stream: u32,
        request: &[u8],
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), FrameError> {
        let is_odd = stream % 2 == 1;
        if is_odd == (self.side == Side::Connecting) {
            return Err(FrameError::State { stream, why: "a number of this end" });
        }
        if self.streams.contains_key(&stream) {
            return Err(FrameError::State { stream, why: "opened twice" });
        }
        if self.streams.len() >= MAX_STREAMS {
            let reason = "it has the largest number of connections with this node";
            self.outgoing.put(&Frame::Refuse { stream, code: REFUSED_BY_LIMIT, reason });
            return Ok(());
        }
        self.streams.insert(stream, Stream::new(Stage::Offered));
        events.push(StreamEvent::Opened { stream, request: request.to_vec() });
        Ok(())
    }

    /// Returns the stream of a frame, which must be in this stage and not closed by the other end.
    fn stream(&mut self, stream: u32, stage: Stage) -> Result<&mut Stream, FrameError> {
        let wrong = |why| FrameError::State { stream, why };
        let state = self.streams.get_mut(&stream).ok_or(wrong("it does not exist"))?;
        if state.stage != stage {
            return Err(wrong("it is in another stage"));
        }
        if state.is_closed_there {
            return Err(wrong("it was closed"));
        }
        Ok(state)
    }
}
