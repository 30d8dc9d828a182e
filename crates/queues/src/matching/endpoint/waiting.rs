//! Waits of the threads of a rank.

use super::Endpoint;
use crate::matching::error::MatchError;
use crate::remote_waits::{ASLEEP, poll_beside};
use shm::published_wait::Wait;
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Waiting while each waiting thread has a processor: some ten microseconds of polls.
pub(super) const ALONE: SpinPolicy =
    SpinPolicy { eager: 1000, spins: 400, yields: 3, slice: Duration::from_millis(50) };

/// Waiting while threads share processors: the awaited one may need this one.
const CROWDED: SpinPolicy =
    SpinPolicy { eager: 2, spins: 0, yields: 16, slice: Duration::from_millis(50) };

/// That which a wait waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Awaited {
    /// A rank of this node, which may copy so many bytes.
    Rank { bytes: usize },
    /// The carrier of messages from other nodes, or any rank.
    Any,
}

/// Bytes that a slow copy moves during a poll, and the most polls for a copy: some milliseconds.
const BYTES_A_POLL: usize = 128;

const MOST_COPY_POLLS: usize = 1 << 17;

impl Endpoint {
    /// Returns true if polling is no waste: every rank has a processor, and one thread of this rank
    /// waits at most.
    pub(super) fn may_spin(&self) -> bool {
        // Relaxed: a hint.
        self.has_cores_for_all && self.waiting.load(Ordering::Relaxed) <= 1
    }

    /// Waits until `poll` returns a result, or the rank that `exited` returns has exited. `subject`
    /// returns what an observer of the job sees.
    #[inline]
    pub(super) fn wait<R>(
        &self,
        subject: impl Fn() -> Wait,
        deadline: Option<Instant>,
        exited: impl Fn() -> Option<u32>,
        poll: impl FnMut() -> Result<Option<R>, MatchError>,
    ) -> Result<R, MatchError> {
        self.wait_for(subject, Awaited::Any, deadline, exited, poll)
    }

    /// As [`wait`](Self::wait), for something that this rank or another process does.
    #[inline]
    pub(super) fn wait_for<R>(
        &self,
        subject: impl Fn() -> Wait,
        awaited: Awaited,
        deadline: Option<Instant>,
        exited: impl Fn() -> Option<u32>,
        mut poll: impl FnMut() -> Result<Option<R>, MatchError>,
    ) -> Result<R, MatchError> {
        /// Polls before the thread counts as waiting.
        const FIRST_POLLS: u32 = 100;
        let polls = if self.may_spin() { FIRST_POLLS } else { 1 };
        for _ in 0..polls {
            if let Some(result) = poll()? {
                return Ok(result);
            }
        }
        self.wait_long(subject, awaited, deadline, exited, poll)
    }

    #[cold]
    fn wait_long<R>(
        &self,
        subject: impl Fn() -> Wait,
        awaited: Awaited,
        deadline: Option<Instant>,
        exited: impl Fn() -> Option<u32>,
        mut poll: impl FnMut() -> Result<Option<R>, MatchError>,
    ) -> Result<R, MatchError> {
        // Relaxed: a hint.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if let Some(remote) = &self.remote_waits {
            remote.begin();
        }
        let mut outcome = None;
        let policy = if let (Awaited::Any, Some(remote)) = (awaited, &self.remote_waits) {
            outcome = poll_beside(&**remote, deadline, || poll().transpose());
            ASLEEP
        } else if self.may_spin() {
            let bytes = match awaited {
                Awaited::Rank { bytes } => bytes,
                Awaited::Any => 0,
            };
            let copy = (bytes / BYTES_A_POLL).min(MOST_COPY_POLLS) as u32;
            SpinPolicy { eager: ALONE.eager + copy, ..ALONE }
        } else {
            CROWDED
        };
        if outcome.is_none() {
            let mut message = MessageWait { endpoint: self, subject, exited, poll };
            outcome = wait(&mut message, policy, deadline);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(remote) = &self.remote_waits {
            remote.end();
        }
        outcome.unwrap_or(Err(MatchError::Timeout))
    }
}

/// Polls once. Some of the unsuccessful `tests` look for the exit of a rank, so that a loop of tests
/// ends.
pub(super) fn test<R>(
    tests: &mut u32,
    exited: impl Fn() -> Option<u32>,
    mut poll: impl FnMut() -> Result<Option<R>, MatchError>,
) -> Result<Option<R>, MatchError> {
    /// Tests of which one looks.
    const INTERVAL: u32 = 64;
    let found = poll()?;
    if found.is_some() {
        return Ok(found);
    }
    *tests = tests.wrapping_add(1);
    let Some(rank) = tests.is_multiple_of(INTERVAL).then(&exited).flatten() else {
        return Ok(None);
    };
    // The last messages of a rank that has exited come first, and may be of another rank.
    let found = poll()?;
    if found.is_none() && exited() == Some(rank) {
        return Err(MatchError::RankExited { rank });
    }
    Ok(found)
}

/// Wait of a thread for messages.
struct MessageWait<'a, S, E, P> {
    endpoint: &'a Endpoint,
    subject: S,
    exited: E,
    poll: P,
}

impl<R, S, E, P> Waiter for MessageWait<'_, S, E, P>
where
    S: Fn() -> Wait,
    E: Fn() -> Option<u32>,
    P: FnMut() -> Result<Option<R>, MatchError>,
{
    type Output = Result<R, MatchError>;

    // A rank that has exited already is reported before the first sleep, and messages of other
    // receives are read.
    const CHECKS_BEFORE_SLEEP: bool = true;

    fn sleeper(&self) -> impl Sleeper {
        self.endpoint.own.wakeup()
    }

    fn poll(&mut self) -> Option<Self::Output> {
        (self.poll)().transpose()
    }

    fn describe(&self) -> Wait {
        (self.subject)()
    }

    fn check(&mut self) -> Option<Self::Output> {
        // Before the rings are polled: the last messages of a rank that has exited come first.
        let exited = (self.exited)();
        // All rings, and new ones: the thread may sleep next.
        if let Err(error) = self.endpoint.progress() {
            return Some(Err(error));
        }
        self.poll().or_else(|| {
            // A receive may have matched a message of another rank meanwhile.
            let rank = exited.filter(|rank| (self.exited)() == Some(*rank))?;
            Some(Err(MatchError::RankExited { rank }))
        })
    }
}
