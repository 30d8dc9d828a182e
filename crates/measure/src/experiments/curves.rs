//! Curves, lines and maps that show rows.

use crate::results::{Figure, Point, Role, Series, Square};
use crate::rows::Row;
use models::fit::{Line, Weights, line};

/// The figure with a point for each row that has a place in it: a curve, and a point of it.
pub(super) fn drawn<'r>(
    mut figure: Figure,
    rows: impl IntoIterator<Item = &'r Row>,
    place: impl Fn(&Row) -> Option<(String, Point)>,
) -> Figure {
    for (curve, point) in rows.into_iter().filter_map(place) {
        figure.add(&curve, Role::Measured, point);
    }
    figure
}

/// The times of a row at x, each multiplied by `scale`.
pub(super) fn point(row: &Row, x: f64, scale: f64) -> Point {
    Point::of(x, &row.times.iter().map(|time| time * scale).collect::<Vec<_>>())
}

/// End of the name of a curve of ranks that take turns on cores.
pub(super) fn crowd(row: &Row) -> &'static str {
    if row.is_crowded() { ", more ranks than cores" } else { "" }
}

/// A line through the points of a curve.
pub(super) struct FittedCurve {
    pub(super) curve: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) line: Line,
}

impl FittedCurve {
    /// Lines through the curves of a figure against the dimension of 2^d ranks. A single rank takes
    /// no part, and a curve of one dimension has no line.
    pub(super) fn all(figure: &Figure, value: impl Fn(&Point) -> f64) -> Vec<Self> {
        let fitted = |series: &Series| {
            let several = series.points.iter().filter(|point| point.x > 0.0);
            let points: Vec<(f64, f64)> = several.map(|point| (point.x, value(point))).collect();
            let line = line(&points, Weights::Equal).ok()?;
            Some(FittedCurve { curve: series.name.clone(), points, line })
        };
        figure.series.iter().filter_map(fitted).collect()
    }

    /// The line, named with its formula, of which each number has so many decimals.
    pub(super) fn series(&self, decimals: usize) -> Series {
        let Line { slope, intercept, .. } = self.line;
        let name = format!("{}: {slope:.decimals$} d {intercept:+.decimals$}", self.curve);
        let ends =
            [self.points.first(), self.points.last()].map(|end| end.map_or(0.0, |end| end.0));
        line_between(name, &self.line, ends)
    }
}

/// A median beside that of the same length between two ranks.
pub(super) struct Scaled<'r> {
    pub(super) row: &'r Row,
    pub(super) time: f64,
    /// This time over that between two ranks, if that was measured.
    pub(super) ratio: Option<f64>,
}

impl<'r> Scaled<'r> {
    /// Rows by length and number of ranks, each time divided by `share`.
    pub(super) fn all(
        rows: impl Iterator<Item = &'r Row>,
        share: impl Fn(&Row) -> f64,
    ) -> Vec<Self> {
        let mut rows: Vec<&Row> = rows.collect();
        rows.sort_by_key(|row| (row.bytes, row.ranks));
        let of = |row: &&'r Row| {
            let one_pair = rows.iter().find(|one| (one.bytes, one.ranks) == (row.bytes, 2));
            let time = row.median() / share(row);
            let ratio = one_pair.map(|one| time / (one.median() / share(one)));
            let ratio = ratio.filter(|ratio| ratio.is_finite());
            Scaled { row, time, ratio }
        };
        rows.iter().map(of).collect()
    }
}

/// A fitted line between two places.
pub(super) fn line_between(name: String, line: &Line, ends: [f64; 2]) -> Series {
    let points = ends.map(|x| Point::exact(x, line.at(x))).to_vec();
    Series { name, role: Role::Fitted, points }
}

/// Cells with the ratio of each time to the least. Each time comes with its column and row;
/// `detail` puts it into words.
pub(super) fn ratios(times: &[(usize, usize, f64)], detail: impl Fn(f64) -> String) -> Vec<Square> {
    let least = times.iter().map(|(.., time)| *time).fold(f64::INFINITY, f64::min);
    let cell = |(column, row, time): &(usize, usize, f64)| {
        let value = Some(time / least).filter(|ratio| ratio.is_finite());
        let text = value.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        Square { column: *column, row: *row, text, value, detail: detail(*time) }
    };
    times.iter().map(cell).collect()
}
