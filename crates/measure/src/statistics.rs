//! Order statistics of repetitions.

use serde::{Deserialize, Serialize};

/// The median and the outer deciles of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of the values lie below.
    pub median: f64,
    /// A tenth of the values lies below.
    pub p10: f64,
    /// A tenth of the values lies above.
    pub p90: f64,
}

impl Quantiles {
    /// Of these values, in any order; all zero if there are none.
    ///
    /// ```
    /// use measure::statistics::Quantiles;
    /// let summary = Quantiles::of(&[3.0, 1.0, 2.0]);
    /// assert_eq!((summary.p10, summary.median, summary.p90), (1.2, 2.0, 2.8));
    /// ```
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share| percentile(&sorted, share);
        Quantiles { median: at(0.5), p10: at(0.1), p90: at(0.9) }
    }
}

/// The median of these values, in any order; zero if there are none.
///
/// ```
/// assert_eq!(measure::statistics::median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
/// ```
pub fn median(values: &[f64]) -> f64 {
    Quantiles::of(values).median
}

/// The value below which this share (0 to 1) of ascending values lies, linear between the two
/// nearest (definition 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996);
/// zero if there are none.
///
/// ```
/// assert_eq!(measure::statistics::percentile(&[10.0, 20.0], 0.25), 12.5);
/// ```
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = last as f64 * share.clamp(0.0, 1.0);
    let below = (place as usize).min(last);
    let above = (below + 1).min(last);
    let weight = place - below as f64;
    // In this form equal neighbours give themselves, without rounding.
    sorted[below] + (sorted[above] - sorted[below]) * weight
}
