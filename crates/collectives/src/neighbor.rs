//! Sparse neighbour collectives: every rank exchanges blocks along the edges of any directed graph.
//!
//! Each rank describes its own edges as a [`Neighborhood`]: its sources and
//! to, in the order in which blocks lie in its buffers. Edges may be parallel and may lead from a
//! rank to itself; a rank may have none. The k-th edge from a to b in a's list is the k-th edge
//! from a in b's list.
//!
//! Hoefler, Träff: "Sparse Collective Operations for MPI" (2009); the rules are those of the MPI
//! standard, version 4.1, section 8.6.

mod allgather;
mod alltoall;
mod grid;
mod neighborhood;
mod topology;

pub use allgather::{neighbor_allgather, neighbor_allgatherv};
pub use alltoall::{neighbor_alltoall, neighbor_alltoallv};
pub use grid::{Grid, balanced_dimensions};
pub use neighborhood::{Neighbor, Neighborhood};
pub(crate) use topology::Edge;
pub use topology::Topology;
