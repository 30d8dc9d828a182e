//! Objects that wait until no other process uses them any more.

use crate::sync::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Objects examined by one [`Limbo::try_some`]. More than a call adds, so that the list becomes
/// shorter once its objects can end.
const EXAMINED: usize = 4;

/// A list of objects that their owner has given up and other processes may still use.
///
/// No event announces the last use. Calls that add objects therefore examine a few others each
/// ([`try_some`](Limbo::try_some)): that costs a constant time however long the list is, and a list
/// whose objects end sooner or later does not grow without limit. All of them are examined only where
/// memory is short. No lock is held meanwhile, so an object that ends may add another one.
///
/// ```
/// # use shm::limbo::Limbo;
/// let limbo = Limbo::default();
/// (0..10).for_each(|number| limbo.push(number));
/// limbo.try_all(|number| number % 2 == 0);
/// assert_eq!(limbo.len(), 5);
/// ```
#[derive(Debug)]
pub struct Limbo<T> {
    waiting: Mutex<VecDeque<T>>,
    /// Number of objects, those included that a thread examines.
    count: AtomicUsize,
}

impl<T> Default for Limbo<T> {
    fn default() -> Self {
        Limbo { waiting: Mutex::default(), count: AtomicUsize::new(0) }
    }
}

impl<T> Limbo<T> {
    /// Adds an object.
    pub fn push(&self, object: T) {
        // Relaxed, here and below: the count publishes nothing.
        self.count.fetch_add(1, Ordering::Relaxed);
        self.waiting().push_back(object);
    }

    /// Examines some objects: drops those for which `try_end` returns true, and puts the others at
    /// the end of the list.
    pub fn try_some(&self, try_end: impl FnMut(&T) -> bool) {
        self.examine(EXAMINED, try_end);
    }

    /// As [`try_some`](Self::try_some), for all objects that are in the list now.
    pub fn try_all(&self, try_end: impl FnMut(&T) -> bool) {
        self.examine(usize::MAX, try_end);
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes all objects out of the list.
    pub fn take(&self) -> VecDeque<T> {
        let taken = std::mem::take(&mut *self.waiting());
        self.count.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
    }

    fn examine(&self, most: usize, mut try_end: impl FnMut(&T) -> bool) {
        let examined = self.len().min(most);
        for _ in 0..examined {
            let Some(object) = self.waiting().pop_front() else { return };
            if try_end(&object) {
                self.count.fetch_sub(1, Ordering::Relaxed);
            } else {
                self.waiting().push_back(object);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<T>> {
        // Every change under the lock is complete.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
