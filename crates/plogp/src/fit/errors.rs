//! How far predictions are off.

use serde::{Deserialize, Serialize};

/// How far predictions lie from measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// The median of |predicted − measured| in the units of both.
    pub median_absolute: f64,
    /// The largest of them.
    pub worst_absolute: f64,
    /// The median of |predicted − measured| / measured; 0.2 is 20 %.
    pub median_relative: f64,
    /// The largest of them.
    pub worst_relative: f64,
}

impl Errors {
    /// Of (predicted, measured), of which those with a measurement that is not positive and finite
    /// are passed over. `None` if none is left.
    ///
    /// ```
    /// use plogp::fit::Errors;
    /// let errors = Errors::of(&[(11.0, 10.0), (30.0, 20.0), (40.0, 40.0)]).expect("three pairs");
    /// assert_eq!((errors.median_relative, errors.worst_relative, errors.worst_absolute), (0.1, 0.5, 10.0));
    /// ```
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let usable = |(predicted, measured): &&(f64, f64)| {
            predicted.is_finite() && measured.is_finite() && *measured > 0.0
        };
        let pairs: Vec<&(f64, f64)> = pairs.iter().filter(usable).collect();
        let mut absolute: Vec<f64> =
            pairs.iter().map(|(predicted, measured)| (predicted - measured).abs()).collect();
        let mut relative: Vec<f64> = pairs
            .iter()
            .map(|(predicted, measured)| (predicted - measured).abs() / measured)
            .collect();
        let (median_absolute, median_relative) =
            (super::median(&mut absolute), super::median(&mut relative));
        let (worst_absolute, worst_relative) = (*absolute.last()?, *relative.last()?);
        Some(Errors { median_absolute, worst_absolute, median_relative, worst_relative })
    }
}
