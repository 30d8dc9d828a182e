//! List of problems, limited to a number that is still of use.

use super::problem::Problem;

/// Largest number of problems kept. One mistake in a program that makes graphs shows in each of its
/// operations.
const KEPT: usize = 1000;

/// Problems found so far.
#[derive(Default)]
pub(super) struct Report {
    problems: Vec<Problem>,
    left_out: usize,
}

impl Report {
    /// Keeps a problem, or only counts it once there are many.
    pub(super) fn add(&mut self, problem: impl FnOnce() -> Problem) {
        if self.problems.len() < KEPT {
            self.problems.push(problem());
        } else {
            self.left_out += 1;
        }
    }

    /// Everything that was kept, and how many were not.
    pub(super) fn finish(mut self) -> Result<(), Vec<Problem>> {
        if self.left_out > 0 {
            self.problems.push(Problem::More { left_out: self.left_out });
        }
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems) }
    }
}
