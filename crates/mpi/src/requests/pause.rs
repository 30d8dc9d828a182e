//! The time between two looks at a request.

use std::sync::atomic::{AtomicBool, Ordering};

/// Looks without a pause, where every rank has a core: a partner that is on its way arrives within
/// this time.
const SPINS: u32 = 64;

/// True if this node has more ranks than cores: the awaited rank may need this core.
static IS_OVERSUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// Sets whether this node has more ranks than cores.
pub(crate) fn set_oversubscribed(is_oversubscribed: bool) {
    IS_OVERSUBSCRIBED.store(is_oversubscribed, Ordering::Relaxed);
}

/// Waits between two looks at a request.
#[derive(Default)]
pub(crate) struct Pause {
    looks: u32,
}

impl Pause {
    /// Lets time pass, and calls `drive` in some looks: messages that the program has started may
    /// need the MPI library, and other calls this library, while the program waits.
    pub(crate) fn rest(&mut self, drive: impl FnOnce()) {
        self.looks += 1;
        // Relaxed: set once, before any request exists.
        if IS_OVERSUBSCRIBED.load(Ordering::Relaxed) {
            // In turns, with a look after each: some MPI libraries yield the core, too, when they are
            // driven, and the request may be complete after each yield.
            match self.looks.is_multiple_of(2) {
                true => drive(),
                false => std::thread::yield_now(),
            }
        } else if self.looks < SPINS {
            std::hint::spin_loop();
        } else {
            drive();
            std::thread::yield_now();
        }
    }
}
