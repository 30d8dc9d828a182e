//! Messages between two ranks that the receiver selects by sender and tag: MPI's point-to-point
//! operations.

pub(crate) mod context;
pub(crate) mod message;
mod operation;
pub(crate) mod pattern;
pub(crate) mod persistent;
mod probe;
mod recv;
mod remote;
pub(crate) mod request;
mod send;
