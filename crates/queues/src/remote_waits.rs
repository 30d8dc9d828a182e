//! Waits for something that arrives from other nodes: by another process that carries it here, or at
//! connections of this process.

use shm::segment::Offset;
use shm::wait::{INTERNODE_POLLING, SpinPolicy, Waiter, wait};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Marks of waiting threads, for the node service.
pub trait RemoteWaits: Send + Sync + Debug {
    /// Begins a wait.
    fn begin(&self);

    /// Ends a wait.
    fn end(&self);

    /// Begins or ends polls, during which an answer to what arrives follows at once.
    fn set_polling(&self, is_polling: bool);

    /// Returns true if a thread that polls would keep the node service from its processor.
    fn shares_core(&self) -> bool;

    /// Marks the object at an offset, so that the node service finds it among many. The caller has
    /// found a request of the node service there, and notifies its event afterwards.
    fn mark(&self, at: Offset);
}

/// The connections of this process with other nodes. One thread at a time has them.
pub trait RemoteDriver: Send + Sync + Debug {
    /// Takes what arrives and sends what is to be sent, until `poll` returns true. It is called first
    /// and after everything that may concern it. It runs in this thread, which has the connections
    /// meanwhile: it must not wait for a thread that waits for these.
    fn drive(&self, drive: Drive, poll: &mut dyn FnMut() -> bool) -> Driven;

    /// Begins a sleep of a thread until the wake-up word of the endpoint is notified. From here on
    /// everything that arrives notifies it.
    fn begin_sleep(&self);

    /// Ends such a sleep.
    fn end_sleep(&self);

    /// Ends the sleep of a thread at the connections, which calls its `poll`.
    fn wake(&self);
}

/// Manner of [`RemoteDriver::drive`].
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// Ranks of this node may change what `poll` reads.
    pub polls_always: bool,
    /// Time without an event for which the thread polls the connections.
    pub polling: Duration,
    /// The thread sleeps afterwards; otherwise the call ends.
    pub sleeps: bool,
    /// End of the call.
    pub until: Option<Instant>,
}

/// Result of [`RemoteDriver::drive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// `poll` has returned true.
    Complete,
    /// Its time is over, or the caller must check whether a rank has exited.
    Idle,
    /// Another thread has the connections.
    Busy,
}

/// Polls before a thread counts as waiting.
pub(crate) const FIRST_POLLS: u32 = 100;

/// Waits for something that the node service delivers from other nodes, until the deadline.
pub(crate) fn wait_beside<W: Waiter>(
    waits: &dyn RemoteWaits,
    waiter: &mut W,
    deadline: Option<Instant>,
) -> Option<W::Output> {
    for _ in 0..FIRST_POLLS {
        let found = waiter.poll();
        if found.is_some() {
            return found;
        }
    }
    waits.begin();
    let found = poll_beside(waits, deadline, || waiter.poll());
    let found = found.or_else(|| wait(waiter, ASLEEP, deadline));
    waits.end();
    found
}

/// Waiting after all polls.
pub(crate) const ASLEEP: SpinPolicy =
    SpinPolicy { eager: 1, spins: 0, yields: 0, slice: Duration::from_millis(50) };

/// Polls while the node service runs on another core, because waking a
/// thread on an idle core takes longer than a message. On the service's own core a poll would keep
/// it from its work, and a yield does not always pass the core on.
pub(crate) fn poll_beside<R>(
    remote: &dyn RemoteWaits,
    deadline: Option<Instant>,
    mut poll: impl FnMut() -> Option<R>,
) -> Option<R> {
    let end = Instant::now() + INTERNODE_POLLING;
    let end = deadline.map_or(end, |deadline| deadline.min(end));
    let mut found = None;
    remote.set_polling(true);
    while found.is_none() && !remote.shares_core() && Instant::now() < end {
        std::thread::yield_now();
        found = poll();
    }
    remote.set_polling(false);
    found
}

/// Marks that no node service reads, for tests.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct NoWaits;

#[cfg(test)]
impl RemoteWaits for NoWaits {
    fn begin(&self) {}

    fn end(&self) {}

    fn set_polling(&self, _: bool) {}

    fn shares_core(&self) -> bool {
        false
    }

    fn mark(&self, _: Offset) {}
}
