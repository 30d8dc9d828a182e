//! GOAL dependency graphs: built, checked, compiled to schedules, read and written.
//!
//! A [`Graph`](graph::Graph) is what one rank does in a collective: sends, receives and local
//! operations, joined by edges "requires" (starts after the other has completed) and "irequires"
//! (starts after the other has started). [`check`](mod@check) finds what is wrong with a graph or
//! with all ranks' graphs together, [`compile`](mod@compile) turns a graph into a
//! [`Schedule`](schedule::Schedule): one contiguous, immutable block of fixed-width records that
//! every engine runs. [`text`] and [`binary`] are the file formats that GOAL tools exchange.
//!
//! The language is that of Hoefler, Siebert, Lumsdaine: "Group Operation Assembly Language" (ICPP
//! 2009); the compiled form follows Schneider, Eckelmann, Hoefler, Rehm: "Kernel-Based Offload of
//! Collective Operations" (2011), section 2.1.
//!
//! ```
//! use goal::graph::{Access, Graph};
//!
//! // Rank 0 of 2: send eight bytes to rank 1, then wait for its answer.
//! let mut graph = Graph::new(0, 2);
//! let question = graph.buffer(Access::Input, 8);
//! let answer = graph.buffer(Access::Output, 8);
//! let send = graph.send(question, 1, 0);
//! let receive = graph.receive(answer, 1, 0);
//! graph.requires(receive, send);
//! let schedule = goal::compile::compile(&graph)?;
//! assert_eq!(schedule.view().operations().len(), 2);
//! # Ok::<(), goal::compile::CompileError>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!(
    "schedules are little endian in memory; a big-endian machine would need a converting loader"
);

pub mod arithmetic;
pub mod binary;
pub mod check;
pub mod compile;
pub mod depth;
pub mod graph;
pub mod join;
pub mod limits;
pub mod link;
pub mod matching;
pub mod portable;
pub mod schedule;
pub mod text;
