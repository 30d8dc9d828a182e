//! Jobs of real processes: how they start, run, fail and end, with real signals.

mod deaths;
mod ends;
mod foreign;
pub(crate) mod harness;
mod output;
mod rank;
mod segments;
mod signals;
