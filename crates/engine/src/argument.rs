//! The buffers that a run is started with.

use crate::error::{Error, Outcome};
use shm::segment::Offset;

/// Where a user buffer of a run lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// In private memory of its owner.
    Private,
    /// In the segment, at this place.
    Segment(Offset),
}

/// A user buffer at the start of a run.
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a> {
    /// Where it lies.
    pub binding: Binding,
    /// Its bytes, where it is private and read.
    pub data: &'a [u8],
    /// Its length in bytes.
    pub length: u64,
}

impl<'a> Argument<'a> {
    /// A private buffer that the run reads (and may write).
    pub fn input(data: &'a [u8]) -> Self {
        Argument { binding: Binding::Private, data, length: data.len() as u64 }
    }

    /// A private buffer of this length that the run only writes.
    pub fn output(length: u64) -> Self {
        Argument { binding: Binding::Private, data: &[], length }
    }

    /// A buffer in the segment.
    pub fn segment(at: Offset, length: u64) -> Self {
        Argument { binding: Binding::Segment(at), data: &[], length }
    }
}

impl Argument<'_> {
    /// Whether it is what buffer number `buffer` needs: `expected` bytes, and the data where the
    /// run reads it.
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
