//! Texts of messages and tables.

use measure::results::Part;
use std::path::{Path, PathBuf};

/// Text of a count.
pub(super) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// A part's file, for messages.
pub(super) fn file_of(directory: &Path, part: &Part) -> PathBuf {
    directory.join(format!("{}.json", part.name))
}
