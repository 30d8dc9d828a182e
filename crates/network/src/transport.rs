//! Connections that carry frames between the agents of a job.
//!
//! A [`Transport`] connects an agent with every other one and lets it sleep until something
//! arrives. [`tcp`] works on every machine, [`fabric`] through the adapters that libfabric supports;
//! [`memory`] connects agents of one process.

pub(crate) mod batches;
pub mod fabric;
pub mod frame;
pub mod memory;
pub mod payloads;
mod poller;
pub mod records;
mod stream;
pub mod tcp;

use crate::error::Error;
use frame::{Frame, HEADER_BYTES, Route};
use interpreter::Packet;
use payloads::{PayloadLocation, Payloads};
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A reason why a transport wakes its agent.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A frame from another node. Those of one node that are ordered arrive in the order in which
    /// they were sent; each arrives once.
    Frame {
        /// The sender.
        node: u32,
        /// The frame.
        frame: Frame,
    },
    /// A message with a payload that has been written to its [location](Payloads::admit).
    InPlace {
        /// The sender.
        node: u32,
        /// Location of the payload.
        location: PayloadLocation,
        /// Number of bytes that were sent eagerly.
        eager: u64,
    },
    /// A message that the sender's node could not read from the memory of its run.
    Unreadable {
        /// The sender.
        node: u32,
        /// The run and the rank that sends.
        route: Route,
        /// Number of bytes that were sent eagerly.
        eager: u64,
    },
    /// The end of the connection with a node; nothing arrives from there any more.
    NodeLost {
        /// The node.
        node: u32,
        /// The symptom, for an error message.
        why: String,
    },
    /// A connection with a node that was not connected before.
    Connected {
        /// The node.
        node: u32,
    },
    /// The number of a descriptor of [`Transport::watch`] that became readable.
    Notified(u64),
}

impl Arrival {
    /// The arrival of a message that could not be read, by its header; `None` for other frames.
    fn unreadable(node: u32, header: &[u8; HEADER_BYTES]) -> Option<Arrival> {
        let (route, packet, bytes) = Frame::message_of(header)?;
        let eager = if matches!(packet, Packet::Eager { .. }) { bytes } else { 0 };
        Some(Arrival::Unreadable { node, route, eager })
    }
}

/// State of the connection with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Connected.
    Open,
    /// Not connected yet, and something waits to be sent.
    Pending,
    /// Not connected, and nothing is to be sent.
    Absent,
}

/// Connections to the other nodes of a job. One thread uses it.
pub trait Transport: Send + Debug {
    /// Number of this node.
    fn node(&self) -> u32;

    /// Number of nodes, this one included.
    fn nodes(&self) -> u32;

    /// Address of a node, for error messages.
    fn address(&self, node: u32) -> String;

    /// Makes [`wait`](Self::wait) also return when this descriptor becomes readable once more.
    ///
    /// # Errors
    /// If the system refuses.
    fn watch(&mut self, descriptor: BorrowedFd<'_>, number: u64) -> Result<(), Error>;

    /// Appends a frame to the queue of a node. It is sent by the next [`flush`](Self::flush) at the
    /// latest. A frame for a node that is lost is dropped.
    fn send(&mut self, node: u32, frame: Frame);

    /// Appends a message with a payload of `bytes` bytes, which stays at its location until
    /// [`Payloads::sent`], [`Payloads::unreadable`] or [`detach`](Self::detach) is called. `packet`
    /// has an empty payload.
    fn send_in_place(
        &mut self,
        node: u32,
        route: Route,
        packet: Packet,
        location: PayloadLocation,
        bytes: u64,
    );

    /// Passes a copy of a payload that was not sent before the end of its run; `None` if its memory
    /// cannot be read.
    fn detach(&mut self, location: PayloadLocation, payload: Option<Vec<u8>>);

    /// Returns true if an adapter may access the memory of the run of a payload. The run then ends
    /// for its rank only when this has become false.
    fn uses_run(&self, location: PayloadLocation) -> bool {
        let _ = location;
        false
    }

    /// Sends the queued frames, as far as that is possible without waiting. The rest follows during
    /// [`wait`](Self::wait).
    fn flush(&mut self, payloads: &mut dyn Payloads);

    /// Number of bytes in the queue of a node.
    fn queued(&self, node: u32) -> u64;

    /// Number of bytes that were sent to a node and have not reached the system of its node, those
    /// in the queue included; 0 if the connection has ended.
    fn unacknowledged(&self, node: u32) -> u64 {
        self.queued(node)
    }

    /// Sleeps until something arrives, a queue becomes shorter, or the time is over (`None`:
    /// never), and appends what has arrived.
    ///
    /// # Errors
    /// If the system refuses. The loss of a node is an [`Arrival`].
    fn wait(
        &mut self,
        timeout: Option<Duration>,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error>;

    /// Appends what has arrived from other nodes, without waiting. May leave everything else for
    /// the next [`wait`](Self::wait), and costs less than one.
    ///
    /// # Errors
    /// If the system refuses. The loss of a node is an [`Arrival`].
    fn poll(
        &mut self,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        self.wait(Some(Duration::ZERO), payloads, arrivals)
    }

    /// Number of bytes of long messages that have been sent and received so far, modulo 2⁶⁴. It
    /// changes while a message is on its way.
    fn transferred(&self) -> u64 {
        0
    }

    /// Number of frames and connections that were refused because they were invalid.
    fn refused(&self) -> u64;

    /// Returns true if nodes are connected when they are needed. Each node then passes on what all
    /// must learn.
    fn is_sparse(&self) -> bool {
        false
    }

    /// State of the connection with another node.
    fn link(&self, node: u32) -> LinkState {
        let _ = node;
        LinkState::Open
    }

    /// Returns true if a node may consider a connection open that is in its handshake here. A
    /// stranger may claim to be the node.
    fn has_answered(&self, node: u32) -> bool {
        let _ = node;
        false
    }

    /// Connects with a node from which something is expected, so that its end is noticed.
    fn require(&mut self, node: u32) {
        let _ = node;
    }

    /// Ends the attempts to connect with a node that has ended.
    fn abandon(&mut self, node: u32) {
        let _ = node;
    }
}
