//! Buffers of a run.

use crate::error::{Error, Outcome};
use shm::segment::Offset;

/// Location of a user buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// In private memory of its owner.
    Private,
    /// In the segment, at this offset.
    Segment(Offset),
}

/// A user buffer at the start of a run.
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a> {
    /// Location.
    pub binding: Binding,
    /// The bytes, if the buffer is private and read.
    pub data: &'a [u8],
    /// Length in bytes.
    pub length: u64,
}

impl<'a> Argument<'a> {
    /// Returns a private buffer that the run reads and may write.
    pub fn input(data: &'a [u8]) -> Self {
        Argument { binding: Binding::Private, data, length: data.len() as u64 }
    }

    /// Returns a private buffer of this length that the run only writes.
    pub fn output(length: u64) -> Self {
        Argument { binding: Binding::Private, data: &[], length }
    }

    /// Returns a buffer in the segment. An input is not changed while other ranks
    /// [read it](crate::InputReaders).
    pub fn segment(at: Offset, length: u64) -> Self {
        Argument { binding: Binding::Segment(at), data: &[], length }
    }
}

impl Argument<'_> {
    /// Checks that this is a valid buffer number `buffer`: `expected` bytes, present if the run
    /// reads them.
    #[inline]
    pub(crate) fn check(&self, buffer: usize, expected: u64, read: bool) -> Outcome {
        let found = match self.binding {
            Binding::Private if read => self.data.len() as u64,
            _ => self.length,
        };
        if found == expected {
            Ok(())
        } else {
            Err(Error::BufferLength { buffer, expected, found }.into())
        }
    }
}
