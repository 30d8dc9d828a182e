//! What goes into an interpreter and what comes out of it.

use crate::error::Failure;
use goal::graph::JoinMode;

/// An operation of one rank's schedule: the index of its record.
///
/// Packets carry it to the other rank and back, so it may travel as a plain number. A handle that
/// means nothing to the interpreter it is handed to is refused, never trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// What one rank's interpreter says to another's. Packets of a run may be delivered in any order,
/// each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A message with its payload.
    Eager {
        /// The message's tag.
        tag: u32,
        /// The k of the matching rule: its number among the sender's messages to this receiver and
        /// tag.
        ordinal: u32,
        /// The bytes.
        payload: Vec<u8>,
    },
    /// A message whose payload stays with the sender until it is requested.
    Announce {
        /// The message's tag.
        tag: u32,
        /// The k of the matching rule: its number among the sender's messages to this receiver and
        /// tag.
        ordinal: u32,
        /// Length of the payload in bytes.
        bytes: u64,
        /// The sender's operation.
        send: Handle,
    },
    /// The go-ahead for an announced message.
    Request {
        /// The sender's operation, as announced.
        send: Handle,
        /// The receiver's operation.
        receive: Handle,
    },
    /// The payload of a message that was requested from its sender, or released by the transport
    /// that held it back.
    Data {
        /// The receiver's operation, as requested.
        receive: Handle,
        /// The bytes.
        payload: Vec<u8>,
    },
}

/// What happened outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet arrived.
    Packet {
        /// The rank whose interpreter emitted it.
        source: u32,
        /// The packet.
        packet: Packet,
    },
    /// A computation that [`Effect::Calc`] began is over.
    CalcFinished {
        /// The operation of that effect.
        operation: Handle,
    },
    /// The ranks have met in the join that [`Effect::Join`] entered.
    JoinFinished {
        /// The operation of that effect.
        operation: Handle,
        /// This rank's result; see [`join::combine`](crate::join::combine).
        result: Vec<u8>,
        /// The first element of the reduction that was divided by zero, if one was.
        divided_by_zero: Option<u64>,
    },
}

/// What the owner is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Deliver a packet to a rank, which may be this one.
    Transmit {
        /// The rank it goes to.
        peer: u32,
        /// The packet.
        packet: Packet,
    },
    /// Keep the payload of a message that arrived unexpectedly when the memory for such messages
    /// was used up.
    HoldBack {
        /// The sender.
        source: u32,
        /// The message's tag.
        tag: u32,
        /// The message's number among those from this sender with this tag.
        ordinal: u32,
        /// The bytes to keep.
        payload: Vec<u8>,
    },
    /// Hand in, as a [`Packet::Data`] from `source`, the payload that an earlier
    /// [`Effect::HoldBack`] handed out.
    Release {
        /// The sender.
        source: u32,
        /// The message's tag.
        tag: u32,
        /// The message's number among those from this sender with this tag.
        ordinal: u32,
        /// The receive that waits for it.
        receive: Handle,
    },
    /// Compute for this long, then report [`Event::CalcFinished`]. Keeping computations of one
    /// `cpu` from overlapping is up to the owner.
    Calc {
        /// To be named when it is over.
        operation: Handle,
        /// Length in nanoseconds.
        nanoseconds: u64,
        /// Computations of a rank with the same number do not overlap in time.
        cpu: u8,
    },
    /// Enter a join, then report [`Event::JoinFinished`] once the ranks have met.
    Join {
        /// To be named when they have met.
        operation: Handle,
        /// The number of the meeting among this rank's joins, in vertex order; the same on all
        /// ranks.
        ordinal: u32,
        /// How contributions are combined.
        mode: JoinMode,
        /// This rank's bytes.
        contribution: Vec<u8>,
    },
    /// The run is over; nothing follows. After a division by zero the buffers hold all results
    /// nevertheless.
    Completed(Result<(), Failure>),
}
