//! Buffers that stay where they are.

use goal::schedule::{BlockRecord, Kind, ScheduleView};
use std::fmt::Debug;
use std::ops::Range;

/// A buffer in memory that is not the interpreter's, such as memory shared with another process:
/// messages leave from it and arrive in it without being copied to the interpreter and back. See
/// [`Interpreter::lend`](crate::Interpreter::lend).
pub trait ExternalBuffer: Debug + Send {
    /// Its bytes.
    fn length(&self) -> u64;

    /// Appends a range of it, which lies inside.
    fn read(&self, range: Range<u64>, into: &mut Vec<u8>);

    /// Writes bytes from a place on; they fit in.
    fn write(&mut self, at: u64, bytes: &[u8]);
}

/// Buffers that are lent to a run, by number.
pub(crate) type Lent = Vec<(usize, Box<dyn ExternalBuffer>)>;

/// Which of a schedule's buffers can be lent: those on which nothing is computed.
pub(crate) fn lendable(view: &ScheduleView<'_>) -> Vec<bool> {
    let mut lendable = vec![true; view.buffers().len()];
    let mut refuse = |blocks: &[BlockRecord]| {
        for block in blocks {
            if let Some(buffer) = lendable.get_mut(block.memory as usize) {
                *buffer = false;
            }
        }
    };
    for record in view.operations() {
        match record.kind() {
            Kind::Local => {
                [view.left(record), view.right(record), view.destination(record)].map(&mut refuse)
            }
            Kind::Copy => [view.left(record), view.destination(record), &[]].map(&mut refuse),
            Kind::Send | Kind::Receive | Kind::Timestamp | Kind::Calc | Kind::Join => continue,
        };
    }
    lendable
}
