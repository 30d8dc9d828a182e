//! The node service: the process that holds the state of a job that outlives a rank.
//!
//! On each node, one process creates the shared segment, admits the ranks and reports the exit of
//! a rank to the others. `tradewind run` ([`launcher`]) is this process and also starts the ranks.
//! Under another launcher the first rank starts a separate process ([`spawn`]). A rank joins by
//! [`attach::attach`].
//!
//! A rank connects to the service by the name in its environment and sends its number. The service
//! opens a process handle of the rank and answers with the descriptor of the segment. The rank maps
//! the segment and opens a process handle of the service. Each side then detects the exit of the
//! other, and on one node nothing else passes through the service.
//!
//! In a job on several nodes the service is also the network endpoint of its node. The agent, one
//! of its threads, runs the collectives between nodes over TCP or libfabric. With sufficient
//! privileges the service loads the BPF program that runs them in the kernel (`internode`,
//! `kernel_offload`).
//!
//! Every end of a job releases its resources: the segment has no name, and the name of the
//! service's socket ends with its process.
#![forbid(unsafe_code)]

pub mod attach;
pub mod attachment;
mod error;
mod events;
pub mod exchanged;
pub mod fabric_endpoint;
mod internode;
mod job_options;
mod kernel_offload;
pub mod launcher;
mod limits;
mod many_nodes;
mod node_service;
pub mod observer;
mod protocol;
mod rank_sockets;
pub mod spawn;

pub use error::ServiceError;
pub use job_options::{MACHINE_FILE, decisions_path, job_options};
