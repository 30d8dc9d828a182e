//! Who uses a piece of shared memory that belongs to one process, so that the owner knows when it
//! can give it back.

use crate::peer::{Name, Watch};
use crate::sync::{AtomicU64, Ordering};
use shm::process::ProcessError;

/// The most users at a time.
pub(crate) const MOST_USERS: usize = 255;

shm::shared_lines! {
    /// The names of the users' processes, one entry a handle. Zeroed memory has none.
    pub(crate) struct Users {
        /// Not 0: the owner has withdrawn the memory. Read by every command, so only rare events
        /// write in its line.
        withdrawn: AtomicU64,
        entries: [AtomicU64; MOST_USERS],
    }
}

/// The entry of one user. Given back with [`Users::leave`].
#[derive(Debug)]
pub(crate) struct Entry(usize);

/// Why nobody was entered.
#[derive(Debug)]
pub(crate) enum NotEntered {
    /// The owner has withdrawn the memory.
    Withdrawn,
    /// All entries are taken.
    TooMany,
    /// This process has no name.
    Nameless(ProcessError),
}

impl Users {
    /// Enters this process.
    pub(crate) fn enter(&self) -> Result<Entry, NotEntered> {
        let own = Name::own().map_err(NotEntered::Nameless)?;
        let free = self.entries.iter().position(|entry| self.take(entry, Name::NOBODY, own));
        let entry = free.or_else(|| self.take_from_the_dead(own)).ok_or(NotEntered::TooMany)?;
        // SeqCst, here, in `take`, `withdraw` and `are_left`: either the newcomer sees that the
        // memory is withdrawn, or the owner sees the newcomer.
        if self.withdrawn.load(Ordering::SeqCst) != 0 {
            self.leave(&Entry(entry));
            return Err(NotEntered::Withdrawn);
        }
        Ok(Entry(entry))
    }

    fn take(&self, entry: &AtomicU64, from: Name, own: Name) -> bool {
        // SeqCst: see `enter`.
        entry.compare_exchange(from.0, own.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Takes over the entry of a process that has ended without giving it back.
    fn take_from_the_dead(&self, own: Name) -> Option<usize> {
        self.entries.iter().position(|entry| {
            // Relaxed: only the name matters, and the exchange checks it.
            let held = Name(entry.load(Ordering::Relaxed));
            Watch::default().has_ended(held) && self.take(entry, held, own)
        })
    }

    /// The last that a user does.
    pub(crate) fn leave(&self, entry: &Entry) {
        // Release: pairs with the load in `are_left`; everything that this process did here is
        // over.
        self.entries[entry.0].store(0, Ordering::Release);
    }

    /// Whether the owner has withdrawn the memory.
    #[inline(always)]
    pub(crate) fn are_turned_away(&self) -> bool {
        // Acquire: pairs with the store in `turn_away`.
        self.withdrawn.load(Ordering::Acquire) != 0
    }

    /// Nobody can enter any more.
    pub(crate) fn turn_away(&self) {
        // SeqCst: see `enter`; it includes the Release that pairs with the Acquire in
        // `are_turned_away`.
        self.withdrawn.store(1, Ordering::SeqCst);
    }

    /// Whether a living process is still entered. To be asked after [`Users::turn_away`].
    pub(crate) fn are_left(&self) -> bool {
        // SeqCst: see `enter`; it includes the Acquire that pairs with the Release in `leave`.
        let held = |entry: &AtomicU64| Name(entry.load(Ordering::SeqCst));
        self.entries
            .iter()
            .map(held)
            .any(|name| name != Name::NOBODY && !Watch::default().has_ended(name))
    }
}
