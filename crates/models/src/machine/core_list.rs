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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_ranges_and_numbers() {
        let cores = |text| parse(text).map(|cores| cores.into_iter().collect::<Vec<_>>());
        assert_eq!(cores("0-2,8,10-11\n"), Some(vec![0, 1, 2, 8, 10, 11]));
        assert_eq!(cores("5"), Some(vec![5]));
        assert_eq!(cores("\n"), Some(vec![]));
        for wrong in ["x", "3-1", "0-", "-3", "0-4294967295", "1;2"] {
            assert_eq!(cores(wrong), None, "{wrong}");
        }
    }
}
