//! Announcements of objects that processes are connecting to: their memory is not freed meanwhile.
//!
//! A process that connects to an object by its offset reads the label and then enters itself as a
//! user. Between the two, the object has no trace of it. So it announces the offset first, in a
//! table of the segment, which a process that frees an object searches:
//!
//! | connects | frees |
//! |---|---|
//! | announces the offset | closes the object for new users |
//! | reads the label | erases the label |
//! | enters itself as a user | searches for announcements: frees later if there is one |
//! | withdraws the announcement | frees |
//!
//! These are the hazard pointers of Michael (*Hazard Pointers: Safe Memory Reclamation for
//! Lock-Free Objects*, 2004), with a liveness check: the announcement of a process that was killed
//! delays no free, and its entry is taken over. Accesses to the object cost nothing more.

use crate::liveness::{ProcessId, ProcessWatch};
use crate::process_words::ProcessWords;
use crate::sync::{AtomicU64, Ordering, fence};

/// Words of a table. Half of them name processes, the other half offsets.
pub(crate) const WORDS: usize = 512;

/// Number of announcements at a time.
pub(crate) const MAX_ANNOUNCEMENTS: usize = WORDS / 2;

/// The table of a segment. Zeroed memory has no announcements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announcements<'a> {
    /// The process of each entry.
    processes: ProcessWords<'a>,
    /// One more than the offset that the process announces, or 0.
    offsets: &'a [AtomicU64],
}

/// Announcement of this process, withdrawn on drop.
#[derive(Debug)]
pub(crate) struct Announced<'a> {
    all: Announcements<'a>,
    entry: usize,
}

impl<'a> Announcements<'a> {
    /// Returns the table in these words. The same number of words on all processes.
    pub(crate) fn in_words(words: &'a [AtomicU64]) -> Self {
        let (processes, offsets) = words.split_at(words.len() / 2);
        Announcements { processes: ProcessWords(processes), offsets }
    }

    /// Announces that the process connects to the object at `offset`. It then reads the label.
    /// `None` if all entries belong to living processes.
    pub(crate) fn announce(self, process: ProcessId, offset: u64) -> Option<Announced<'a>> {
        // There is nothing to recover: the word of a killed process is taken over, and its offset,
        // which stays until the store below, can only delay a free.
        let entry = self.processes.enter(process, || {})?;
        // Release: pairs with the Acquire in `includes`. A free that finds this announcement in the
        // place of an earlier one comes after all accesses of the earlier process, which `enter`
        // has acquired.
        self.offsets[entry].store(offset.wrapping_add(1), Ordering::Release);
        // Pairs with the fence in `Label::erase`.
        fence(Ordering::SeqCst);
        Some(Announced { all: self, entry })
    }

    /// Returns true if a living process has announced the offset. Called after the label of the
    /// object was erased: announcements that come later then find no object.
    pub(crate) fn includes(self, offset: u64) -> bool {
        let announced = offset.wrapping_add(1);
        self.offsets.iter().enumerate().any(|(entry, word)| {
            // Acquire: pairs with the Release stores in `announce` and `drop`. An announcement that
            // was withdrawn, or replaced, comes after all accesses to the object.
            if word.load(Ordering::Acquire) != announced {
                return false;
            }
            // The offset was read first. If its process has left the entry since, it no longer
            // accesses the object. If another process has entered, the free is only delayed.
            let process = self.processes.process(entry);
            process != ProcessId::NONE && !ProcessWatch::default().has_ended(process)
        })
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `includes`. By now this process is a user of the
        // object, or no longer accesses it. The offset is cleared first: a later process in the
        // entry must not announce it.
        self.all.offsets[self.entry].store(0, Ordering::Release);
        self.all.processes.leave(self.entry);
    }
}
