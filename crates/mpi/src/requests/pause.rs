//! The time between two looks at a request.

use std::sync::atomic::{AtomicBool, Ordering};

/// Looks without a pause, where every rank has a core: a partner that is on its way arrives within
/// this time.
const SPINS: u32 = 64;

/// Whether ranks share cores: the awaited one may need this core.
static ARE_CORES_SHARED: AtomicBool = AtomicBool::new(false);

/// Sets whether every rank of this node has a core.
pub(crate) fn set_cores(are_for_all: bool) {
    ARE_CORES_SHARED.store(!are_for_all, Ordering::Relaxed);
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
        let is_shared = ARE_CORES_SHARED.load(Ordering::Relaxed);
        if is_shared && self.looks % 2 == 1 {
            // Some MPI libraries yield the core, too, when they are driven: the request may be
            // complete after each of the two.
            std::thread::yield_now();
        } else if self.looks < SPINS && !is_shared {
            std::hint::spin_loop();
        } else {
            drive();
            if !is_shared {
                std::thread::yield_now();
            }
        }
    }
}
