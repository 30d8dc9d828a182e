//! Waiting for the ranks of a meeting.

use super::Ring;
use crate::attendance;
use crate::meeting::Meeting;
use crate::wait::Awaited;
use shm::futex;
use std::time::Duration;

/// The ranks that a small meeting waits for.
#[derive(Debug)]
pub(crate) struct Attendance<'a> {
    pub(crate) ring: &'a Ring,
    pub(crate) run: u64,
    pub(crate) meeting: &'a Meeting,
}

impl Awaited for Attendance<'_> {
    type Mark = u32;

    #[inline]
    fn is_there(&self) -> bool {
        self.ring.all_are_here(self.run, self.meeting)
    }

    fn prepare_sleep(&self) -> Option<u32> {
        attendance::mark(&self.ring.sleepers.word, || self.is_there())
    }

    fn sleep(&self, mark: u32, limit: Duration) {
        futex::wait(&self.ring.sleepers.word, mark, Some(limit));
    }
}
