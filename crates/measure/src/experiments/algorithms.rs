//! Times of every algorithm of every collective, beside each other and beside the predictions.
//!
//! A [`CollectiveCall`] says which collective, among how many ranks, of how many bytes; a [`Plan`] by which
//! algorithm. [`compare`] takes all plans of one shape at once and lets them take turns, so that
//! all see the same machine: on a machine whose memory becomes slower for seconds at a time, times
//! that were not taken side by side say nothing about each other.
//!
//! **What is timed** is one blocking call, from a start that all ranks have in common until the
//! slowest rank is done: what the models of [`plogp`] predict. Where every rank has a core, the
//! start is a moment on the node's clock that all ranks wait for; a repetition for which a rank
//! comes late is not counted. Where ranks share cores, waiting for a moment would keep others from
//! running: then a repetition runs from the first rank that leaves a barrier to the last that is
//! done, and the turns that ranks wait for are part of it.
//!
//! Buffers are private memory, as in most programs. Graphs are compiled and linked once and run
//! again and again; a `join` is called as programs call it. What every rank got is compared with
//! what it must get before anything is timed.

mod data;
mod graphs;
mod program;
mod rounds;
mod runner;

pub use graphs::{CollectiveCall, PlanError};
pub use models::decision::Plan;
pub use rounds::{Comparison, TimeBudget, Timed, compare, settle};
