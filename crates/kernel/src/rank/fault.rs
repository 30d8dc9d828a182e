//! Faults of runs.

use crate::memory::layout::{FAULT_DIVISION, FAULT_SIGNATURES, FAULT_SIZES, Run};
use network::backend::CommunicatorContext;
use network::error::Error;

/// Fault of a run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Division of an integer by zero. The other results are valid.
    Division {
        /// Index of the operation in vertex order.
        vertex: u32,
        /// First element concerned.
        element: u64,
    },
    /// Lengths of a message and its receive that differ.
    Sizes {
        /// Index of the receive in vertex order.
        vertex: u32,
        /// Sender, a rank of the communicator.
        source: u32,
        /// Tag of the message.
        tag: u32,
        /// Index of the message among the sender's messages with this tag.
        ordinal: u32,
        /// Size of the message in bytes.
        sent: u64,
        /// Size of the receive in bytes.
        expected: u64,
    },
    /// Signature of another rank's call that differs from this rank's.
    Signatures {
        /// The other rank, of the communicator.
        source: u32,
        /// Signature of the other rank.
        theirs: u32,
        /// Signature of this rank.
        ours: u32,
    },
}

impl Fault {
    /// Returns the fault in the program's record of a run.
    pub(crate) fn of(run: &Run) -> Option<Fault> {
        match run.fault {
            FAULT_DIVISION => {
                Some(Fault::Division { vertex: run.fault_vertex, element: run.fault_element })
            }
            FAULT_SIZES => Some(Fault::Sizes {
                vertex: run.fault_vertex,
                source: run.fault_source,
                tag: run.fault_tag,
                ordinal: run.fault_ordinal,
                sent: run.fault_sent,
                expected: run.fault_expected,
            }),
            FAULT_SIGNATURES => Some(Fault::Signatures {
                source: run.fault_source,
                theirs: run.fault_sent as u32,
                ours: run.fault_expected as u32,
            }),
            _ => None,
        }
    }

    /// Returns the error for the caller.
    pub(crate) fn error(self, context: &CommunicatorContext, sequence: u64) -> Error {
        let rank = context.rank;
        match self {
            Fault::Division { vertex, element } => Error::DivisionByZero {
                rank,
                vertex,
                why: format!(
                    "rank {rank}, vertex {vertex}: element {element} was divided by zero; make the divisor nonzero or \
                     compute on f32 or f64"
                ),
            },
            Fault::Sizes { vertex, source, tag, ordinal, sent, expected } => {
                Error::SizesDiffer(format!(
                    "rank {source} sends {sent} bytes to rank {rank} (message {ordinal} with tag {tag}), but rank {rank}, \
                 vertex {vertex}, receives {expected}; make both lengths equal"
                ))
            }
            Fault::Signatures { source, theirs, ours } => {
                let rank = context.members.get(source as usize).copied().unwrap_or(source);
                Error::Mismatch { sequence, ours, rank, theirs }
            }
        }
    }
}
