//! Results of the parts of a measurement, in one form for files, tables and figures.
//!
//! An experiment returns a [`Part`]: figures, maps and tables with titles, axes and notes.
//! Code that writes, renders or compares parts depends on no experiment. A part is made of
//! [rows](crate::rows) whenever it is shown; [`Directory`] writes its tables as CSV.
//!
//! Sizes are bytes and times microseconds unless an axis or a column has another unit.
//!
//! ```
//! use measure::results::{Axis, Figure, Part, Point, Role, Series};
//!
//! let mut part = Part::new("pingpong", "Time against message length");
//! let mut figure = Figure::new("round-trip", "Half a round trip", Axis::bytes("message length"), Axis::microseconds("time"));
//! let points = vec![Point::of(0.0, &[0.4, 0.5, 0.6]), Point::of(64.0, &[0.5, 0.5, 0.9])];
//! figure.series.push(Series { name: "receive posted".into(), role: Role::Measured, points });
//! part.figures.push(figure);
//! assert_eq!(part.figures[0].series[0].points[1].median, 0.5);
//! ```

mod csv;
mod directory;
pub(crate) mod machine;
mod part;

pub use directory::{Directory, ResultsError};
pub(crate) use part::values;
pub use part::{
    Axis, Categories, Colour, Figure, Map, Part, Point, Role, Scale, Series, Square, Table, Value,
};
