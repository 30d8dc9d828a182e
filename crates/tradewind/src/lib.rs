//! Collectives that run in the background, as dependency graphs that progress while the application
//! computes.
//!
//! ```
//! use tradewind::Op;
//!
//! # fn main() -> Result<(), tradewind::Error> {
//! tradewind::local(4, |world| {
//!     let mine = [f64::from(world.rank())];
//!     let mut sum = [0.0];
//!     let request = world.iallreduce(&mine, &mut sum, Op::Sum)?;
//!     // … compute: the reduction finishes meanwhile, on whichever rank is last …
//!     request.wait()?;
//!     assert_eq!(sum, [6.0]);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Ranks are processes started by `tradewind run -n 4 -- PROGRAM`, which join the job with
//! [`Job::init`], or threads of one process ([`local`]). A [`Communicator`] has MPI's collectives
//! except alltoallw and neighbor_alltoallw, each in a blocking, a nonblocking ([`Request`]) and a
//! persistent ([`Persistent`]) form; [`Communicator::compile`] makes user-defined collectives from
//! [dependency graphs](graph). [`SharedBuffer`]s lie in the job's shared-memory segment, where
//! collectives use them in place.
//!
//! | collective | what rank r gets |
//! |---|---|
//! | [`barrier`](Communicator::barrier) | nothing, when all ranks have arrived |
//! | [`bcast`](Communicator::bcast) | the root's buffer |
//! | [`scatter`](Communicator::scatter), [`scatterv`](Communicator::scatterv) | block r of the root's input |
//! | [`gather`](Communicator::gather), [`gatherv`](Communicator::gatherv) | at the root all inputs |
//! | [`allgather`](Communicator::allgather), [`allgatherv`](Communicator::allgatherv) | all inputs |
//! | [`alltoall`](Communicator::alltoall), [`alltoallv`](Communicator::alltoallv) | block r of all inputs |
//! | [`reduce`](Communicator::reduce) | at the root all inputs combined |
//! | [`allreduce`](Communicator::allreduce) | all inputs combined |
//! | [`reduce_scatter`](Communicator::reduce_scatter), [`reduce_scatter_block`](Communicator::reduce_scatter_block) | block r of all inputs combined |
//! | [`scan`](Communicator::scan) | the inputs of ranks 0, …, r combined |
//! | [`exscan`](Communicator::exscan) | the inputs of ranks 0, …, r − 1 combined |
//! | [`neighbor_alltoall`](Neighbors::neighbor_alltoall), [`neighbor_alltoallv`](Neighbors::neighbor_alltoallv) | a block from each source |
//! | [`neighbor_allgather`](Neighbors::neighbor_allgather), [`neighbor_allgatherv`](Neighbors::neighbor_allgatherv) | the input of each source |
//!
//! A name with an `i` in front starts a collective, one with `_init` behind prepares a persistent
//! one. Inputs are slices or [`InPlace`]; nonblocking and persistent calls also take a
//! [`SharedBuffer`] by value and return it at the end, while a blocking call takes its slice,
//! `&buffer[..]`. The operation of a reduction is an [`Op`] or a user-defined function ([`fold()`]). The library selects the algorithm, unless
//! [`Algorithms`] sets it.
//!
//! Two ranks exchange messages by [`send`](Communicator::send), [`recv`](Communicator::recv) and
//! their relatives, which receivers select by [`Source`] and [`Tag`]. [`wait_all`] and [`wait_any`]
//! take requests of messages and of collectives.
//!
//! Queues, channels and windows ([`messages`]) complement the collectives:
//! [`Communicator::express`], [`Communicator::cache_lines`], [`Communicator::channel`],
//! [`Communicator::pipeline`], [`Communicator::windows`] and [`Communicator::bulk`] create their
//! queues, channels and memory windows.
//!
//! Warnings go through the crate [`log`]: a program sees them with a logger of its own. Only what a
//! user requests by the variable TRADEWIND_EXPLAIN is printed on standard error.
//!
//! Errors name the rank that failed and the cause. Reductions are
//! reproducible: the order of the operands depends on the algorithm's graph, never on the order of
//! arrival.

mod agreement;
mod buffers;
mod choose;
mod collective;
mod communicator;
mod context_numbers;
mod counts;
mod deferred;
mod error;
mod failure;
mod graph_path;
mod internode;
mod job;
mod join;
mod lendable;
mod link_key;
pub mod messages;
pub mod names;
mod neighbors;
mod path;
mod path_cache;
mod pending;
mod persistent;
mod placement;
mod plan;
mod point_to_point;
pub mod profile;
mod rank_connections;
mod reduction;
mod relief;
mod request;
mod schedule;
mod selection;
mod shape;
mod split;
mod streamed_blocks;
mod trial;

pub use buffers::{InPlace, Input, Output, SharedBuffer};
pub use collectives::neighbor::balanced_dimensions;
pub use collectives::{Algorithm, Collective, CollectiveError, UnknownName};
pub use communicator::Communicator;
pub use engine::node::EngineKind;
pub use engine::while_waiting;
pub use error::{Error, Result};
pub use failure::{Exit, Straggler};
pub use goal::arithmetic::{DataType, Element};
pub use goal::check::Problem;
pub use goal::compile::CompileError;
pub use goal::graph;
pub use job::{Job, local, local_nodes, local_with};
pub use models::decision::CallForm;
pub use neighbors::Neighbors;
pub use pending::{Complete, Pending, test_any, wait_all, wait_any};
pub use persistent::Persistent;
pub use plan::{NoBuffers, OneBuffer, TwoBuffers};
pub use point_to_point::message::Message;
pub use point_to_point::pattern::{Source, Status, Tag};
pub use point_to_point::persistent::{PersistentRecv, PersistentSend};
pub use point_to_point::request::{RecvRequest, SendRequest};
pub use reduction::{Fold, Op, OpOnBytes, ReduceOp, fold};
pub use relief::MemoryRelief;
pub use request::Request;
pub use schedule::{Buffers, Schedule};
pub use selection::algorithms::Algorithms;
pub use selection::explanation::{Explanation, Reason};
