//! What is to be sent over one connection.
//!
//! Long payloads leave in segments, and what is short passes between these: else a message of many
//! megabytes would keep everything behind it waiting. Only frames that must not overtake stay
//! behind.

use super::connection::Lost;
use crate::transport::frame::{Frame, HEAD_BYTES, in_segments, segment_head};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Payloads up to this size are copied behind their heads, so that many frames leave as one piece.
const COPIED: usize = 4096;
/// Pieces grow to about this size.
const PIECE: usize = 64 << 10;
/// Pieces handed over in one call.
const GATHERED: usize = 16;
/// Longer payloads leave in segments of this length.
const SEGMENT: usize = 256 << 10;

/// A queue of bytes, in pieces.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that have left.
    sent: usize,
    /// What is put behind the pieces bit by bit.
    behind: VecDeque<Behind>,
    /// Bytes that have not left, of pieces and of what is behind them.
    bytes: u64,
    /// The memory of a piece that has left, to be used again.
    spare: Vec<u8>,
}

#[derive(Debug)]
enum Piece {
    /// Heads and short payloads, to which more may be appended.
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
    /// A long payload, and how much of it is among the pieces.
    Long(Arc<Vec<u8>>, usize),
    /// A frame that must not overtake it.
    Whole([u8; HEAD_BYTES], Vec<u8>),
}

impl Outgoing {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn push(&mut self, frame: Frame) {
        let keeps_its_place = frame.keeps_its_place();
        let (head, payload) = frame.encode();
        self.bytes += (HEAD_BYTES + payload.len()) as u64;
        if payload.len() > SEGMENT {
            self.bytes += (payload.len().div_ceil(SEGMENT) * HEAD_BYTES) as u64;
            // One at a time: its segments say nothing about where they belong.
            self.behind.push_back(Behind::Whole(in_segments(head), Vec::new()));
            self.behind.push_back(Behind::Long(Arc::new(payload), 0));
        } else if keeps_its_place && !self.behind.is_empty() {
            self.behind.push_back(Behind::Whole(head, payload));
        } else {
            self.append(&head, payload);
        }
    }

    /// Puts a frame, or a head alone, among the pieces.
    fn append(&mut self, head: &[u8], payload: Vec<u8>) {
        if !matches!(self.pieces.back(), Some(Piece::Open(bytes)) if bytes.len() < PIECE) {
            self.pieces.push_back(Piece::Open(std::mem::take(&mut self.spare)));
        }
        if let Some(Piece::Open(last)) = self.pieces.back_mut() {
            last.extend_from_slice(head);
            if payload.len() <= COPIED {
                return last.extend_from_slice(&payload);
            }
        }
        self.pieces.push_back(Piece::Payload(payload));
    }

    /// Puts something among the pieces that was behind them, a segment at most.
    fn refill(&mut self) {
        while let Some(behind) = self.behind.pop_front() {
            match behind {
                Behind::Whole(head, payload) => self.append(&head, payload),
                Behind::Long(payload, start) => {
                    let end = payload.len().min(start + SEGMENT);
                    self.append(&segment_head((end - start) as u64), Vec::new());
                    self.pieces.push_back(Piece::Segment(Arc::clone(&payload), start..end));
                    if end < payload.len() {
                        self.behind.push_front(Behind::Long(payload, end));
                    }
                    return;
                }
            }
        }
    }

    /// Hands over what the system takes; whether that was all.
    pub(super) fn write(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Lost> {
        while self.bytes > 0 {
            // The one under way and one more, so that the system has enough to do; what comes
            // meanwhile waits for no others.
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
            // NOSIGNAL: a peer that has gone is an error here and not a SIGPIPE.
            match sendmsg(
                socket,
                &slices[..count],
                &mut control,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(written) => self.advance(written),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(Lost::System(error)),
            }
        }
        Ok(true)
    }

    /// Takes so many bytes off the front.
    fn advance(&mut self, mut written: usize) {
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
