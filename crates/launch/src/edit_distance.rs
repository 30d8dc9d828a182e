//! The difference between two names.

/// The number of insertions, deletions and substitutions between two names (Levenshtein, 1966).
pub(crate) fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (done, one) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], done + 1);
        for (column, other) in right.bytes().enumerate() {
            let substituted = diagonal + usize::from(one != other);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        let pairs = [("scan", "scan", 0), ("scan", "iscan", 1), ("", "all", 3), ("gather", "", 6)];
        for (one, other, expected) in pairs {
            assert_eq!(distance(one, other), expected, "{one}, {other}");
            assert_eq!(distance(other, one), expected, "{other}, {one}");
        }
        assert_eq!(distance("iallreduec", "iallreduce"), 2);
    }
}
