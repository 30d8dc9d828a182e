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
        let at = |share: f64| {
            let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
            let place = last as f64 * share;
            let below = sorted[place as usize];
            let above = sorted[(place as usize + 1).min(last)];
            below + (above - below) * place.fract()
        };
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
}

/// The middle of these values; they are sorted by this. Zero if there are none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}
