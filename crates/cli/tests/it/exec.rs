//! `tradewind exec`: GOAL files run by real processes, and the profiles they leave.

mod files;
mod harness;
pub(crate) mod perfetto;
mod profiles;
mod refusals;
mod runs;
