//! Waiting for a queue: a short bounded look, then sleep on its bell.

use std::time::{Duration, Instant};

use crate::barrier::Barrier;
use crate::bell::Bell;
use crate::sync::{Ordering, fence, spin_loop};

/// How often a waiter looks before it sleeps: some microseconds, about what falling asleep and waking up cost.
const LOOKS: u32 = 400;

/// After this many looks a waiter lets some time pass between two of them, for the sake of its processor's other half.
const EAGER_LOOKS: u32 = 100;

/// How long a sleeper trusts the bell. A ringer that died before it rang has rung for nobody.
const SLICE: Duration = Duration::from_millis(100);

/// The same where a ring may be missed, because the kernel has no barrier for others (see `barrier.rs`).
const SHORT_SLICE: Duration = Duration::from_millis(1);

/// What a waiter does while it waits.
pub(crate) trait Wait {
    /// What it waits for.
    type Found;

    /// Takes it if it is there.
    fn look(&mut self) -> Option<Self::Found>;

    /// Whether there is something that more looks will bring about, so that it must not sleep. Asked behind a barrier.
    fn is_ready(&mut self) -> bool {
        false
    }

    /// Does what a ringer that died has left undone.
    fn mend(&mut self) {}
}

/// How a change that a sleeper waits for comes before the look at the bell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ringers {
    /// By a read-modify-write.
    Exchange,
    /// By a store and the light half of the barrier.
    Store(Barrier),
}

/// Looks a bounded number of times, then sleeps on the bell and looks after every ring. `None` at the deadline.
pub(crate) fn wait<W: Wait>(
    bell: Bell<'_>,
    ringers: Ringers,
    deadline: Option<Instant>,
    waiter: &mut W,
) -> Option<W::Found> {
    for looks in 0..LOOKS {
        if let Some(found) = waiter.look() {
            return Some(found);
        }
        if looks > EAGER_LOOKS {
            spin_loop();
        }
    }
    loop {
        if let Some(found) = waiter.look() {
            return Some(found);
        }
        let entered = bell.enter();
        let slice = match ringers {
            Ringers::Store(barrier) => {
                if barrier.heavy() {
                    SLICE
                } else {
                    SHORT_SLICE
                }
            }
            Ringers::Exchange => {
                // Pairs with the ringer's exchange and load: it sees this sleeper, or its change is seen here.
                fence(Ordering::SeqCst);
                SLICE
            }
        };
        let found = waiter.look();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let is_over = left.is_some_and(|left| left.is_zero());
        let is_ready = found.is_none() && !is_over && waiter.is_ready();
        if found.is_none() && !is_over && !is_ready {
            let timed_out = bell.sleep(entered, Some(left.map_or(slice, |left| left.min(slice))));
            if timed_out {
                waiter.mend();
            }
        }
        bell.leave(entered);
        if found.is_some() || is_over {
            return found;
        }
        if is_ready {
            // Whoever is to bring it about may need this processor.
            std::thread::yield_now();
        }
    }
}
