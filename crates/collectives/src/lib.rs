//! Collective algorithms drawn as graphs, and nothing else.
//!
//! Each module is one collective, each function in it one algorithm: it takes a rank, the number of ranks and the shape
//! of the data, and gives that rank's [`Graph`](goal::graph::Graph). Nothing here runs, connects or measures anything.
//!
//! | collective | algorithms | buffer 0 | buffer 1 |
//! |---|---|---|---|
//! | [`barrier`] | [`dissemination`](barrier::dissemination), [`join`](barrier::join) | – | – |
//! | [`allreduce`] | [`recursive_doubling`](allreduce::recursive_doubling), [`join`](allreduce::join) | input: the contribution | output: the result, as long |
//! | [`alltoall`] | [`bruck`](alltoall::bruck), [`rotated_direct`](alltoall::rotated_direct), [`join`](alltoall::join) | input: a block for each rank | output: a block from each rank |
//! | [`bcast`] | [`binomial`](bcast::binomial), [`join`](bcast::join) | root: input, others: output | – |
//! | [`gather`] | [`tree_gather`](gather::tree_gather) | input: one block | output: at the root a block from each rank, elsewhere empty |
//! | [`neighbor`] | [`neighbor_alltoall`](neighbor::neighbor_alltoall), [`neighbor_alltoallv`](neighbor::neighbor_alltoallv) | input: a block for each destination | output: a block from each source |
//! | [`neighbor`] | [`neighbor_allgather`](neighbor::neighbor_allgather) | input: one block | output: a block from each source |
//!
//! **Buffers.** A graph never writes its input. An output holds defined bytes when the run has completed and not before:
//! some algorithms pass on what they have already put there. Input and output are different memory; an operation
//! "in place" is for the caller to arrange.
//!
//! **Shapes.** All ranks call the same function with the same arguments, except for their own rank and their own
//! neighbours. What one rank can see to be wrong is a [`CollectiveError`]; what only several ranks together can see
//! (different sizes, a neighbour who does not reciprocate) is found when their graphs are checked or linked. Zero bytes
//! are a size like any other: the messages are sent, empty, so that a mismatch is found all the same. A single rank is a
//! number of ranks like any other; its graph may have no vertex at all.
//!
//! **Order.** Every receive into memory of its own is independent of all other operations, so that it can be posted when
//! the run starts. The order in which a reduction combines contributions depends on the graph alone, never on arrival.
//!
//! ```
//! use collectives::allreduce;
//! use goal::arithmetic::{Arithmetic, DataType};
//!
//! // What rank 2 of 5 does to add up three numbers of type f64.
//! let graph = allreduce::recursive_doubling(2, 5, 24, Arithmetic::Add, DataType::F64)?;
//! let schedule = goal::compile::compile(&graph)?;
//! assert_eq!(schedule.view().buffers().len(), 2);
//!
//! // Algorithms can be chosen by name.
//! let algorithm: allreduce::Algorithm = "recursive-doubling".parse()?;
//! assert_eq!(algorithm.graph(2, 5, 24, Arithmetic::Add, DataType::F64)?, graph);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[macro_use]
mod algorithm;
mod binomial_tree;
mod blocks;
mod error;
mod member;

pub mod allreduce;
pub mod alltoall;
pub mod barrier;
pub mod bcast;
pub mod gather;
pub mod neighbor;

pub use error::CollectiveError;
