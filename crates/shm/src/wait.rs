//! Waiting for a change in shared memory: bounded polling, then sleep on a wake-up word, with
//! checks of the peers between sleeps.
//!
//! [`wait`] is the one loop; a [`Waiter`] is its condition and a [`SpinPolicy`] its constants. A
//! thread polls first, because falling asleep and waking up cost some microseconds, yields then,
//! because with more threads than processors the awaited thread may be the next to run, and sleeps
//! last.

use crate::liveness::{ProcessId, ProcessWatch};
use crate::published_wait::{self, Wait};
use crate::sync::spin_loop;
use crate::wakeup::{Armed, Wakeup};
use std::time::{Duration, Instant};

/// Numbers of polls before the first sleep, and the length of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpinPolicy {
    /// Polls without a spin-loop hint, so that an immediate answer is seen without delay.
    pub eager: u32,
    /// Polls with a spin-loop hint, which spare the processor's other hardware thread.
    pub spins: u32,
    /// Polls that yield the processor before each.
    pub yields: u32,
    /// Longest sleep without a check of the peers.
    pub slice: Duration,
}

impl SpinPolicy {
    /// For messages of many senders: some microseconds of polls, about the cost of falling asleep
    /// and waking up.
    pub const MESSAGE: SpinPolicy =
        SpinPolicy { eager: 100, spins: 300, yields: 3, slice: Duration::from_millis(100) };

    /// For the two ends of a channel: about a microsecond of eager polls, then some ten. A thread
    /// that shares its processor with the peer occupies it no longer than that.
    pub const CHANNEL: SpinPolicy =
        SpinPolicy { eager: 1000, spins: 400, yields: 3, slice: Duration::from_millis(50) };
}

/// Time for which a thread polls for something from another node before it sleeps: waking a thread
/// on an idle core takes longer than a message between nodes. Ranks and node services poll for the
/// same time, so none of them sleeps while the thread that it waits for still polls.
pub const INTERNODE_POLLING: Duration = Duration::from_micros(500);

/// Longest sleep where a notification may be missed, because the kernel refuses membarrier (see
/// [`crate::fence`]).
pub const UNCERTAIN_SLICE: Duration = Duration::from_millis(1);

/// Length of a sleep without registration while other waiters take everything.
const CONTENDED_SLEEP: Duration = Duration::from_micros(50);

/// Sleep of one thread until a notification.
pub trait Sleeper {
    /// Registers the thread as asleep and passes a barrier.
    fn arm(&self) -> Armed;

    /// Sleeps until a notification, at most for `limit`. Returns true if there was none, or if the
    /// peers must be checked for another reason.
    fn sleep(&self, armed: Armed, limit: Duration) -> bool;

    /// Unregisters the thread.
    fn disarm(&self, armed: Armed);
}

impl Sleeper for Wakeup<'_> {
    fn arm(&self) -> Armed {
        Wakeup::arm(*self)
    }

    fn sleep(&self, armed: Armed, limit: Duration) -> bool {
        Wakeup::sleep(*self, armed, Some(limit))
    }

    fn disarm(&self, armed: Armed) {
        Wakeup::disarm(*self, armed);
    }
}

/// Condition for which a thread waits.
pub trait Waiter {
    /// Result of the wait.
    type Output;
    /// True if [`Waiter::check`] also runs before each sleep, not only after one without
    /// notification.
    const CHECKS_BEFORE_SLEEP: bool = false;

    /// Returns the sleep of this thread until a notification that the condition may hold.
    fn sleeper(&self) -> impl Sleeper;

    /// Returns the result if the condition holds.
    fn poll(&mut self) -> Option<Self::Output>;

    /// Returns true if further polls will complete the wait, so that the thread must not sleep.
    /// Called after a barrier.
    fn must_poll(&mut self) -> bool {
        false
    }

    /// Returns a value that changes when another waiter takes a message.
    fn progress(&self) -> u64 {
        0
    }

    /// Completes what a killed notifier left undone; returns the result that ends the wait if its
    /// peers have left or failed.
    fn check(&mut self) -> Option<Self::Output> {
        None
    }

    /// Describes the condition to an observer of the job. Called once, before the first sleep.
    fn describe(&self) -> Wait {
        Wait::Peer
    }
}

/// Polls a bounded number of times, then sleeps and polls after every notification. `None` at the
/// deadline.
///
/// While another waiter takes every message, this thread does not register as a sleeper: every
/// notification would cost a system call that wakes it in vain. It polls at intervals instead, in
/// case the other waiter is busy with its messages.
pub fn wait<W: Waiter>(
    waiter: &mut W,
    policy: SpinPolicy,
    deadline: Option<Instant>,
) -> Option<W::Output> {
    let mut progress = waiter.progress();
    let spins = policy.eager + policy.spins;
    for polls in 0..spins + policy.yields {
        if let Some(output) = waiter.poll() {
            return Some(output);
        }
        if polls >= spins {
            std::thread::yield_now();
        } else if polls >= policy.eager {
            spin_loop();
        }
    }
    let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let _published = published_wait::publish(waiter.describe());
    loop {
        let before = std::mem::replace(&mut progress, waiter.progress());
        if progress != before && left().is_none_or(|left| !left.is_zero()) {
            std::thread::sleep(left().map_or(CONTENDED_SLEEP, |left| left.min(CONTENDED_SLEEP)));
            match waiter.poll() {
                None => continue,
                output => return output,
            }
        }
        match sleep_once(waiter, policy.slice, left) {
            Step::Over(output) => return output,
            Step::MustPoll => std::thread::yield_now(),
            Step::Notified => {}
            // A whole slice without a notification: the notifier may have died between its change
            // and the wake-up, so its remaining steps are done here before the next poll.
            Step::Check => {
                if let Some(output) = waiter.check() {
                    return Some(output);
                }
            }
        }
        if let Some(output) = waiter.poll() {
            return Some(output);
        }
    }
}

/// Reason why a sleep ended.
enum Step<T> {
    /// The wait has ended, with a result or at the deadline.
    Over(Option<T>),
    /// Further polls complete the wait. The thread that makes them succeed may need this processor.
    MustPoll,
    /// There was a notification.
    Notified,
    /// There was none.
    Check,
}

fn sleep_once<W: Waiter>(
    waiter: &mut W,
    slice: Duration,
    left: impl Fn() -> Option<Duration>,
) -> Step<W::Output> {
    // The order of these steps prevents a lost wake-up: register, barrier, last poll, sleep. A
    // notifier changes the condition before it loads the word. So it finds the registration, or the
    // poll below finds the change. A waiter killed from here on stays registered, which costs
    // notifiers one system call (see `wakeup.rs`).
    let armed = waiter.sleeper().arm();
    let slice = if armed.certain { slice } else { UNCERTAIN_SLICE };
    let mut output = waiter.poll();
    let left = left();
    let mut is_over = output.is_some() || left.is_some_and(|left| left.is_zero());
    // The thread stays registered during the check, so a change that the check does not see wakes
    // it.
    if W::CHECKS_BEFORE_SLEEP && !is_over {
        output = waiter.check();
        is_over = output.is_some();
    }
    let must_poll = is_over || waiter.must_poll();
    let sleeper = waiter.sleeper();
    // A new value of the word since `arm` means a notification: the sleep then returns at once.
    let check = !must_poll && sleeper.sleep(armed, left.map_or(slice, |left| left.min(slice)));
    sleeper.disarm(armed);
    match (is_over, must_poll, check) {
        (true, ..) => Step::Over(output),
        (false, true, _) => Step::MustPoll,
        (false, false, false) => Step::Notified,
        (false, false, true) => Step::Check,
    }
}

/// Reason why a wait for a peer ended without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerWaitError {
    /// The deadline has passed.
    Timeout,
    /// The peer, with this process number, has ended.
    PeerExited(u32),
}

/// Waits until `poll` returns a result or the process that `peer` returns has ended. `subject` is
/// what an observer of the job sees.
///
/// # Errors
/// [`PeerWaitError`].
pub fn wait_for_peer<R>(
    wakeup: Wakeup<'_>,
    watch: &mut ProcessWatch,
    peer: impl Fn() -> ProcessId,
    deadline: Option<Instant>,
    subject: Wait,
    poll: impl FnMut() -> Option<R>,
) -> Result<R, PeerWaitError> {
    wait_for_peer_by(SpinPolicy::CHANNEL, wakeup, watch, peer, deadline, subject, poll)
}

/// As [`wait_for_peer`], with a policy of the caller.
///
/// # Errors
/// [`PeerWaitError`].
pub fn wait_for_peer_by<R>(
    policy: SpinPolicy,
    wakeup: Wakeup<'_>,
    watch: &mut ProcessWatch,
    peer: impl Fn() -> ProcessId,
    deadline: Option<Instant>,
    subject: Wait,
    poll: impl FnMut() -> Option<R>,
) -> Result<R, PeerWaitError> {
    wait(&mut PeerWaiter { wakeup, watch, peer, subject, poll }, policy, deadline)
        .unwrap_or(Err(PeerWaitError::Timeout))
}

/// Wait of one end of a pair for the other.
struct PeerWaiter<'a, P, F> {
    wakeup: Wakeup<'a>,
    watch: &'a mut ProcessWatch,
    peer: P,
    subject: Wait,
    poll: F,
}

impl<R, P: Fn() -> ProcessId, F: FnMut() -> Option<R>> Waiter for PeerWaiter<'_, P, F> {
    type Output = Result<R, PeerWaitError>;

    // If its peer is dead already, an end must not sleep for a slice before it reports that.
    const CHECKS_BEFORE_SLEEP: bool = true;

    fn sleeper(&self) -> impl Sleeper {
        self.wakeup
    }

    fn poll(&mut self) -> Option<Self::Output> {
        (self.poll)().map(Ok)
    }

    fn describe(&self) -> Wait {
        self.subject
    }

    fn check(&mut self) -> Option<Self::Output> {
        let process = (self.peer)();
        if !self.watch.has_ended(process) {
            return None;
        }
        // It may have made the change before it ended.
        Some(self.poll().unwrap_or(Err(PeerWaitError::PeerExited(process.pid()))))
    }
}
