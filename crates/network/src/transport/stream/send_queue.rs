//! The queue of one connection.
//!
//! Long payloads are sent in segments, and short frames pass between them. Otherwise a message of
//! many megabytes would delay everything behind it. Only ordered frames stay behind.
//!
//! A status byte follows each payload in the memory of a run, and begins the piece behind it. It
//! leaves in the same system call as the end of the payload, of which the system takes all bytes
//! before it takes the status. If it cannot read the payload (EFAULT), zeros complete the announced
//! length, and the status reports that they are not the message. The connection stays.

use super::Sink;
use super::connection_error::ConnectionError;
use crate::transport::frame::{
    Frame, HEADER_BYTES, Route, UNREADABLE, WHOLE, in_segments, segment_header,
};
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
/// Bytes in place of a payload that cannot be read.
static FILLER: [u8; 16 << 10] = [0; 16 << 10];

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
    /// A copy of such a payload.
    Detached(Arc<Vec<u8>>),
    /// Such a payload that cannot be read, by its length.
    Unreadable(usize),
}

impl Payload {
    fn length(&self) -> usize {
        match self {
            Payload::Bytes(bytes) | Payload::Detached(bytes) => bytes.len(),
            Payload::InPlace(_, length) | Payload::Unreadable(length) => *length,
        }
    }

    fn location(&self) -> Option<PayloadLocation> {
        match self {
            Payload::InPlace(location, _) => Some(*location),
            _ => None,
        }
    }

    /// The status byte that follows the payload.
    fn status(&self) -> Option<u8> {
        match self {
            Payload::Bytes(_) => None,
            Payload::InPlace(..) | Payload::Detached(_) => Some(WHOLE),
            Payload::Unreadable(_) => Some(UNREADABLE),
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
        let header = Frame::in_place(route, packet, length as u64);
        self.push_message(header, Payload::InPlace(location, length));
        !std::mem::replace(&mut self.is_changed, true)
    }

    /// Appends a frame. A long one waits behind the pieces.
    fn push_message(&mut self, header: [u8; HEADER_BYTES], payload: Payload) {
        let length = payload.length();
        self.bytes += (HEADER_BYTES + length + usize::from(payload.status().is_some())) as u64;
        if length <= SEGMENT {
            return self.append(&header, payload, 0..length);
        }
        self.bytes += (length.div_ceil(SEGMENT) * HEADER_BYTES) as u64;
        // Segments do not name their frame, so there is one frame in segments at a time: each
        // waits behind the one before.
        self.behind.push_back(Behind::Whole(in_segments(header), Vec::new()));
        self.behind.push_back(Behind::Long(payload, 0));
    }

    /// Appends a header and a part of a payload to the pieces, with the status behind its end.
    fn append(&mut self, header: &[u8], payload: Payload, part: Range<usize>) {
        match &payload {
            Payload::Bytes(bytes) if part.len() <= COPIED => {
                self.append_copied(header, &bytes[part]);
            }
            _ => {
                let status = payload.status().filter(|_| part.end == payload.length());
                self.append_copied(header, &[]);
                self.pieces.push_back(Piece::Part(payload, part));
                // The first byte of a new piece, where `replace` finds it.
                if let Some(status) = status {
                    self.append_copied(&[status], &[]);
                }
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

    /// Replaces a payload in the memory of a run by a copy of all its bytes; by none if it cannot
    /// be read.
    pub(in crate::transport) fn detach(
        &mut self,
        location: PayloadLocation,
        bytes: Option<&Arc<Vec<u8>>>,
    ) {
        for payload in self.payloads().filter(|payload| payload.location() == Some(location)) {
            *payload = match bytes {
                Some(bytes) => Payload::Detached(Arc::clone(bytes)),
                None => Payload::Unreadable(payload.length()),
            };
        }
        let mut precedes_status = false;
        for piece in &mut self.pieces {
            match piece {
                Piece::Open(bytes) if precedes_status => bytes[0] = UNREADABLE,
                _ => {}
            }
            precedes_status = matches!(
                piece,
                Piece::Part(Payload::Unreadable(length), part) if part.end == *length
            );
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
                    let length = payload.length();
                    let end = length.min(start + SEGMENT);
                    let status = usize::from(end == length && payload.status().is_some());
                    let header = segment_header((end - start + status) as u64);
                    self.append(&header, payload.clone(), start..end);
                    if end < length {
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
                Err(error) => {
                    // The only memory of others in a call is that of the first payload in place.
                    let location =
                        self.pieces.iter_mut().find_map(|piece| piece.payload()?.location());
                    let (Errno::FAULT, Some(location)) = (error, location) else {
                        return Err(ConnectionError::System(error));
                    };
                    self.detach(location, None);
                    payloads.unreadable(location);
                }
            }
        }
        Ok(true)
    }

    /// Writes pieces from the front by one call, at most one of them in the memory of a run.
    fn write_pieces(&self, sink: &mut impl Sink, payloads: &dyn Payloads) -> Result<usize, Errno> {
        let mut slices = [IoSlice::new(&[]); GATHERED];
        let mut count = 0;
        let mut in_place = None;
        let mut start = self.sent;
        for piece in &self.pieces {
            if count == GATHERED {
                break;
            }
            let bytes = match piece {
                Piece::Open(bytes) => &bytes[start..],
                Piece::Part(Payload::Bytes(bytes) | Payload::Detached(bytes), part) => {
                    &bytes[part.start + start..part.end]
                }
                Piece::Part(Payload::Unreadable(_), part) => {
                    &FILLER[..FILLER.len().min(part.len() - start)]
                }
                Piece::Part(Payload::InPlace(location, _), part) => {
                    if in_place.is_some() {
                        break;
                    }
                    in_place = Some((*location, part.start + start..part.end, count));
                    start = 0;
                    continue;
                }
            };
            slices[count] = IoSlice::new(bytes);
            count += 1;
            // The rest of a payload that is not there comes before the next piece.
            if bytes.len() < piece.length() - start {
                break;
            }
            start = 0;
        }
        match in_place {
            Some((location, range, at)) => {
                let (head, tail) = slices[..count].split_at(at);
                sink.write_payload([head, tail], location, range, payloads)
            }
            None => sink.write(&slices[..count]),
        }
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
