//! The words of a [biased mutex](crate::biased_mutex): the thread that may enter without a locked
//! instruction, and whether it is inside.
//!
//! The owner stores that it is inside, then loads the owner's word. Another thread, which holds the
//! mutex, stores that there is no owner any more, then loads whether the owner is inside. At least
//! one of the two sees the other's store: between them stand the two [fences](crate::fence) of
//! unequal cost, because the second happens rarely: an end of the bias is followed by many locks of
//! the owner alone, before it gets the bias back.

use crate::fence;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Owner of a mutex that no thread has locked.
const NONE: u64 = 0;

/// Owner of a mutex that another thread has locked.
const REVOKED: u64 = u64::MAX;

/// The bias of a mutex towards one thread. Threads are numbered from 1.
#[derive(Debug)]
pub(crate) struct Bias {
    owner: AtomicU64,
    /// 1 while the owner is inside. Only one thread ever writes it.
    inside: AtomicU32,
    /// The first owner, which alone may get the bias back: another one would find stores to `inside`
    /// that the first one is about to make. `NONE` if the system refuses the fence.
    first: AtomicU64,
    /// Number of locks by the first owner since another thread has locked the mutex.
    turns: AtomicU32,
    /// Number of such locks after which the first owner gets the bias back.
    restore_after: u32,
}

impl Bias {
    pub(crate) fn new(restore_after: u32) -> Self {
        Bias {
            owner: AtomicU64::new(NONE),
            inside: AtomicU32::new(0),
            first: AtomicU64::new(NONE),
            turns: AtomicU32::new(0),
            restore_after,
        }
    }

    /// Enters, if `thread` is the owner and not inside.
    #[inline(always)]
    pub(crate) fn try_enter(&self, thread: u64) -> bool {
        // Relaxed: only the owner finds its own number. It has stored the number itself, and what
        // the mutex protects was last written by this thread, or before it claimed the bias.
        if self.owner.load(Ordering::Relaxed) != thread || self.inside.load(Ordering::Relaxed) != 0
        {
            return false;
        }
        self.inside.store(1, Ordering::Relaxed);
        // Pairs with the heavy fence in `revoke`.
        fence::light();
        if self.owner.load(Ordering::Relaxed) == thread {
            return true;
        }
        self.leave();
        false
    }

    /// Leaves. For the owner.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // Release: pairs with the Acquire in `revoke`.
        self.inside.store(0, Ordering::Release);
    }

    /// Makes `thread` the owner and enters, if no thread has locked the mutex before, or if it was
    /// the owner and no other one has locked the mutex for long. The caller holds the mutex, and may
    /// release it.
    pub(crate) fn try_claim(&self, thread: u64) -> bool {
        // Relaxed, all: the mutex orders the claims. A thread that holds it later sees the stores.
        if self.owner.load(Ordering::Relaxed) == NONE {
            self.first.store(thread, Ordering::Relaxed);
        } else {
            let is_first = self.first.load(Ordering::Relaxed) == thread;
            let turns = if is_first { self.turns.load(Ordering::Relaxed) + 1 } else { 0 };
            self.turns.store(turns, Ordering::Relaxed);
            if turns < self.restore_after {
                return false;
            }
        }
        self.turns.store(0, Ordering::Relaxed);
        // The claim ends with the owner inside: a thread that takes the mutex next finds both
        // stores and waits in `revoke`. A former `revoke` has found this thread outside, and it has
        // not entered since.
        self.inside.store(1, Ordering::Relaxed);
        self.owner.store(thread, Ordering::Relaxed);
        true
    }

    /// Ends the bias and waits until the owner is outside. The caller holds the mutex, from now on
    /// the only way in. `settle` is called if the system refuses the fence.
    pub(crate) fn revoke(&self, settle: impl FnOnce(), mut pause: impl FnMut()) {
        // Relaxed: the mutex orders claims and revocations, and the one that has stored this has
        // waited for the owner.
        if self.owner.load(Ordering::Relaxed) == REVOKED {
            return;
        }
        self.owner.store(REVOKED, Ordering::Relaxed);
        if !fence::heavy() {
            // The next end of the bias would wait as long.
            self.first.store(NONE, Ordering::Relaxed);
            settle();
        }
        // Acquire: pairs with the Release in `leave`: what the owner did inside is visible. An owner
        // that enters later finds no owner and leaves at once.
        while self.inside.load(Ordering::Acquire) != 0 {
            pause();
        }
    }
}
