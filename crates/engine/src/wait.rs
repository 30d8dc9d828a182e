//! Waiting: polling for a short time, yielding the core, then sleeping.
//!
//! Another runtime of the process, such as an MPI library, may need calls of a thread while that
//! thread waits here: [`while_waiting`].

use crate::error::{Error, Outcome};
use crate::protocol::arrival;
use shm::completion::{Completion, Marked};
use shm::futex;
use shm::published_wait::{self, Wait};
use shm::sync::AtomicU32;
use shm::wait::UNCERTAIN_SLICE;
use std::cell::Cell;
use std::ops::{BitOr, ControlFlow};
use std::time::{Duration, Instant};

/// Longest sleep between two liveness checks. Bounds the time until a death is detected.
pub(crate) const LIVENESS_INTERVAL: Duration = Duration::from_millis(50);

/// Longest sleep while tasks may appear without a notification.
pub(crate) const TASK_INTERVAL: Duration = Duration::from_millis(1);

/// Longest sleep while another runtime is driven, after a wait of this length: a share of the wait,
/// between two bounds. A message of that runtime may need hundreds of calls, which then take a few
/// times as long as if nothing slept, and a long wait takes little of the processor.
fn driven_sleep(waited: Duration) -> Duration {
    const SHARE: u32 = 32;
    const LEAST: Duration = Duration::from_micros(50);
    (waited / SHARE).clamp(LEAST, TASK_INTERVAL)
}

/// Polls before the first call that drives another runtime, which takes up to a microsecond. A rank
/// that is behind by less must not arrive during it: both ranks would then be behind in turn, in each
/// of many collectives that follow one another.
const DRIVEN_FROM: u32 = 256;

/// Polls between two such calls. Each takes as long as several polls.
const DRIVEN_EVERY: u32 = 64;

/// Drives another runtime, and returns whether the wait goes on.
type Drive = fn() -> ControlFlow<()>;

/// The function that a thread calls while it waits.
#[derive(Clone, Copy)]
struct Driven {
    drive: Drive,
    /// A wait is given up if the drive breaks.
    ends_waits: bool,
}

thread_local! {
    static DRIVEN: Cell<Option<Driven>> = const { Cell::new(None) };
}

/// Restores what was driven, also after a panic.
struct Restored(Option<Driven>);

impl Drop for Restored {
    #[inline]
    fn drop(&mut self) {
        DRIVEN.set(self.0);
    }
}

/// Executes `call`, and `drive` again and again while this thread waits for other ranks inside it:
/// another runtime may have work that only its own calls advance, and another rank may wait for
/// that work before it arrives here. `drive` must call nothing of this crate. Where it breaks, the
/// wait ends with [`Error::GivenUp`]: the other runtime knows that another rank does not arrive.
/// After a given-up call in which ranks exchange words, such as a split or a link, later ones of
/// that communicator fail on this rank with [`Error::Broken`]: it has arrived for the others, and
/// cannot take that back.
///
/// ```
/// use std::ops::ControlFlow;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// static CALLS: AtomicU32 = AtomicU32::new(0);
/// let drive = || {
///     CALLS.fetch_add(1, Ordering::Relaxed);
///     ControlFlow::Continue(())
/// };
/// assert_eq!(engine::while_waiting(drive, || 6 * 7), 42);
/// // The call has not waited.
/// assert_eq!(CALLS.load(Ordering::Relaxed), 0);
/// ```
#[inline]
pub fn while_waiting<T>(drive: Drive, call: impl FnOnce() -> T) -> T {
    let _restored = Restored(DRIVEN.replace(Some(Driven { drive, ends_waits: true })));
    call()
}

/// Executes `call`, whose waits are not given up: they go on, and drive the other runtime, after it
/// has broken off.
pub(crate) fn never_given_up<T>(call: impl FnOnce() -> T) -> T {
    let before = DRIVEN.get();
    let _restored = Restored(before);
    DRIVEN.set(before.map(|driven| Driven { ends_waits: false, ..driven }));
    call()
}

/// Drives the other runtime of this thread. Returns whether there is one.
fn drive_other_runtime() -> Result<bool, Error> {
    let Some(Driven { drive, ends_waits }) = DRIVEN.get() else { return Ok(false) };
    match drive() {
        ControlFlow::Break(()) if ends_waits => Err(Error::GivenUp),
        _ => Ok(true),
    }
}

/// Result of executing a rank's own tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnTasks {
    /// No task.
    None,
    /// No task, but one may appear without a notification.
    Expected,
    /// Tasks, which are executed.
    Executed,
}

impl OwnTasks {
    pub(crate) fn were_any(self) -> bool {
        self == OwnTasks::Executed
    }
}

impl From<bool> for OwnTasks {
    fn from(were_any: bool) -> Self {
        if were_any { OwnTasks::Executed } else { OwnTasks::None }
    }
}

impl BitOr for OwnTasks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.max(other)
    }
}

/// Number of polls without a pause, for events about to happen.
const EAGER_POLLS: u32 = 32;

/// Longest time for yields, several wake-ups long. On a core that another rank computes on, one
/// yield lasts for the rest of that rank's time slice, and a sleep is better.
const YIELD_TIME: Duration = Duration::from_micros(300);

/// As [`YIELD_TIME`], with a core for every rank. A virtual processor without work has left its
/// core, and a wake-up then takes 100 µs and more.
const YIELD_TIME_ALONE: Duration = Duration::from_millis(1);

/// Returns how long a thread sleeps that has waited for this long, and calls another runtime between its
/// looks; `None` while it should yield its core instead. `has_core` says whether every rank has a core.
pub fn sleep_after(waited: Duration, has_core: bool) -> Option<Duration> {
    let yield_time = if has_core { YIELD_TIME_ALONE } else { YIELD_TIME };
    (waited > yield_time).then(|| driven_sleep(waited))
}

/// Number of polls and yields before a waiter sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpinPolicy {
    /// Polls with a pause between them.
    polls: u32,
    /// Yields of the core.
    yields: u32,
    /// Longest time for them.
    yield_time: Duration,
}

impl SpinPolicy {
    /// With a core for every rank, the awaited rank is running, and polling detects its arrival
    /// fastest. With fewer cores it may need this core, so there is no polling but yields, which
    /// are faster than a futex while the other ranks only wait too. They go on for longer than a
    /// wake-up takes: one rank that sleeps makes the others wait long enough to sleep as well, and
    /// all calls then take several times as long.
    pub(crate) fn new(ranks: u32, cores: u32) -> Self {
        if ranks <= cores {
            SpinPolicy { polls: 2000, yields: u32::MAX, yield_time: YIELD_TIME_ALONE }
        } else {
            SpinPolicy { polls: 1, yields: 256, yield_time: YIELD_TIME }
        }
    }
}

impl SpinPolicy {
    /// Returns a policy that polls while another rank, which has a core, copies `bytes` bytes.
    pub(crate) fn during_copy(self, bytes: u64) -> Self {
        /// Bytes that a slow copy moves during a poll.
        const BYTES_A_POLL: u64 = 128;
        /// Some ten milliseconds, so that deaths are detected soon.
        const MOST_POLLS: u64 = 1 << 17;
        let more = (bytes / BYTES_A_POLL).min(MOST_POLLS) as u32;
        SpinPolicy { polls: self.polls.saturating_add(more), ..self }
    }

    /// Iterates over the yields, as long as their time allows, at most until the deadline.
    fn yields(self, deadline: Option<Instant>) -> impl Iterator<Item = ()> {
        let mut end = None;
        let is_in_time = move |(): &()| {
            let now = Instant::now();
            let own = *end.get_or_insert(now + self.yield_time);
            now <= own && deadline.is_none_or(|deadline| now < deadline)
        };
        std::iter::repeat_n((), self.yields as usize).take_while(is_in_time)
    }

    /// Returns the number of retries for an event that takes several polls.
    pub(crate) fn tries(self) -> u32 {
        self.polls / EAGER_POLLS
    }
}

/// A condition to wait for.
pub(crate) trait WaitCondition {
    /// The state that a sleeper has seen.
    type SleepMark;

    /// Returns whether the condition holds.
    fn is_met(&self) -> bool;
    /// Announces a sleep and tests the condition again. Returns `None` if it holds.
    fn prepare_sleep(&self) -> Option<Self::SleepMark>;
    /// Sleeps until the state changes, at most for `limit`.
    fn sleep(&self, mark: Self::SleepMark, limit: Duration);
}

/// A completion count to be reached.
pub(crate) struct CountReached<'a>(pub(crate) &'a Completion, pub(crate) u32);

impl WaitCondition for CountReached<'_> {
    type SleepMark = Marked;

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

/// A condition for which ranks sleep at their communicator's word of sleepers.
pub(crate) struct SleepersCondition<'a, F> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) is_met: F,
}

impl<F: Fn() -> bool> WaitCondition for SleepersCondition<'_, F> {
    type SleepMark = arrival::SleepMark;

    #[inline]
    fn is_met(&self) -> bool {
        (self.is_met)()
    }

    fn prepare_sleep(&self) -> Option<arrival::SleepMark> {
        arrival::mark(self.word, &self.is_met)
    }

    fn sleep(&self, mark: arrival::SleepMark, limit: Duration) {
        let limit = if mark.certain { limit } else { limit.min(UNCERTAIN_SLICE) };
        futex::wait(self.word, mark.value, Some(limit));
    }
}

/// Waits until the condition holds.
///
/// `progress` executes the tasks of this rank and returns what it has found; `check_liveness`
/// is called before every sleep. `subject` returns what an observer of the job sees; it is called
/// before the first sleep.
pub(crate) fn until<A: WaitCondition>(
    awaited: &A,
    spin_policy: SpinPolicy,
    deadline: Option<Instant>,
    subject: impl FnOnce() -> Wait,
    mut progress: impl FnMut() -> Outcome<OwnTasks>,
    mut check_liveness: impl FnMut() -> Result<(), Error>,
) -> Outcome<bool> {
    for poll in 0..spin_policy.polls {
        if awaited.is_met() {
            return Ok(true);
        }
        // A pause takes as long as a line transfer between cores, so the first polls omit it.
        if poll >= EAGER_POLLS {
            progress()?;
            if poll >= DRIVEN_FROM && poll % DRIVEN_EVERY == 0 {
                drive_other_runtime()?;
            }
            std::hint::spin_loop();
        }
    }
    for () in spin_policy.yields(deadline) {
        if awaited.is_met() {
            return Ok(true);
        }
        progress()?;
        drive_other_runtime()?;
        std::thread::yield_now();
    }
    let _published = published_wait::publish(subject());
    let began = Instant::now();
    loop {
        // The mark precedes the tests below. An event after the mark changes the word, and the
        // futex then refuses to sleep.
        let Some(marked) = awaited.prepare_sleep() else { return Ok(true) };
        // Tasks deferred to this rank notify its wakeup line, not this word, so they are polled
        // before every sleep.
        let tasks = progress()?;
        if tasks.were_any() {
            continue;
        }
        if let Err(error) = check_liveness() {
            // A failed rank may have finished its part before it ended; its writes are visible now.
            if progress()?.were_any() || awaited.is_met() {
                continue;
            }
            return Err(error.into());
        }
        let mut sleep = if tasks == OwnTasks::Expected { TASK_INTERVAL } else { LIVENESS_INTERVAL };
        if drive_other_runtime()? {
            sleep = sleep.min(driven_sleep(began.elapsed()));
        }
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(awaited.is_met());
            }
            sleep = sleep.min(left);
        }
        // Bounded: the end of a rank wakes no sleeper, nor does a rank that is killed between its
        // change and the wake-up.
        awaited.sleep(marked, sleep);
    }
}

/// Waits until a run has its slot. Ranks that free slots do not wake anything, so this polls at
/// growing intervals. Returns false when the deadline has passed. `subject` as in [`until`].
pub(crate) fn for_slot(
    spin_policy: SpinPolicy,
    deadline: Option<Instant>,
    subject: impl FnOnce() -> Wait,
    mut has_begun: impl FnMut() -> Result<bool, Error>,
    mut check_liveness: impl FnMut() -> Result<(), Error>,
) -> Result<bool, Error> {
    const FIRST_SLEEP: Duration = Duration::from_micros(20);
    const LAST_SLEEP: Duration = Duration::from_millis(5);
    // If each rank has a core, the awaited ranks are running.
    for _ in 0..spin_policy.polls {
        if has_begun()? {
            return Ok(true);
        }
        std::hint::spin_loop();
    }
    for () in spin_policy.yields(deadline) {
        if has_begun()? {
            return Ok(true);
        }
        std::thread::yield_now();
    }
    let _published = published_wait::publish(subject());
    let mut interval = FIRST_SLEEP;
    while !has_begun()? {
        if drive_other_runtime()? {
            interval = interval.min(TASK_INTERVAL);
        }
        check_liveness()?;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
        // No word announces a free slot (`protocol::run_state`), so the states of the ranks are
        // polled, less and less often.
        std::thread::sleep(interval);
        interval = (2 * interval).min(LAST_SLEEP);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driving_thread_yields_at_first_and_then_sleeps_for_a_share_of_its_wait() {
        for has_core in [false, true] {
            assert_eq!(sleep_after(Duration::from_micros(200), has_core), None);
            let long = Duration::from_millis(16);
            assert_eq!(sleep_after(long, has_core), Some(long / 32));
            assert_eq!(sleep_after(Duration::from_secs(60), has_core), Some(TASK_INTERVAL));
        }
        assert_eq!(sleep_after(YIELD_TIME_ALONE, true), None);
        assert!(sleep_after(YIELD_TIME_ALONE, false).is_some());
    }

    #[test]
    fn yields_end_with_the_deadline() {
        let policy =
            SpinPolicy { polls: 0, yields: u32::MAX, yield_time: Duration::from_secs(3600) };
        assert_eq!(policy.yields(Some(Instant::now())).count(), 0);
        let policy = SpinPolicy { yields: 3, ..policy };
        assert_eq!(policy.yields(None).count(), 3);
    }
}
