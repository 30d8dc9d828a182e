//! The time between two looks at a request.

use super::advance_all;
use crate::abi::Abi;
use crate::communicators::poke;
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
    /// Lets time pass, and drives the MPI library: messages that the program has started may need
    /// it while the program waits for a collective.
    pub(crate) fn rest(&mut self, abi: &Abi) {
        self.rest_with(abi, || poke(abi));
    }

    /// As [`rest`](Self::rest), with a call that drives the MPI library.
    pub(crate) fn rest_with(&mut self, abi: &Abi, drive: impl FnOnce()) {
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
            advance_all(abi);
            if !is_shared {
                std::thread::yield_now();
            }
        }
    }
}
