//! The part of the report.

use super::row::{Kind, Row, Target, targets};
use crate::results::{Axis, Figure, Part, Point, Role, Series, Table, Value};

/// All rows as a part of the suite. `way` says how packets were received.
pub fn part(rows: &[Row], way: &str) -> Part {
    let mut part = Part::new("nodes", "Between nodes");
    part.about =
        "Engines between nodes, which are network namespaces on this machine. An exchange \
                  has eight rounds, each of which begins when both messages of the one before have \
                  passed; the computation calls nothing. Trust the exposed time."
            .to_owned();
    part.source = "Schneider, Eckelmann, Hoefler, Rehm 2011, figures 4 to 7".to_owned();
    part.complete = true;
    part.setting.insert("packets are".to_owned(), way.to_owned());
    part.figures = [("ping-pong", Kind::Latency), ("reduction", Kind::Reduction)]
        .map(|(n, k)| figure(n, k, rows))
        .to_vec();
    part.figures.retain(|figure| !figure.series.is_empty());
    part.tables = vec![values(rows), reached(&targets(rows))];
    part.tables.retain(|table| !table.rows.is_empty());
    if let Some(row) =
        rows.iter().find(|row| row.nodes as usize > shm::process::allowed_cores().len())
    {
        part.notes.push(format!("{} nodes share the cores of this machine.", row.nodes));
    }
    part
}

/// A curve for each engine.
fn figure(name: &str, kind: Kind, rows: &[Row]) -> Figure {
    let (title, _) = kind.name();
    let x = Axis::bytes(if kind == Kind::Latency { "message length" } else { "vector length" })
        .logarithmic();
    let mut figure = Figure::new(name, title, x, Axis::microseconds("time"));
    for row in rows.iter().filter(|row| row.what == title) {
        let none = None;
        let point = Point {
            x: row.bytes as f64,
            median: row.median,
            minimum: Some(row.least),
            lower_quartile: none,
            upper_quartile: none,
            maximum: Some(row.greatest),
            repetitions: u32::try_from(row.rounds).unwrap_or(u32::MAX),
        };
        match figure.series.iter_mut().find(|series| series.name == row.engine) {
            Some(series) => series.points.push(point),
            None => {
                let role =
                    if row.engine.starts_with("socket") { Role::Floor } else { Role::Measured };
                figure.series.push(Series { name: row.engine.clone(), role, points: vec![point] });
            }
        }
    }
    figure
}

fn values(rows: &[Row]) -> Table {
    let row = |row: &Row| -> Vec<Value> {
        let bytes = if row.bytes == 0 { Value::None } else { (row.bytes as f64).into() };
        let [median, least, greatest] = [row.median, row.least, row.greatest].map(Value::Number);
        vec![
            row.what.into(),
            bytes,
            row.engine.as_str().into(),
            median,
            least,
            greatest,
            row.unit.sign().into(),
        ]
    };
    Table {
        name: "values".to_owned(),
        title: "Every value".to_owned(),
        caption: "The middle, the least and the greatest of the rounds.".to_owned(),
        columns: ["what", "bytes", "engine", "median", "least", "greatest", "unit"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.iter().map(row).collect(),
    }
}

fn reached(targets: &[Target]) -> Table {
    let row = |target: &Target| -> Vec<Value> {
        let held = if target.holds() { "yes" } else { "no" };
        vec![
            target.what.as_str().into(),
            target.limit.into(),
            target.found.into(),
            target.unit.into(),
            held.into(),
        ]
    };
    Table {
        name: "claims".to_owned(),
        title: "What the kernel engine is to reach".to_owned(),
        caption: "At most the reach is claimed.".to_owned(),
        columns: ["what", "reach", "found", "unit", "reached"].map(str::to_owned).to_vec(),
        rows: targets.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_become_curves_and_sockets_the_floor() {
        let row = |engine: &str, bytes| Row::of(Kind::Latency, engine, 2, bytes, &[2.0, 3.0]);
        let part = part(&[row("kernel", 8), row("kernel", 64), row("socket, sleeping", 8)], "sent");
        let series: Vec<(&str, Role, usize)> = part.figures[0]
            .series
            .iter()
            .map(|series| (series.name.as_str(), series.role, series.points.len()))
            .collect();
        assert_eq!(series, [("kernel", Role::Measured, 2), ("socket, sleeping", Role::Floor, 1)]);
        assert_eq!((part.figures.len(), part.tables.len()), (1, 1));
    }
}
