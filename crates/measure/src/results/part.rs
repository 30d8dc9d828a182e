//! The typed form of one experiment's results.

use models::statistics::percentile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Results of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Name of the experiment on the command line, and the beginning of its tables' files.
    pub name: String,
    /// Title, in a few words.
    pub title: String,
    /// Method and interpretation, in a few sentences.
    pub about: String,
    /// The paper and its section that the experiment comes from.
    pub source: String,
    /// True if all of it was measured.
    pub complete: bool,
    /// Number of the experiment's steps in it. A resumed measurement starts after them.
    pub steps_done: u64,
    /// Settings of the measurement, by name: only parts with the same settings can be put
    /// together.
    pub setting: BTreeMap<String, String>,
    /// Curves.
    pub figures: Vec<Figure>,
    /// Coloured cells.
    pub maps: Vec<Map>,
    /// Numbers and words.
    pub tables: Vec<Table>,
    /// Notes for the reader: "more ranks than cores", what could not be measured here, and
    /// why.
    pub notes: Vec<String>,
}

/// Curves over one pair of axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Unique in its part; used in file names: lower-case words joined by hyphens.
    pub name: String,
    /// Title.
    pub title: String,
    /// Caption.
    pub caption: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
}

/// An axis of a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// Label of the quantity.
    pub label: String,
    /// Its unit, empty for plain numbers.
    pub unit: String,
    /// Initial scale.
    pub scale: Scale,
}

/// Initial scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Equal steps.
    Linear,
    /// Equal ratios.
    Logarithmic,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name, unique in its figure.
    pub name: String,
    /// Source of its values.
    pub role: Role,
    /// Its points, in the order in which they are joined.
    pub points: Vec<Point>,
}

collectives::named_enum! {
    /// Source of values.
    pub enum Role ("source of values") {
        /// From a clock.
        Measured = "measured",
        /// From a model, before the measurement.
        Predicted = "predicted",
        /// From a formula fitted to these measurements.
        Fitted = "fitted",
        /// Lower bound of the machine for the same, without any protocol.
        Floor = "floor",
    }
}

/// A value and how far its repetitions lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// The middle of the repetitions, or the value if there are none.
    pub median: f64,
    /// The least repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<f64>,
    /// A quarter lies below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_quartile: Option<f64>,
    /// A quarter lies above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper_quartile: Option<f64>,
    /// The greatest repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<f64>,
    /// Number of repetitions; 0 for a value from a formula.
    pub repetitions: u32,
}

/// Cells by two categories: which algorithm is best, how much is lost by a choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// Unique in its part, as [`Figure::name`].
    pub name: String,
    /// Title.
    pub title: String,
    /// Caption.
    pub caption: String,
    /// The columns: their label, and each column's name in order.
    pub columns: Categories,
    /// The rows.
    pub rows: Categories,
    /// Rule for the colours of cells.
    pub colour: Colour,
    /// The cells; where there is none, nothing was measured.
    pub cells: Vec<Square>,
}

/// Names along one side of a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Categories {
    /// Label of the names.
    pub label: String,
    /// Their names, in order.
    pub names: Vec<String>,
}

/// Rule for the colours of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Colour {
    /// Each text has a colour of its own.
    ByText,
    /// From 1 (as good as can be) upwards.
    ByRatio,
}

/// One cell of a map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Square {
    /// Which column, from 0.
    pub column: usize,
    /// Which row, from 0.
    pub row: usize,
    /// Text of the cell: an algorithm, a number.
    pub text: String,
    /// The number, where the colour needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Tooltip.
    pub detail: String,
}

/// Rows of words and numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Unique in its part, as [`Figure::name`].
    pub name: String,
    /// Title.
    pub title: String,
    /// Caption.
    pub caption: String,
    /// The columns' names, with units.
    pub columns: Vec<String>,
    /// The rows, each with a value for every column.
    pub rows: Vec<Vec<Value>>,
}

/// A value in a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// There is none.
    None,
    /// A number.
    Number(f64),
    /// Words.
    Text(String),
}

impl Part {
    /// An empty part, not yet complete.
    pub fn new(name: &str, title: &str) -> Self {
        Part {
            name: name.to_owned(),
            title: title.to_owned(),
            about: String::new(),
            source: String::new(),
            complete: false,
            steps_done: 0,
            setting: BTreeMap::new(),
            figures: Vec::new(),
            maps: Vec::new(),
            tables: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Table {
    /// A table of these rows, under its name and its title. Bars stand between the names of its
    /// columns.
    ///
    /// ```
    /// use measure::results::Table;
    /// let table = Table::new(["copy", "Copies"], "size (bytes) | time (ns)", "", Vec::new());
    /// assert_eq!(table.columns, ["size (bytes)", "time (ns)"]);
    /// ```
    pub fn new(
        [name, title]: [&str; 2],
        columns: &str,
        caption: &str,
        rows: Vec<Vec<Value>>,
    ) -> Self {
        Table {
            name: name.to_owned(),
            title: title.to_owned(),
            caption: caption.to_owned(),
            columns: columns.split(" | ").map(str::to_owned).collect(),
            rows,
        }
    }
}

impl Axis {
    /// Sizes in bytes, on a linear scale.
    pub fn bytes(label: &str) -> Self {
        Axis { label: label.to_owned(), unit: "bytes".to_owned(), scale: Scale::Linear }
    }

    /// Times in microseconds, on a linear scale.
    pub fn microseconds(label: &str) -> Self {
        Axis { label: label.to_owned(), unit: "µs".to_owned(), scale: Scale::Linear }
    }

    /// Plain numbers.
    pub fn number(label: &str) -> Self {
        Axis { label: label.to_owned(), unit: String::new(), scale: Scale::Linear }
    }

    /// The same axis in equal ratios.
    #[must_use]
    pub fn logarithmic(self) -> Self {
        Axis { scale: Scale::Logarithmic, ..self }
    }
}

/// A row of a table, of anything that can be a value.
macro_rules! values {
    ($($value:expr),+ $(,)?) => {
        vec![$($crate::results::Value::from($value)),+]
    };
}
pub(crate) use values;

impl Value {
    /// A number, or none where it is infinite or undefined.
    pub fn finite(number: f64) -> Self {
        if number.is_finite() { Value::Number(number) } else { Value::None }
    }
}

impl Point {
    /// A value from a formula.
    pub fn exact(x: f64, value: f64) -> Self {
        let none = None;
        Point {
            x,
            median: value,
            minimum: none,
            lower_quartile: none,
            upper_quartile: none,
            maximum: none,
            repetitions: 0,
        }
    }

    /// Deciles of these repetitions; without any, the value is not a number.
    pub fn of(x: f64, repetitions: &[f64]) -> Self {
        let mut sorted = repetitions.to_vec();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() {
            return Point::exact(x, f64::NAN);
        }
        let at = |share| Some(percentile(&sorted, share));
        Point {
            x,
            median: percentile(&sorted, 0.5),
            minimum: at(0.0),
            lower_quartile: at(0.25),
            upper_quartile: at(0.75),
            maximum: at(1.0),
            repetitions: u32::try_from(sorted.len()).unwrap_or(u32::MAX),
        }
    }
}

impl Figure {
    /// A figure of times against message length, without curves.
    pub fn by_length(name: &str, title: &str, time: &str) -> Self {
        Figure::new(name, title, Axis::bytes("message length"), Axis::microseconds(time))
    }

    /// A figure without curves.
    pub fn new(name: &str, title: &str, x: Axis, y: Axis) -> Self {
        Figure {
            name: name.to_owned(),
            title: title.to_owned(),
            caption: String::new(),
            x,
            y,
            series: Vec::new(),
        }
    }

    /// The same with this caption.
    #[must_use]
    pub fn captioned(self, caption: &str) -> Self {
        Figure { caption: caption.to_owned(), ..self }
    }

    /// Adds a point to the curve of this name, which is begun if need be; points stay in the order
    /// of their x, and those of one x in the order in which they come.
    pub fn add(&mut self, series: &str, role: Role, point: Point) {
        let at = self.series.iter().position(|known| known.name == series).unwrap_or_else(|| {
            self.series.push(Series { name: series.to_owned(), role, points: Vec::new() });
            self.series.len() - 1
        });
        let points = &mut self.series[at].points;
        let behind = points.partition_point(|known| known.x <= point.x);
        points.insert(behind, point);
    }

    /// The curve of this name.
    pub fn curve(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }
}

impl Part {
    /// The figure of this name.
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::Number(number.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Number(number as f64)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Value::Number(number as f64)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::None, Into::into)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}
