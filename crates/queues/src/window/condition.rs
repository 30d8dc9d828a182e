//! The condition of a conditional fetch.

use super::access;
use super::memory::WindowMemory;

/// Condition of a fetch: the unsigned 64-bit word at byte `at` of the window, a counter or a flag,
/// is `at_least` or more. `at` is a multiple of 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Position of the word, in bytes of the window.
    pub at: u64,
    /// Smallest value that fulfils the condition.
    pub at_least: u64,
}

impl Condition {
    /// Returns true if the word of a window has reached the value. Its position has been checked.
    #[inline(always)]
    pub(super) fn is_true(self, memory: &WindowMemory) -> bool {
        access::load(&memory.words()[(self.at / 8) as usize]) >= self.at_least
    }
}
