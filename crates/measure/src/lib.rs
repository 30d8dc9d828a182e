//! Experiments that show what communication on this machine costs.
//!
//! An experiment runs on all ranks of a job with a [`Communicator`](tradewind::Communicator) and
//! returns rows that can be printed as JSON. [`overlap`] measures how much of a collective remains
//! when a program computes meanwhile, [`queues`] what a message costs that no collective describes,
//! and [`mod@plogp`] what those cost that collectives are made of.
//!
//! Each part of the suite stores its measurements as a [`Part`](results::Part);
//! [`results`] keeps them in a directory. [`suite`] lists the parts and measures them. [`collectives`](mod@collectives) times any algorithm of any collective.
//!
//! Experiments share these tools: a [computation] of fixed length,
//! [clocks](clock) that all processes of a node share, the [processor time](processor) that a job
//! has used, and [order statistics](statistics).
#![forbid(unsafe_code)]

pub mod experiments;
pub mod harness;
pub mod mapping;
pub mod page;
mod pairs;
pub mod results;
pub mod statistics;

pub use harness::Error;
