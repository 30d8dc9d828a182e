//! a + b × p + c × m.

use super::error::FitError;
use crate::formulas::join::JoinCosts;

/// One measured join.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlaneSample {
    /// P.
    pub ranks: u32,
    /// m.
    pub bytes: u64,
    /// Time taken, in microseconds.
    pub measured: f64,
}

/// A fitted join with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plane {
    /// a, b and c.
    pub costs: JoinCosts,
    /// One standard error of each; infinite if there were no more measurements than parameters.
    pub errors: JoinCosts,
}

/// The a, b and c of a + b × P + c × m for which the squares of the relative errors are least in
/// sum, so that short joins count as much as long ones.
///
/// # Errors
/// Fewer than three measurements, one that is not positive and finite, or measurements that differ
/// in ranks only or in bytes only, or in both in step.
///
/// ```
/// use models::fit::{self, PlaneSample};
/// let sample = |ranks, bytes, measured| PlaneSample { ranks, bytes, measured };
/// // 0.5 + 0.25 P + 0.001 m
/// let plane = fit::plane(&[sample(2, 0, 1.0), sample(4, 0, 1.5), sample(2, 1000, 2.0), sample(4, 1000, 2.5)])?;
/// assert!((plane.costs.fixed - 0.5).abs() < 1e-9 && (plane.costs.per_byte - 0.001).abs() < 1e-12);
/// # Ok::<(), models::fit::FitError>(())
/// ```
pub fn plane(samples: &[PlaneSample]) -> Result<Plane, FitError> {
    if samples.len() < 3 {
        return Err(FitError::TooFew { found: samples.len(), needed: 3 });
    }
    let (most_ranks, most_bytes) =
        samples.iter().fold((1.0f64, 1.0f64), |(ranks, bytes), sample| {
            (ranks.max(f64::from(sample.ranks)), bytes.max(sample.bytes as f64))
        });
    // Normal equations of rows divided by what was measured; columns brought to one scale.
    let mut normal = [[0.0; 3]; 3];
    let mut right = [0.0; 3];
    let row = |sample: &PlaneSample| {
        let columns = [1.0, f64::from(sample.ranks) / most_ranks, sample.bytes as f64 / most_bytes];
        columns.map(|column| column / sample.measured)
    };
    for (position, sample) in samples.iter().enumerate() {
        if !(sample.measured.is_finite() && sample.measured > 0.0) {
            return Err(FitError::NotUsable { position, value: sample.measured });
        }
        let row = row(sample);
        for (i, left) in row.iter().enumerate() {
            for (j, other) in row.iter().enumerate() {
                normal[i][j] += left * other;
            }
            right[i] += left;
        }
    }
    let inverse = inverse(normal)
        .ok_or(FitError::NoSpread { what: "ranks and sizes that lie in one line" })?;
    let solution: [f64; 3] =
        std::array::from_fn(|i| (0..3).map(|j| inverse[i][j] * right[j]).sum());
    let rest: f64 = samples
        .iter()
        .map(|sample| {
            1.0 - row(sample)
                .iter()
                .zip(solution)
                .map(|(column, value)| column * value)
                .sum::<f64>()
        })
        .map(|error| error * error)
        .sum();
    let variance = match samples.len() {
        3 => f64::INFINITY,
        count => rest / (count - 3) as f64,
    };
    let errors = std::array::from_fn(|i| (variance * inverse[i][i]).sqrt());
    let scaled = |[fixed, ranks, bytes]: [f64; 3]| JoinCosts {
        fixed,
        per_rank: ranks / most_ranks,
        per_byte: bytes / most_bytes,
    };
    Ok(Plane { costs: scaled(solution), errors: scaled(errors) })
}

/// The inverse of a symmetric matrix, by Gauss and Jordan with pivots; `None` if it is singular to
/// working precision.
fn inverse(mut matrix: [[f64; 3]; 3]) -> Option<[[f64; 3]; 3]> {
    let mut inverse = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let largest = matrix.iter().flatten().fold(0.0, |most: f64, value| most.max(value.abs()));
    for column in 0..3 {
        let pivot = (column..3)
            .max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        let divisor = matrix[pivot][column];
        if !divisor.is_finite() || divisor.abs() <= largest * 1e-13 {
            return None;
        }
        matrix.swap(column, pivot);
        inverse.swap(column, pivot);
        for k in 0..3 {
            matrix[column][k] /= divisor;
            inverse[column][k] /= divisor;
        }
        for row in (0..3).filter(|row| *row != column) {
            let factor = matrix[row][column];
            for k in 0..3 {
                matrix[row][k] -= factor * matrix[column][k];
                inverse[row][k] -= factor * inverse[column][k];
            }
        }
    }
    Some(inverse)
}
