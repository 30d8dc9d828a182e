//! Collectives that run in the background: every operation is a small program that goes on while
//! the application computes.
//!
//! ```
//! use tradewind::Op;
//!
//! # fn main() -> Result<(), tradewind::Error> {
//! tradewind::local(4, |world| {
//!     let (mine, mut sum) = ([f64::from(world.rank())], [0.0]);
//!     let request = world.iallreduce(&mine, &mut sum, Op::Sum)?;
//!     // … compute: the reduction finishes meanwhile, on whichever rank is last …
//!     request.wait()?;
//!     assert_eq!(sum, [6.0]);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Ranks are processes started by `tradewind run -n 4 -- PROGRAM` (then [`Job::init`] joins the
//! job) or threads of one process ([`local`]). A [`Communicator`] has all collectives, each
//! blocking, nonblocking ([`Request`]) and persistent ([`Persistent`]); [`Communicator::compile`]
//! makes collectives of one's own from [dependency graphs](graph). [`SharedBuffer`]s lie in the
//! job's segment and are worked on in place.
//!
//! | collective | what rank r gets |
//! |---|---|
//! | [`barrier`](Communicator::barrier) | nothing, when all have come |
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
//! The names with an `i` in front begin a collective, those with `_init` behind prepare one. Inputs
//! are slices, [`SharedBuffer`]s or [`InPlace`]; what is combined, and how, is an [`Op`], or a
//! function of one's own ([`fold()`]). Which algorithm is used is chosen, or forced by
//! [`Algorithms`].
//!
//! Under and beside the collectives lie messages of every grain ([`queues`]):
//! [`Communicator::express`], [`Communicator::wide`], [`Communicator::channel`],
//! [`Communicator::pipeline`], [`Communicator::windows`] and [`Communicator::bulk`] open them
//! between ranks.
//!
//! Errors name the rank that failed, the operation, and the way out. Reductions are reproducible:
//! the order of the operands follows from the algorithm's graph, never from who came first.

mod algorithms;
mod buffers;
mod collective;
mod communicator;
mod decisions;
mod error;
mod explanation;
mod job;
mod messages;
mod neighbors;
mod operation;
mod pending;
mod persistent;
pub mod profile;
mod request;
mod schedule;
mod spanning;

pub use algorithms::{
    Algorithms, AllgatherAlgorithm, AllreduceAlgorithm, AlltoallAlgorithm, BarrierAlgorithm,
    BcastAlgorithm, ExscanAlgorithm, GatherAlgorithm, NeighborAlgorithm, ReduceAlgorithm,
    ReduceScatterAlgorithm, ScanAlgorithm, ScatterAlgorithm,
};
pub use buffers::{InPlace, Input, Output, SharedBuffer};
pub use collectives;
pub use collectives::Collective;
pub use communicator::Communicator;
pub use engine::node::EngineKind;
pub use engine::{Departure, Laggard};
pub use error::{Awaited, Error, MessageError, Result};
pub use explanation::{Explanation, Reason};
pub use goal::arithmetic::Element;
pub use goal::graph;
pub use job::{Job, local, local_nodes, local_with};
pub use messages::{
    BulkEnd, BulkReceiver, ChannelEnd, ChannelReceiver, ExpressPort, Kept, Pipeline, WidePort,
    Windows,
};
pub use neighbors::Neighbors;
pub use network::carrier::Error as NetworkError;
pub use operation::{Fold, Op, Operation, fold};
pub use persistent::Persistent;
pub use queues;
pub use request::{Request, wait_all, wait_any};
pub use schedule::{Buffers, Schedule};
