//! The queue of one connection.
//!
//! Long payloads are sent in segments, and short frames pass between them. Otherwise a message of
//! many megabytes would delay everything behind it. Only ordered frames stay behind.

use super::Sink;
use super::connection_error::ConnectionError;
use crate::transport::frame::{Frame, HEADER_BYTES, Route, in_segments, segment_header};
use crate::transport::payloads::{PayloadLocation, Payloads};
use interpreter::Packet;
use rustix::io::Errno;
use std::collections::{HashSet, VecDeque};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Payloads up to this size are copied behind their headers, so that many frames form one piece.
const COPIED: usize = 4096;
/// Pieces grow to about this size.
const PIECE: usize = 64 << 10;
/// Number of pieces in one system call.
const GATHERED: usize = 16;
/// Longer payloads are sent in segments of this length.
const SEGMENT: usize = 256 << 10;

/// A queue of bytes, in pieces.
#[derive(Debug, Default)]
pub(in crate::transport) struct SendQueue {
    pieces: VecDeque<Piece>,
    /// Number of bytes of the first piece that have been sent.
    sent: usize,
    /// Frames that follow the pieces, a segment at a time.
    behind: VecDeque<Behind>,
    /// Number of bytes that have not been sent, of pieces and of the frames behind them.
    bytes: u64,
    /// Number of bytes that have been sent in parts of pieces.
    transferred: u64,
    /// Memory of a piece that has been sent, for reuse.
    spare: Vec<u8>,
    /// True if something was appended since the last write.
    is_changed: bool,
}

/// A payload of its own piece.
#[derive(Clone, Debug)]
enum Payload {
    Bytes(Arc<Vec<u8>>),
    /// A payload in the memory of a run, and its length.
    InPlace(PayloadLocation, usize),
}

impl Payload {
    fn length(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::InPlace(_, length) => *length,
        }
    }

    fn location(&self) -> Option<PayloadLocation> {
        match self {
            Payload::Bytes(_) => None,
            Payload::InPlace(location, _) => Some(*location),
        }
    }
}

#[derive(Debug)]
enum Piece {
    /// Headers and short payloads, to which more may be appended.
    Open(Vec<u8>),
    /// A payload, or a part of it.
    Part(Payload, Range<usize>),
}

impl Piece {
    fn length(&self) -> usize {
        match self {
            Piece::Open(bytes) => bytes.len(),
            Piece::Part(_, range) => range.len(),
        }
    }

    fn payload(&mut self) -> Option<&mut Payload> {
        match self {
            Piece::Open(_) => None,
            Piece::Part(payload, _) => Some(payload),
        }
    }
}

#[derive(Debug)]
enum Behind {
    /// A long payload, and the number of its bytes that are among the pieces.
    Long(Payload, usize),
    /// A frame that must not overtake it.
    Whole([u8; HEADER_BYTES], Vec<u8>),
}

impl Behind {
    fn payload(&mut self) -> Option<&mut Payload> {
        match self {
            Behind::Long(payload, _) => Some(payload),
            Behind::Whole(..) => None,
        }
    }
}

impl SendQueue {
    /// Number of bytes that have not been sent.
    pub(in crate::transport) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of bytes of long messages that have been sent.
    pub(in crate::transport) fn transferred(&self) -> u64 {
        self.transferred
    }

    /// Appends a frame; true if it is the first since the last write.
    pub(in crate::transport) fn push(&mut self, frame: Frame) -> bool {
        let is_ordered = frame.is_ordered();
        let (header, payload) = frame.encode();
        // Frames without an order may overtake a long payload: their receivers match them by route
        // and ordinal. Failures, exits and the shutdown must not.
        if payload.len() <= SEGMENT && is_ordered && !self.behind.is_empty() {
            self.bytes += (HEADER_BYTES + payload.len()) as u64;
            self.behind.push_back(Behind::Whole(header, payload));
        } else if payload.len() <= COPIED {
            self.bytes += (HEADER_BYTES + payload.len()) as u64;
            self.append_copied(&header, &payload);
        } else {
            self.push_message(header, Payload::Bytes(Arc::new(payload)));
        }
        !std::mem::replace(&mut self.is_changed, true)
    }

    /// Appends a message with a payload in the memory of a run; true if it is the first since the
    /// last write.
    pub(in crate::transport) fn push_in_place(
        &mut self,
        route: Route,
        packet: Packet,
        location: PayloadLocation,
        length: usize,
    ) -> bool {
        let header = Frame::header_of(route, packet, length as u64);
        self.push_message(header, Payload::InPlace(location, length));
        !std::mem::replace(&mut self.is_changed, true)
    }

    /// Appends a frame. A long one waits behind the pieces.
    fn push_message(&mut self, header: [u8; HEADER_BYTES], payload: Payload) {
        let length = payload.length();
        self.bytes += (HEADER_BYTES + length) as u64;
        if length <= SEGMENT {
            return self.append(&header, payload, 0..length);
        }
        self.bytes += (length.div_ceil(SEGMENT) * HEADER_BYTES) as u64;
        // Segments do not name their frame, so there is one frame in segments at a time: each
        // waits behind the one before.
        self.behind.push_back(Behind::Whole(in_segments(header), Vec::new()));
        self.behind.push_back(Behind::Long(payload, 0));
    }

    /// Appends a header and a part of a payload to the pieces.
    fn append(&mut self, header: &[u8], payload: Payload, part: Range<usize>) {
        match &payload {
            Payload::Bytes(bytes) if part.len() <= COPIED => {
                self.append_copied(header, &bytes[part]);
            }
            _ => {
                self.append_copied(header, &[]);
                self.pieces.push_back(Piece::Part(payload, part));
            }
        }
    }

    /// Appends copies of a header and a short payload.
    fn append_copied(&mut self, header: &[u8], payload: &[u8]) {
        if !matches!(self.pieces.back(), Some(Piece::Open(bytes)) if bytes.len() < PIECE) {
            self.pieces.push_back(Piece::Open(std::mem::take(&mut self.spare)));
        }
        if let Some(Piece::Open(last)) = self.pieces.back_mut() {
            last.extend_from_slice(header);
            last.extend_from_slice(payload);
        }
    }

    /// Replaces a payload in the memory of a run by a copy of all its bytes.
    pub(in crate::transport) fn detach(&mut self, location: PayloadLocation, bytes: &Arc<Vec<u8>>) {
        for payload in self.payloads().filter(|payload| payload.location() == Some(location)) {
            *payload = Payload::Bytes(Arc::clone(bytes));
        }
    }

    /// Locations of the payloads that have not been sent, each once.
    pub(in crate::transport) fn locations(&mut self) -> Vec<PayloadLocation> {
        // Shorter payloads lie between the parts of a long one.
        let mut listed = HashSet::new();
        let locations = self.payloads().filter_map(|payload| payload.location());
        locations.filter(|location| listed.insert(*location)).collect()
    }

    fn payloads(&mut self) -> impl Iterator<Item = &mut Payload> {
        let pieces = self.pieces.iter_mut().filter_map(Piece::payload);
        pieces.chain(self.behind.iter_mut().filter_map(Behind::payload))
    }

    /// Moves frames from behind the pieces to them, up to one segment.
    fn refill(&mut self) {
        while let Some(behind) = self.behind.pop_front() {
            match behind {
                Behind::Whole(header, payload) if payload.len() <= COPIED => {
                    self.append_copied(&header, &payload);
                }
                Behind::Whole(header, payload) => {
                    let length = payload.len();
                    self.append(&header, Payload::Bytes(Arc::new(payload)), 0..length);
                }
                Behind::Long(payload, start) => {
                    let end = payload.length().min(start + SEGMENT);
                    self.append(&segment_header((end - start) as u64), payload.clone(), start..end);
                    if end < payload.length() {
                        self.behind.push_front(Behind::Long(payload, end));
                    }
                    return;
                }
            }
        }
    }

    /// Writes as much as the system takes; true if that was everything.
    pub(in crate::transport) fn write(
        &mut self,
        sink: &mut impl Sink,
        payloads: &mut dyn Payloads,
    ) -> Result<bool, ConnectionError> {
        self.is_changed = false;
        while self.bytes > 0 {
            // One piece under way and one more keep the socket busy. Every further segment would
            // delay short frames that are sent meanwhile.
            if self.pieces.len() <= 2 {
                self.refill();
            }
            match self.write_pieces(sink, payloads) {
                Ok(written) => self.advance(written, payloads),
                Err(Errno::INTR) => {}
                // The buffer of the system is full. The queue keeps the rest, and the caller
                // watches for space.
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(ConnectionError::System(error)),
            }
        }
        Ok(true)
    }

    /// Writes pieces from the front by one call, up to the first payload in the memory of a run.
    fn write_pieces(&self, sink: &mut impl Sink, payloads: &dyn Payloads) -> Result<usize, Errno> {
        let mut slices = [IoSlice::new(&[]); GATHERED];
        let mut count = 0;
        let mut start = self.sent;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            let bytes = match piece {
                Piece::Open(bytes) => &bytes[start..],
                Piece::Part(Payload::Bytes(bytes), part) => &bytes[part.start + start..part.end],
                Piece::Part(Payload::InPlace(location, _), part) => {
                    let rest = part.start + start..part.end;
                    return sink.write_payload(&slices[..count], *location, rest, payloads);
                }
            };
            *slice = IoSlice::new(bytes);
            count += 1;
            start = 0;
        }
        sink.write(&slices[..count])
    }

    /// Removes bytes that have been sent from the front.
    fn advance(&mut self, mut written: usize, payloads: &mut dyn Payloads) {
        // The kernel takes bytes in order, so whole pieces from the front are done, and at most one
        // is partly sent.
        self.bytes -= written as u64;
        while let Some(first) = self.pieces.front() {
            let left = first.length() - self.sent;
            if written < left {
                self.sent += written;
                self.transferred = self.transferred.wrapping_add(written as u64);
                return;
            }
            written -= left;
            self.sent = 0;
            match self.pieces.pop_front() {
                Some(Piece::Open(mut bytes)) => {
                    bytes.clear();
                    self.spare = bytes;
                }
                Some(Piece::Part(Payload::InPlace(location, length), part))
                    if part.end == length =>
                {
                    payloads.sent(location);
                }
                _ => {}
            }
        }
    }
}
