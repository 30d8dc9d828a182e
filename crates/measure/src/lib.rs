//! Experiments that measure the cost of communication on this machine.
//!
//! An experiment runs on all ranks of a job with a [`Communicator`](tradewind::Communicator) and
//! returns its measurements as a [`Part`](results::Part); [`results`] keeps parts in a directory.
//! [`experiments`] lists all of them: [`overlap`](experiments::overlap) measures how much of a
//! collective remains when a program computes meanwhile, [`queues`](mod@experiments::queues) the
//! cost of messages outside collectives, [`plogp`](mod@experiments::plogp) the parameters of the
//! messages inside them, and [`algorithms`](experiments::algorithms) the times of every algorithm.
//!
//! [`harness`] is the interface of an experiment, with its tools: a
//! [computation](harness::computation) of fixed length, a [clock](harness::clock) common to all
//! processes of a node, and the [processor time](harness::processor_time) of a job.
//! [`page`] renders results.
#![deny(unsafe_code)]

pub mod experiments;
pub mod harness;
pub mod page;
pub mod results;
pub mod rows;

pub use harness::Error;
