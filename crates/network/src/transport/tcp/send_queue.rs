//! The queue of one connection.
//!
//! Long payloads are sent in segments, and short frames pass between them. Otherwise a message of
//! many megabytes would delay everything behind it. Only ordered frames stay behind.

use super::connection_error::ConnectionError;
use crate::transport::frame::{Frame, HEADER_BYTES, in_segments, segment_header};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::BorrowedFd;
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
pub(super) struct SendQueue {
    pieces: VecDeque<Piece>,
    /// Number of bytes of the first piece that have been sent.
    sent: usize,
    /// Frames that follow the pieces, a segment at a time.
    behind: VecDeque<Behind>,
    /// Number of bytes that have not been sent, of pieces and of the frames behind them.
    bytes: u64,
    /// Memory of a piece that has been sent, for reuse.
    spare: Vec<u8>,
}

#[derive(Debug)]
enum Piece {
    /// Headers and short payloads, to which more may be appended.
    Open(Vec<u8>),
    Payload(Vec<u8>),
    Segment(Arc<Vec<u8>>, Range<usize>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Open(bytes) | Piece::Payload(bytes) => bytes,
            Piece::Segment(payload, range) => &payload[range.clone()],
        }
    }
}

#[derive(Debug)]
enum Behind {
    /// A long payload, and the number of its bytes that are among the pieces.
    Long(Arc<Vec<u8>>, usize),
    /// A frame that must not overtake it.
    Whole([u8; HEADER_BYTES], Vec<u8>),
}

impl SendQueue {
    /// Number of bytes that have not been sent.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn push(&mut self, frame: Frame) {
        let is_ordered = frame.is_ordered();
        let (header, payload) = frame.encode();
        self.bytes += (HEADER_BYTES + payload.len()) as u64;
        if payload.len() > SEGMENT {
            self.bytes += (payload.len().div_ceil(SEGMENT) * HEADER_BYTES) as u64;
            // Segments do not name their frame, so there is one frame in segments at a time: each
            // waits behind the one before.
            self.behind.push_back(Behind::Whole(in_segments(header), Vec::new()));
            self.behind.push_back(Behind::Long(Arc::new(payload), 0));
        // Frames without an order may overtake a long payload: their receivers match them by route
        // and ordinal. Failures, exits and the shutdown must not.
        } else if is_ordered && !self.behind.is_empty() {
            self.behind.push_back(Behind::Whole(header, payload));
        } else {
            self.append(&header, payload);
        }
    }

    /// Appends a frame, or a header alone, to the pieces.
    fn append(&mut self, header: &[u8], payload: Vec<u8>) {
        if !matches!(self.pieces.back(), Some(Piece::Open(bytes)) if bytes.len() < PIECE) {
            self.pieces.push_back(Piece::Open(std::mem::take(&mut self.spare)));
        }
        if let Some(Piece::Open(last)) = self.pieces.back_mut() {
            last.extend_from_slice(header);
            if payload.len() <= COPIED {
                return last.extend_from_slice(&payload);
            }
        }
        self.pieces.push_back(Piece::Payload(payload));
    }

    /// Moves frames from behind the pieces to them, up to one segment.
    fn refill(&mut self) {
        while let Some(behind) = self.behind.pop_front() {
            match behind {
                Behind::Whole(header, payload) => self.append(&header, payload),
                Behind::Long(payload, start) => {
                    let end = payload.len().min(start + SEGMENT);
                    self.append(&segment_header((end - start) as u64), Vec::new());
                    self.pieces.push_back(Piece::Segment(Arc::clone(&payload), start..end));
                    if end < payload.len() {
                        self.behind.push_front(Behind::Long(payload, end));
                    }
                    return;
                }
            }
        }
    }

    /// Writes as much as the system takes; true if that was everything.
    pub(super) fn write(&mut self, socket: BorrowedFd<'_>) -> Result<bool, ConnectionError> {
        while self.bytes > 0 {
            // One piece under way and one more keep the socket busy. Every further segment would
            // delay short frames that are sent meanwhile.
            if self.pieces.len() <= 2 {
                self.refill();
            }
            let sent = self.sent;
            let starts = std::iter::once(sent).chain(std::iter::repeat(0));
            let mut slices = [IoSlice::new(&[]); GATHERED];
            let mut count = 0;
            for ((slice, piece), start) in slices.iter_mut().zip(&self.pieces).zip(starts) {
                *slice = IoSlice::new(&piece.bytes()[start..]);
                count += 1;
            }
            let mut control = SendAncillaryBuffer::default();
            // NOSIGNAL: a connection that the peer has closed is an error here, not a SIGPIPE.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(socket, &slices[..count], &mut control, flags) {
                Ok(written) => self.advance(written),
                Err(Errno::INTR) => {}
                // The buffer of the socket is full. The queue keeps the rest, and the caller
                // watches for space.
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(ConnectionError::System(error)),
            }
        }
        Ok(true)
    }

    /// Removes bytes that have been sent from the front.
    fn advance(&mut self, mut written: usize) {
        // The kernel takes bytes in order, so whole pieces from the front are done, and at most one
        // is partly sent.
        self.bytes -= written as u64;
        while let Some(first) = self.pieces.front() {
            let left = first.bytes().len() - self.sent;
            if written < left {
                self.sent += written;
                return;
            }
            written -= left;
            self.sent = 0;
            if let Some(Piece::Open(mut bytes)) = self.pieces.pop_front() {
                bytes.clear();
                self.spare = bytes;
            }
        }
    }
}
