//! First word of an object, by which other processes recognise it at its offset.

use crate::sync::{AtomicU64, Ordering, fence};

/// First word of an object: its kind in the upper half, a parameter of the kind in the lower. 0 is
/// no object.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Label(AtomicU64);

impl Label {
    /// Publishes a complete object, other than 0.
    pub(crate) fn publish(&self, label: u64) {
        // Release: pairs with the Acquire in `find`. The label is the last store, so a process that
        // finds it also finds a complete object.
        self.0.store(label, Ordering::Release);
    }

    /// Returns the label; 0 if there is no object.
    pub(crate) fn find(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`.
        self.0.load(Ordering::Acquire)
    }

    /// Erases the label: the object is not found any more. The caller then looks for announcements
    /// of the object.
    pub(crate) fn erase(&self) {
        // Relaxed: it publishes nothing, and the next user of the memory orders its own stores.
        self.0.store(0, Ordering::Relaxed);
        // Pairs with the fence in `Announcements::announce`: either the process that announces the
        // object finds the label erased, or the caller finds its announcement.
        fence(Ordering::SeqCst);
    }
}
