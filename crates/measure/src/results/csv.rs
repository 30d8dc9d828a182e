//! Figures, maps and tables as comma-separated values, for other programs.

use crate::results::part::{Figure, Map, Point, Role, Table, Value};
use ::csv::Writer;
use std::io::Write;

type Result = ::csv::Result<()>;

/// A line for each point of each curve.
pub(super) fn figure(figure: &Figure, to: impl Write) -> Result {
    let mut lines = Writer::from_writer(to);
    let unit = |label: &str, unit: &str| {
        if unit.is_empty() { label.to_owned() } else { format!("{label} ({unit})") }
    };
    let x = unit(&figure.x.label, &figure.x.unit);
    let y = unit(&figure.y.label, &figure.y.unit);
    let statistics =
        ["minimum", "lower quartile", "median", "upper quartile", "maximum", "repetitions"];
    lines.write_record(["curve", "role", &x].into_iter().chain(statistics).chain(["median is"]))?;
    for series in &figure.series {
        for point in &series.points {
            let Point { x, median, minimum, lower_quartile, upper_quartile, maximum, repetitions } =
                point;
            let number =
                |value: &Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
            lines.write_record([
                series.name.clone(),
                role(series.role).to_owned(),
                x.to_string(),
                number(minimum),
                number(lower_quartile),
                median.to_string(),
                number(upper_quartile),
                number(maximum),
                repetitions.to_string(),
                y.clone(),
            ])?;
        }
    }
    Ok(lines.flush()?)
}

/// A line for each cell.
pub(super) fn map(map: &Map, to: impl Write) -> Result {
    let mut lines = Writer::from_writer(to);
    lines.write_record([
        map.rows.label.as_str(),
        map.columns.label.as_str(),
        "cell",
        "value",
        "detail",
    ])?;
    let name = |names: &[String], at: usize| names.get(at).cloned().unwrap_or_default();
    for cell in &map.cells {
        let value = cell.value.map(|value| value.to_string()).unwrap_or_default();
        let (row, column) =
            (name(&map.rows.names, cell.row), name(&map.columns.names, cell.column));
        lines.write_record([row, column, cell.text.clone(), value, cell.detail.clone()])?;
    }
    Ok(lines.flush()?)
}

/// The table as it is.
pub(super) fn table(table: &Table, to: impl Write) -> Result {
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

fn role(role: Role) -> &'static str {
    match role {
        Role::Measured => "measured",
        Role::Predicted => "predicted",
        Role::Fitted => "fitted",
        Role::Floor => "floor",
    }
}
