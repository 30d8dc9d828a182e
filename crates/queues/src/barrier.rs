//! A memory barrier of which only the side that goes to sleep pays the price.
//!
//! Sender and sleeper each write one word and then read the other's; one of the two must see what the other wrote, or a
//! wake-up is lost. That takes a full barrier between write and read on both sides. A sender that is to cost one store
//! cannot afford it, a sleeper can afford much more: the kernel's `membarrier` makes every processor on which a
//! registered process runs pass a barrier, at whatever instruction it is. The sender then only has to keep the compiler
//! from exchanging the two.
//!
//! Where the kernel refuses (a seccomp filter), senders pay for the barrier, and sleepers sleep in short slices, because they
//! cannot make others pass one.

use std::sync::OnceLock;

use rustix::thread::{MembarrierCommand, membarrier};

use crate::sync::{Ordering, compiler_fence, fence};

/// How this process keeps a write before a later read. Made once, copied to wherever it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// The kernel takes this process along when a sleeper asks for a barrier.
    Registered,
    /// It does not: this process passes barriers of its own.
    Own,
}

impl Barrier {
    /// Registers this process with the kernel, the first time it is asked.
    pub(crate) fn of_this_process() -> Barrier {
        static BARRIER: OnceLock<Barrier> = OnceLock::new();
        // A child keeps its parent's registration after fork; exec starts over in both places.
        *BARRIER.get_or_init(|| match membarrier(MembarrierCommand::RegisterGlobalExpedited) {
            Ok(()) => Barrier::Registered,
            Err(_) => Barrier::Own,
        })
    }

    /// After a write that may wake a sleeper, before the look at whether somebody sleeps. Pairs with [`Barrier::heavy`].
    #[inline(always)]
    pub(crate) fn light(self) {
        match self {
            Barrier::Registered => compiler_fence(Ordering::SeqCst),
            Barrier::Own => fence(Ordering::SeqCst),
        }
    }

    /// After the word that says "I sleep", before the last look. Pairs with [`Barrier::light`]. Gives whether every registered
    /// process has passed a barrier too; if not, a wake-up may be lost and the sleep has to be short.
    #[cold]
    pub(crate) fn heavy(self) -> bool {
        fence(Ordering::SeqCst);
        self == Barrier::Registered && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    }
}
