//! Errors, grouped by their cause: the program, the transport, or the caller.

use goal::arithmetic::{Arithmetic, DataType};

/// An error in the program: the run completed with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Integer division by zero. Every operation was executed; such a division results in 0.
    #[error(
        "rank {rank}, vertex {vertex}: element {element} of `{operation}` on {data_type} was \
         divided by zero; make the divisor nonzero or compute on f32 or f64"
    )]
    DivisionByZero {
        /// The rank that executed the operation.
        rank: u32,
        /// The operation's place in the rank's vertex order.
        vertex: u32,
        /// The arithmetic operation.
        operation: Arithmetic,
        /// The type of its elements.
        data_type: DataType,
        /// The first element concerned.
        element: u64,
    },
    /// A message and its receive differ in length. No operation was executed afterwards.
    #[error(
        "rank {source_rank} sends {sent} bytes to rank {rank} (message {ordinal} with tag {tag}), \
         but rank {rank}, vertex {vertex}, receives {expected}; make both lengths equal"
    )]
    SizesDiffer {
        /// The sender.
        source_rank: u32,
        /// The message's tag.
        tag: u32,
        /// The message's number, from 0, among the sender's messages to this rank and tag, in its
        /// vertex order.
        ordinal: u32,
        /// Bytes the sender sends.
        sent: u64,
        /// The receiver.
        rank: u32,
        /// The receive's place in the receiver's vertex order.
        vertex: u32,
        /// Bytes the receiver expects.
        expected: u64,
    },
}

/// An invalid event, caused by the owner, its transport or another rank. The event was refused and
/// the state of the run is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The run has completed, so the event cannot belong to it.
    #[error(
        "rank {rank}: the run is over, so the event belongs to another run; \
         reset the interpreter before the next"
    )]
    Over {
        /// This rank.
        rank: u32,
    },
    /// A packet from a rank outside the schedule.
    #[error(
        "a packet from rank {source_rank} arrived, but the schedule is for {ranks} ranks, \
         counted from 0"
    )]
    UnknownSource {
        /// The source named by the packet.
        source_rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// A message without a matching receive in the schedule.
    #[error(
        "rank {rank} has no receive for message {ordinal} from rank {source_rank} with tag {tag}; \
         check the ranks' graphs together to find the send that has no receive"
    )]
    NoReceive {
        /// This rank.
        rank: u32,
        /// The sender.
        source_rank: u32,
        /// The message's tag.
        tag: u32,
        /// The message's number.
        ordinal: u32,
    },
    /// A message that has already arrived.
    #[error(
        "message {ordinal} from rank {source_rank} with tag {tag} arrived twice; \
         deliver every packet once"
    )]
    Duplicate {
        /// The sender.
        source_rank: u32,
        /// The message's tag.
        tag: u32,
        /// The message's number.
        ordinal: u32,
    },
    /// A handle that names no operation in the state the event requires.
    #[error(
        "rank {rank}: operation {operation} is not {expected}, so the event cannot be about it"
    )]
    UnknownHandle {
        /// This rank.
        rank: u32,
        /// The handle.
        operation: u32,
        /// The state the operation should be in.
        expected: &'static str,
    },
    /// A request or payload from a rank other than the operation's peer.
    #[error(
        "rank {rank}: operation {operation} exchanges bytes with rank {expected}, \
         not with rank {found}"
    )]
    WrongPeer {
        /// This rank.
        rank: u32,
        /// The handle.
        operation: u32,
        /// The operation's peer.
        expected: u32,
        /// Source of the packet.
        found: u32,
    },
    /// A payload, or result of a join, of an unexpected length.
    #[error(
        "rank {rank}: {found} bytes arrived for operation {operation}, which waits for {expected}"
    )]
    Length {
        /// This rank.
        rank: u32,
        /// The handle.
        operation: u32,
        /// Bytes expected.
        expected: u64,
        /// Bytes that arrived.
        found: u64,
    },
}

/// Error of starting a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The interpreter already has a run.
    #[error("a run was started before; reset the interpreter first")]
    Started,
    /// The number of buffers differs from the schedule's declaration.
    #[error("the schedule declares {expected} buffers, {found} were passed")]
    BufferCount {
        /// As declared.
        expected: usize,
        /// As passed.
        found: usize,
    },
    /// The length of a buffer differs from the schedule's declaration.
    #[error("buffer {buffer} was declared with {expected} bytes, {found} were passed")]
    BufferLength {
        /// Number of the buffer, from 0.
        buffer: usize,
        /// As declared.
        expected: u64,
        /// As passed.
        found: u64,
    },
    /// There is no such buffer to be used in place.
    #[error("buffer {buffer} cannot be used in place: the schedule has no such buffer")]
    NotBorrowable {
        /// Number of the buffer, from 0.
        buffer: usize,
    },
}

/// Error of creating an interpreter for a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleRefused {
    /// The scratchpad does not fit into memory.
    #[error("the schedule's scratchpad of {bytes} bytes does not fit into memory")]
    Scratchpad {
        /// Length of the scratchpad.
        bytes: u64,
    },
}
