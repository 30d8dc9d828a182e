//! Figures, maps and tables as comma-separated values, for other programs.

use crate::results::part::{Axis, Figure, Map, Point, Series, Table, Value, values};
use ::csv::Writer;
use std::io::Write;

/// A line for each point of each curve.
pub(super) fn of_figure(figure: &Figure) -> Table {
    let label = |axis: &Axis| match axis.unit.as_str() {
        "" => axis.label.clone(),
        unit => format!("{} ({unit})", axis.label),
    };
    let y = label(&figure.y);
    let line = |Series { name, role, .. }: &Series, point: &Point| {
        let Point { x, median, minimum, lower_quartile, upper_quartile, maximum, repetitions } =
            *point;
        let head = values![name.as_str(), role.name(), x, minimum, lower_quartile, median];
        let rest = values![upper_quartile, maximum, repetitions, y.as_str()];
        [head, rest].concat()
    };
    let lines = figure
        .series
        .iter()
        .flat_map(|series| series.points.iter().map(move |point| (series, point)));
    let rows = lines.map(|(series, point)| line(series, point)).collect();
    let columns = "curve | role | x | minimum | lower quartile | median | upper quartile | maximum | repetitions | median is";
    let mut table = Table::new([&figure.name, ""], columns, "", rows);
    table.columns[2] = label(&figure.x);
    table
}

/// A line for each cell.
pub(super) fn of_map(map: &Map) -> Table {
    let name = |names: &[String], at: usize| names.get(at).cloned().unwrap_or_default();
    let cells = map.cells.iter().map(|cell| {
        let row = name(&map.rows.names, cell.row);
        let column = name(&map.columns.names, cell.column);
        values![row, column, cell.text.as_str(), cell.value, cell.detail.as_str()]
    });
    let mut table =
        Table::new([&map.name, ""], "rows | columns | cell | value | detail", "", cells.collect());
    table.columns[0].clone_from(&map.rows.label);
    table.columns[1].clone_from(&map.columns.label);
    table
}

/// Writes a table as it is.
pub(super) fn write(table: &Table, to: impl Write) -> ::csv::Result<()> {
    let mut lines = Writer::from_writer(to);
    lines.write_record(&table.columns)?;
    for row in &table.rows {
        lines.write_record(row.iter().map(|value| match value {
            Value::None => String::new(),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
        }))?;
    }
    Ok(lines.flush()?)
}
