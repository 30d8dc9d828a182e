//! A rank's arena as its runs share it: the order in which runs that wait get memory, and the
//! memory that can be freed for them.
//!
//! A run that finds the arena full waits in the queue of its window with a [`Turn`]. Two rules let
//! it start in the end, if every rank starts its collectives in the same order.
//!
//! 1. A later run takes memory only if the memory of every earlier one stays available: as a
//!    reserve, which the first waiting run uses. Otherwise two ranks could each hold the memory of
//!    a run that waits for memory on the other one.
//! 2. While a rank of the node is short, all ranks move finished results out of their slots in
//!    every wait and test, and free what no rank uses any more ([`MemoryHolder`]).
//!
//! The oldest run that is incomplete then has all memory but that of complete runs, which rule 2
//! frees, and of later ones, which leave it the reserve.
//!
//! Ranks that start collectives of several communicators in different orders may each hold the
//! memory that the other one waits for. In such a cycle every run lacks ranks that are blocked
//! ([`crate::shortage`]), so waits fail only after a time in which that was so for all runs of
//! their rank ([`Pending`]): those for runs without memory, and those for runs that have begun here,
//! but for which another rank has no memory. A rank that is merely late is not blocked, and is
//! awaited without limit.

use crate::error::Error;
use crate::shortage::{self, ShortageLine};
use shm::arena::Arena;
use shm::mapped::Mapped;
use shm::segment::Offset;
use shm::sync::{AtomicU32, AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Time after which a wait of a rank that is short of memory fails, if all that time every run of
/// this rank lacked ranks that are blocked as well, and no waiting run got memory.
const LONGEST_SHORTAGE: Duration = Duration::from_secs(60);

/// An object with runs that hold memory of the arena.
pub(crate) trait MemoryHolder: Send + Sync + std::fmt::Debug {
    /// Moves finished results to private memory, and frees the memory that no rank uses any more.
    /// Returns what the runs that are left wait for.
    fn reclaim(&self) -> Pending;
}

/// Memory of a layer above, which can be freed once other ranks do not use it any more.
pub trait Swept: Send + Sync + std::fmt::Debug {
    /// Frees what no rank uses any more. Neither waits nor executes operations.
    fn sweep(&self);
}

impl<S: Swept> MemoryHolder for S {
    fn reclaim(&self) -> Pending {
        self.sweep();
        // The runs that use the memory are pending in their own windows.
        Pending::Nothing
    }
}

/// That which the release of further memory waits for. Of several, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pending {
    /// No further memory will be released.
    Nothing,
    /// Ranks that are blocked themselves, or the last use of shared memory elsewhere.
    Blocked,
    /// A rank that can still arrive, or fetch its result.
    Awaited,
}

impl Pending {
    /// Returns the state of a run or a link that lacks these ranks.
    pub(crate) fn on(
        lacking: impl Iterator<Item = u32>,
        is_blocked: impl Fn(u32) -> bool,
    ) -> Pending {
        let of = |rank| if is_blocked(rank) { Pending::Blocked } else { Pending::Awaited };
        lacking.map(of).max().unwrap_or(Pending::Nothing)
    }
}

/// The memory for the runs of one rank.
#[derive(Debug)]
pub(crate) struct RunMemory {
    arena: Arc<Arena>,
    shortage: Mapped<ShortageLine>,
    /// This rank's mark of its shortage.
    mark: Mapped<AtomicU32>,
    /// Number of waiting runs. Changed with the lock of the turns.
    waiting: AtomicUsize,
    turns: Mutex<Turns>,
    holders: Mutex<Holders>,
}

#[derive(Debug)]
struct Turns {
    next: u64,
    /// Bytes that each waiting run needs.
    waiting: BTreeMap<u64, u64>,
    /// Memory for the first waiting run, which no other run takes.
    reserve: Option<(Offset, u64)>,
    /// The time since which no waiting run got memory and no rank outside a cycle was awaited;
    /// `None` if no run has found too little since the last one started.
    short_since: Option<Instant>,
    /// Time after which runs in a cycle fail.
    limit: Duration,
    /// Number of turns that have ended.
    ended: u64,
}

#[derive(Debug, Default)]
struct Holders {
    list: Vec<Weak<dyn MemoryHolder>>,
    /// Length at which dropped holders are removed.
    sweep_at: usize,
}

/// The place of a waiting run in the order in which runs of this rank get memory.
#[derive(Debug)]
pub(crate) struct Turn {
    memory: Arc<RunMemory>,
    number: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.memory.turns();
        turns.waiting.remove(&self.number);
        turns.ended += 1;
        self.memory.waiting.store(turns.waiting.len(), Ordering::Relaxed);
        if turns.waiting.is_empty() {
            turns.free_reserve(&self.memory.arena);
        }
        // The next run records a shortage of its own if it finds one.
        if turns.short_since.take().is_some() {
            self.memory.shortage.end(&self.memory.mark);
        }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Turns {
            next: 0,
            waiting: BTreeMap::new(),
            reserve: None,
            short_since: None,
            limit: LONGEST_SHORTAGE,
            ended: 0,
        }
    }
}

impl Turns {
    /// Ensures a reserve of `bytes` bytes. Returns whether there is one.
    fn reserve(&mut self, arena: &Arena, bytes: u64) -> bool {
        if self.reserve.is_some_and(|(_, reserved)| reserved >= bytes) {
            return true;
        }
        // First, because the arena may not hold both.
        self.free_reserve(arena);
        self.reserve = arena.allocate(bytes, 64).ok().map(|at| (at, bytes));
        self.reserve.is_some()
    }

    /// Returns whether there was a reserve.
    fn free_reserve(&mut self, arena: &Arena) -> bool {
        // The memory is from this arena, so the call cannot fail.
        self.reserve.take().is_some_and(|(at, _)| arena.free(at).is_ok())
    }
}

impl RunMemory {
    pub(crate) fn new(
        arena: Arc<Arena>,
        shortage: Mapped<ShortageLine>,
        mark: Mapped<AtomicU32>,
    ) -> Self {
        RunMemory {
            arena,
            shortage,
            mark,
            waiting: AtomicUsize::new(0),
            turns: Mutex::default(),
            holders: Mutex::default(),
        }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a run that needs `bytes` bytes to the order. Runs without a slot have a turn too:
    /// later runs must not take their memory while they wait for the slot.
    pub(crate) fn enqueue(self: &Arc<Self>, bytes: u64) -> Turn {
        let mut turns = self.turns();
        let number = turns.next;
        turns.next += 1;
        turns.waiting.insert(number, bytes);
        // Relaxed: a rank that starts runs from several threads has no order among them.
        self.waiting.store(turns.waiting.len(), Ordering::Relaxed);
        Turn { memory: Arc::clone(self), number }
    }

    /// Returns whether a run may take memory now: a run with this turn, or a new one.
    #[inline]
    pub(crate) fn admits(&self, turn: Option<&Turn>) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0 || self.admits_after_others(turn)
    }

    #[cold]
    fn admits_after_others(&self, turn: Option<&Turn>) -> bool {
        let mut turns = self.turns();
        let end = turn.map_or(u64::MAX, |turn| turn.number);
        // The largest need of the earlier runs: they use the reserve one after the other, in their
        // order.
        match turns.waiting.range(..end).map(|(_, bytes)| *bytes).max() {
            Some(needed) => turns.reserve(&self.arena, needed),
            None => true,
        }
    }

    /// Frees the reserve for the first waiting run. Returns false for other runs, and if there is
    /// none.
    #[cold]
    pub(crate) fn release_reserve(&self, turn: Option<&Turn>) -> bool {
        let mut turns = self.turns();
        let first = turns.waiting.first_key_value().map(|(number, _)| *number);
        turn.is_some_and(|turn| first == Some(turn.number)) && turns.free_reserve(&self.arena)
    }

    /// Returns the error of a run that needs `bytes` bytes.
    #[cold]
    pub(crate) fn shortage(&self, bytes: u64) -> Error {
        Error::Arena(self.arena.shortage(bytes, 64))
    }

    /// Records that a waiting run has found too little memory, for the other ranks.
    #[cold]
    pub(crate) fn record_shortage(&self) {
        let mut turns = self.turns();
        // Once for each shortage. `Turn::drop` ends it.
        if turns.short_since.is_none() && !turns.waiting.is_empty() {
            turns.short_since = Some(Instant::now());
            self.shortage.begin(&self.mark);
        }
    }

    /// Returns whether a run of this rank has found too little memory and still waits.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0 && self.turns().short_since.is_some()
    }

    /// Returns whether a rank of the node is short of memory.
    #[inline]
    pub(crate) fn is_any_rank_short(&self) -> bool {
        self.shortage.is_any()
    }

    /// Returns whether waiting runs may still get memory, after a [`reclaim`](Self::reclaim) with
    /// this result.
    pub(crate) fn may_end_shortage(&self, pending: Pending) -> bool {
        let mut turns = self.turns();
        let limit = turns.limit;
        let Some(since) = &mut turns.short_since else { return pending != Pending::Nothing };
        let was_blocked = shortage::is_blocked(&self.mark);
        shortage::record(&self.mark, pending == Pending::Blocked);
        match pending {
            Pending::Nothing => false,
            Pending::Blocked if was_blocked => since.elapsed() <= limit,
            // A rank that can still arrive is late and not part of a cycle, as was this one, if its
            // mark had become old: the time begins again.
            Pending::Blocked | Pending::Awaited => {
                *since = Instant::now();
                true
            }
        }
    }

    /// Returns an error if this rank is short of memory and waits in a cycle of such ranks. Called
    /// in waits for runs that have begun, after a [`reclaim`](Self::reclaim) with this result.
    pub(crate) fn check_cycle(&self, pending: Pending) -> Result<(), Error> {
        // The run that this rank waits for is pending, unless it has completed since.
        if pending != Pending::Blocked || self.may_end_shortage(pending) {
            return Ok(());
        }
        let needed = self.turns().waiting.values().next().copied();
        needed.map_or(Ok(()), |bytes| Err(self.shortage(bytes)))
    }

    /// Returns the number of waiting runs that have got memory or have been given up.
    pub(crate) fn ended_turns(&self) -> u64 {
        self.turns().ended
    }

    /// Returns the time after which runs in a cycle fail.
    pub(crate) fn limit(&self) -> Duration {
        self.turns().limit
    }

    /// Sets the time after which runs in a cycle fail.
    pub(crate) fn set_limit(&self, limit: Duration) {
        self.turns().limit = limit;
    }

    /// Waits until a rank of the node is short of memory, at most `limit`.
    pub(crate) fn await_shortage(&self, limit: Duration) {
        self.shortage.wait(limit);
    }

    /// Ends the waits of [`await_shortage`](Self::await_shortage) on all ranks.
    pub(crate) fn wake(&self) {
        self.shortage.wake();
    }

    /// Adds an object with runs that hold memory.
    pub(crate) fn add_holder(&self, holder: Weak<dyn MemoryHolder>) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if holders.list.len() >= holders.sweep_at {
            holders.list.retain(|holder| holder.strong_count() > 0);
            // Doubled, so that a sweep costs each addition a constant time.
            holders.sweep_at = 2 * holders.list.len() + 16;
        }
        holders.list.push(holder);
    }

    /// Frees the memory of all finished runs. Returns what the runs that are left wait for. The
    /// caller holds no lock of a window.
    #[cold]
    pub(crate) fn reclaim(&self) -> Pending {
        // Without the lock, because the last reference to a holder may be dropped here.
        let holders: Vec<Arc<dyn MemoryHolder>> = {
            let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
            holders.list.iter().filter_map(Weak::upgrade).collect()
        };
        holders.iter().map(|holder| holder.reclaim()).max().unwrap_or(Pending::Nothing)
    }
}
