//! Waits at the connections of this process, for ranks on other nodes or for any rank.

use crate::matching::endpoint::Endpoint;
use crate::remote_waits::{ASLEEP, Drive, Driven, RemoteDriver};
use shm::published_wait;
use shm::wait::{INTERNODE_POLLING, Waiter, wait};
use std::time::{Duration, Instant};

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

/// A wait for a rank of another node, or any rank. The thread polls the connections, then sleeps
/// there as long as no rank of this node needs it: always if the rank is alone on its node, for
/// [`SHARED_SLEEPS`] beside others that no operation is under way with. Otherwise it sleeps at the
/// wake-up word of the endpoint.
pub(super) struct ConnectionsWait<'a> {
    endpoint: &'a Endpoint,
    driver: &'a dyn RemoteDriver,
    /// True if one rank is awaited, false if any is.
    is_named: bool,
    began: Instant,
    deadline: Option<Instant>,
}

impl<'a> ConnectionsWait<'a> {
    pub(super) fn new(
        endpoint: &'a Endpoint,
        driver: &'a dyn RemoteDriver,
        is_named: bool,
        deadline: Option<Instant>,
    ) -> Self {
        ConnectionsWait { endpoint, driver, is_named, began: Instant::now(), deadline }
    }

    /// Waits. Returns `None` at the deadline.
    pub(super) fn wait<W: Waiter>(&self, message: &mut W) -> Option<W::Output> {
        self.poll(message).or_else(|| self.sleep(message))
    }

    /// Polls for a while.
    fn poll<W: Waiter>(&self, message: &mut W) -> Option<W::Output> {
        let drive = Drive {
            polls_always: self.needs_rings(),
            polling: INTERNODE_POLLING,
            sleeps: false,
            // Where something arrives all the time, too, a check for exits follows.
            until: self.until(self.began, ALONE_SLICE),
        };
        loop {
            match self.drive(drive, true, message) {
                (Driven::Complete, outcome) => return outcome,
                (Driven::Busy, _) if self.began.elapsed() < INTERNODE_POLLING => {
                    std::thread::yield_now()
                }
                _ => return None,
            }
            if let Some(outcome) = message.poll() {
                return Some(outcome);
            }
        }
    }

    /// Sleeps until the end of the wait.
    fn sleep<W: Waiter>(&self, message: &mut W) -> Option<W::Output> {
        // During all sleeps at the connections, so that an observer sees how long the wait is.
        let mut published = None;
        loop {
            // As before every sleep: a rank that has exited ends the wait.
            if let Some(outcome) = message.check() {
                return Some(outcome);
            }
            let now = Instant::now();
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                return message.poll();
            }
            let mut deadline = self.deadline;
            let is_shared = self.has_local_senders();
            if !is_shared || now - self.began < SHARED_SLEEPS && !self.needs_rings() {
                published = published.or_else(|| published_wait::publish(message.describe()));
                let slice = if is_shared { SHARED_SLICE } else { ALONE_SLICE };
                let drive = Drive {
                    polls_always: false,
                    polling: Duration::ZERO,
                    sleeps: true,
                    until: self.until(now, slice),
                };
                match self.drive(drive, is_shared, message) {
                    (Driven::Complete, Some(outcome)) => return Some(outcome),
                    (Driven::Complete, None) => continue,
                    (Driven::Idle, _) => {
                        // Perhaps another thread waits for the connections.
                        std::thread::yield_now();
                        continue;
                    }
                    (Driven::Busy, _) => deadline = self.until(now, OTHER_DRIVER),
                }
            }
            // `wait` publishes it.
            published = None;
            // The background thread takes what arrives, or the thread that has the connections.
            let outcome = wait(message, ASLEEP, deadline);
            if outcome.is_some() {
                return outcome;
            }
        }
    }

    /// Drives the connections once. `is_shared` is true if a message of this rank to itself ends
    /// the wait in another way.
    fn drive<W: Waiter>(
        &self,
        drive: Drive,
        is_shared: bool,
        message: &mut W,
    ) -> (Driven, Option<W::Output>) {
        let mut outcome = None;
        let driven = self.driver.drive(drive, &mut || {
            outcome = message.poll();
            // This rank has sent its first message to itself: the next one does not end a sleep
            // at the connections.
            outcome.is_some() || !is_shared && self.has_local_senders()
        });
        (driven, outcome)
    }

    fn has_local_senders(&self) -> bool {
        self.endpoint.state.lock().has_local_senders()
    }

    /// Returns true if the thread must look at the rings of this node: for what it waits for, or for
    /// other receives and sends, because a rank of this node may wait for their progress.
    fn needs_rings(&self) -> bool {
        let state = self.endpoint.state.lock();
        state.has_local_senders() && (!self.is_named || state.has_pending_on_node())
    }

    /// Returns the end of a time from now on, not behind the deadline.
    fn until(&self, now: Instant, limit: Duration) -> Option<Instant> {
        let end = now + limit;
        Some(self.deadline.map_or(end, |deadline| deadline.min(end)))
    }
}
