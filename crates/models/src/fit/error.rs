//! Errors of fits.

/// Reason why nothing can be fitted.
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
    /// All measurements were made at one place.
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

/// Checks that there are at least `needed` measurements, all of them finite.
pub(super) fn usable(points: &[(f64, f64)], needed: usize) -> Result<(), FitError> {
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
