//! Options of experiments, which are texts: lists with commas, and the numbers of ranks.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// The option with the numbers of ranks: a list with commas.
pub const RANKS: &str = "ranks";
/// The numbers of ranks if the option is not there.
pub const USUAL_RANKS: [u32; 3] = [2, 4, 8];

/// Text of a list.
pub(crate) fn text_of<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// The list that an option has; none if it is not there, or no list of these.
pub(crate) fn list_of<T: FromStr>(
    options: &BTreeMap<String, String>,
    name: &str,
) -> Option<Vec<T>> {
    options.get(name)?.split(',').map(|item| item.parse().ok()).collect()
}

/// The number that an option has; none if it is not there, or no number.
pub(crate) fn number_of<T: FromStr>(options: &BTreeMap<String, String>, name: &str) -> Option<T> {
    options.get(name)?.parse().ok()
}

/// The numbers of ranks of a measurement: the requested ones, else 2, 4 and 8, or in a quick one 2.
pub(crate) fn numbers_of_ranks(options: &BTreeMap<String, String>, is_quick: bool) -> Vec<u32> {
    let usual = if is_quick { &USUAL_RANKS[..1] } else { &USUAL_RANKS };
    list_of(options, RANKS).unwrap_or_else(|| usual.to_vec())
}
