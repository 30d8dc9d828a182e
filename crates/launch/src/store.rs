//! A key-value space over TCP, for launchers that offer none: torchrun, Kubernetes, `srun
//! --mpi=none`, loops over ssh, and `tradewind run --nodes`.
//!
//! One process listens ([`Server`]): rank 0, or the first node's `tradewind run`. Every rank
//! connects ([`Client`]), and both ends prove that they have the shared secret ([`SharedSecret`])
//! before anything else is read. A rank sends what it has put when it enters a fence; when all
//! ranks have entered, each receives all values. The server detects ranks that have not connected,
//! that have the number of another rank, or that end early, and reports them to all others.
//!
//! Values are sent in clear text. The job's secret is not sent: both ends derive it from the
//! shared secret and from random bytes of the server.

mod client;
mod error;
pub mod messages;
mod peer;
mod server;
mod shared_secret;

pub use client::Client;
pub use error::Error;
pub use server::Server;
pub use shared_secret::SharedSecret;

/// Length of the longest value, in bytes. The addresses of a node are shorter.
pub(crate) const LONGEST_VALUE: usize = 4096;
