//! Loom's atomics.

use loom::sync::atomic;

pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};

/// An atomic of loom, which can make loom try every order of two accesses to it.
///
/// Loom decides where to try another order by looking at the last access to an atomic only. When a
/// thread loads a word and then exchanges it, its own load hides the other threads' loads from it,
/// and the orders in which the exchange comes before those are never tried (loom 0.7.2; two lines
/// show it: one thread loads and exchanges, the other loads, and never sees the new value). Every
/// access to a word with a companion is preceded by a read-modify-write of the companion, which
/// depends on all others of its kind. The companion is relaxed: it orders nothing, so that missing
/// barriers are found as before.
#[derive(Debug)]
pub(crate) struct AtomicU64 {
    value: atomic::AtomicU64,
    companion: Option<atomic::AtomicU64>,
}

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        AtomicU64 { value: atomic::AtomicU64::new(value), companion: None }
    }

    /// Returns a word with a companion.
    pub(crate) fn with_every_order(value: u64) -> Self {
        AtomicU64 { companion: Some(atomic::AtomicU64::new(0)), ..AtomicU64::new(value) }
    }

    fn depend_on_all_others(&self) {
        if let Some(companion) = &self.companion {
            companion.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn load(&self, ordering: Ordering) -> u64 {
        self.depend_on_all_others();
        self.value.load(ordering)
    }

    pub(crate) fn store(&self, value: u64, ordering: Ordering) {
        self.depend_on_all_others();
        self.value.store(value, ordering);
    }

    pub(crate) fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.depend_on_all_others();
        self.value.compare_exchange(current, new, success, failure)
    }

    pub(crate) fn compare_exchange_weak(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.depend_on_all_others();
        self.value.compare_exchange_weak(current, new, success, failure)
    }

    pub(crate) fn fetch_add(&self, value: u64, ordering: Ordering) -> u64 {
        self.depend_on_all_others();
        self.value.fetch_add(value, ordering)
    }

    pub(crate) fn fetch_or(&self, value: u64, ordering: Ordering) -> u64 {
        self.depend_on_all_others();
        self.value.fetch_or(value, ordering)
    }

    pub(crate) fn fetch_and(&self, value: u64, ordering: Ordering) -> u64 {
        self.depend_on_all_others();
        self.value.fetch_and(value, ordering)
    }

    pub(crate) fn fetch_max(&self, value: u64, ordering: Ordering) -> u64 {
        self.depend_on_all_others();
        self.value.fetch_max(value, ordering)
    }
}
