//! Names of figures, and the time of each message.

use crate::pairs::Pattern;

pub(super) const TABLE: &str = "fits";
/// Figures with the patterns they show, in two ranges of lengths: 0 to 16000 and 0 to 2000 bytes.
pub(super) const FIGURES: [(&str, Pattern); 2] =
    [("exchange", Pattern::Exchange), ("round-trip", Pattern::RoundTrip)];

/// A run moves two messages.
pub(super) fn each(times: &[f64]) -> Vec<f64> {
    times.iter().map(|time| time / 2.0).collect()
}
