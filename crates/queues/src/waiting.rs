//! Waiting for a queue: a short bounded look, then sleep on its bell.

use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::fence;
use crate::sync::{self, Ordering, spin_loop};

/// How often a waiter looks before it sleeps: some microseconds, about what falling asleep and
/// waking up cost.
const LOOKS: u32 = 400;

/// After this many looks a waiter lets some time pass between two of them, for the sake of its
/// processor's other half.
const EAGER_LOOKS: u32 = 100;

/// How often it offers its processor to others before it sleeps: with more threads than processors,
/// the one that it waits for may be the next to run.
const YIELDS: u32 = 3;

/// How long a sleeper trusts the bell. A ringer that died before it rang has rung for nobody.
const SLICE: Duration = Duration::from_millis(100);

/// The same where a ring may be missed, because the kernel has no barrier for others (see
/// [`shm::fence`]).
const SHORT_SLICE: Duration = Duration::from_millis(1);

/// How long a waiter sleeps by the clock while others take what comes.
const NAP: Duration = Duration::from_micros(50);

/// What a waiter does while it waits.
pub(crate) trait Wait {
    /// What it waits for.
    type Found;

    /// The bell that is rung when it may be there.
    fn bell(&self) -> Bell<'_>;

    /// How ringers order the change before the look at the bell.
    fn ringers(&self) -> Ringers {
        Ringers::Exchange
    }

    /// Takes it if it is there.
    fn look(&mut self) -> Option<Self::Found>;

    /// Whether there is something that more looks will bring about, so that it must not sleep.
    /// Asked behind a barrier.
    fn is_ready(&mut self) -> bool {
        false
    }

    /// Changes when another waiter takes what this one waits for.
    fn progress(&self) -> u64 {
        0
    }

    /// Asked when nothing has rung for a while: does what a ringer that died has left undone; gives
    /// what ends the wait, if nothing will come any more.
    fn recover(&mut self) -> Option<Self::Found> {
        None
    }
}

/// How a change that a sleeper waits for comes before the look at the bell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ringers {
    /// By a read-modify-write.
    Exchange,
    /// By a store and the light half of the barrier.
    Store,
}

impl Ringers {
    /// Passes the sleeper's half of the barrier; gives how long the bell can be trusted.
    fn pass(self) -> Duration {
        match self {
            Ringers::Store if !fence::heavy() => SHORT_SLICE,
            Ringers::Store => SLICE,
            Ringers::Exchange => {
                // Pairs with the ringer's exchange and load: it sees this sleeper, or its change is
                // seen here.
                sync::fence(Ordering::SeqCst);
                SLICE
            }
        }
    }
}

/// Looks a bounded number of times, then sleeps on the bell and looks after every ring. `None` at
/// the deadline.
///
/// As long as another waiter takes everything, this one does not enter the bell: a ringer would
/// wake it with a system call each time, and for nothing. It looks now and then instead, should the
/// other one be busy with what it got.
pub(crate) fn wait<W: Wait>(waiter: &mut W, deadline: Option<Instant>) -> Option<W::Found> {
    let mut progress = waiter.progress();
    for looks in 0..LOOKS + YIELDS {
        if let Some(found) = waiter.look() {
            return Some(found);
        }
        if looks >= LOOKS {
            std::thread::yield_now();
        } else if looks > EAGER_LOOKS {
            spin_loop();
        }
    }
    let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    loop {
        let before = std::mem::replace(&mut progress, waiter.progress());
        if progress != before && left().is_none_or(|left| !left.is_zero()) {
            std::thread::sleep(left().map_or(NAP, |left| left.min(NAP)));
            match waiter.look() {
                None => continue,
                found => return found,
            }
        }
        let entered = waiter.bell().enter();
        let slice = waiter.ringers().pass();
        let found = waiter.look();
        let left = left();
        let is_over = found.is_some() || left.is_some_and(|left| left.is_zero());
        let must_look = is_over || waiter.is_ready();
        let slept = !must_look
            && waiter.bell().sleep(entered, Some(left.map_or(slice, |left| left.min(slice))));
        waiter.bell().leave(entered);
        if is_over {
            return found;
        }
        if slept {
            let end = waiter.recover();
            if end.is_some() {
                return end;
            }
        } else if must_look {
            // Whoever is to bring it about may need this processor.
            std::thread::yield_now();
        }
        if let Some(found) = waiter.look() {
            return Some(found);
        }
    }
}
