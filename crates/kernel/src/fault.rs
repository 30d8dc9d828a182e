//! What goes wrong in a run.

use crate::layout::{FAULT_DIVISION, FAULT_SIZES, FAULT_STAMPS, Run};
use network::backend::CommunicatorContext;
use network::error::Error;

/// What went wrong in a run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An integer was divided by zero. The results are there nevertheless.
    Division {
        /// The operation's place in vertex order.
        vertex: u32,
        /// The first element concerned.
        element: u64,
    },
    /// A message is not as long as its receive.
    Sizes {
        /// The receive's place in vertex order.
        vertex: u32,
        /// The sender, by its rank of the communicator.
        source: u32,
        /// The message's tag.
        tag: u32,
        /// Its number among the sender's messages of this tag.
        ordinal: u32,
        /// Bytes that the sender sends.
        sent: u64,
        /// Bytes that the receive expects.
        expected: u64,
    },
    /// Another rank called something else.
    Stamps {
        /// It, by its rank of the communicator.
        source: u32,
        /// Its stamp.
        theirs: u32,
        /// That of this rank.
        ours: u32,
    },
}

impl Fault {
    /// What the program says about a run.
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
            FAULT_STAMPS => Some(Fault::Stamps {
                source: run.fault_source,
                theirs: run.fault_sent as u32,
                ours: run.fault_expected as u32,
            }),
            _ => None,
        }
    }

    /// The same for callers.
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
            Fault::Stamps { source, theirs, ours } => {
                let rank = context.members.get(source as usize).copied().unwrap_or(source);
                Error::Mismatch { sequence, ours, rank, theirs }
            }
        }
    }
}
