//! What can go wrong, and in whose responsibility it lies.

use goal::arithmetic::{Arithmetic, DataType};

/// The program is wrong: the run completed with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// An integer was divided by zero. Every operation was executed, with 0 as the result of such a
    /// division.
    #[error(
        "rank {rank}, vertex {vertex}: element {element} of `{operation}` on {data_type} was divided by zero; \
         make the divisor nonzero or compute on f32 or f64"
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
    /// A message is not as long as its receive. Nothing was executed after that was found.
    #[error(
        "rank {source_rank} sends {sent} bytes to rank {rank} (message {ordinal} with tag {tag}), but rank {rank}, \
         vertex {vertex}, receives {expected}; make both lengths equal"
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

/// The owner, its transport or another rank is wrong: the event was refused and the run's state is
/// as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The run has completed; what arrives afterwards cannot belong to it.
    #[error(
        "rank {rank}: the run is over, so the event belongs to another run; reset the interpreter before the next"
    )]
    Over {
        /// This rank.
        rank: u32,
    },
    /// A packet from a rank that takes no part.
    #[error(
        "a packet from rank {source_rank} arrived, but the schedule is for {ranks} ranks, counted from 0"
    )]
    UnknownSource {
        /// Where it is said to come from.
        source_rank: u32,
        /// How many ranks there are.
        ranks: u32,
    },
    /// A message for which the schedule has no receive left.
    #[error(
        "rank {rank} has no receive for message {ordinal} from rank {source_rank} with tag {tag}; check the ranks' \
         graphs together to find the send that has no receive"
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
    /// A message that has arrived before.
    #[error(
        "message {ordinal} from rank {source_rank} with tag {tag} arrived twice; deliver every packet once"
    )]
    Duplicate {
        /// The sender.
        source_rank: u32,
        /// The message's tag.
        tag: u32,
        /// The message's number.
        ordinal: u32,
    },
    /// A handle that names no operation in the state the event is about.
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
    /// A request or payload from a rank that the operation has nothing to do with.
    #[error(
        "rank {rank}: operation {operation} exchanges bytes with rank {expected}, not with rank {found}"
    )]
    WrongPeer {
        /// This rank.
        rank: u32,
        /// The handle.
        operation: u32,
        /// The operation's peer.
        expected: u32,
        /// Where the packet came from.
        found: u32,
    },
    /// A payload or a join's result of another length than was announced or follows from the mode.
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

/// Why a run cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The interpreter holds a run already.
    #[error("a run was started before; reset the interpreter first")]
    Started,
    /// Not as many buffers as the schedule declares.
    #[error("the schedule declares {expected} buffers, {found} were given")]
    BufferCount {
        /// As declared.
        expected: usize,
        /// As given.
        found: usize,
    },
    /// A buffer of another length than the schedule declares.
    #[error("buffer {buffer} was declared with {expected} bytes, {found} were given")]
    BufferLength {
        /// Which one, from 0.
        buffer: usize,
        /// As declared.
        expected: u64,
        /// As given.
        found: u64,
    },
    /// A buffer that was lent cannot be.
    #[error(
        "buffer {buffer} cannot be lent: the schedule has none of this number, or computes on it"
    )]
    NotLendable {
        /// Which one, from 0.
        buffer: usize,
    },
}

/// Why a schedule cannot be interpreted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleRefused {
    /// Its scratchpad does not fit into memory.
    #[error("the schedule's scratchpad of {bytes} bytes does not fit into memory")]
    Scratchpad {
        /// Its length.
        bytes: u64,
    },
}
