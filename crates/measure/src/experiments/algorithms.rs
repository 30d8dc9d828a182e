//! Times of every algorithm of every collective, beside each other and beside the predictions.
//!
//! A [`CollectiveCall`] names the collective, the number of ranks and the bytes; a
//! [`Choice`](collectives::Choice) names the algorithm. [`compare`] measures all choices of one
//! call in turns, so that all measure the same machine state: if memory becomes slower for seconds
//! at a time, only times taken side by side are comparable.
//!
//! **What is timed** is one blocking call, from a start that all ranks have in common until the
//! slowest rank is done: the time that [`models`] predicts. Where every rank has a core, the
//! start is a time on the node's clock that all ranks wait for; a repetition with a late rank is
//! discarded. Where ranks share cores, busy waiting would keep other ranks from running: then a
//! repetition lasts from the first rank that leaves a barrier to the last that completes, and
//! includes the waits for a core.
//!
//! Buffers are private memory, as in most programs. Graphs are compiled and linked once and run
//! again and again; a `join` is called as programs call it. What every rank got is compared with
//! what it must get before anything is timed.

mod compare;
mod data;
mod graphs;
mod subject;

pub use compare::{compare, compare_in_batches, settle};
pub(crate) use graphs::SEGMENTS;
pub use graphs::{CollectiveCall, PlanError};
pub(crate) use subject::{CollectiveSubject, Memory, attend, engine_of_blocking_calls};
