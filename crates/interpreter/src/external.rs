//! Buffers outside the interpreter's own memory.

use goal::schedule::{Kind, ScheduleView};
use std::fmt::Debug;
use std::ops::Range;

/// A buffer outside the interpreter's own memory, such as a segment shared with another process.
///
/// Messages are sent from it and received into it without a copy through the interpreter. See
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

/// Returns, for every buffer of a schedule, whether a run can borrow it: the schedule must not
/// compute on it. Copies are possible.
pub(crate) fn borrowable_buffers(view: &ScheduleView<'_>) -> Vec<bool> {
    let mut borrowable = vec![true; view.buffers().len()];
    for record in view.operations().iter().filter(|record| record.kind() == Kind::Local) {
        let operands = [view.left(record), view.right(record), view.destination(record)];
        for block in operands.into_iter().flatten() {
            if let Some(buffer) = borrowable.get_mut(block.memory as usize) {
                *buffer = false;
            }
        }
    }
    borrowable
}
