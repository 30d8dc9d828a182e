//! Common parts of the measuring examples: starting ranks, spreads over rounds, and the format of
//! results.

#[path = "../../../tradewind/examples/common/ranks.rs"]
mod ranks;

pub(crate) use ranks::run;

use clap::builder::RangedU64ValueParser;
use comfy_table::{CellAlignment, Table, presets};
use models::statistics::Deciles;
use serde::ser::{Serialize, SerializeSeq, Serializer};
use std::fmt;

/// Format of the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table of text.
    #[default]
    Table,
    /// One object a line, for programs.
    Json,
}

impl Format {
    /// Writes rows, each in one form or the other.
    pub(crate) fn print<R: Serialize>(
        self,
        heads: &[&str],
        rows: &[R],
        cells: impl Fn(&R) -> Vec<String>,
    ) {
        match self {
            Format::Json => {
                for row in rows {
                    // Rows are structures of numbers and names, which cannot fail to be written.
                    println!("{}", serde_json::to_string(row).unwrap_or_default());
                }
            }
            Format::Table => {
                let mut table = Table::new();
                table.load_preset(presets::ASCII_MARKDOWN).set_header(heads);
                rows.iter().for_each(|row| _ = table.add_row(cells(row)));
                table
                    .column_iter_mut()
                    .skip(1)
                    .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
                println!("{table}");
            }
        }
    }
}

/// So many of something, in words.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// For arguments of which none would be nothing to measure.
pub(crate) fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// A figure over all rounds: the median, where the outer tenths begin, and how many rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    summary: Deciles,
    rounds: usize,
}

impl Spread {
    pub(crate) fn of(rounds: &[f64]) -> Self {
        Spread { summary: Deciles::of(rounds), rounds: rounds.len() }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Deciles { median, p10, p90 } = self.summary;
        let digits = if median.abs() < 10.0 { 4 } else { 1 };
        write!(formatter, "{median:.digits$} [{p10:.digits$}..{p90:.digits$}]")
    }
}

/// As the programs of `bench/c` write it: `[median, p10, p90, count]`.
impl Serialize for Spread {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut parts = serializer.serialize_seq(Some(4))?;
        for part in [self.summary.median, self.summary.p10, self.summary.p90] {
            parts.serialize_element(&part)?;
        }
        parts.serialize_element(&self.rounds)?;
        parts.end()
    }
}
