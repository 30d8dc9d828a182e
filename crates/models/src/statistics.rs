//! Quantiles of repeated measurements.

use serde::{Deserialize, Serialize};

/// Repetitions of one measurement, in the order in which they were made, with their quantiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Every value.
    pub values: Vec<f64>,
    /// Their quantiles.
    pub quantiles: Quantiles,
}

/// Quantiles of a sample. All zero if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantiles {
    /// The least.
    pub minimum: f64,
    /// A tenth lies below.
    pub p10: f64,
    /// A quarter lies below.
    pub p25: f64,
    /// Half lies below.
    pub median: f64,
    /// A quarter lies above.
    pub p75: f64,
    /// A tenth lies above.
    pub p90: f64,
    /// The greatest.
    pub maximum: f64,
}

impl Sample {
    /// These values with their quantiles, which are linear between neighbouring values.
    ///
    /// ```
    /// let sample = models::statistics::Sample::of(vec![4.0, 1.0, 2.0, 3.0, 5.0]);
    /// assert_eq!((sample.quantiles.p25, sample.quantiles.median), (2.0, 3.0));
    /// ```
    pub fn of(values: Vec<f64>) -> Self {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share| percentile(&sorted, share);
        let quantiles = Quantiles {
            minimum: at(0.0),
            p10: at(0.1),
            p25: at(0.25),
            median: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            maximum: at(1.0),
        };
        Sample { values, quantiles }
    }

    /// Standard error of the median, by the quartiles as those of a normal distribution: 1.253 σ/√n,
    /// and σ is 0.741 of their distance. `None` without two values.
    ///
    /// ```
    /// let sample = models::statistics::Sample::of(vec![0.0, 1.0, 2.0, 3.0]);
    /// assert!((sample.uncertainty().expect("four values") - 0.929 * 1.5 / 2.0).abs() < 1e-3);
    /// assert_eq!(models::statistics::Sample::of(vec![1.0]).uncertainty(), None);
    /// ```
    pub fn uncertainty(&self) -> Option<f64> {
        const OF_DISTANCE: f64 = 1.253 * 0.741;
        let Quantiles { p25, p75, .. } = self.quantiles;
        let count = self.values.len();
        (count > 1).then(|| OF_DISTANCE * (p75 - p25) / (count as f64).sqrt())
    }
}

/// Median and outer deciles of a sample. All zero if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Deciles {
    /// Half of the values lie below.
    pub median: f64,
    /// A tenth of the values lies below.
    pub p10: f64,
    /// A tenth of the values lies above.
    pub p90: f64,
}

impl Deciles {
    /// Returns the deciles of these values, which may be in any order.
    ///
    /// ```
    /// let deciles = models::statistics::Deciles::of(&[3.0, 1.0, 2.0]);
    /// assert_eq!((deciles.p10, deciles.median, deciles.p90), (1.2, 2.0, 2.8));
    /// ```
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share| percentile(&sorted, share);
        Deciles { median: at(0.5), p10: at(0.1), p90: at(0.9) }
    }
}

/// Returns the median of these values, which may be in any order; zero if there are none.
///
/// ```
/// assert_eq!(models::statistics::median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
/// ```
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 0.5)
}

/// Returns the value below which this share (0 to 1) of ascending values lies, linear between the
/// two nearest (definition 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996);
/// zero if there are none.
///
/// ```
/// assert_eq!(models::statistics::percentile(&[10.0, 20.0], 0.25), 12.5);
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

/// Lowers each value to the least of those behind it, so that no value is above a later one: what
/// disturbances have lengthened is at most as long as what cannot be shorter.
///
/// ```
/// let mut values = [1.0, 4.0, 2.0, 5.0];
/// models::statistics::never_falling(&mut values);
/// assert_eq!(values, [1.0, 2.0, 2.0, 5.0]);
/// ```
pub fn never_falling(values: &mut [f64]) {
    let mut least = f64::INFINITY;
    for value in values.iter_mut().rev() {
        least = value.min(least);
        *value = least;
    }
}

/// Replaces values by the nearest ones, by least squares, of which none is above a later one: where
/// noise makes some fall, all that are out of order get their mean (pool adjacent violators; Ayer et
/// al., "An Empirical Distribution Function for Sampling with Incomplete Information", 1955).
///
/// ```
/// let mut values = [1.0, 4.0, 2.0, 3.0, 5.0];
/// models::statistics::pooled(&mut values);
/// assert_eq!(values, [1.0, 3.0, 3.0, 3.0, 5.0]);
/// ```
pub fn pooled(values: &mut [f64]) {
    // Ascending means of neighbouring values, with their numbers of values.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for value in values.iter() {
        let (mut mean, mut count) = (*value, 1);
        while let Some((before, earlier)) = pools.pop_if(|(before, _)| *before > mean) {
            mean = (before * earlier as f64 + mean * count as f64) / (earlier + count) as f64;
            count += earlier;
        }
        pools.push((mean, count));
    }
    let all = pools.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean, count));
    values.iter_mut().zip(all).for_each(|(value, mean)| *value = mean);
}
