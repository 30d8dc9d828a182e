//! Message passing in which nonblocking collectives complete while the application computes.
//!
//! Ranks are processes that `tradewind run -n 4 -- PROGRAM` or another launcher starts. Each joins
//! its job by [`Job::init`]; [`Job::world`] is the communicator of all ranks:
//!
//! ```no_run
//! use tradewind::{Job, Op, Result};
//!
//! fn main() -> Result<()> {
//!     let job = Job::init()?;
//!     let world = job.world();
//!     let mine = [f64::from(world.rank())];
//!     let mut sum = [0.0];
//!     let request = world.iallreduce(&mine, &mut sum, Op::Sum)?;
//!     // … compute: the rank that starts last completes the reduction meanwhile …
//!     request.wait()?;
//!     println!("rank {} of {} has {}", world.rank(), world.size(), sum[0]);
//!     Ok(())
//! }
//! ```
//!
//! [`local`] runs ranks as threads of one process, for tests and notebooks. Here rank 0 sends a
//! message to rank 1, and both take part in a blocking collective:
//!
//! ```
//! # fn main() -> Result<(), tradewind::Error> {
//! tradewind::local(2, |world| {
//!     const TAG: u32 = 7;
//!     if world.rank() == 0 {
//!         world.send(&[1.5, 2.5], 1, TAG)?;
//!     } else {
//!         let mut values = [0.0; 2];
//!         world.recv(&mut values, 0, TAG)?;
//!         assert_eq!(values, [1.5, 2.5]);
//!     }
//!     let mut ranks = [0; 2];
//!     world.allgather(&[world.rank()], &mut ranks)?;
//!     assert_eq!(ranks, [0, 1]);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # Collectives
//!
//! A [`Communicator`] has MPI's collectives except alltoallw and neighbor_alltoallw. Each has three
//! forms. The plain name is the blocking one, an `i` in front starts a nonblocking one, which
//! returns a [`Request`], and `_init` behind prepares a [`Persistent`] one.
//! [`Communicator::compile`] makes user-defined collectives from [dependency graphs](graph).
//!
//! | collective | result on rank r |
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
//! Inputs are slices or [`InPlace`], MPI's `MPI_IN_PLACE`. Nonblocking and persistent calls also
//! take a [`SharedBuffer`] by value and return it at the end; it lies in the shared memory of the
//! job, where collectives use it in place. A blocking call takes its slice, `&buffer[..]`. The
//! operation of a reduction is an [`Op`] or a user-defined function ([`fold()`]). The library
//! selects the algorithm, unless [`Algorithms`] sets it.
//!
//! Reductions are reproducible: the order of the operands depends on the algorithm's graph, never
//! on the order of arrival.
//!
//! # Messages
//!
//! Two ranks exchange messages by [`send`](Communicator::send), [`recv`](Communicator::recv) and
//! their relatives, which receivers select by [`Source`] and [`Tag`]. [`wait_all`], [`wait_some`],
//! [`wait_any`] and their tests take requests of messages and of collectives.
//!
//! [`messages`] has other mechanisms: queues of short messages ([`Communicator::express`],
//! [`Communicator::cache_lines`]), channels from one rank to another ([`Communicator::channel`],
//! [`Communicator::pipeline`]), remote memory ([`Communicator::windows`]) and transfers of long
//! messages ([`Communicator::bulk`]). [`names`] connects programs that were started separately.
//!
//! # Errors and warnings
//!
//! Collectives, sends and receives return a [`Result`]; queues, windows and [`names`] have errors
//! of their own. An [`Error`] names the rank that failed and the cause. Warnings go through the
//! crate [`log`]: a program sees them with a logger of its own. Only what a user requests by the
//! variable TRADEWIND_EXPLAIN is printed on standard error.

mod agreement;
mod buffer_error;
mod buffers;
mod call;
mod choose;
mod collective;
mod communicator;
mod context_numbers;
mod copy_on_write;
mod counts;
mod deferred;
mod error;
mod failure;
mod forms;
mod group;
mod internode;
#[doc(hidden)]
pub mod interop;
mod job;
mod link_key;
pub mod messages;
pub mod names;
mod neighbors;
mod open_numbers;
mod path;
mod path_cache;
mod paths;
mod pending;
mod persistent;
mod placement;
mod plan;
mod point_to_point;
pub mod profile;
mod rank_connections;
mod reduction;
mod request;
mod schedule;
mod selection;
mod shape;
mod split;
mod streamed_blocks;

pub use buffer_error::BufferError;
pub use buffers::{InPlace, Input, Output, SharedBuffer};
pub use collectives::neighbor::{Grid, balanced_dimensions};
pub use collectives::{Algorithm, Collective, CollectiveError, UnknownName};
pub use communicator::Communicator;
pub use engine::node::EngineKind;
pub use error::{Error, Result};
pub use failure::{Exit, Straggler};
pub use goal::arithmetic::{Complex, DataType, Element, F32At, F64At, I32At, I64At, bf16, f16};
pub use goal::check::Problem;
pub use goal::compile::CompileError;
pub use goal::graph;
pub use job::{Job, local, local_nodes, local_with};
pub use models::decision::CallForm;
pub use neighbors::Neighbors;
pub use pending::{
    Complete, Pending, test_all, test_any, test_some, wait_all, wait_any, wait_some,
};
pub use persistent::Persistent;
pub use plan::{NoBuffers, OneBuffer, TwoBuffers};
pub use point_to_point::message::Message;
pub use point_to_point::pattern::{Source, Status, Tag};
pub use point_to_point::persistent::{PersistentRecv, PersistentSend};
pub use point_to_point::request::{RecvRequest, SendRequest};
pub use reduction::{Fold, Op, OpOnBytes, ReduceOp, fold};
pub use request::Request;
pub use schedule::{Buffers, Schedule};
pub use selection::algorithms::Algorithms;
pub use selection::explanation::{Explanation, Reason};

/// The programs of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The programs of the page on programming compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/programming.md")]
struct Programming;
