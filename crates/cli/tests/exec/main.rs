//! `tradewind exec`: GOAL files run by real processes, and the profiles they leave.

mod files;
mod harness;
mod perfetto;
mod profiles;
mod refusals;
mod runs;
