//! Texts of messages and tables.

/// Text of a count.
pub(super) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Message for a name that no experiment has.
pub(in crate::commands::measure) fn no_experiment(name: &str) -> String {
    format!("there is no experiment {name:?}: `tradewind measure --help` lists them")
}
