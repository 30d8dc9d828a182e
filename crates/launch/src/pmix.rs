//! The client side of PMIx, the interface of prterun, Open MPI's mpirun and `srun --mpi=pmix`.
//!
//! A process uses PMIx through the library of its launcher, libpmix.so.2, versions 3 to 6. It is
//! opened at run time: nothing of it is needed to build or to run tradewind elsewhere. `ffi` has
//! all unsafe code. The calls have no time limit of their own, so a thread makes them, and the
//! rank waits for its answers as long as it may.

mod client;
mod error;
mod ffi;
mod library;

pub use client::{Client, usable};
pub use error::Error;
pub use library::Search;

/// Length of the longest value, in bytes. PMIx has no limit; the addresses of a node are shorter.
pub(crate) const LONGEST_VALUE: usize = 4096;
