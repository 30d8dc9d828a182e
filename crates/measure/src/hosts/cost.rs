//! Processor time: that of a rank, and that of everybody who is no rank.

use crate::processor::{RankKind, softirq_ticks, tick_us, used_by_rank_us};
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

    /// What this thread has used since, in microseconds.
    pub(super) fn since_us(self) -> f64 {
        used_by_rank_us(RankKind::Thread) - self.begin_us
    }
}

/// What others than the ranks use: the threads of engines, and interrupts that are nobody's.
#[derive(Debug, Default)]
pub(super) struct Bystanders {
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

/// What had been used by the process and by interrupts at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    process_us: f64,
    thread_us: f64,
    ticks: i64,
}

impl Bystanders {
    pub(super) fn new() -> Self {
        Bystanders::default()
    }

    /// What has been used up to now; rank 0 reads.
    pub(super) fn read(&self, rank: usize) -> Reading {
        if rank != 0 {
            return Reading { thread_us: used_by_rank_us(RankKind::Thread), ..Reading::default() };
        }
        Reading {
            process_us: used_by_rank_us(RankKind::Process),
            thread_us: used_by_rank_us(RankKind::Thread),
            ticks: softirq_ticks().unwrap_or(0).cast_signed(),
        }
    }

    /// A lap without the exchange has ended.
    pub(super) fn note_bare(&self, rank: usize, before: Reading) {
        let (used, ticks) = self.since(rank, before);
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.bare_us += used;
        sums.bare_ticks += ticks;
    }

    /// A lap with the exchange has ended.
    pub(super) fn note_over(&self, rank: usize, before: Reading) {
        let (used, ticks) = self.since(rank, before);
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.over_us += used;
        sums.over_ticks += ticks;
        sums.laps += u32::from(rank == 0);
    }

    /// What the process used, less what its ranks did: rank 0 adds the one, every rank subtracts its own.
    fn since(&self, rank: usize, before: Reading) -> (f64, i64) {
        let now = self.read(rank);
        let own = now.thread_us - before.thread_us;
        (now.process_us - before.process_us - own, now.ticks - before.ticks)
    }

    /// How much more it is in a lap with the exchange, in microseconds.
    pub(super) fn each_lap_us(&self) -> f64 {
        /// A difference of so many ticks may come from where they happen to fall.
        const TICKS_OF_CHANCE: i64 = 2;
        let sums = *self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let ticks = sums.over_ticks - sums.bare_ticks;
        let interrupts_us = if ticks > TICKS_OF_CHANCE { ticks as f64 * tick_us() } else { 0.0 };
        ((sums.over_us - sums.bare_us).max(0.0) + interrupts_us) / f64::from(sums.laps.max(1))
    }
}
