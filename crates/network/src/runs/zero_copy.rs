//! Memory of a rank that a run uses in place of its buffers.
//!
//! Long messages are not copied to the engine and back. A rank that changes a borrowed buffer
//! during the run corrupts its own messages and nothing else.

use crate::transport::payloads::{SegmentRange, send_slices};
use interpreter::ExternalBuffer;
use rustix::io::Errno;
use shm::borrowed::BorrowedBytes;
use shm::segment::{Offset, Segment};
use shm::{readable, socket, word_copy};
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Bytes that fit a first-level cache.
const STRIDE: usize = 8 << 10;

/// A buffer that a run borrows.
#[derive(Clone, Debug)]
pub(crate) enum BorrowedMemory {
    /// Memory that the rank shares with its agent.
    Region(RegionBuffer),
    /// Memory of a call of the rank.
    Caller(BorrowedBytes),
}

/// A range of a rank's region. Keeps the memory mapped, also after the rank has exited.
#[derive(Clone, Debug)]
pub(crate) struct RegionBuffer {
    segment: Arc<Segment>,
    at: Offset,
    length: u64,
}

impl RegionBuffer {
    /// Borrows `length` bytes of a rank's region, which the caller has checked to lie inside it.
    pub(crate) fn new(segment: Arc<Segment>, at: Offset, length: u64) -> Self {
        RegionBuffer { segment, at, length }
    }

    fn place(&self, at: usize) -> Offset {
        Offset(self.at.0 + at as u64)
    }

    fn read(&self, range: Range<u64>, into: &mut Vec<u8>) {
        let mut piece = [0; STRIDE];
        let mut at = range.start;
        while at < range.end {
            let bytes = &mut piece[..STRIDE.min((range.end - at) as usize)];
            // The range lies inside the region, so this cannot fail.
            let read = word_copy::load(&self.segment, Offset(self.at.0 + at), bytes);
            debug_assert!(read.is_ok(), "{read:?}");
            into.extend_from_slice(bytes);
            at += bytes.len() as u64;
        }
    }
}

impl BorrowedMemory {
    /// Writes the first slices, a range of the buffer, then the second slices, to a socket by one
    /// call that does not block. The error is [`Errno::FAULT`] if the memory cannot be read.
    pub(super) fn send(
        &self,
        range: Range<usize>,
        [head, tail]: [&[IoSlice<'_>]; 2],
        socket: BorrowedFd<'_>,
    ) -> Result<usize, Errno> {
        match self {
            BorrowedMemory::Region(region) => {
                let at = region.place(range.start);
                let length = range.len() as u64;
                socket::send(socket, [head, tail], &region.segment, at, length).map_err(errno)
            }
            // A run ends before its buffers are revoked.
            BorrowedMemory::Caller(buffer) => buffer
                .with(|bytes| {
                    send_slices(socket, &[head, &[IoSlice::new(&bytes[range])], tail].concat())
                })
                .unwrap_or(Err(Errno::FAULT)),
        }
    }

    /// Reads at most `most` bytes from a socket into the buffer; `None` if it has been revoked. The
    /// error is [`Errno::FAULT`] if the rank has never committed its memory and the system has none
    /// for it.
    pub(super) fn receive(
        &mut self,
        at: usize,
        most: usize,
        socket: BorrowedFd<'_>,
    ) -> Option<Result<usize, Errno>> {
        match self {
            BorrowedMemory::Region(region) => {
                let at = region.place(at);
                Some(socket::receive(socket, &region.segment, at, most as u64).map_err(errno))
            }
            BorrowedMemory::Caller(buffer) => {
                buffer.with_mut(|bytes| rustix::io::read(socket, &mut bytes[at..at + most]))
            }
        }
    }

    /// Copies bytes of the buffer, from byte `at` on.
    ///
    /// # Errors
    /// [`Errno::FAULT`] if the memory cannot be read.
    pub(super) fn load(&self, at: usize, into: &mut [u8]) -> Result<(), Errno> {
        match self {
            BorrowedMemory::Region(region) => {
                let at = region.place(at);
                // A fault in the copy would end the node service with all ranks of the node.
                readable::check_segment(&region.segment, at, into.len() as u64)
                    .map_err(|_| Errno::FAULT)?;
                word_copy::load(&region.segment, at, into).map_err(|_| Errno::FAULT)
            }
            // As in `send`.
            BorrowedMemory::Caller(buffer) => buffer
                .with(|bytes| {
                    let bytes = &bytes[at..at + into.len()];
                    readable::check_slice(bytes).map_err(|_| Errno::FAULT)?;
                    into.copy_from_slice(bytes);
                    Ok(())
                })
                .unwrap_or(Err(Errno::FAULT)),
        }
    }

    /// A range of the buffer, if that is a part of a region.
    pub(super) fn range(&self, range: Range<u64>) -> Option<SegmentRange> {
        let BorrowedMemory::Region(region) = self else { return None };
        let segment = Arc::clone(&region.segment);
        let at = region.place(range.start as usize);
        Some(SegmentRange { segment, at, bytes: range.end - range.start })
    }

    /// Writes bytes.
    pub(super) fn store(&mut self, at: u64, bytes: &[u8]) {
        self.write(at, bytes);
    }
}

/// The number of an error of the system; that of a bad address if there is none, because the range
/// leaves the region.
fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::FAULT)
}

impl ExternalBuffer for BorrowedMemory {
    fn length(&self) -> u64 {
        match self {
            BorrowedMemory::Region(region) => region.length,
            BorrowedMemory::Caller(buffer) => buffer.len() as u64,
        }
    }

    fn read(&self, range: Range<u64>, into: &mut Vec<u8>) {
        match self {
            BorrowedMemory::Region(region) => region.read(range, into),
            BorrowedMemory::Caller(buffer) => {
                let range = range.start as usize..range.end as usize;
                let length = range.len();
                let read = buffer.with(|bytes| into.extend_from_slice(&bytes[range]));
                // A run is cancelled before its buffers are revoked, so this does not happen. The
                // interpreter relies on the length all the same.
                debug_assert!(read.is_some(), "the buffer is not revoked");
                if read.is_none() {
                    into.resize(into.len() + length, 0);
                }
            }
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        match self {
            BorrowedMemory::Region(region) => {
                let written = word_copy::store(&region.segment, Offset(region.at.0 + at), bytes);
                debug_assert!(written.is_ok(), "{written:?}");
            }
            BorrowedMemory::Caller(buffer) => {
                let at = at as usize;
                buffer.with_mut(|own| own[at..at + bytes.len()].copy_from_slice(bytes));
            }
        }
    }
}
