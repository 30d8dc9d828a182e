//! The two ends of something in shared memory: each is held by one process, once, and left for
//! good.

use crate::peer::{Name, Watch};
use crate::sync::{AtomicU64, Ordering};
use shm::process::ProcessError;

/// The mark of an end that its holder has left; it touches the memory no more.
const LEFT: u64 = u64::MAX;

/// The mark of an end that nobody had opened when the owner of the memory went.
const WITHDRAWN: u64 = u64::MAX - 1;

/// The word that says who holds an end, borrowed from shared memory. Zeroed memory is an end that
/// nobody has opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark<'a>(pub(crate) &'a AtomicU64);

/// Why an end could not be taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// The process with this number holds it; `None`: it was left or withdrawn.
    Held(Option<u32>),
    /// This process has no name.
    Nameless(ProcessError),
}

impl Mark<'_> {
    /// Takes the end for this process, for good.
    pub(crate) fn take(self) -> Result<(), NotTaken> {
        let own = Name::own().map_err(NotTaken::Nameless)?;
        // Release: pairs with the Acquire in `holder`; what this process has written for the other
        // end is visible.
        match self.0.compare_exchange(0, own.0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(held) => Err(NotTaken::Held((held < WITHDRAWN).then_some(Name(held).pid()))),
        }
    }

    /// The last that the holder does.
    pub(crate) fn leave(self) {
        // Release: pairs with the Acquire in `is_free`; everything that the holder did here is
        // over.
        self.0.store(LEFT, Ordering::Release);
    }

    /// Who holds the end; nobody if it is not opened yet, or left.
    pub(crate) fn holder(self) -> Name {
        // Acquire: pairs with the Release in `take`.
        let held = self.0.load(Ordering::Acquire);
        if held < WITHDRAWN { Name(held) } else { Name::NOBODY }
    }

    /// Takes the end away from whoever might still open it; gives whether nobody had.
    pub(crate) fn withdraw(self) -> bool {
        // Relaxed: nothing is published.
        self.0.compare_exchange(0, WITHDRAWN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether nobody will touch the memory through this end any more. To be asked after
    /// [`Mark::withdraw`].
    pub(crate) fn is_free(self) -> bool {
        // Acquire: pairs with the Release in `leave`.
        let held = self.0.load(Ordering::Acquire);
        held >= WITHDRAWN || Watch::default().has_ended(Name(held))
    }
}
