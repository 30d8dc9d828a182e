//! The text form of a part: its tables and notes, without curves.

use super::text::count;
use crate::commands::figures::{figure, table_with};
use comfy_table::Cell;
use measure::results::{Part, Table, Value};
use std::path::Path;

/// A table of more rows is for other programs.
const MOST_ROWS: usize = 48;

/// The part's title, tables and notes, and where the rest lies, if it stays in a directory.
pub(super) fn of(part: &Part, directory: Option<&Path>) -> String {
    let mut lines = vec![part.title.clone()];
    for table in part.tables.iter().filter(|table| !table.rows.is_empty()) {
        if table.rows.len() <= MOST_ROWS {
            lines.push(format!("{}\n{}", table.title, shown(table)));
        } else {
            let file = directory
                .map(|directory| directory.join(format!("{}-{}.csv", part.name, table.name)));
            let place = file.map_or(String::new(), |file| format!(" in {}", file.display()));
            lines.push(format!("{}: {}{place}", table.title, count(table.rows.len(), "row")));
        }
    }
    lines.extend(part.notes.iter().cloned());
    let points: usize = part
        .figures
        .iter()
        .flat_map(|figure| &figure.series)
        .map(|series| series.points.len())
        .sum();
    let figures = count(part.figures.len(), "figure");
    let points = count(points, "point");
    let file = directory.map(|directory| directory.join(measure::rows::FILE));
    let place = file.map_or(String::new(), |file| format!(": {}", file.display()));
    lines.push(format!("{figures} of {points}{place}"));
    lines.join("\n")
}

fn shown(table: &Table) -> comfy_table::Table {
    let heads: Vec<&str> = table.columns.iter().map(String::as_str).collect();
    let mut shown = table_with(&heads);
    for row in &table.rows {
        shown.add_row(row.iter().map(|value| match value {
            Value::None => figure("–"),
            Value::Number(number) => figure(digits(*number)),
            Value::Text(text) => Cell::new(text),
        }));
    }
    shown
}

/// About four digits that mean something.
fn digits(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return format!("{number:.0}");
    }
    match number.abs() {
        large if large >= 1000.0 => format!("{number:.0}"),
        middling if middling >= 10.0 => format!("{number:.2}"),
        small if small >= 0.01 => format!("{number:.4}"),
        _ => format!("{number:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let read = [0.0, 7.0, 1234.5, -50.25, 0.0563, 0.000_043].map(digits);
        assert_eq!(read, ["0", "7", "1234", "-50.25", "0.0563", "4.300e-5"]);
    }
}
