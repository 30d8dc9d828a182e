//! How a rank waits: looking for a short while, letting others run, then asleep.

use crate::error::Error;
use shm::completion::{Completion, Marked};
use std::time::{Duration, Instant};

/// The longest sleep before a waiter looks whether someone it waits for is gone. Bounds how late a
/// death is noticed.
pub(crate) const LIVENESS_INTERVAL: Duration = Duration::from_millis(50);

/// Looks without a pause between them: for what is about to come.
const EAGER_POLLS: u32 = 32;

/// How long a waiter looks and yields before it sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpinPolicy {
    /// Looks with a pause between them.
    polls: u32,
    /// Turns given to other processes.
    yields: u32,
}

impl SpinPolicy {
    /// With a core for every rank the awaited rank is running, and looking is the fastest way to
    /// see it arrive. With fewer cores it may need this very core, so there is no looking at all; a
    /// few yields beat the futex as long as the others are only waiting too.
    pub(crate) fn new(ranks: u32, cores: u32) -> Self {
        if ranks <= cores {
            SpinPolicy { polls: 2000, yields: 2 }
        } else {
            SpinPolicy { polls: 1, yields: 16 }
        }
    }
}

impl SpinPolicy {
    /// How often to look for what takes some looks to come.
    pub(crate) fn tries(self) -> u32 {
        self.polls / EAGER_POLLS
    }
}

/// What can be waited for.
pub(crate) trait WaitCondition {
    /// What a sleeper has seen.
    type Mark;

    /// Whether it has come.
    fn is_met(&self) -> bool;
    /// Says that somebody is about to sleep, and looks again; `None` when there is nothing to sleep
    /// for.
    fn prepare_sleep(&self) -> Option<Self::Mark>;
    /// Sleeps until something has happened, at most so long.
    fn sleep(&self, mark: Self::Mark, limit: Duration);
}

/// A count to be reached.
pub(crate) struct CountReached<'a>(pub(crate) &'a Completion, pub(crate) u32);

impl WaitCondition for CountReached<'_> {
    type Mark = Marked;

    #[inline]
    fn is_met(&self) -> bool {
        self.0.reached(self.1)
    }

    fn prepare_sleep(&self) -> Option<Marked> {
        self.0.prepare_sleep(self.1)
    }

    fn sleep(&self, mark: Marked, limit: Duration) {
        self.0.sleep(mark, Some(limit));
    }
}

/// Waits until something is there.
///
/// `progress` does what only this rank can do and tells whether it did anything; `check_liveness` is
/// asked before every sleep.
pub(crate) fn until<A: WaitCondition>(
    awaited: &A,
    spin_policy: SpinPolicy,
    deadline: Option<Instant>,
    mut progress: impl FnMut() -> Result<bool, Error>,
    mut check_liveness: impl FnMut() -> Result<(), Error>,
) -> Result<bool, Error> {
    for look in 0..spin_policy.polls {
        if awaited.is_met() {
            return Ok(true);
        }
        // A pause takes as long as a line to come from the next core: the first looks do without.
        if look >= EAGER_POLLS {
            progress()?;
            std::hint::spin_loop();
        }
    }
    for _ in 0..spin_policy.yields {
        if awaited.is_met() {
            return Ok(true);
        }
        progress()?;
        std::thread::yield_now();
    }
    loop {
        let Some(marked) = awaited.prepare_sleep() else { return Ok(true) };
        // Work that others leave for this rank rings its doorbell, not this word: it is looked for
        // before every sleep.
        if progress()? {
            continue;
        }
        if let Err(error) = check_liveness() {
            // What is gone may have done its part before it went; that is visible now.
            if progress()? || awaited.is_met() {
                continue;
            }
            return Err(error);
        }
        let mut sleep = LIVENESS_INTERVAL;
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(awaited.is_met());
            }
            sleep = sleep.min(left);
        }
        awaited.sleep(marked, sleep);
    }
}

/// Waits until a run has got its slot. Those who free slots wake nobody, so this looks again and
/// again, ever more rarely; false when the time is over.
pub(crate) fn for_slot(
    spin_policy: SpinPolicy,
    deadline: Option<Instant>,
    mut has_begun: impl FnMut() -> Result<bool, Error>,
    mut check_liveness: impl FnMut() -> Result<(), Error>,
) -> Result<bool, Error> {
    const FIRST_NAP: Duration = Duration::from_micros(20);
    const LAST_NAP: Duration = Duration::from_millis(5);
    for look in 0..spin_policy.polls + spin_policy.yields {
        if has_begun()? {
            return Ok(true);
        }
        // Where each rank has a core, those that this one waits for are at it.
        if look < spin_policy.polls { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
    let mut nap = FIRST_NAP;
    while !has_begun()? {
        check_liveness()?;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
        std::thread::sleep(nap);
        nap = (2 * nap).min(LAST_NAP);
    }
    Ok(true)
}
