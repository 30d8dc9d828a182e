//! Texts of messages and tables.

use measure::results::Part;
use std::path::{Path, PathBuf};

/// Text of a count.
pub(super) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Message for a name that no experiment has.
pub(in crate::commands::measure) fn no_experiment(name: &str) -> String {
    format!("there is no experiment {name:?}: `tradewind measure --help` lists them")
}

/// A part's file, for messages.
pub(super) fn file_of(directory: &Path, part: &Part) -> PathBuf {
    directory.join(format!("{}.json", part.name))
}
