//! The agent's choice between polling and sleep.
//!
//! A thread that sleeps is woken within a few microseconds on a core that computes, and takes tens
//! of microseconds on an idle one: the core must leave its idle state first, on virtual machines
//! with the help of the hypervisor. So the agent polls while every rank of its node waits for the
//! end of a run, because then their cores are idle, and yields its core after each poll. It sleeps
//! as soon as a rank computes: a thread that yields to a computation gets the core back only at the
//! end of a time slice, while one that sleeps is woken at once by a message.

use shm::wait::INTERNODE_POLLING;

/// Time without an arrival or a submission after which the agent sleeps although ranks wait.
const POLLING_NS: u64 = INTERNODE_POLLING.as_nanos() as u64;
/// Time for which the agent polls without yielding after the end of a run, or after values of a
/// channel. A rank that continues with the next run submits it within that time, and one that
/// answers a value sends the next, unless it shares the agent's core: then it does not poll.
const LINGER_NS: u64 = 3_000;

/// The way in which the agent waits for the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleMode {
    /// Polls at once.
    Poll,
    /// Lets other threads of the core run, then polls.
    Yield,
    /// Sleeps until a rank, the owner, the network or a timer wakes it.
    Sleep,
}

/// Times of the agent's last events, in nanoseconds of its clock.
#[derive(Debug, Default)]
pub(super) struct IdleState {
    poll_until: u64,
    linger_until: u64,
}

impl IdleState {
    /// Records that something has arrived or was submitted.
    pub(super) fn record_event(&mut self, now: u64) {
        self.poll_until = now.saturating_add(POLLING_NS);
    }

    /// Records that more is likely to follow at once: a rank has polled for what it has got now.
    pub(super) fn expect_more(&mut self, now: u64) {
        self.linger_until = now.saturating_add(LINGER_NS);
    }

    /// Returns the way to wait. `all_ranks_wait` is true if every rank of the node waits.
    pub(super) fn mode(&self, now: u64, all_ranks_wait: bool) -> IdleMode {
        if now < self.linger_until {
            IdleMode::Poll
        } else if all_ranks_wait && now < self.poll_until {
            IdleMode::Yield
        } else {
            IdleMode::Sleep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_yields_only_while_every_rank_waits() {
        let mut idle = IdleState::default();
        assert_eq!(idle.mode(7, true), IdleMode::Sleep, "nothing has arrived");
        idle.record_event(7);
        assert_eq!(idle.mode(8, true), IdleMode::Yield);
        assert_eq!(idle.mode(8, false), IdleMode::Sleep, "a rank computes");
        assert_eq!(idle.mode(7 + POLLING_NS, true), IdleMode::Sleep, "nothing has arrived lately");
    }

    #[test]
    fn the_agent_does_not_yield_to_a_rank_whose_run_has_ended() {
        let mut idle = IdleState::default();
        idle.record_event(7);
        idle.expect_more(7);
        assert_eq!(idle.mode(8, true), IdleMode::Poll);
        assert_eq!(idle.mode(7 + LINGER_NS, false), IdleMode::Sleep);
    }
}
