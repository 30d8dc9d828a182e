//! A mutex for a value that one thread uses, as a rule.
//!
//! The first thread that locks it becomes its owner and from then on locks it by two plain stores.
//! A lock by another thread ends that, and the mutex is an ordinary one until its owner has locked it
//! so often, without another thread between, that the end is paid for. A locked
//! instruction takes about twenty cycles and, worse, waits until all earlier stores are visible: a
//! store to a line that another process has read takes as long as the transfer of the line.

use crate::bias::Bias;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A mutex that is cheap for its first thread.
///
/// A panic while it is locked does not poison it.
///
/// ```
/// use shm::biased_mutex::BiasedMutex;
///
/// let count = BiasedMutex::new(0);
/// *count.lock() += 1;
/// std::thread::scope(|scope| {
///     scope.spawn(|| *count.lock() += 1);
/// });
/// assert_eq!(*count.lock(), 2);
/// ```
pub struct BiasedMutex<T> {
    bias: Bias,
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

/// Access to the value of a locked [`BiasedMutex`].
pub struct BiasedGuard<'a, T> {
    owner: &'a BiasedMutex<T>,
    /// The mutex, held by a thread without the bias.
    locked: Option<MutexGuard<'a, ()>>,
    /// As the exclusive reference that the guard stands for.
    exclusive: PhantomData<&'a mut T>,
}

// SAFETY: as for `Mutex`: at most one guard exists at a time (see `lock`), so threads that share the
// mutex take turns with the value, which may move between threads.
unsafe impl<T: Send> Sync for BiasedMutex<T> {}

/// Returns the number of this thread, from 1. Numbers are never used again.
#[inline(always)]
fn thread_number() -> u64 {
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    #[cold]
    fn assign() -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers publish nothing, they only differ.
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        NUMBER.set(number);
        number
    }
    match NUMBER.get() {
        0 => assign(),
        number => number,
    }
}

/// Number of locks of the owner alone after which it gets the bias back. They cost as much more than
/// with the bias as its next end, which interrupts all processors: some microseconds.
const RESTORE_AFTER: u32 = 1000;

impl<T> BiasedMutex<T> {
    /// Creates a mutex that no thread has locked.
    pub fn new(value: T) -> Self {
        let bias = Bias::new(RESTORE_AFTER);
        BiasedMutex { bias, mutex: Mutex::new(()), value: UnsafeCell::new(value) }
    }

    /// Locks the mutex. A thread that has locked it already waits forever.
    #[inline(always)]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        let thread = thread_number();
        let locked =
            if self.bias.try_enter(thread) { None } else { self.lock_without_bias(thread) };
        BiasedGuard { owner: self, locked, exclusive: PhantomData }
    }

    /// Locks the mutex, or claims the bias and returns `None`.
    #[cold]
    fn lock_without_bias(&self, thread: u64) -> Option<MutexGuard<'_, ()>> {
        /// Longest time for which a processor holds back a store. An owner that has not seen the
        /// end of its bias has stored that it is inside just before, and where the system refuses
        /// the fence that would make this store visible, it becomes so by itself.
        const SETTLED: Duration = Duration::from_millis(10);
        let locked = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        if self.bias.try_claim(thread) {
            return None;
        }
        let mut pauses = 0u32;
        self.bias.revoke(
            || std::thread::sleep(SETTLED),
            || {
                // Once in many locks, so nothing wakes this thread.
                pauses = pauses.saturating_add(1);
                if pauses < 100 {
                    std::thread::yield_now();
                } else {
                    std::thread::sleep(Duration::from_micros(100));
                }
            },
        );
        Some(locked)
    }

    /// Returns the value. An exclusive reference needs no lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for BiasedMutex<T> {
    fn default() -> Self {
        BiasedMutex::new(T::default())
    }
}

impl<T> std::fmt::Debug for BiasedMutex<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BiasedMutex").field("bias", &self.bias).finish_non_exhaustive()
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for BiasedGuard<'_, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(formatter)
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: a guard without the mutex is that of the owner, which is inside until it drops the
        // guard and enters only once. A guard with the mutex exists only after the bias has ended
        // and the owner has left, and the owner gets the bias back only with the mutex, so after
        // that guard. So this is the only guard, and its reference to the value lasts no longer than
        // the borrow of the guard.
        unsafe { &*self.owner.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed exclusively.
        unsafe { &mut *self.owner.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.locked.is_none() {
            self.owner.bias.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn threads_take_turns() {
        const TURNS: u64 = 100_000;
        crate::fence::register();
        for threads in 1..4 {
            let count = BiasedMutex::new(0);
            let start = Barrier::new(threads);
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        start.wait();
                        for _ in 0..TURNS {
                            // Two steps, between which another thread would be seen.
                            let mut guard = count.lock();
                            let before = *guard;
                            std::hint::black_box(&mut *guard);
                            *guard = before + 1;
                        }
                    });
                }
            });
            assert_eq!(*count.lock(), threads as u64 * TURNS);
        }
    }

    #[test]
    fn an_owner_that_is_alone_again_gets_its_bias_back() {
        crate::fence::register();
        let value = BiasedMutex::new(0);
        // The mutex is free while a thread with the bias is inside.
        let is_biased = || {
            let _guard = value.lock();
            value.mutex.try_lock().is_ok()
        };
        assert!(is_biased());
        for _ in 0..3 {
            std::thread::scope(|scope| {
                scope.spawn(|| *value.lock() += 1);
            });
            assert!(!is_biased());
            assert!((2..RESTORE_AFTER).all(|_| !is_biased()), "not earlier than it is worth");
            assert_eq!(is_biased(), crate::fence::heavy(), "without the fence it stays so");
        }
        assert_eq!(*value.lock(), 3);
    }

    #[test]
    fn another_thread_waits_for_the_owner() {
        let value = BiasedMutex::new(1);
        drop(value.lock());
        let guard = value.lock();
        std::thread::scope(|scope| {
            let mut guard = guard;
            let other = scope.spawn(|| std::mem::replace(&mut *value.lock(), 3));
            while value.mutex.try_lock().is_ok() {
                std::thread::yield_now();
            }
            // The other thread has the mutex, and waits.
            *guard = 2;
            drop(guard);
            assert_eq!(other.join().expect("the other thread ends"), 2);
        });
        assert_eq!(*value.lock(), 3);
    }

    #[test]
    fn an_owner_that_panics_unlocks() {
        let value = BiasedMutex::new(1);
        for _ in 0..2 {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _guard = value.lock();
                std::panic::resume_unwind(Box::new(()));
            }));
            assert!(panicked.is_err());
        }
        assert_eq!(*value.lock(), 1);
    }
}
