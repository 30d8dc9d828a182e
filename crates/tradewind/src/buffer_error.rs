//! Errors of buffers and lists of counts that do not fit their collective.

use engine::signature::CallKind;
use std::fmt;

/// A buffer, or a list of counts, that does not fit its collective on this rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{call}: {what} {found}, it must {expected}; {rule}")]
pub struct BufferError {
    /// Name of the collective.
    pub call: &'static str,
    /// The buffer or list.
    pub what: &'static str,
    /// Its length, or that it is in place, as the rest of a sentence.
    pub found: String,
    /// Its required length or form.
    pub expected: String,
    /// The rule of the collective for its buffers.
    pub rule: &'static str,
}

impl BufferError {
    /// An error of a buffer or list `what` of a collective.
    pub(crate) fn new(kind: CallKind, what: &'static str, found: String, expected: String) -> Self {
        BufferError { call: kind.name(), what, found, expected, rule: rule(kind) }
    }
}

/// A number of bytes of elements of so many bytes each, as text.
pub(crate) struct Elements {
    pub(crate) bytes: u64,
    pub(crate) each: usize,
}

impl fmt::Display for Elements {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Elements { bytes, each } = *self;
        match bytes.checked_div(each as u64) {
            Some(1) => formatter.write_str("1 element"),
            Some(count) => write!(formatter, "{count} elements"),
            // Of elements without bytes there is any number.
            None => write!(formatter, "{bytes} bytes"),
        }
    }
}

/// The rule of a collective for its buffers, as an order to the caller.
fn rule(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Bcast => "pass a buffer of the same length on every rank",
        CallKind::Reduce => "pass an input and, at the root, an output of the same length",
        CallKind::Allreduce | CallKind::Scan | CallKind::Exscan => {
            "pass an input and an output of the same length"
        }
        CallKind::Alltoall => "pass n elements for each rank in the input and in the output",
        CallKind::Allgather => "pass n elements as the input and n for each rank as the output",
        CallKind::Gather => {
            "pass n elements as the input and, at the root, n for each rank as the output"
        }
        CallKind::Scatter => {
            "pass n elements as the output and, at the root, n for each rank as the input"
        }
        CallKind::ReduceScatterBlock => {
            "pass n elements for each rank as the input and n as the output"
        }
        CallKind::ReduceScatter => {
            "pass one count for each rank, an input of all of them together, and an output of the \
             count of this rank"
        }
        CallKind::Allgatherv => {
            "pass one count for each rank, an input of the count of this rank, and an output of all \
             of them together"
        }
        CallKind::Gatherv => {
            "pass at the root one count for each rank and an output of all of them together"
        }
        CallKind::Scatterv => {
            "pass at the root one count for each rank and an input of all of them together"
        }
        CallKind::Alltoallv => {
            "pass one count for each rank for both buffers, each as long as its counts together"
        }
        CallKind::NeighborAllgather => {
            "pass n elements as the input and n for each source as the output, neither in place"
        }
        CallKind::NeighborAlltoall => {
            "pass n elements for each destination as the input and n for each source as the output, \
             neither in place"
        }
        CallKind::NeighborAllgatherv | CallKind::NeighborAlltoallv => {
            "pass one count for each block, and buffers as long as their counts together, neither \
             in place"
        }
        _ => "pass the buffers that the call describes",
    }
}
