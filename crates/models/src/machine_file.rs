//! `machine.json`: everything that was measured of a machine.

mod agreement;
mod contents;
mod disturbances;
mod networks;
mod speed;

pub use agreement::{Agreement, Apart};
pub use contents::{Engine, EngineCosts, Machine, Noise, Samples, SizeSamples};
pub use networks::{FastestNetwork, Networks, TCP};
