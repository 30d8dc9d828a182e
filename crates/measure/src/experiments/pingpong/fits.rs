//! Lines through the measurements, as in the report's table 1.

use super::shared::{FIGURES, TABLE};
use crate::harness::Error;
use crate::results::{Part, Point, Role, Series, Value};
use models::fit::{Messages, Weights, messages};

/// Short and long messages.
const MOST_PIECES: usize = 2;
/// Fewer lengths than this have no break to be found.
const LEAST_POINTS: usize = 4;

/// The columns of the table.
pub(super) const COLUMNS: [&str; 10] = [
    "figure",
    "curve",
    "messages",
    "from (bytes)",
    "to (bytes)",
    "start-up a (µs)",
    "error of a (µs)",
    "b (µs/byte)",
    "error of b (µs/byte)",
    "asymptotic bandwidth (MB/s)",
];

/// Fits every measured curve, adds the lines, and fills the table.
pub(super) fn conclude(part: &mut Part) -> Result<(), Error> {
    let mut rows = Vec::new();
    for (figure, _) in FIGURES {
        let curves = part.figure(figure).map(|figure| figure.series.clone()).unwrap_or_default();
        let mut lines = Vec::new();
        for curve in curves
            .iter()
            .filter(|curve| curve.role == Role::Measured && curve.points.len() >= LEAST_POINTS)
        {
            let points: Vec<(u64, f64)> =
                curve.points.iter().map(|point| (point.x as u64, point.median)).collect();
            let fitted = messages(&points, MOST_PIECES, Weights::Equal)?;
            lines.extend(drawn(&curve.name, &fitted));
            rows.extend(listed(figure, &curve.name, &fitted));
        }
        part.replace_series(figure, Role::Fitted, lines);
    }
    part.replace_rows(TABLE, rows);
    Ok(())
}

/// A line for each piece.
fn drawn(curve: &str, fitted: &Messages) -> Vec<Series> {
    let line = |(piece, kind): (&models::fit::Piece, &&str)| {
        let from = Point::exact(piece.from, piece.line.at(piece.from));
        let to = Point::exact(piece.to, piece.line.at(piece.to));
        Series {
            name: format!("{curve}, {kind}: {}", formula(piece)),
            role: Role::Fitted,
            points: vec![from, to],
        }
    };
    fitted.pieces.iter().zip(kinds(fitted.pieces.len())).map(line).collect()
}

/// "0.512 + 0.00011 m".
fn formula(piece: &models::fit::Piece) -> String {
    format!("{:.3} {:+.6} m", piece.line.intercept, piece.line.slope)
}

/// Names of the pieces, in order.
fn kinds(count: usize) -> &'static [&'static str] {
    match count {
        1 => &["all"],
        _ => &["short", "long"],
    }
}

fn listed(figure: &str, curve: &str, fitted: &Messages) -> Vec<Vec<Value>> {
    let error = |value: f64| if value.is_finite() { Value::Number(value) } else { Value::None };
    let head = |kind: &str| [Value::from(figure), curve.into(), kind.into()];
    let zero = fitted.zero.map(|time| {
        let rest = [
            0.0.into(),
            0.0.into(),
            time.into(),
            Value::None,
            Value::None,
            Value::None,
            Value::None,
        ];
        head("zero").into_iter().chain(rest).collect()
    });
    let row = |(piece, kind): (&models::fit::Piece, &&str)| {
        let line = piece.line;
        // No message takes less than nothing; behind a break the line need not begin at a message.
        let start_up = |a: f64| if a < 0.0 && *kind != "long" { Value::None } else { a.into() };
        // A byte in b microseconds is 1/b megabytes (10⁶ bytes) a second.
        let bandwidth =
            if line.slope > 0.0 { Value::Number(1.0 / line.slope) } else { Value::None };
        let rest = [
            piece.from.into(),
            piece.to.into(),
            start_up(line.intercept),
            error(line.intercept_error),
            line.slope.into(),
            error(line.slope_error),
            bandwidth,
        ];
        head(kind).into_iter().chain(rest).collect()
    };
    zero.into_iter().chain(fitted.pieces.iter().zip(kinds(fitted.pieces.len())).map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Setting;

    /// A part whose exchange takes these times, by length.
    fn part_of(time: impl Fn(f64) -> f64) -> Part {
        let mut part = super::super::outline(&Setting { cores: vec![0, 1], ..Setting::default() });
        let figure =
            part.figures.iter_mut().find(|figure| figure.name == "exchange").expect("it is there");
        for bytes in (0..=16_000).step_by(64) {
            figure.add(
                "receive posted",
                Role::Measured,
                Point::of(f64::from(bytes), &[time(f64::from(bytes))]),
            );
        }
        conclude(&mut part).expect("it can be fitted");
        part
    }

    /// Start-up, microseconds a byte and bandwidth of the messages of this kind.
    fn row(part: &Part, kind: &str) -> [f64; 5] {
        let rows = &part.table(TABLE).expect("it is there").rows;
        let row = rows
            .iter()
            .find(|row| row[2] == Value::from(kind))
            .unwrap_or_else(|| panic!("no {kind} in {rows:?}"));
        [3, 4, 5, 7, 9]
            .map(|column| if let Value::Number(number) = row[column] { number } else { f64::NAN })
    }

    fn assert_near(found: [f64; 5], expected: [f64; 5]) {
        let near = |(found, expected): (f64, f64)| {
            (found - expected).abs() <= 1e-6 * expected.abs().max(1.0)
        };
        assert!(found.into_iter().zip(expected).all(near), "{found:?}, not {expected:?}");
    }

    /// Table 1: 58, 75 + 0.011 m to 8640 bytes, 135 + 0.011 m beyond. 0.011 µs a byte are 90.90…
    /// MB/s.
    #[test]
    fn the_paragon_is_found_again() {
        let time = |m: f64| {
            if m == 0.0 {
                58.0
            } else if m <= 8640.0 {
                75.0 + 0.011 * m
            } else {
                135.0 + 0.011 * m
            }
        };
        let part = part_of(time);
        assert_near(row(&part, "short"), [64.0, 8640.0, 75.0, 0.011, 1000.0 / 11.0]);
        assert_near(row(&part, "long"), [8704.0, 16_000.0, 135.0, 0.011, 1000.0 / 11.0]);
        assert_eq!(row(&part, "zero")[2], 58.0);
        let fitted = part
            .figure("exchange")
            .expect("it is there")
            .series
            .iter()
            .filter(|curve| curve.role == Role::Fitted);
        assert_eq!(fitted.map(|curve| curve.points.len()).collect::<Vec<_>>(), [2, 2]);
    }

    /// Table 1: 48, 70 + 0.043 m to 10000 bytes, −50 + 0.056 m beyond; 23.25… and 17.85… MB/s.
    #[test]
    fn the_sp2_is_found_again() {
        let time = |m: f64| {
            if m == 0.0 {
                48.0
            } else if m <= 10_000.0 {
                70.0 + 0.043 * m
            } else {
                -50.0 + 0.056 * m
            }
        };
        let part = part_of(time);
        assert_near(row(&part, "short"), [64.0, 9984.0, 70.0, 0.043, 1000.0 / 43.0]);
        assert_near(row(&part, "long"), [10_048.0, 16_000.0, -50.0, 0.056, 1000.0 / 56.0]);
        assert_eq!(row(&part, "zero")[2], 48.0);
    }

    /// Table 1: 103, and 105 + 0.025 m for short and long ones: there is no break. 40 MB/s.
    #[test]
    fn the_cs_2_is_found_again_and_has_no_break() {
        let part = part_of(|m| if m == 0.0 { 103.0 } else { 105.0 + 0.025 * m });
        assert_near(row(&part, "all"), [64.0, 16_000.0, 105.0, 0.025, 40.0]);
        assert_eq!(row(&part, "zero")[2], 103.0);
    }

    #[test]
    fn a_start_up_below_nothing_is_none() {
        let part = part_of(|m| 0.002 * m - 0.01);
        assert!(row(&part, "all")[2].is_nan());
        assert!((row(&part, "all")[3] - 0.002).abs() < 1e-9);
    }

    #[test]
    fn conclusions_drawn_twice_are_the_same() {
        let mut part = part_of(|m| 1.0 + 0.001 * m);
        let once = part.clone();
        conclude(&mut part).expect("it can be fitted");
        assert_eq!(part, once);
    }
}
