//! Waiting for a change in shared memory by the other process of a pair: bounded polling, then
//! sleep, with a liveness check of the peer between sleeps.

use std::time::{Duration, Instant};

use crate::sync::spin_loop;
use crate::wakeup::Wakeup;
use shm::liveness::{ProcessId, ProcessWatch};

/// Number of polls without a spin-loop hint: about a microsecond, so that an immediate answer of
/// the peer is seen without delay.
pub(crate) const EAGER_POLLS: u32 = 1000;

/// Number of polls with a spin-loop hint before the first sleep: some ten microseconds, about the
/// cost of falling asleep and waking up. A thread that shares its processor with the peer occupies
/// it no longer than that.
const HINTED_POLLS: u32 = 400;

/// Number of yields before the first sleep: with more threads than processors, the awaited thread
/// may be the next to run, and two context switches cost far less than falling asleep and being
/// woken.
const YIELDS: u32 = 3;

/// Longest sleep without a liveness check of the peer.
const SLICE: Duration = Duration::from_millis(50);

/// Longest sleep where a wake-up may be lost (see [`shm::fence`]).
const SHORT_SLICE: Duration = Duration::from_millis(1);

/// Reason why a wait ended without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The deadline has passed.
    Deadline,
    /// The peer, with this process number, has ended.
    PeerGone(u32),
}

/// Calls `poll` until it returns a result: a bounded number of times without sleeping, then after
/// every wake-up. `peer` returns the process without which waiting is pointless.
pub(crate) fn wait<R>(
    wakeup: Wakeup<'_>,
    watch: &mut ProcessWatch,
    peer: impl Fn() -> ProcessId,
    deadline: Option<Instant>,
    mut poll: impl FnMut() -> Option<R>,
) -> Result<R, Ended> {
    for polls in 0..EAGER_POLLS + HINTED_POLLS + YIELDS {
        if let Some(output) = poll() {
            return Ok(output);
        }
        if polls >= EAGER_POLLS + HINTED_POLLS {
            std::thread::yield_now();
        } else if polls >= EAGER_POLLS {
            spin_loop();
        }
    }
    loop {
        let marked = wakeup.mark();
        // This poll follows the barrier in `mark`, so it sees every change by a notifier that
        // did not see the bit. The bit stays set if the poll succeeds: a spurious wake-up is
        // harmless, and another thread may sleep here too.
        if let Some(output) = poll() {
            return Ok(output);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Ended::Deadline);
        }
        let slice = if marked.certain { SLICE } else { SHORT_SLICE };
        let process = peer();
        if watch.has_ended(process) {
            // It may have made the change before it ended.
            return poll().ok_or(Ended::PeerGone(process.pid()));
        }
        wakeup.sleep(marked, Some(left.map_or(slice, |left| left.min(slice))));
    }
}
