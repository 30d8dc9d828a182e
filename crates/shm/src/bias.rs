//! The words of a [biased mutex](crate::biased_mutex): the thread that may enter without a locked
//! instruction, and whether it is inside.
//!
//! The owner stores that it is inside, then loads the owner's word. Another thread, which holds the
//! mutex, stores that there is no owner any more, then loads whether the owner is inside. At least
//! one of the two sees the other's store: between them stand the two [fences](crate::fence) of
//! unequal cost, because the second happens once in the life of a mutex.

use crate::fence;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Owner of a mutex that no thread has locked.
const NONE: u64 = 0;

/// Owner of a mutex that several threads have locked. It stays so.
const REVOKED: u64 = u64::MAX;

/// The bias of a mutex towards one thread. Threads are numbered from 1.
#[derive(Debug)]
pub(crate) struct Bias {
    owner: AtomicU64,
    /// 1 while the owner is inside. Only the owner writes it.
    inside: AtomicU32,
}

impl Bias {
    pub(crate) fn new() -> Self {
        Bias { owner: AtomicU64::new(NONE), inside: AtomicU32::new(0) }
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

    /// Makes `thread` the owner and enters, if no thread has locked the mutex before. The caller
    /// holds the mutex, and may release it.
    pub(crate) fn try_claim(&self, thread: u64) -> bool {
        // Relaxed: the mutex orders the claims. A thread that holds it later sees both stores.
        if self.owner.load(Ordering::Relaxed) != NONE {
            return false;
        }
        // The claim ends with the owner inside: a thread that takes the mutex next finds both
        // stores and waits in `revoke`.
        self.inside.store(1, Ordering::Relaxed);
        self.owner.store(thread, Ordering::Relaxed);
        true
    }

    /// Ends the bias and waits until the owner is outside. The caller holds the mutex, from now on
    /// the only way in. `settle` is called if the system refuses the fence.
    pub(crate) fn revoke(&self, settle: impl FnOnce(), mut pause: impl FnMut()) {
        // Relaxed: the mutex orders revocations, and the first one has waited for the owner.
        if self.owner.load(Ordering::Relaxed) == REVOKED {
            return;
        }
        self.owner.store(REVOKED, Ordering::Relaxed);
        if !fence::heavy() {
            settle();
        }
        // Acquire: pairs with the Release in `leave`: what the owner did inside is visible. An owner
        // that enters later finds no owner and leaves at once.
        while self.inside.load(Ordering::Acquire) != 0 {
            pause();
        }
    }
}
