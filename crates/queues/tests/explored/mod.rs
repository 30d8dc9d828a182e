//! Loom's atomics, such that loom tries every order of two accesses to one of them.
//!
//! Loom decides where to try another order by looking at the last access to an atomic only. When a
//! thread loads a word and then exchanges it, its own load hides the other threads' loads from it,
//! and the orders in which the exchange comes before those are never tried (loom 0.7.2; two lines
//! show it: one thread loads and exchanges, the other loads, and never sees the new value). So
//! every access here is preceded by a read-modify-write of a companion, which depends on all others
//! of its kind. The companion is relaxed: it orders nothing, so that missing barriers are found as
//! before.

use loom::sync::atomic;
pub(crate) use loom::sync::atomic::Ordering;

/// As `loom::sync::atomic::AtomicU64`, as far as the models need it.
#[derive(Debug)]
pub(crate) struct AtomicU64 {
    value: atomic::AtomicU64,
    companion: atomic::AtomicU64,
}

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        AtomicU64 { value: atomic::AtomicU64::new(value), companion: atomic::AtomicU64::new(0) }
    }

    fn depend_on_all_others(&self) {
        self.companion.fetch_add(1, Ordering::Relaxed);
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
}
