//! Time against message length: zero, short and long messages.

use super::error::{FitError, usable};
use super::line::{Weights, theil_sen};
use super::pieces::{Piece, pieces_as_needed};
use crate::statistics::median;
use serde::{Deserialize, Serialize};

/// Number of usual deviations beyond which a measurement is left out.
const FAR: f64 = 6.0;
/// Number of measurements on each side that a measurement is compared with. Two of seven may be
/// outliers themselves.
const NEIGHBORS: usize = 7;

/// Times of messages, as in Bokhari 1995, table 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// The time of a message without bytes, if it was measured, in microseconds. It takes no part
    /// in the lines: "the performance for zero byte messages is significantly better than predicted
    /// by the short message expressions".
    pub zero: Option<f64>,
    /// Lines a + b × m one after the other, shortest messages first: one, or short and long, or
    /// three.
    pub pieces: Vec<Piece>,
    /// The places of measurements that were left out because they lie far off all others.
    pub outliers: Vec<usize>,
}

impl Messages {
    /// The time of a message of this many bytes by the fit, in microseconds. Between two pieces,
    /// the nearer decides.
    pub fn at(&self, bytes: u64) -> Option<f64> {
        let m = bytes as f64;
        if bytes == 0 && self.zero.is_some() {
            return self.zero;
        }
        let breaks = self.pieces.windows(2).map(|pair| f64::midpoint(pair[0].to, pair[1].from));
        let piece = breaks.take_while(|middle| m > *middle).count();
        self.pieces.get(piece).map(|piece| piece.line.at(m))
    }
}

/// Fits zero, short and long messages, each for itself, to (bytes, microseconds) sorted by bytes,
/// with up to `most` pieces and the breaks where the fit finds them.
///
/// Outliers, such as the spikes of other users' messages in the report's figure 2, are borne in two
/// ways. A measurement is left out if it lies neither on the line through the seven before it nor
/// on the line through the seven behind it, by more than six times what is usual; next to a break
/// one of the two still fits. Breaks are found by least squares among the others, and each piece
/// gets its line by [`theil_sen`].
///
/// # Errors
/// As [`pieces_as_needed`], for the measurements with bytes.
pub fn messages(
    points: &[(u64, f64)],
    most: usize,
    weights: Weights,
) -> Result<Messages, FitError> {
    let all: Vec<(f64, f64)> = points.iter().map(|(bytes, time)| (*bytes as f64, *time)).collect();
    usable(&all, 1)?;
    let zeros: Vec<f64> =
        points.iter().filter(|(bytes, _)| *bytes == 0).map(|(_, time)| *time).collect();
    let zero = if zeros.is_empty() { None } else { Some(median(&zeros)) };

    let with_bytes: Vec<usize> = (0..points.len()).filter(|index| points[*index].0 > 0).collect();
    let measured: Vec<(f64, f64)> = with_bytes.iter().map(|index| all[*index]).collect();
    let far = far_off(&measured, weights);
    let near: Vec<(f64, f64)> =
        measured.iter().zip(&far).filter(|(_, far)| !**far).map(|(point, _)| *point).collect();
    let mut pieces = pieces_as_needed(&near, most, weights)?;
    for piece in &mut pieces {
        let own: Vec<_> =
            near.iter().filter(|(x, _)| (piece.from..=piece.to).contains(x)).copied().collect();
        piece.line = theil_sen(&own)?;
    }
    let outliers =
        with_bytes.into_iter().zip(far).filter(|(_, far)| *far).map(|(index, _)| index).collect();
    Ok(Messages { zero, pieces, outliers })
}

/// Which points lie far off the lines through their neighbours on both sides.
fn far_off(points: &[(f64, f64)], weights: Weights) -> Vec<bool> {
    let deviation = |index: usize| {
        let (x, y) = points[index];
        let before = &points[index.saturating_sub(NEIGHBORS)..index];
        let behind = &points[index + 1..points.len().min(index + 1 + NEIGHBORS)];
        let lines = [before, behind]
            .into_iter()
            .filter(|side| side.len() >= 3)
            .filter_map(|side| theil_sen(side).ok());
        let least = lines.map(|line| (y - line.at(x)).abs()).reduce(f64::min).unwrap_or(0.0);
        match weights {
            Weights::Equal => least,
            Weights::Relative => least / y.abs(),
        }
    };
    let deviations: Vec<f64> = (0..points.len()).map(deviation).collect();
    let usual = 1.4826 * median(&deviations);
    // Measurements without any noise have nothing far off but rounding errors.
    let rounding = match weights {
        Weights::Equal => 1e-9 * points.iter().map(|(_, y)| y.abs()).fold(0.0, f64::max),
        Weights::Relative => 1e-9,
    };
    deviations.into_iter().map(|deviation| deviation > (FAR * usual).max(rounding)).collect()
}
