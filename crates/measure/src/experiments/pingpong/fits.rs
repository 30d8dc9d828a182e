//! Lines through the curves, as in the report's table 1.

use super::curves::{FIGURES, curves};
use crate::results::{Value, values};
use crate::rows::Run;
use models::fit::{Messages, Piece, Weights, messages};

/// Short and long messages.
const MOST_PIECES: usize = 2;
/// Fewer lengths than this have no break to be found.
const LEAST_POINTS: usize = 4;

/// Lines through a curve.
pub(in crate::experiments) struct Fit {
    /// Name of the figure.
    pub(in crate::experiments) figure: &'static str,
    /// Name of the curve.
    pub(in crate::experiments) curve: String,
    /// The lines.
    pub(in crate::experiments) messages: Messages,
}

impl Fit {
    /// The pieces, each with the name of its messages.
    pub(super) fn pieces(&self) -> impl DoubleEndedIterator<Item = (&'static str, &Piece)> {
        let pieces = &self.messages.pieces;
        let short = if pieces.len() == 1 { "all" } else { "short" };
        [short, "long"].into_iter().zip(pieces)
    }

    /// Formula of short messages, or of all; none where it would begin below nothing.
    pub(in crate::experiments) fn short(&self) -> Option<String> {
        self.pieces().next().and_then(complete_formula)
    }

    /// Formula of long messages, or of all.
    pub(in crate::experiments) fn long(&self) -> Option<String> {
        self.pieces().last().and_then(complete_formula)
    }

    /// Bandwidth of endless messages.
    pub(in crate::experiments) fn bandwidth(&self) -> Option<f64> {
        self.messages.pieces.last().and_then(bandwidth)
    }
}

/// "0.512 +0.000110 m".
pub(super) fn formula(piece: &Piece) -> String {
    format!("{:.3} {:+.6} m", piece.line.intercept, piece.line.slope)
}

fn complete_formula((kind, piece): (&str, &Piece)) -> Option<String> {
    start_up(kind, piece).map(|_| formula(piece))
}

/// No message takes less than nothing; behind a break the line need not begin at a message.
fn start_up(kind: &str, piece: &Piece) -> Option<f64> {
    Some(piece.line.intercept).filter(|a| *a >= 0.0 || kind == "long")
}

/// Megabytes (10⁶ bytes) a second of endless messages: a byte in b microseconds is 1/b of them.
fn bandwidth(piece: &Piece) -> Option<f64> {
    (piece.line.slope > 0.0).then(|| 1.0 / piece.line.slope)
}

/// The lengths at the distance of the long ones: short messages are measured at more lengths, which
/// would give them more weight in a line.
fn at_even_distances(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let distances = points.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let step = distances.max().unwrap_or(0).max(1);
    points.iter().copied().filter(|(bytes, _)| bytes.is_multiple_of(step)).collect()
}

/// Lines through every measured curve of enough lengths.
pub(in crate::experiments) fn fits(run: &Run) -> Vec<Fit> {
    let mut fits = Vec::new();
    for shown in FIGURES {
        let curves = curves(run, shown).series.into_iter();
        fits.extend(curves.filter_map(|curve| {
            let points: Vec<(u64, f64)> =
                curve.points.iter().map(|point| (point.x as u64, point.median)).collect();
            let points = at_even_distances(&points);
            if points.len() < LEAST_POINTS {
                return None;
            }
            let messages = messages(&points, MOST_PIECES, Weights::Equal).ok()?;
            Some(Fit { figure: shown.0, curve: curve.name, messages })
        }));
    }
    fits
}

/// Rows of the table: zero messages and each piece.
pub(super) fn listed(fit: &Fit) -> Vec<Vec<Value>> {
    let head = |kind: &str| values![fit.figure, fit.curve.as_str(), kind];
    let none = Value::None;
    let zero =
        |time: f64| values![0.0, 0.0, time, none.clone(), none.clone(), none.clone(), none.clone()];
    let piece = |(kind, piece): (&'static str, &Piece)| {
        let Piece { from, to, line, .. } = *piece;
        let [of_a, of_b] = [line.intercept_error, line.slope_error].map(Value::finite);
        let a = start_up(kind, piece);
        [head(kind), values![from, to, a, of_a, line.slope, of_b, bandwidth(piece)]].concat()
    };
    let zero = fit.messages.zero.map(|time| [head("zero"), zero(time)].concat());
    zero.into_iter().chain(fit.pieces().map(piece)).collect()
}
