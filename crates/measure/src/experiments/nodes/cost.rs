//! CPU time of ranks, and of all threads and interrupts that are not ranks.

use crate::harness::Error;
use crate::harness::processor_time::{RankKind, softirq_ticks, tick_us, used_by_rank_us};
use std::sync::Mutex;
use std::sync::PoisonError;

/// When a rank began to spend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    begin_us: f64,
}

impl Spent {
    pub(super) fn now() -> Self {
        Spent { begin_us: used_by_rank_us(RankKind::Thread) }
    }

    /// Returns the CPU time of this thread since then, in microseconds.
    pub(super) fn since_us(self) -> f64 {
        used_by_rank_us(RankKind::Thread) - self.begin_us
    }
}

/// CPU time beside the ranks': threads of engines, and interrupts.
#[derive(Debug, Default)]
pub(super) struct BackgroundTime {
    ranks: Mutex<Vec<u32>>,
    sums: Mutex<Sums>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bare_us: f64,
    over_us: f64,
    laps: u32,
    /// Deferred interrupts of the whole machine, in its own ticks.
    bare_ticks: i64,
    over_ticks: i64,
}

/// A reading of the background's clocks at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    others_us: f64,
    ticks: i64,
}

impl BackgroundTime {
    pub(super) fn new() -> Self {
        BackgroundTime::default()
    }

    /// This thread is a rank's: what it uses is that rank's.
    pub(super) fn except_me(&self) {
        self.ranks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(shm::process::current_thread());
    }

    /// Reads the time used up to now. All clocks are read by one thread at one moment: with more
    /// ranks than cores the ranks leave a barrier at different times, and what one has used until
    /// then another has not.
    pub(super) fn read(&self) -> Result<Reading, Error> {
        let process = std::process::id();
        let failed = |source| Error::Processor { process, source };
        let mut ranks_us = 0.0;
        for thread in self.ranks.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            ranks_us += shm::process::thread_cpu_time(*thread).map_err(failed)?.as_secs_f64() * 1e6;
        }
        let others_us = used_by_rank_us(RankKind::Process) - ranks_us;
        Ok(Reading { others_us, ticks: softirq_ticks().unwrap_or(0).cast_signed() })
    }

    /// A lap without the exchange has ended.
    pub(super) fn note_bare(&self, before: Reading) -> Result<(), Error> {
        let now = self.read()?;
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.bare_us += now.others_us - before.others_us;
        sums.bare_ticks += now.ticks - before.ticks;
        Ok(())
    }

    /// A lap with the exchange has ended.
    pub(super) fn note_over(&self, before: Reading) -> Result<(), Error> {
        let now = self.read()?;
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.over_us += now.others_us - before.others_us;
        sums.over_ticks += now.ticks - before.ticks;
        sums.laps += 1;
        Ok(())
    }

    /// Returns the additional time of a lap with the exchange, in microseconds.
    pub(super) fn each_lap_us(&self) -> f64 {
        /// A difference of so many ticks may come from where they happen to fall.
        const TICKS_OF_CHANCE: i64 = 2;
        let sums = *self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let ticks = sums.over_ticks - sums.bare_ticks;
        let interrupts_us = if ticks > TICKS_OF_CHANCE { ticks as f64 * tick_us() } else { 0.0 };
        ((sums.over_us - sums.bare_us).max(0.0) + interrupts_us) / f64::from(sums.laps.max(1))
    }
}
