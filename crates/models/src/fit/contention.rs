//! The contention ratio of the all-to-all.

use super::error::FitError;
use crate::formulas::alltoall::Bounds;
use serde::{Deserialize, Serialize};

/// One measured direct exchange.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContentionSample {
    /// Between which times it should lie, in microseconds.
    pub bounds: Bounds,
    /// Time taken, in microseconds.
    pub measured: f64,
}

/// γ with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contention {
    /// γ: where between the bounds the measurements lie. Below 0 or above 1 the machine does not
    /// keep to the bounds.
    pub ratio: f64,
    /// Half of the measurements, by weight, say less than this and more than …
    pub upper_quartile: f64,
    /// … this.
    pub lower_quartile: f64,
}

/// The γ for which Lower + (Upper − Lower) × γ has the least relative errors in sum (2004, section
/// 5.1).
///
/// Each measurement T asks for the γ (T − Lower)/(Upper − Lower), and an error of 1 in γ is an
/// error of (Upper − Lower)/T in the prediction. So the answer is the median of what they ask for,
/// weighted by that: the fit of least absolute deviations, which a few retransmissions do not move.
/// Measurements with equal bounds constrain nothing.
///
/// # Errors
/// No measurement that is positive and finite with bounds that differ.
///
/// ```
/// use models::fit::{self, ContentionSample};
/// use models::formulas::alltoall::Bounds;
/// let bounds = Bounds { lower: 100.0, upper: 200.0 };
/// let sample = |measured| ContentionSample { bounds, measured };
/// let contention = fit::contention(&[sample(140.0), sample(140.0), sample(900.0)])?;
/// assert!((contention.ratio - 0.4).abs() < 1e-12);
/// # Ok::<(), models::fit::FitError>(())
/// ```
pub fn contention(samples: &[ContentionSample]) -> Result<Contention, FitError> {
    let mut asked = Vec::with_capacity(samples.len());
    for (position, ContentionSample { bounds, measured }) in samples.iter().enumerate() {
        let width = bounds.upper - bounds.lower;
        if !(measured.is_finite() && *measured > 0.0 && width.is_finite()) {
            return Err(FitError::NotUsable { position, value: *measured });
        }
        if width != 0.0 {
            asked.push(((measured - bounds.lower) / width, (width / measured).abs()));
        }
    }
    if asked.is_empty() {
        return Err(FitError::TooFew { found: 0, needed: 1 });
    }
    asked.sort_by(|left, right| left.0.total_cmp(&right.0));
    let quantile = |share| weighted_quantile(&asked, share);
    Ok(Contention {
        ratio: quantile(0.5),
        lower_quartile: quantile(0.25),
        upper_quartile: quantile(0.75),
    })
}

/// The first of the ascending values up to which this share of the weight lies.
fn weighted_quantile(values: &[(f64, f64)], share: f64) -> f64 {
    let whole: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    for (value, weight) in values {
        below += weight;
        if below >= share * whole {
            return *value;
        }
    }
    values.last().map_or(0.0, |(value, _)| *value)
}
