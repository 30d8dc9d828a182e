//! Execution of schedules with ranks on several nodes.
//!
//! A [`Backend`](backend::Backend) is an engine that works between nodes. A rank registers a
//! compiled schedule once and starts runs of it; the backend exchanges the messages with the
//! backends of the other nodes and executes the rank's operations while the rank computes.
//!
//! The [`agent`] is the backend that every machine has. It is a thread of the node service, which
//! runs an interpreter for each local rank's run and sleeps until a rank or the network wakes it.
//! The [`direct`] engine executes collectives inside the ranks: blocking ones, and nonblocking ones
//! that need no thread meanwhile. It carries matched messages between the ranks, too.
//! Agents of different nodes exchange [frames](transport::frame) over a [`transport`].
//!
//! [`streams`] are messages between two processes that belong to no schedule.
#![deny(unsafe_code)]

pub mod agent;
pub mod backend;
pub mod direct;
pub mod error;
pub mod flows;
pub mod job_nodes;
pub mod local;
pub mod node_map;
pub mod node_network;
pub mod run_counts;
pub(crate) mod runs;
pub mod streams;
pub mod transport;

/// The atomics of the protocols, so that a model checker can substitute its own.
mod sync {
    pub(crate) use shm::sync::{AtomicU64, Ordering, fence};
}
