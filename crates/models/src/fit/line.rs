//! a + b × x.

use super::error::{FitError, usable};
use crate::statistics::{median, percentile};
use serde::{Deserialize, Serialize};

/// A straight line a + b × x with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// a: the value at 0.
    pub intercept: f64,
    /// b: the change for each unit of x.
    pub slope: f64,
    /// One standard error of a; infinite if there were no more points than the line needs.
    pub intercept_error: f64,
    /// One standard error of b; infinite if there were no more points than the line needs.
    pub slope_error: f64,
}

impl Line {
    /// The value of the line.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// Weight of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Each as much as the others: errors in microseconds are made small. For sizes of one order of
    /// magnitude.
    Equal,
    /// By 1/y²: relative errors are made small. For sizes over many orders of magnitude, of which
    /// the longest messages would decide alone otherwise.
    Relative,
}

impl Weights {
    /// The weights of these measurements.
    pub(super) fn of(self, points: &[(f64, f64)]) -> Result<Vec<f64>, FitError> {
        let weight = |(position, (_, y)): (usize, &(f64, f64))| match self {
            Weights::Equal => Ok(1.0),
            Weights::Relative if *y > 0.0 => Ok(1.0 / (y * y)),
            Weights::Relative => Err(FitError::NotUsable { position, value: *y }),
        };
        points.iter().enumerate().map(weight).collect()
    }
}

/// The line of least squares through points (x, y), in any order.
///
/// # Errors
/// Fewer than two points, a value that is not finite (with [`Weights::Relative`] also one that is
/// not positive), or the same x throughout.
///
/// ```
/// use models::fit::{self, Weights};
/// // Meiko CS-2, messages: 105 + 0.025 m (Bokhari 1995, table 1).
/// let line = fit::line(&[(64.0, 106.6), (1000.0, 130.0), (16000.0, 505.0)], Weights::Equal)?;
/// assert!((line.intercept - 105.0).abs() < 1e-9 && (line.slope - 0.025).abs() < 1e-12);
/// # Ok::<(), models::fit::FitError>(())
/// ```
pub fn line(points: &[(f64, f64)], weights: Weights) -> Result<Line, FitError> {
    usable(points, 2)?;
    let weights = weights.of(points)?;
    let mut sums = Sums::default();
    for ((x, y), weight) in points.iter().zip(weights) {
        sums.add(*x, *y, weight);
    }
    sums.line().ok_or(FitError::NoSpread { what: "the same size" })
}

/// The line through points (x, y) that outliers hardly move: its slope is the median of the slopes
/// between all pairs of points, its intercept the median of what that leaves. Up to 29 % of the
/// points may be anything.
///
/// Theil, 1950; Sen: "Estimates of the Regression Coefficient Based on Kendall's Tau", Journal of
/// the American Statistical Association 63, 1968, from where the slope's error is, too: half of the
/// interval that holds it with 68 %, the share that one standard error on each side has of a normal
/// distribution. Chosen over least absolute deviations because points at the ends of the range,
/// where a single outlier pulls most, have no more say than others. Takes quadratic time and
/// memory.
///
/// # Errors
/// Fewer than two points, a value that is not finite, or the same x throughout.
pub fn theil_sen(points: &[(f64, f64)]) -> Result<Line, FitError> {
    usable(points, 2)?;
    let mut slopes: Vec<f64> = Vec::new();
    for (index, (x, y)) in points.iter().enumerate() {
        slopes.extend(
            points[..index]
                .iter()
                .filter(|other| other.0 != *x)
                .map(|other| (y - other.1) / (x - other.0)),
        );
    }
    if slopes.is_empty() {
        return Err(FitError::NoSpread { what: "the same size" });
    }
    slopes.sort_by(f64::total_cmp);
    let slope = percentile(&slopes, 0.5);
    let rests: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let intercept = median(&rests);
    let count = points.len() as f64;
    if points.len() == 2 {
        return Ok(Line {
            intercept,
            slope,
            intercept_error: f64::INFINITY,
            slope_error: f64::INFINITY,
        });
    }
    let reach = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    let middle = slopes.len() as f64 / 2.0;
    let low = slopes[(middle - reach / 2.0).max(0.0) as usize];
    let high = slopes[((middle + reach / 2.0) as usize).min(slopes.len() - 1)];
    let slope_error = (high - low) / 2.0;
    // A median's standard error is 1.25 standard deviations over √n; 1.48 median deviations
    // estimate one of these.
    let deviations: Vec<f64> = rests.iter().map(|rest| (rest - intercept).abs()).collect();
    let spread = 1.2533 * 1.4826 * median(&deviations) / count.sqrt();
    let sizes: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
    let intercept_error = spread.hypot(slope_error * median(&sizes).abs());
    Ok(Line { intercept, slope, intercept_error, slope_error })
}

/// Weighted sums from which a line follows, around the mean, so that nothing is lost when sizes are
/// large.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    count: usize,
    weight: f64,
    mean: (f64, f64),
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Sums {
    /// West: "Updating Mean and Variance Estimates: an Improved Method", Communications of the ACM
    /// 22(9), 1979.
    pub(super) fn add(&mut self, x: f64, y: f64, weight: f64) {
        self.count += 1;
        self.weight += weight;
        let from_x = x - self.mean.0;
        let from_y = y - self.mean.1;
        let share = weight / self.weight;
        self.mean.0 += from_x * share;
        self.mean.1 += from_y * share;
        self.xx += weight * from_x * (x - self.mean.0);
        self.xy += weight * from_x * (y - self.mean.1);
        self.yy += weight * from_y * (y - self.mean.1);
    }

    /// The weighted squares that the best line leaves; those around the mean if there is no line.
    pub(super) fn rest(&self) -> f64 {
        let explained = if self.xx > 0.0 { self.xy * self.xy / self.xx } else { 0.0 };
        (self.yy - explained).max(0.0)
    }

    /// The best line, if there is more than one x.
    pub(super) fn line(&self) -> Option<Line> {
        if self.xx <= 0.0 {
            return None;
        }
        let slope = self.xy / self.xx;
        let intercept = self.mean.1 - slope * self.mean.0;
        if !(slope.is_finite() && intercept.is_finite()) {
            return None;
        }
        let (slope_error, intercept_error) = match self.count {
            ..=2 => (f64::INFINITY, f64::INFINITY),
            count => {
                let variance = self.rest() / (count - 2) as f64;
                let at_zero = 1.0 / self.weight + self.mean.0 * self.mean.0 / self.xx;
                ((variance / self.xx).sqrt(), (variance * at_zero).sqrt())
            }
        };
        Some(Line { intercept, slope, intercept_error, slope_error })
    }
}
