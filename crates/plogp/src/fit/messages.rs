//! Time against message length: zero, short and long messages.

use super::{FitError, Piece, Weights, median, pieces_as_needed, theil_sen, usable};
use serde::{Deserialize, Serialize};

/// How many spreads a measurement may lie off before it is left out.
const FAR: f64 = 6.0;
/// After so many passes no measurement is left out any more.
const PASSES: usize = 4;

/// What messages take, as in Bokhari 1995, table 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// The time of a message without bytes, if it was measured, in microseconds. It takes no part in the lines: "the
    /// performance for zero byte messages is significantly better than predicted by the short message expressions".
    pub zero: Option<f64>,
    /// Lines a + b × m one after the other, shortest messages first: one, or short and long, or three.
    pub pieces: Vec<Piece>,
    /// The places of measurements that were left out because they lie far off all others.
    pub outliers: Vec<usize>,
}

impl Messages {
    /// The time of a message of this many bytes by the fit, in microseconds. Between two pieces, the nearer decides.
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

/// Fits zero, short and long messages, each for itself, to (bytes, microseconds) sorted by bytes, with up to `most` pieces
/// and the breaks where the fit finds them.
///
/// Outliers, such as the spikes of other users' messages in the report's figure 2, are borne in two ways. The breaks are
/// found by least squares after measurements have been left out that lie more than six median deviations off the pieces
/// through the others; then each piece gets its line by [`theil_sen`].
///
/// # Errors
/// As [`pieces_as_needed`], for the measurements with bytes.
pub fn messages(points: &[(u64, f64)], most: usize, weights: Weights) -> Result<Messages, FitError> {
    let all: Vec<(f64, f64)> = points.iter().map(|(bytes, time)| (*bytes as f64, *time)).collect();
    usable(&all, 1)?;
    let mut zeros: Vec<f64> = points.iter().filter(|(bytes, _)| *bytes == 0).map(|(_, time)| *time).collect();
    let zero = if zeros.is_empty() { None } else { Some(median(&mut zeros)) };

    let with_bytes: Vec<usize> = (0..points.len()).filter(|index| points[*index].0 > 0).collect();
    let mut kept = with_bytes.clone();
    let mut fitted = fit(&all, &kept, most, weights)?;
    for _ in 0..PASSES {
        let remaining = without_outliers(&all, &with_bytes, &fitted, weights);
        if remaining == kept {
            break;
        }
        let Ok(again) = fit(&all, &remaining, most, weights) else { break };
        (kept, fitted) = (remaining, again);
    }
    let outliers = with_bytes.into_iter().filter(|index| !kept.contains(index)).collect();
    Ok(Messages { zero, pieces: fitted, outliers })
}

fn fit(all: &[(f64, f64)], kept: &[usize], most: usize, weights: Weights) -> Result<Vec<Piece>, FitError> {
    let points: Vec<(f64, f64)> = kept.iter().map(|index| all[*index]).collect();
    let mut pieces = pieces_as_needed(&points, most, weights)?;
    for piece in &mut pieces {
        let own: Vec<_> = points.iter().filter(|(x, _)| (piece.from..=piece.to).contains(x)).copied().collect();
        piece.line = theil_sen(&own)?;
    }
    Ok(pieces)
}

/// Those of the candidates that lie near the pieces, measured by what is usual.
fn without_outliers(all: &[(f64, f64)], candidates: &[usize], pieces: &[Piece], weights: Weights) -> Vec<usize> {
    let off = |index: usize| {
        let (x, y) = all[index];
        let piece = pieces.iter().find(|piece| x <= piece.to).or(pieces.last());
        let distance = piece.map_or(0.0, |piece| (y - piece.line.at(x)).abs());
        match weights {
            Weights::Equal => distance,
            Weights::Relative => distance / y,
        }
    };
    let mut usual: Vec<f64> = candidates.iter().map(|index| off(*index)).collect();
    let limit = FAR * 1.4826 * median(&mut usual);
    // Measurements without any noise have nothing far off but rounding errors.
    let rounding = 1e-9 * candidates.iter().map(|index| all[*index].1.abs()).fold(0.0, f64::max);
    candidates.iter().copied().filter(|index| off(*index) <= limit.max(rounding)).collect()
}
