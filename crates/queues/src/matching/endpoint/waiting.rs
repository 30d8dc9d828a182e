//! Waits of the threads of a rank.

use super::Endpoint;
use crate::matching::error::MatchError;
use crate::matching::remote::Carrier;
use crate::matching::state::State;
use crate::remote_waits::{ASLEEP, Drive, Driven, RemoteDriver, poll_beside};
use shm::published_wait::{self, Wait};
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

/// Time for which a thread polls the connections before it sleeps.
const POLLING: Duration = Duration::from_micros(500);

/// Longest sleep at the connections without a check of the peers.
const ALONE_SLICE: Duration = Duration::from_millis(50);

/// The same where ranks of this node may need this one. They cannot end such a sleep.
const SHARED_SLICE: Duration = Duration::from_millis(1);

/// Time for which a thread sleeps at the connections beside ranks of this node, with
/// [`SHARED_SLICE`]. In a longer wait it sleeps at the wake-up word of the endpoint, which these
/// ranks notify, and the background thread if something arrives.
const SHARED_SLEEPS: Duration = Duration::from_millis(10);

/// Longest sleep while another thread of this rank has the connections.
const OTHER_DRIVER: Duration = Duration::from_millis(1);

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
        if found.is_some() || !matches!(self.carrier, Some(Carrier::Threads(_))) {
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
        let is_far = matches!(self.carrier, Some(Carrier::Threads(_)))
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
        let outcome = match (&self.carrier, awaited) {
            (Some(Carrier::Threads(driver)), Awaited::Remote | Awaited::Any) => {
                self.wait_at_connections(&**driver, awaited, deadline, &mut message)
            }
            (Some(Carrier::Process(remote)), _) => {
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

    /// Waits for a rank of another node, or any rank. The thread polls the connections, then sleeps
    /// there as long as no rank of this node needs it: always if the rank is alone on its node, for
    /// [`SHARED_SLEEPS`] beside others that no operation is under way with. Otherwise it sleeps at
    /// the wake-up word of the endpoint. `None` at the deadline.
    fn wait_at_connections<W: Waiter>(
        &self,
        driver: &dyn RemoteDriver,
        awaited: Awaited,
        deadline: Option<Instant>,
        message: &mut W,
    ) -> Option<W::Output> {
        let mut outcome = None;
        let is_named = matches!(awaited, Awaited::Remote);
        let has_local_senders = || self.state.lock().has_local_senders();
        let began = Instant::now();
        let until = |now: Instant, limit| {
            Some(deadline.map_or(now + limit, |deadline| deadline.min(now + limit)))
        };
        // Those of other receives and sends, too: a rank of this node may wait for their progress.
        let needs_rings = || {
            let state = self.state.lock();
            state.has_local_senders() && (!is_named || state.has_pending_on_node())
        };
        let mut drive_once = |drive: Drive, is_shared: bool, message: &mut W| {
            let driven = driver.drive(drive, &mut || {
                outcome = message.poll();
                // This rank has sent its first message to itself: the next one does not end a sleep
                // at the connections.
                outcome.is_some() || !is_shared && has_local_senders()
            });
            (driven, outcome.take())
        };
        let drive = Drive {
            polls_always: needs_rings(),
            polling: POLLING,
            sleeps: false,
            // Where something arrives all the time, too, a check for exits follows.
            until: until(began, ALONE_SLICE),
        };
        loop {
            match drive_once(drive, true, message) {
                (Driven::Complete, outcome) => return outcome,
                (Driven::Busy, _) if began.elapsed() < POLLING => std::thread::yield_now(),
                _ => break,
            }
            if let Some(outcome) = message.poll() {
                return Some(outcome);
            }
        }
        // During all sleeps at the connections, so that an observer sees how long the wait is.
        let mut published = None;
        loop {
            // As before every sleep: a rank that has exited ends the wait.
            if let Some(outcome) = message.check() {
                return Some(outcome);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return message.poll();
            }
            let is_shared = has_local_senders();
            let mut limit = None;
            if !is_shared || now - began < SHARED_SLEEPS && !needs_rings() {
                published = published.or_else(|| published_wait::publish(message.describe()));
                let slice = if is_shared { SHARED_SLICE } else { ALONE_SLICE };
                let drive = Drive {
                    polls_always: false,
                    polling: Duration::ZERO,
                    sleeps: true,
                    until: until(now, slice),
                };
                match drive_once(drive, is_shared, message) {
                    (Driven::Complete, Some(outcome)) => return Some(outcome),
                    (Driven::Complete, None) => continue,
                    (Driven::Idle, _) => {
                        // Perhaps another thread waits for the connections.
                        std::thread::yield_now();
                        continue;
                    }
                    (Driven::Busy, _) => limit = Some(OTHER_DRIVER),
                }
            }
            // `wait` publishes it.
            published = None;
            // The background thread takes what arrives, or the thread that has the connections.
            let deadline = limit.map_or(deadline, |limit| until(now, limit));
            let outcome = wait(message, ASLEEP, deadline);
            if outcome.is_some() {
                return outcome;
            }
        }
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
        let driver = match &self.endpoint.carrier {
            Some(Carrier::Threads(driver)) => Some(&**driver),
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
