//! Frames as a stream of bytes, over a socket or over the messages of libfabric.

pub(super) mod connection_error;
mod large_frame;
pub(super) mod receive_buffer;
pub(super) mod send_queue;
#[cfg(test)]
mod tests;

use super::payloads::{PayloadLocation, Payloads, send_slices};
use rustix::io::Errno;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// A place that takes the bytes of a queue, in order.
pub(super) trait Sink {
    /// Takes bytes from the start of the slices. Returns how many.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if there is no space.
    fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Errno>;

    /// Takes bytes of the first slices, of a range of a payload behind them, and perhaps of the
    /// second slices behind that. Returns how many.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Errno::FAULT`] if the payload cannot be read.
    fn write_payload(
        &mut self,
        around: [&[IoSlice<'_>]; 2],
        location: PayloadLocation,
        range: Range<usize>,
        payloads: &dyn Payloads,
    ) -> Result<usize, Errno>;
}

/// The bytes that arrive, in order.
pub(super) trait Source {
    /// Reads bytes. Returns how many; 0 at the end.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if nothing has arrived.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Errno>;

    /// Reads at most `most` bytes of a payload, from its byte `at` on; `None` if its run has ended.
    fn read_payload(
        &mut self,
        location: PayloadLocation,
        at: usize,
        most: usize,
        payloads: &mut dyn Payloads,
    ) -> Option<Result<usize, Errno>>;
}

/// Longest rest of a payload that is sent in parts, and the length of these. The receiver copies a
/// part while the sender copies the next one; where more messages follow, whole ones take fewer
/// calls.
const IN_PARTS: usize = 128 << 10;
const PART: usize = 32 << 10;
/// Bytes that follow the last payload of a queue.
const STATUS_BYTES: usize = 1;

/// Returns how many bytes of a payload the next call sends.
fn part_of(bytes: usize) -> usize {
    if bytes <= IN_PARTS { bytes.min(PART) } else { bytes }
}

impl Sink for BorrowedFd<'_> {
    fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        send_slices(*self, slices)
    }

    fn write_payload(
        &mut self,
        [head, tail]: [&[IoSlice<'_>]; 2],
        location: PayloadLocation,
        range: Range<usize>,
        payloads: &dyn Payloads,
    ) -> Result<usize, Errno> {
        let is_last = tail.iter().map(|slice| slice.len()).sum::<usize>() <= STATUS_BYTES;
        let bytes = if is_last { part_of(range.len()) } else { range.len() };
        let part = range.start..range.start + bytes;
        // What follows the payload leaves with its end.
        let tail = if part.end < range.end { &[] } else { tail };
        payloads.send(location, part, [head, tail], *self)
    }
}

impl Source for BorrowedFd<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(*self, into)
    }

    fn read_payload(
        &mut self,
        location: PayloadLocation,
        at: usize,
        most: usize,
        payloads: &mut dyn Payloads,
    ) -> Option<Result<usize, Errno>> {
        payloads.receive(location, at, most, *self)
    }
}
