//! Wait condition of a flat collective.

use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::FlatCollective;
use crate::protocol::arrival;
use crate::wait::WaitCondition;
use shm::futex;
use std::time::Duration;

/// Holds when the ranks that a flat collective waits for have arrived.
#[derive(Debug)]
pub(crate) struct FlatArrivals<'a> {
    pub(crate) executor: &'a FlatExecutor,
    pub(crate) run: u64,
    pub(crate) collective: &'a FlatCollective,
}

impl WaitCondition for FlatArrivals<'_> {
    type SleepMark = u32;

    #[inline]
    fn is_met(&self) -> bool {
        self.executor.have_all_arrived(self.run, self.collective)
    }

    fn prepare_sleep(&self) -> Option<u32> {
        arrival::mark(&self.executor.sleepers.word, || self.is_met())
    }

    fn sleep(&self, mark: u32, limit: Duration) {
        futex::wait(&self.executor.sleepers.word, mark, Some(limit));
    }
}
