//! Input (events) and output (effects) of an interpreter.

use crate::error::Failure;
use goal::graph::JoinMode;

/// An operation of one rank's schedule: the index of its record.
///
/// Packets carry it to the other rank and back as a plain number. An interpreter validates every
/// handle it receives and refuses invalid ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// A message of the protocol between two ranks' interpreters. Packets of a run may be delivered in
/// any order, each exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A message with its payload (eager protocol).
    Eager {
        /// The message's tag.
        tag: u32,
        /// The k of the matching rule: the message's number among the sender's messages to this
        /// receiver and tag.
        ordinal: u32,
        /// The bytes.
        payload: Vec<u8>,
    },
    /// The envelope of a message. Its payload stays in the sender's buffer until
    /// [`ClearToSend`](Self::ClearToSend) arrives (rendezvous protocol).
    RequestToSend {
        /// The message's tag.
        tag: u32,
        /// The k of the matching rule: the message's number among the sender's messages to this
        /// receiver and tag.
        ordinal: u32,
        /// Length of the payload in bytes.
        bytes: u64,
        /// The sender's operation.
        send: Handle,
    },
    /// Permission to send the payload of a [`RequestToSend`](Self::RequestToSend).
    ClearToSend {
        /// The sender's operation, copied from [`RequestToSend`](Self::RequestToSend).
        send: Handle,
        /// The receiver's operation.
        receive: Handle,
    },
    /// The payload that answers a [`ClearToSend`](Self::ClearToSend) or an
    /// [`Effect::LoadUnexpected`].
    Data {
        /// The receiver's operation, copied from the request.
        receive: Handle,
        /// The bytes.
        payload: Vec<u8>,
    },
}

/// An input to the interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet arrived.
    Packet {
        /// The sending rank.
        source: u32,
        /// The packet.
        packet: Packet,
    },
    /// The computation of an [`Effect::Calc`] has finished.
    CalcFinished {
        /// The operation of that effect.
        operation: Handle,
    },
    /// The join that [`Effect::Join`] entered has completed.
    JoinFinished {
        /// The operation of that effect.
        operation: Handle,
        /// This rank's result; see [`goal::join::combine`].
        result: Vec<u8>,
        /// The first element of the reduction that was divided by zero, if any.
        divided_by_zero: Option<u64>,
    },
    /// The payload of an [`Effect::TransmitInPlace`] has been sent or copied.
    Sent {
        /// The operation of that effect.
        send: Handle,
    },
    /// The payload of a message lies in its place, which
    /// [`Interpreter::admit`](crate::Interpreter::admit) had assigned.
    Received {
        /// The operation that `admit` returned.
        receive: Handle,
    },
}

/// An action for the owner of the interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Deliver a packet to a rank, possibly this one.
    Transmit {
        /// The destination rank.
        peer: u32,
        /// The packet.
        packet: Packet,
    },
    /// Deliver a message from the memory of this run, then report [`Event::Sent`]. The payload is
    /// that of [`Interpreter::outgoing`](crate::Interpreter::outgoing) until then.
    TransmitInPlace {
        /// The destination rank.
        peer: u32,
        /// A [`Packet::Eager`] or [`Packet::Data`] with an empty payload.
        packet: Packet,
        /// The operation to name in [`Event::Sent`].
        send: Handle,
        /// Length of the payload in bytes.
        bytes: u64,
    },
    /// Store the payload of an unexpected message that exceeds the interpreter's limits.
    StoreUnexpected {
        /// The sender.
        source: u32,
        /// The message's tag.
        tag: u32,
        /// The message's number among those from this sender with this tag.
        ordinal: u32,
        /// The bytes to store.
        payload: Vec<u8>,
    },
    /// Return the payload of an earlier [`Effect::StoreUnexpected`] as a [`Packet::Data`] from
    /// `source`.
    LoadUnexpected {
        /// The sender.
        source: u32,
        /// The message's tag.
        tag: u32,
        /// The message's number among those from this sender with this tag.
        ordinal: u32,
        /// The receive that waits for the payload.
        receive: Handle,
    },
    /// Compute for this long, then report [`Event::CalcFinished`]. The owner keeps computations
    /// with the same `cpu` from overlapping.
    Calc {
        /// The operation to name in [`Event::CalcFinished`].
        operation: Handle,
        /// Length in nanoseconds.
        nanoseconds: u64,
        /// Computations of a rank with the same number do not overlap in time.
        cpu: u8,
    },
    /// Enter a join, then report [`Event::JoinFinished`] when it completes.
    Join {
        /// The operation to name in [`Event::JoinFinished`].
        operation: Handle,
        /// Number of the join among this rank's joins, in vertex order. Equal on all ranks.
        ordinal: u32,
        /// Rule that combines the contributions.
        mode: JoinMode,
        /// This rank's bytes.
        contribution: Vec<u8>,
    },
    /// The run has ended; no effect follows. The buffers hold all results, also after a division by
    /// zero.
    Completed(Result<(), Failure>),
}
