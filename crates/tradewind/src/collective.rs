//! The collectives of a communicator: blocking, nonblocking, persistent.

mod barrier;
mod bcast;
mod different_blocks;
mod equal_blocks;
mod plans;
mod reductions;
