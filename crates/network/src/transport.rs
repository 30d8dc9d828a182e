//! How frames get from node to node: connections, and one place to sleep until something arrives.
//!
//! A [`Transport`] carries [`Frame`]s between the agents of a job, each one connected with every
//! other. What it is made of stays behind the trait: [`tcp`] is what there is on every machine,
//! [`memory`] connects agents of one process.

pub mod frame;
pub mod memory;
mod sleeper;
pub mod tcp;

use crate::carrier::Error;
use frame::Frame;
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What a transport woke its agent for.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A frame from another node. Those of one node come in the order they were sent, each once.
    Frame {
        /// Its sender.
        node: u32,
        /// The frame.
        frame: Frame,
    },
    /// The connection with a node has ended; nothing comes from there any more.
    Gone {
        /// The node.
        node: u32,
        /// How that was noticed, for a person.
        why: String,
    },
    /// A descriptor given to [`Transport::watch`] became readable.
    Bell(u64),
}

/// Connections to the other nodes of a job. One thread uses it.
pub trait Transport: Send + Debug {
    /// The number of this node.
    fn node(&self) -> u32;

    /// How many nodes there are, this one included.
    fn nodes(&self) -> u32;

    /// Where a node is reached, for messages to people.
    fn address(&self, node: u32) -> String;

    /// From now on [`wait`](Self::wait) also ends when this descriptor becomes readable once more.
    ///
    /// # Errors
    /// When the system refuses.
    fn watch(&mut self, bell: BorrowedFd<'_>, number: u64) -> Result<(), Error>;

    /// Puts a frame into the queue for a node. It leaves with the next [`flush`](Self::flush) at
    /// the latest; for a node that is gone it is dropped.
    fn send(&mut self, node: u32, frame: Frame);

    /// Hands over what is in the queues, as far as that goes without waiting. The rest follows
    /// during [`wait`](Self::wait).
    fn flush(&mut self);

    /// Bytes that are in the queue for a node.
    fn queued(&self, node: u32) -> u64;

    /// Sleeps until something arrives, a queue becomes shorter, or the time is over (`None`:
    /// never), and appends what has arrived.
    ///
    /// # Errors
    /// When the system refuses. That a node is gone is no error but an [`Arrival`].
    fn wait(&mut self, timeout: Option<Duration>, arrivals: &mut Vec<Arrival>)
    -> Result<(), Error>;

    /// Frames and connections that were refused because they were not as they should be.
    fn refused(&self) -> u64;
}
