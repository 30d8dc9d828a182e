//! Sessions with the process managers that start ranks: hydra (`mpiexec` of MPICH and Intel MPI),
//! Slurm (`--mpi=pmi2`, which serves PMI-1 too), and others that pass a socket as an open
//! descriptor and its number in `PMI_FD`.
//!
//! Ranks on several nodes must find each other before they can exchange a message. The process
//! manager, which has started them all, has a key-value space for that: each rank
//! [puts](Client::put) its values, all ranks enter a [fence](Client::fence), and each
//! [gets](Client::get) the values of others. The messages are lines of text (`message`).
//!
//! ```no_run
//! use launch::pmi::{Client, Descriptor};
//! use std::time::Duration;
//!
//! # fn inherited() -> std::os::fd::OwnedFd { unimplemented!() }
//! # fn main() -> Result<(), launch::pmi::Error> {
//! let mut client = Client::open(Descriptor::new(inherited(), Duration::from_secs(60)))?;
//! client.put("colour-of-0", "blue")?;
//! client.fence()?;
//! println!("rank 1 has put {:?}", client.get("colour-of-1")?);
//! client.finalize()
//! # }
//! ```
mod client;
mod descriptor;
mod error;
mod message;

pub use client::{Client, LONGEST_KEY, LONGEST_VALUE};
pub use descriptor::Descriptor;
pub use error::Error;
pub use message::Message;
