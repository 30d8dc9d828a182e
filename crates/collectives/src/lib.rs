//! Collective algorithms as GOAL graphs.
//!
//! [`build`] returns one rank's [`Graph`](goal::graph::Graph) of a [`Collective`] by an
//! [`Algorithm`]. Each module is one collective and documents its algorithms with their sources.
//! The crate runs, connects and measures nothing.
//!
//! | collective | algorithms | buffer 0 | buffer 1 |
//! |---|---|---|---|
//! | [`barrier`] | dissemination, tree, recursive-doubling, flat, join | – | – |
//! | [`bcast`] | flat, flat-rendezvous, segmented-flat, chain, chain-rendezvous, segmented-chain, binary, binomial, binomial-rendezvous, segmented-binomial, d-ary, scatter-allgather, two-tree, join | root: input, others: output | – |
//! | [`scatter`] | flat, chain, pipelined-chain, binomial, join | input: at the root a block for each rank, elsewhere empty | output: one block |
//! | [`gather`] | flat, chain, pipelined-chain, binomial, join | input: one block | output: at the root a block from each rank, elsewhere empty |
//! | [`allgather`] | ring, recursive-doubling, bruck, gather-bcast, join | input: one block | output: a block from each rank |
//! | [`alltoall`] | bruck, direct, rotated-direct, pairwise, multiphase, join | input: a block for each rank | output: a block from each rank |
//! | [`reduce`] | flat, chain, segmented-chain, binomial, d-ary, rabenseifner, join | input: the contribution | output: at the root the result, elsewhere empty |
//! | [`allreduce`] | recursive-doubling, dissemination, ring, rabenseifner, reduce-bcast, join | input: the contribution | output: the result, as long |
//! | [`reduce_scatter`] | ring, pairwise, recursive-halving, reduce-then-scatter, join | input: the contribution to the blocks of all ranks | output: the rank's block of the result |
//! | [`scan`], [`exscan`] | chain, recursive-doubling, join | input: the contribution | output: the result, as long |
//! | [`neighbor`] | [`neighbor_alltoall`](neighbor::neighbor_alltoall), [`neighbor_alltoallv`](neighbor::neighbor_alltoallv) | input: a block for each destination | output: a block from each source |
//! | [`neighbor`] | [`neighbor_allgather`](neighbor::neighbor_allgather), [`neighbor_allgatherv`](neighbor::neighbor_allgatherv) | input: one block | output: a block from each source |
//!
//! [`two_level`] composes barrier, bcast, reduce, allreduce, allgather and alltoall of one inside
//! nodes and one between them. Blocks may be of different sizes where a function takes [`Sizes`];
//! all ranks pass all of them. Segments and degrees are in [`Tuning`].
//!
//! **Buffers.** A graph never writes its input. An output holds defined bytes when the run has
//! completed and not before: some algorithms pass on what they have already put there. Input and
//! output are different memory; an operation "in place" is for the caller to arrange.
//!
//! **Shapes.** All ranks call the same function with the same arguments, except for their own rank
//! and their own neighbours. An error that one rank can detect is a [`CollectiveError`]; one that
//! only several ranks together can show (different sizes, an edge listed by one rank only) is found
//! when their graphs are checked or linked. Zero bytes are a size like any other: the messages are
//! sent, empty, so that a mismatch is found all the same. A single rank is a number of ranks like
//! any other; its graph may have no vertex at all.
//!
//! **Order.** Every receive into memory of its own is independent of all other operations, so that
//! it can be posted when the run starts. The order in which a reduction combines contributions
//! depends on the graph alone, never on arrival. [`Collective::keeps_rank_order`] returns `true`
//! for algorithms that keep to the order of ranks, as operations need it that are not commutative.
//!
//! ```
//! use collectives::{Algorithm, Collective, Reduction, allreduce};
//! use goal::arithmetic::{Arithmetic, DataType};
//!
//! // What rank 2 of 5 does to add up three numbers of type f64.
//! let sum = Reduction::new(Arithmetic::Add, DataType::F64);
//! let graph = allreduce::graph(Algorithm::RecursiveDoubling, 2, 5, 24, sum)?;
//! let schedule = goal::compile::compile(&graph)?;
//! assert_eq!(schedule.view().buffers().len(), 2);
//!
//! // Algorithms can be chosen by name.
//! let algorithm = Collective::Allreduce.algorithm("recursive-doubling")?;
//! assert_eq!(allreduce::graph(algorithm, 2, 5, 24, sum)?, graph);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[macro_use]
mod names;
mod algorithm;
mod binomial_tree;
mod blocks;
mod build;
mod builder;
mod error;
mod fold;
mod halving;
mod member;
mod power_of_two;
mod reduction;
mod rooted_blocks;
mod row;
mod sizes;
mod tree;

pub mod allgather;
pub mod allreduce;
pub mod alltoall;
pub mod barrier;
pub mod bcast;
pub mod exscan;
pub mod gather;
pub mod neighbor;
pub mod reduce;
pub mod reduce_scatter;
pub mod scan;
pub mod scatter;
pub mod two_level;

pub use algorithm::{Algorithm, Choice, Collective, Levels, Tuning, UnknownChoice};
pub use build::{GraphSpec, build, build_with_sizes};
pub use error::CollectiveError;
pub use goal::arithmetic::UnknownName;
pub use reduction::Reduction;
pub use sizes::Sizes;

#[doc(hidden)]
pub use serde;
