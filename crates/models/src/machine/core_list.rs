//! The kernel's lists of cores: `0-3,8`.

use std::collections::BTreeSet;

/// A set of core numbers.
pub(super) type CoreSet = BTreeSet<u32>;

/// No machine has core numbers from here on; a range that says so must not take the memory.
const MOST: u32 = 1 << 16;

/// The cores of a list; `None` if it is not one. An empty list is one.
pub(super) fn parse(text: &str) -> Option<CoreSet> {
    let mut cores = CoreSet::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}
