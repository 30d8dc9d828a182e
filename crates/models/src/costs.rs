//! All that is needed to predict any algorithm on one level of a machine, and the predictions.

mod candidates;
mod level;
pub mod segment;

pub use candidates::CostModel;
pub use level::{Candidate, Costs};
