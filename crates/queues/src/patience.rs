//! Waiting for a change in shared memory by the other process of a pair: bounded polling, then
//! sleep, with a liveness check of the peer between sleeps.

use std::time::{Duration, Instant};

use crate::liveness::{ProcessId, ProcessWatch};
use crate::sync::spin_loop;
use crate::wakeup::Wakeup;

/// How often a waiter looks without a pause: about a microsecond, so that a peer that answers at
/// once is met at full speed.
pub(crate) const EAGER_LOOKS: u32 = 1000;

/// How often it looks then, with some time between two looks, before it sleeps: some ten
/// microseconds, about what falling asleep and waking up cost. A waiter that shares its processor
/// with the peer does not keep it for longer.
const PATIENT_LOOKS: u32 = 400;

/// How often it offers its processor to others before it sleeps: with more threads than processors,
/// the one that it waits for may be the next to run, and two changes of turn cost far less than
/// falling asleep and being woken.
const YIELDS: u32 = 3;

/// How long a waiter sleeps at most before it looks whether the peer still lives.
const SLICE: Duration = Duration::from_millis(50);

/// The same where a wake-up may be lost (see [`shm::fence`]).
const SHORT_SLICE: Duration = Duration::from_millis(1);

/// Why a wait ended without what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The deadline has passed.
    Deadline,
    /// The peer is dead; this is its number.
    PeerGone(u32),
}

/// Calls `look` until it gives something: a bounded number of times at once, then after every
/// wake-up. `peer` says, whenever it is asked, whose death would make waiting useless.
pub(crate) fn wait<R>(
    wakeup: Wakeup<'_>,
    watch: &mut ProcessWatch,
    peer: impl Fn() -> ProcessId,
    deadline: Option<Instant>,
    mut look: impl FnMut() -> Option<R>,
) -> Result<R, Ended> {
    for looks in 0..EAGER_LOOKS + PATIENT_LOOKS + YIELDS {
        if let Some(found) = look() {
            return Ok(found);
        }
        if looks >= EAGER_LOOKS + PATIENT_LOOKS {
            std::thread::yield_now();
        } else if looks >= EAGER_LOOKS {
            spin_loop();
        }
    }
    loop {
        let marked = wakeup.mark();
        // The mark stays when it was not needed: one wake-up too many harms nobody, and another may
        // sleep here too.
        if let Some(found) = look() {
            return Ok(found);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Ended::Deadline);
        }
        let slice = if marked.certain { SLICE } else { SHORT_SLICE };
        let name = peer();
        if watch.has_ended(name) {
            // It may have done its part before it died.
            return look().ok_or(Ended::PeerGone(name.pid()));
        }
        wakeup.sleep(marked, Some(left.map_or(slice, |left| left.min(slice))));
    }
}
