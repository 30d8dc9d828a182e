//! Several straight lines one after the other, broken where the measurements break.

use super::error::{FitError, usable};
use super::line::{Line, Sums, Weights};
use serde::{Deserialize, Serialize};

/// A line needs two points, and a third to say how good it is.
const LEAST: usize = 3;

/// One of several lines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// The smallest and the largest x of the fit.
    pub from: f64,
    /// See `from`.
    pub to: f64,
    /// The line.
    pub line: Line,
}

/// The lines of least squares through this many runs of points (x, y), sorted by x, with breaks
/// where the squares that are left in all are least. Each run has at least three points, and equal
/// x stay together.
///
/// Bokhari, 1995, section 2, fits short and long messages separately; where to divide is here found
/// by the fit itself: all divisions are compared, by dynamic programming over the last break
/// (Bellman: "On the Approximation of Curves by Line Segments Using Dynamic Programming",
/// Communications of the ACM 4(6), 1961). Takes time quadratic in the points.
///
/// # Errors
/// As [`line()`](super::line::line()), fewer than three points a piece, points that are not sorted, or so
/// many equal x that no division is left.
///
/// ```
/// use models::fit::{self, Weights};
/// // IBM SP2: 70 + 0.043 m to 10000 bytes, −50 + 0.056 m beyond (Bokhari 1995, table 1).
/// let time = |m: f64| if m <= 10_000.0 { 70.0 + 0.043 * m } else { -50.0 + 0.056 * m };
/// let points: Vec<_> = (1..=250).map(|i| f64::from(64 * i)).map(|m| (m, time(m))).collect();
/// let pieces = fit::pieces(&points, 2, Weights::Equal)?;
/// assert_eq!((pieces[0].to, pieces[1].from), (9984.0, 10048.0));
/// assert!((pieces[1].line.intercept + 50.0).abs() < 1e-6);
/// # Ok::<(), models::fit::FitError>(())
/// ```
pub fn pieces(
    points: &[(f64, f64)],
    count: usize,
    weights: Weights,
) -> Result<Vec<Piece>, FitError> {
    let count = count.max(1);
    let runs = Runs::new(points, count, weights)?;
    let divisions = runs.divisions(count).pop().flatten();
    divisions
        .and_then(|division| runs.lines(&division))
        .ok_or(FitError::NoSpread { what: "too few different sizes" })
}

/// The same with as many pieces, up to `most`, as the measurements speak for: another piece must
/// explain more than its line and its break cost by the Bayesian information criterion (Schwarz:
/// "Estimating the Dimension of a Model", Annals of Statistics 6(2), 1978). Noise alone results in
/// one piece.
///
/// # Errors
/// As [`pieces`] for one piece.
pub fn pieces_as_needed(
    points: &[(f64, f64)],
    most: usize,
    weights: Weights,
) -> Result<Vec<Piece>, FitError> {
    let most = most.clamp(1, points.len().max(LEAST) / LEAST);
    let runs = Runs::new(points, 1, weights)?;
    let samples = points.len() as f64;
    // Rounding errors are no information: what is left counts as at least this much.
    let floor = f64::EPSILON * runs.scale();
    let mut best: Option<(f64, Division)> = None;
    for (index, division) in runs.divisions(most).into_iter().enumerate() {
        let Some(division) = division else { continue };
        let parameters = (3 * (index + 1) - 1) as f64;
        let criterion =
            samples * (division.rest.max(floor) / samples).ln() + parameters * samples.ln();
        if best.as_ref().is_none_or(|(least, _)| criterion < *least) {
            best = Some((criterion, division));
        }
    }
    best.and_then(|(_, division)| runs.lines(&division))
        .ok_or(FitError::NoSpread { what: "the same size" })
}

/// End of each run, and the remaining squares.
#[derive(Clone, Debug)]
struct Division {
    ends: Vec<usize>,
    rest: f64,
}

struct Runs<'a> {
    points: &'a [(f64, f64)],
    weights: Vec<f64>,
}

impl<'a> Runs<'a> {
    fn new(points: &'a [(f64, f64)], count: usize, weights: Weights) -> Result<Self, FitError> {
        usable(points, count.saturating_mul(LEAST))?;
        if let Some(before) = points.windows(2).position(|pair| pair[1].0 < pair[0].0) {
            return Err(FitError::NotSorted { position: before + 1 });
        }
        Ok(Runs { points, weights: weights.of(points)? })
    }

    /// The best division into 1, 2, … `most` runs, where there is one.
    fn divisions(&self, most: usize) -> Vec<Option<Division>> {
        let length = self.points.len();
        // divided[n][end]: the best division of the points before `end` into n + 1 runs.
        let mut divided: Vec<Vec<Option<Division>>> = vec![vec![None; length + 1]; most];
        for start in 0..length {
            if !self.may_break(start) {
                continue;
            }
            let mut sums = Sums::default();
            for end in start + 1..=length {
                let (x, y) = self.points[end - 1];
                sums.add(x, y, self.weights[end - 1]);
                if end - start < LEAST || !self.may_break(end) || sums.line().is_none() {
                    continue;
                }
                for runs in 0..most {
                    let before = match runs {
                        0 if start == 0 => 0.0,
                        0 => continue,
                        _ => match &divided[runs - 1][start] {
                            Some(division) => division.rest,
                            None => continue,
                        },
                    };
                    let rest = before + sums.rest();
                    if divided[runs][end].as_ref().is_none_or(|known| rest < known.rest) {
                        let mut ends = match runs {
                            0 => Vec::new(),
                            _ => divided[runs - 1][start]
                                .as_ref()
                                .map_or_else(Vec::new, |known| known.ends.clone()),
                        };
                        ends.push(end);
                        divided[runs][end] = Some(Division { ends, rest });
                    }
                }
            }
        }
        divided.into_iter().map(|mut by_end| by_end.pop().flatten()).collect()
    }

    /// Returns `true` if a run may end before this point: not between equal x.
    fn may_break(&self, at: usize) -> bool {
        at == 0 || at == self.points.len() || self.points[at - 1].0 < self.points[at].0
    }

    fn lines(&self, division: &Division) -> Option<Vec<Piece>> {
        let mut start = 0;
        let mut lines = Vec::with_capacity(division.ends.len());
        for end in &division.ends {
            let mut sums = Sums::default();
            for ((x, y), weight) in self.points[start..*end].iter().zip(&self.weights[start..*end])
            {
                sums.add(*x, *y, *weight);
            }
            lines.push(Piece {
                from: self.points[start].0,
                to: self.points[*end - 1].0,
                line: sums.line()?,
            });
            start = *end;
        }
        Some(lines)
    }

    /// The weighted squares of the values themselves.
    fn scale(&self) -> f64 {
        self.points.iter().zip(&self.weights).map(|((_, y), weight)| weight * y * y).sum()
    }
}
