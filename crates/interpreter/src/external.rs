//! Buffers outside the interpreter's own memory, and places of payloads.

use std::fmt::Debug;
use std::ops::Range;

/// A buffer outside the interpreter's own memory, such as a segment shared with another process.
///
/// Operations use it without a copy of the whole buffer. See
/// [`Interpreter::borrow_buffer`](crate::Interpreter::borrow_buffer).
pub trait ExternalBuffer: Debug + Send {
    /// Returns the length in bytes.
    fn length(&self) -> u64;

    /// Appends the bytes of `range`, which lies within the buffer, to `into`.
    fn read(&self, range: Range<u64>, into: &mut Vec<u8>);

    /// Writes `bytes` at the offset `at`. The range written lies within the buffer.
    fn write(&mut self, at: u64, bytes: &[u8]);
}

/// The buffers a run borrows, each with its number.
pub(crate) type BorrowedBuffers = Vec<(usize, Box<dyn ExternalBuffer>)>;

/// Memory of a payload that is sent in place.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing<'a> {
    /// Memory of the interpreter.
    Own(&'a [u8]),
    /// A borrowed buffer, by number, and the range in it.
    Borrowed(usize, Range<u64>),
}

/// Memory of a payload that arrives in place.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// Memory of the interpreter.
    Own(&'a mut [u8]),
    /// A borrowed buffer, by number, and the range in it.
    Borrowed(usize, Range<u64>),
}
