//! `tradewind exec`: GOAL files run by real processes, and the profiles they leave.

pub(crate) mod files;
mod harness;
pub(crate) mod perfetto;
mod profiles;
mod runs;
