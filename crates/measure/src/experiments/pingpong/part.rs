//! Figures and table of a run.

use super::curves::{EACH, FIGURES, LONGEST_SHORT, Shown, curves};
use super::fits::{fits, formula, listed};
use crate::experiments::curves::{drawn, line_between, point};
use crate::experiments::pairs::LONGEST;
use crate::results::{Axis, Figure, Part, Table};
use crate::rows::{Pattern, Quantity, Run, What};

/// Adds the figures and the table of a run.
pub(super) fn view(run: &Run, part: &mut Part) {
    let fits = fits(run);
    for shown in FIGURES {
        let mut figure = curves(run, shown);
        for fit in fits.iter().filter(|fit| fit.figure == figure.name) {
            for (kind, piece) in fit.pieces() {
                let name = format!("{}, {kind}: {}", fit.curve, formula(piece));
                figure.series.push(line_between(name, &piece.line, [piece.from, piece.to]));
            }
        }
        part.figures.push(figure);
        part.figures.push(short_curves(run, shown));
    }
    part.figures.extend([first_touch(run), blocking(run)]);
    part.tables.push(Table::new(
        ["fits", "a + b × m"],
        "figure | curve | messages | from (bytes) | to (bytes) | start-up a (µs) | error of a (µs) | \
         b (µs/byte) | error of b (µs/byte) | asymptotic bandwidth (MB/s)",
        "Zero, short and long messages fitted each for itself, with the break found by the fit, through \
         the medians of 0 to 16000 bytes; errors are one standard error.",
        fits.iter().flat_map(listed).collect(),
    ));
}

/// The curves of a figure again, of short messages only.
fn short_curves(run: &Run, shown: Shown) -> Figure {
    let (name, title, _) = shown;
    let mut figure = curves(run, shown);
    figure.name = format!("{name}-short");
    figure.title = format!("{title}, 0 to {LONGEST_SHORT} bytes");
    for series in &mut figure.series {
        series.points.retain(|point| point.x <= LONGEST_SHORT as f64);
    }
    figure.series.retain(|series| !series.points.is_empty());
    figure
}

fn first_touch(run: &Run) -> Figure {
    let x = Axis::bytes("message length").logarithmic();
    let y = Axis::microseconds("time of a message").logarithmic();
    let title = "Pages that are touched for the first time";
    let figure = Figure::new("first-touch", title, x, y).captioned(
        "Each message of a round trip goes to memory that was never touched, or to the same memory \
         again; the first run of a schedule touches the library's own memory too. Everything else in \
         this suite is measured in touched memory, after a first pass.",
    );
    let large = run.rows().filter(|row| row.bytes > LONGEST);
    drawn(figure, large, |row| {
        let curve = match row.quantity {
            Quantity::First => "first run of a schedule",
            Quantity::Untouched => "untouched memory",
            _ => "touched memory",
        };
        Some((curve.to_owned(), point(row, row.bytes as f64, EACH)))
    })
}

fn blocking(run: &Run) -> Figure {
    let title = "Blocking and nonblocking sends";
    let figure = Figure::by_length("blocking", title, "time of a message").captioned(
        "A message in each direction. Nonblocking: both are started, then both are waited for. \
         Blocking: each is waited for before the next is started.",
    );
    drawn(figure, run.rows(), |row| {
        let What::Exchange(exchange) = &row.what else { return None };
        let curve = match exchange.pattern {
            Pattern::InTurn => "blocking",
            Pattern::AtOnce => "nonblocking",
            Pattern::Exchange | Pattern::RoundTrip => return None,
        };
        Some((curve.to_owned(), point(row, row.bytes as f64, EACH)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::pingpong::ENTRY;
    use crate::results::{Role, Value};
    use crate::rows::{Exchange, Pairs, Pattern, Row, What};

    /// The part of a run whose exchange of two messages takes these times, by length.
    fn part_of(time: impl Fn(f64) -> f64) -> Part {
        let what = What::Exchange(Exchange::posted(Pairs::Chain, Pattern::Exchange));
        let row = |bytes: u64| Row::trial(what.clone(), 2, bytes, &[2.0 * time(bytes as f64)]);
        ENTRY.part(&Run::of((0..=16_000).step_by(64).map(row)))
    }

    /// Start-up, microseconds a byte and bandwidth of the messages of this kind.
    fn row(part: &Part, kind: &str) -> [f64; 5] {
        let rows = &part.table("fits").expect("it is there").rows;
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

    #[test]
    fn short_messages_have_no_more_weight_for_their_number() {
        let time = |m: f64| if m % 64.0 == 0.0 { 10.0 + 0.01 * m } else { 100.0 };
        let what = What::Exchange(Exchange::posted(Pairs::Chain, Pattern::Exchange));
        let row = |bytes: u64| Row::trial(what.clone(), 2, bytes, &[2.0 * time(bytes as f64)]);
        let short = (0..=2_000).step_by(16).filter(|bytes| bytes % 64 != 0);
        let both = ENTRY.part(&Run::of((0..=16_000).step_by(64).chain(short).map(row)));
        assert_eq!(both.table("fits"), part_of(time).table("fits"));
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
}
