//! Runs of a rank that have ended.

use std::collections::BTreeSet;

/// Numbers of the runs of a communicator that have ended. Runs end about in the order of their
/// numbers, so few are remembered one by one.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedRuns {
    /// All below this number.
    below: u64,
    /// And these.
    beyond: BTreeSet<u64>,
}

impl EndedRuns {
    /// Adds a run, once.
    pub(super) fn add(&mut self, sequence: u64) {
        if sequence != self.below {
            self.beyond.insert(sequence);
            return;
        }
        self.below += 1;
        while self.beyond.remove(&self.below) {
            self.below += 1;
        }
    }

    /// Returns true if this run has ended.
    pub(super) fn contains(&self, sequence: u64) -> bool {
        sequence < self.below || self.beyond.contains(&sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_in_any_order() {
        let mut ended = EndedRuns::default();
        for (count, sequence) in [3, 0, 2, 5, 1].into_iter().enumerate() {
            assert!(!ended.contains(sequence), "after {count}");
            ended.add(sequence);
            assert!(ended.contains(sequence));
        }
        assert!((0..8).filter(|sequence| !ended.contains(*sequence)).eq([4, 6, 7]));
        assert_eq!(ended.beyond.len(), 1, "only what follows a gap is remembered");
    }
}
