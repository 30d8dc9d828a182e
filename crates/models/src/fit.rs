//! Straight lines and other simple shapes through measurements, with their uncertainty.
//!
//! Fits by least squares ([`line()`], [`pieces()`], [`plane()`]) take every value as it is; they
//! are for values that have been made robust before, such as medians or minima of many repetitions.
//! [`theil_sen`] and [`contention()`] bear outliers themselves, and [`messages`] leaves them out.
//! Sizes are bytes and times microseconds where a function says nothing else.

mod contention;
mod line;
mod messages;
mod pieces;
mod plane;

pub use contention::{Contention, ContentionSample, contention};
pub use line::{Line, Weights, barrier, line, theil_sen};
pub use messages::{Messages, messages};
pub use pieces::{Piece, pieces, pieces_as_needed};
pub use plane::{Plane, PlaneSample, plane};

/// Why nothing can be fitted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// There are too few measurements.
    #[error("{found} measurements are too few for this fit: give at least {needed}")]
    TooFew {
        /// The number given.
        found: usize,
        /// The number needed.
        needed: usize,
    },
    /// A measurement is not a number, or no weight can be given to it.
    #[error(
        "measurement {position} (counted from 0) is {value}, which cannot be fitted: leave it out"
    )]
    NotUsable {
        /// Its place among the measurements.
        position: usize,
        /// Its value.
        value: f64,
    },
    /// All measurements were made at one place, or lie in one line where a plane is asked for.
    #[error("all measurements were made at {what}: measure at different ones")]
    NoSpread {
        /// The value that does not differ.
        what: &'static str,
    },
    /// Sizes are not ascending.
    #[error(
        "measurement {position} (counted from 0) has a size below its predecessor's: sort \
         measurements by size"
    )]
    NotSorted {
        /// Its place among the measurements.
        position: usize,
    },
}

/// At least so many measurements, all of them finite.
fn usable(points: &[(f64, f64)], needed: usize) -> Result<(), FitError> {
    if points.len() < needed {
        return Err(FitError::TooFew { found: points.len(), needed });
    }
    for (position, (x, y)) in points.iter().enumerate() {
        for value in [*x, *y] {
            if !value.is_finite() {
                return Err(FitError::NotUsable { position, value });
            }
        }
    }
    Ok(())
}
