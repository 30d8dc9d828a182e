//! What is to be sent over one connection.

use super::connection::Lost;
use crate::transport::frame::Frame;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

/// Payloads up to this size are copied behind their heads, so that many frames leave as one piece.
const COPIED: usize = 4096;
/// Pieces grow to about this size.
const PIECE: usize = 64 << 10;
/// Pieces handed over in one call.
const GATHERED: usize = 16;

/// A queue of bytes, in pieces.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that have left.
    sent: usize,
    /// Bytes that have not.
    bytes: u64,
    /// The memory of a piece that has left, to be used again.
    spare: Vec<u8>,
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    /// Whether more frames may be appended.
    is_open: bool,
}

impl Outgoing {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn push(&mut self, frame: Frame) {
        let (head, payload) = frame.encode();
        self.bytes += (head.len() + payload.len()) as u64;
        let is_open = self.pieces.back().is_some_and(|piece| piece.is_open && piece.bytes.len() < PIECE);
        if !is_open {
            let bytes = std::mem::take(&mut self.spare);
            self.pieces.push_back(Piece { bytes, is_open: true });
        }
        if let Some(last) = self.pieces.back_mut() {
            last.bytes.extend_from_slice(&head);
            if payload.len() <= COPIED {
                return last.bytes.extend_from_slice(&payload);
            }
        }
        self.pieces.push_back(Piece { bytes: payload, is_open: false });
    }

    /// Hands over what the system takes; whether that was all.
    pub(super) fn write(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Lost> {
        while self.bytes > 0 {
            let sent = self.sent;
            let starts = std::iter::once(sent).chain(std::iter::repeat(0));
            let mut slices = [IoSlice::new(&[]); GATHERED];
            let mut count = 0;
            for ((slice, piece), start) in slices.iter_mut().zip(&self.pieces).zip(starts) {
                *slice = IoSlice::new(&piece.bytes[start..]);
                count += 1;
            }
            let mut control = SendAncillaryBuffer::default();
            // NOSIGNAL: a peer that has gone is an error here and not a SIGPIPE.
            match sendmsg(socket, &slices[..count], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
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
            let left = first.bytes.len() - self.sent;
            if written < left {
                self.sent += written;
                return;
            }
            written -= left;
            self.sent = 0;
            if let Some(Piece { mut bytes, is_open: true }) = self.pieces.pop_front() {
                bytes.clear();
                self.spare = bytes;
            }
        }
    }
}
