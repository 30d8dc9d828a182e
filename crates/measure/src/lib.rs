//! Experiments that show what communication on this machine costs.
//!
//! An experiment runs on all ranks of a job, is given a [`Communicator`](tradewind::Communicator),
//! and gives rows that can be printed as JSON. [`overlap`] asks how much of a collective remains
//! when a program computes meanwhile, [`queues`] what a message costs that no collective describes,
//! and [`mod@plogp`] what those cost that collectives are made of.
//!
//! What the parts of the suite found is a [`Part`](results::Part) each, whatever the experiment;
//! [`results`] keeps them in a directory. [`suite`] is the frame in which they are measured, and
//! lists them. [`collectives`](mod@collectives) times any algorithm of any collective.
//!
//! What an experiment measures with lies beside it: a [computation] of fixed length,
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
