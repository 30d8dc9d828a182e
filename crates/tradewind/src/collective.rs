//! The collectives of a communicator, one file each: blocking, nonblocking, persistent.

mod allgather;
mod allgatherv;
mod allreduce;
mod alltoall;
mod alltoallv;
mod barrier;
mod bcast;
mod exscan;
mod gather;
mod gatherv;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod scatterv;
