//! Straight lines and other simple shapes through measurements, with their uncertainty.
//!
//! Fits by least squares ([`line()`], [`pieces()`]) take every value as it is; they are for values
//! that have been made robust before, such as medians or minima of many repetitions. [`theil_sen`]
//! and [`contention()`] bear outliers themselves, and [`messages`] leaves them out. Sizes are bytes
//! and times microseconds where a function says nothing else.

mod contention;
mod error;
mod line;
mod messages;
mod pieces;

pub use contention::{Contention, ContentionSample, contention};
pub use error::FitError;
pub use line::{Line, Weights, line, theil_sen};
pub use messages::{Messages, messages};
pub use pieces::{Piece, pieces, pieces_as_needed};
