//! The node service: holds what outlives a rank.
//!
//! A job on one node needs somebody who makes its segment, lets the ranks in and tells the others
//! when one is gone. That is `tradewind run` ([`launcher`]), which also starts the ranks; where
//! another launcher does, the first rank starts a process of its own for it ([`start`]). A rank
//! gets in by [`client::attach`].
//!
//! The way of one rank: it connects to the service's door, whose name it has from its environment,
//! and says which rank it is; the service opens a handle of its process and answers with the
//! segment's descriptor; the rank maps the segment and opens a handle of the service's process.
//! From then on each notices when the other ends, and on one node nothing else goes through the
//! service.
//!
//! Where a job has several nodes, the service also is their end of the network: a thread of it, the
//! agent, runs the ranks' collectives between nodes over TCP, and where it has the rights it loads
//! the program that runs them in the kernel (`reach`, `offload`).
//!
//! Nothing is left behind however the job ends: the segment has no name, the door's name ends with
//! its process.
#![forbid(unsafe_code)]

pub mod client;
mod error;
mod events;
pub mod launcher;
mod offload;
mod protocol;
mod reach;
mod server;
mod spread;
pub mod start;

pub use error::ServiceError;
