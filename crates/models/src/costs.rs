//! All that is needed to predict any algorithm on one level of a machine, and the predictions.

mod calibration;
mod candidates;
mod flat;
mod level;
mod placed;
pub mod segment;
mod sharing;
mod work;

pub use calibration::{Calibration, MessageCalibration};
pub use candidates::CostModel;
pub use flat::{FlatCosts, FlatError, FlatPoint};
pub use level::{Candidate, Costs, StartCosts};
pub use sharing::Sharing;
