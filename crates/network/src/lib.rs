//! Runs schedules whose ranks are on several nodes.
//!
//! A [`Carrier`](carrier::Carrier) is an engine that works between nodes: a rank hands it a
//! compiled schedule once and starts runs of it; the carrier exchanges the messages with the
//! carriers of the other nodes and does the rank's operations while the rank computes.
//!
//! The [`agent`] is the one that every machine can have: a thread of the node service runs an
//! interpreter for each local rank's run and sleeps until a rank or the network wakes it. What it
//! says to the agents of the other nodes goes over a [`transport`].
#![forbid(unsafe_code)]

pub mod agent;
pub mod carrier;
pub mod invitation;
pub mod nodes;
mod outcome;
pub mod transport;

/// The atomics of the protocols, so that a model checker can put its own in their place.
mod sync {
    pub(crate) use shm::sync::{AtomicU64, Ordering, fence};
}
