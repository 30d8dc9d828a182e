//! Findings of a step, and their destinations in a part.

use crate::harness::error::Error;
use crate::results::{Part, Point, Role, Square, Value};
use crate::rows::Row;
use serde::{Deserialize, Serialize};

/// One thing that a step found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// A point of a curve, which begins with its first point.
    Point {
        /// The figure's name.
        figure: String,
        /// The curve's name.
        series: String,
        /// Source of the value.
        role: Role,
        /// The point.
        point: Point,
    },
    /// A row of the file of measured times.
    Time(Box<Row>),
    /// A row of a table.
    Row {
        /// The table's name.
        table: String,
        /// A value for every column.
        row: Vec<Value>,
    },
    /// A cell of a map.
    Cell {
        /// The map's name.
        map: String,
        /// The cell.
        cell: Square,
    },
    /// A remark for the reader; printed once, however often it is found.
    Note(String),
}

impl Finding {
    /// A measured point.
    pub fn measured(figure: &str, series: &str, point: Point) -> Self {
        Self::point(figure, series, Role::Measured, point)
    }

    /// A point.
    pub fn point(figure: &str, series: &str, role: Role, point: Point) -> Self {
        Finding::Point { figure: figure.to_owned(), series: series.to_owned(), role, point }
    }

    /// A row.
    pub fn row(table: &str, row: impl IntoIterator<Item = Value>) -> Self {
        Finding::Row { table: table.to_owned(), row: row.into_iter().collect() }
    }

    /// Puts it where it belongs.
    pub(super) fn add_to(self, part: &mut Part) -> Result<(), Error> {
        let no_place = |what, name: String| {
            Err(Error::UnknownDestination { what, name, part: part.name.clone() })
        };
        match self {
            Finding::Point { figure, series, role, point } => {
                finite(&figure, &series, &point)?;
                match part.figures.iter_mut().find(|known| known.name == figure) {
                    Some(figure) => figure.add(&series, role, point),
                    None => return no_place("figure", figure),
                }
            }
            // Rows lie in a file of their own.
            Finding::Time(_) => {}
            Finding::Row { table, row } => {
                match part.tables.iter_mut().find(|known| known.name == table) {
                    Some(known) if known.columns.len() == row.len() => known.rows.push(row),
                    _ => return no_place("a row of this length of table", table),
                }
            }
            Finding::Cell { map, cell } => {
                match part.maps.iter_mut().find(|known| known.name == map) {
                    Some(map) => map.cells.push(cell),
                    None => return no_place("map", map),
                }
            }
            Finding::Note(note) => {
                if !part.notes.contains(&note) {
                    part.notes.push(note);
                }
            }
        }
        Ok(())
    }
}

fn finite(figure: &str, series: &str, point: &Point) -> Result<(), Error> {
    let Point { x, median, minimum, lower_quartile, upper_quartile, maximum, .. } = *point;
    let quantiles = [minimum, lower_quartile, upper_quartile, maximum].into_iter().flatten();
    match [x, median].into_iter().chain(quantiles).find(|value| !value.is_finite()) {
        Some(value) => {
            Err(Error::NotFinite { place: format!("figure {figure}, {series}, at {x}"), value })
        }
        None => Ok(()),
    }
}
