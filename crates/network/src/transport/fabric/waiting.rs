//! Waits for arrivals, and the time-outs of what does not advance.

use super::Fabric;
use super::link::Link;
use crate::error::{Error, system};
use crate::transport::payloads::Payloads;
use crate::transport::{Arrival, Transport};
use std::time::{Duration, Instant};

/// Longest sleep. The descriptors of some providers are readable late (fi_cxi(7) requires a bound).
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Longest sleep while the provider must be called again because it was busy.
const LONGEST_BUSY_SLEEP: Duration = Duration::from_millis(1);
/// First pause between two polls of a provider that must be polled, and the longest one while
/// something is under way. Each is twice the one before.
const PAUSES: [Duration; 2] = [Duration::from_micros(5), Duration::from_millis(1)];
/// Longest such pause while nothing is under way: far below the time after which a node is lost.
const LONGEST_IDLE_PAUSE: Duration = Duration::from_millis(20);

/// Longest time for which the memory of a rank that has exited stays registered.
const RELEASE_PERIOD: Duration = Duration::from_secs(1);

impl Fabric {
    /// Loses nodes to or from which nothing has been transferred for too long, and ends the
    /// registrations of ranks that have exited.
    ///
    /// # Errors
    /// If the provider does not end its accesses to the ranks' memory. The end of the endpoint does.
    pub(super) fn check_progress(&mut self, payloads: &mut dyn Payloads) -> Result<(), Error> {
        let now = Instant::now();
        if now.duration_since(self.released) > RELEASE_PERIOD {
            self.released = now;
            self.registered.release_ended(&mut self.endpoint);
        }
        for (node, is_lost) in self.reads.stalled(now, self.unanswered) {
            let seconds = self.unanswered.as_secs_f64();
            let why = format!("a read of its memory has not ended within {seconds:.1} s");
            if is_lost {
                return Err(system(&format!("give up the memory of node {node}"), why));
            }
            self.lose(node, why, payloads);
        }
        for node in self.connected() {
            let Some(link) = self.links[node as usize].as_mut() else { continue };
            if let Some(why) = link.failure(now, self.unanswered) {
                self.lose(node, why, payloads);
            }
        }
        Ok(())
    }

    /// Sleeps on the mesh, and on the provider if it has a descriptor, for at most this time.
    fn sleep(
        &mut self,
        timeout: Option<Duration>,
        payloads: &mut dyn Payloads,
    ) -> Result<(), Error> {
        let mut arrived = std::mem::take(&mut self.arrived);
        let slept = self.mesh.wait(timeout, payloads, &mut arrived);
        self.arrived = arrived;
        slept
    }

    /// Returns true if something is under way that the provider completes in calls only.
    fn is_active(&self, payloads: &dyn Payloads) -> bool {
        self.reads.are_under_way()
            || payloads.has_runs()
            || self.links.iter().flatten().any(Link::is_active)
    }

    /// Polls a provider that cannot sleep until something has happened, with growing pauses.
    pub(super) fn wait_polling(
        &mut self,
        timeout: Option<Duration>,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut pause = PAUSES[0];
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let longest = if self.is_active(payloads) { PAUSES[1] } else { LONGEST_IDLE_PAUSE };
            pause = pause.min(longest);
            self.sleep(Some(left.map_or(pause, |left| pause.min(left))), payloads)?;
            let is_over = left.is_some_and(|left| left.is_zero()) || !self.arrived.is_empty();
            let had_events = self.progress(payloads, arrivals);
            // After events, too: other nodes may keep this one busy for any time.
            self.check_progress(payloads)?;
            if had_events || is_over || !self.lost.is_empty() {
                return Ok(());
            }
            pause *= 2;
        }
    }

    /// Sleeps until something has happened.
    pub(super) fn wait_sleeping(
        &mut self,
        timeout: Option<Duration>,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        // Without this call before every sleep the descriptor stays readable for ever.
        let may_sleep = self.lost.is_empty() && self.endpoint.may_sleep();
        let is_busy = self.reads.is_refused() || self.links.iter().flatten().any(Link::is_refused);
        let longest = match (may_sleep, is_busy) {
            (false, _) => Duration::ZERO,
            (true, true) => LONGEST_BUSY_SLEEP,
            (true, false) => LONGEST_SLEEP,
        };
        self.sleep(Some(timeout.map_or(longest, |timeout| timeout.min(longest))), payloads)?;
        self.progress(payloads, arrivals);
        self.check_progress(payloads)
    }
}
