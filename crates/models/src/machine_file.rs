//! `machine.json`: everything that was measured of a machine.

mod agreement;
mod contents;

pub use agreement::{Agreement, Apart};
pub use contents::{Machine, Noise, Peers, Samples, SizeSamples, StartCosts};
