//! Renders measurements as one page: every figure, map and table of every part, and the
//! machine's parameters. The page is one file that needs nothing else, runs no script, and prints; the
//! values of a point or a cell appear under the pointer.
//!
//! | module | task |
//! |---|---|
//! | [`Results`] | what lies in a directory of results, with what cannot be read named instead of failing |
//! | `machine` | `machine.json` as a part like any other |
//! | `compare` | what two machines have in common, and the ratios |
//! | `curves` | which colour, style and mark a curve has |
//! | `scale`, `ticks`, `units` | from values to places, round numbers, and words |
//! | `drawing` | the drawing of a figure, as SVG |
//! | `figure`, `map`, `table`, `page` | the page's pieces, and the page |
//!
//! ```
//! use measure::results::{Axis, Figure, Part, Point, Role, Series};
//! use measure::page::{Input, Results};
//!
//! let mut part = Part::new("pingpong", "Time against message length");
//! let mut figure = Figure::new("round-trip", "Half a round trip", Axis::bytes("length"), Axis::microseconds("time"));
//! let points = vec![Point::of(0.0, &[0.4, 0.5, 0.6]), Point::of(64.0, &[0.5, 0.5, 0.9])];
//! figure.series.push(Series { name: "receive posted".into(), role: Role::Measured, points });
//! part.figures.push(figure);
//!
//! let results = Results { parts: vec![part], ..Results::named("here") };
//! let page = measure::page::render(&Input { results, other: None });
//! assert!(page.contains("Half a round trip"));
//! ```

mod compare;
mod curves;
mod document;
mod drawing;
mod figure;
mod input;
mod machine;
mod map;
mod scale;
mod table;
mod ticks;
mod units;

pub use document::render;
pub use input::{Input, Results};
