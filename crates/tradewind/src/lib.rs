//! Collectives that run in the background: every operation is a small program that goes on while the application
//! computes.
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
//! Ranks are processes started by `tradewind run -n 4 -- PROGRAM` (then [`Job::init`] joins the job) or threads of one
//! process ([`local`]). A [`Communicator`] has barrier, allreduce, alltoall, bcast and neighbour collectives, each
//! blocking, nonblocking ([`Request`]) and persistent ([`Persistent`]); [`Communicator::compile`] makes collectives of
//! one's own from [dependency graphs](graph). [`SharedBuffer`]s lie in the job's segment and are worked on in place.
//!
//! Under and beside the collectives lie messages of every grain ([`queues`]): [`Communicator::express`],
//! [`Communicator::wide`], [`Communicator::channel`], [`Communicator::pipeline`], [`Communicator::windows`] and
//! [`Communicator::bulk`] open them between ranks.
//!
//! Errors name the rank that failed, the operation, and the way out. Reductions are reproducible: the order of the
//! operands follows from the algorithm's graph, never from who came first.

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
mod persistent;
pub mod profile;
mod request;
mod schedule;

pub use algorithms::{
    Algorithms, AllgatherAlgorithm, AllreduceAlgorithm, AlltoallAlgorithm, BarrierAlgorithm, BcastAlgorithm,
    ExscanAlgorithm, GatherAlgorithm, ReduceAlgorithm, ReduceScatterAlgorithm, ScanAlgorithm, ScatterAlgorithm,
};
pub use buffers::{Input, Output, SharedBuffer};
pub use collectives;
pub use communicator::Communicator;
pub use engine::node::EngineKind;
pub use engine::{Departure, Laggard};
pub use error::{Error, MessageError, Result};
pub use explanation::{Explanation, Reason};
pub use goal::arithmetic::Element;
pub use goal::graph;
pub use job::{Job, local, local_with};
pub use messages::{
    BulkEnd, BulkReceiver, ChannelEnd, ChannelReceiver, ExpressPort, Kept, Pipeline, WidePort, Windows,
};
pub use neighbors::Neighbors;
pub use operation::Op;
pub use persistent::Persistent;
pub use plogp::operation::Operation;
pub use queues;
pub use request::{Request, wait_all, wait_any};
pub use schedule::{Buffers, Schedule};
