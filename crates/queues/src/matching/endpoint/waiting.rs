//! Waits of the threads of a rank.

mod connections;

use super::Endpoint;
use crate::matching::error::MatchError;
use crate::matching::remote::RemoteProgress;
use crate::matching::state::State;
use crate::remote_waits::{ASLEEP, RemoteDriver, poll_beside};
use connections::ConnectionsWait;
use shm::published_wait::Wait;
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};
use shm::wakeup::{Armed, Wakeup};
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
    /// A rank of another node.
    Remote,
    /// Any rank.
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

    /// Returns what a receive from a source waits for.
    #[inline]
    pub(super) fn awaited_from(&self, source: Option<u32>) -> Awaited {
        match source {
            None => Awaited::Any,
            Some(source) if source < self.ranks => Awaited::Rank { bytes: 0 },
            Some(_) => Awaited::Remote,
        }
    }

    /// Calls `poll` for a call that does not wait. If it finds nothing, the call takes what has
    /// arrived from other nodes, a system call for each connection, and polls once more: always if
    /// it concerns the rank at a place there, or any, otherwise now and then.
    #[inline]
    pub(super) fn poll_and_look<R>(
        &self,
        place: impl FnOnce(&State) -> Option<u32>,
        mut poll: impl FnMut() -> Result<Option<R>, MatchError>,
    ) -> Result<Option<R>, MatchError> {
        let found = poll()?;
        if found.is_some() || !matches!(self.progress, Some(RemoteProgress::Connections(_))) {
            return Ok(found);
        }
        let mut state = self.state.lock();
        let is_awaited = place(&state).is_none_or(|place| place >= self.ranks);
        let has_looked = state.look(is_awaited);
        drop(state);
        if has_looked { poll() } else { Ok(None) }
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
        let is_far = matches!(self.progress, Some(RemoteProgress::Connections(_)))
            && !matches!(awaited, Awaited::Rank { .. });
        // What arrives at the connections is found there only.
        let polls = if self.may_spin() && !is_far { FIRST_POLLS } else { 1 };
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
        poll: impl FnMut() -> Result<Option<R>, MatchError>,
    ) -> Result<R, MatchError> {
        // Relaxed: a hint.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut message = MessageWait { endpoint: self, subject, exited, poll };
        let outcome = match (&self.progress, awaited) {
            (Some(RemoteProgress::Connections(driver)), Awaited::Remote | Awaited::Any) => {
                let is_named = matches!(awaited, Awaited::Remote);
                ConnectionsWait::new(self, &**driver, is_named, deadline).wait(&mut message)
            }
            (Some(RemoteProgress::Process(remote)), _) => {
                remote.begin();
                let outcome = match awaited {
                    Awaited::Rank { bytes } => wait(&mut message, self.policy(bytes), deadline),
                    Awaited::Remote | Awaited::Any => {
                        poll_beside(&**remote, deadline, || message.poll())
                            .or_else(|| wait(&mut message, ASLEEP, deadline))
                    }
                };
                remote.end();
                outcome
            }
            (_, Awaited::Rank { bytes }) => wait(&mut message, self.policy(bytes), deadline),
            (None, Awaited::Remote | Awaited::Any) => wait(&mut message, self.policy(0), deadline),
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        outcome.unwrap_or(Err(MatchError::Timeout))
    }

    /// Manner of waiting for a rank of this node, which may copy so many bytes.
    fn policy(&self, bytes: usize) -> SpinPolicy {
        if !self.may_spin() {
            return CROWDED;
        }
        let copy = (bytes / BYTES_A_POLL).min(MOST_COPY_POLLS) as u32;
        SpinPolicy { eager: ALONE.eager + copy, ..ALONE }
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
        let driver = match &self.endpoint.progress {
            Some(RemoteProgress::Connections(driver)) => Some(&**driver),
            _ => None,
        };
        EndpointSleeper { wakeup: self.endpoint.own.wakeup(), driver }
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

/// Sleep of a thread until the wake-up word of its endpoint is notified.
struct EndpointSleeper<'a> {
    wakeup: Wakeup<'a>,
    /// The connections with other nodes, if threads of this process take what arrives there.
    driver: Option<&'a dyn RemoteDriver>,
}

impl Sleeper for EndpointSleeper<'_> {
    fn arm(&self) -> Armed {
        // First: what arrives from now on notifies the word.
        if let Some(driver) = self.driver {
            driver.begin_sleep();
        }
        self.wakeup.arm()
    }

    fn sleep(&self, armed: Armed, limit: Duration) -> bool {
        Sleeper::sleep(&self.wakeup, armed, limit)
    }

    fn disarm(&self, armed: Armed) {
        self.wakeup.disarm(armed);
        if let Some(driver) = self.driver {
            driver.end_sleep();
        }
    }
}
