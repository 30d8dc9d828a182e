//! Handles to objects of the job. They end when the process leaves the job, and in forked processes.

use crate::errors::error;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// This process is a fork of a rank.
static IS_FORK: AtomicBool = AtomicBool::new(false);

/// All handles. Locked only by threads that have the interpreter's lock, so a fork copies it unlocked.
static HANDLES: Mutex<Vec<Weak<dyn End>>> = Mutex::new(Vec::new());

/// Returns whether this process is a fork of a rank, which must not touch the job.
pub(crate) fn is_fork() -> bool {
    // Relaxed: set in a process with one thread.
    IS_FORK.load(Ordering::Relaxed)
}

/// Refuses a call in a fork of a rank.
pub(crate) fn refuse_fork() -> PyResult<()> {
    if !is_fork() {
        return Ok(());
    }
    Err(error(
        "this process is a fork of a rank: use tradewind in the rank, or start the process by `spawn`",
    ))
}

trait End: Send + Sync {
    /// Drops the value.
    fn end(&self);
    /// Makes sure that the value is never dropped.
    fn leak(&self);
}

struct Slot<T>(Mutex<Option<Arc<T>>>);

impl<T: Send + Sync> End for Slot<T> {
    fn end(&self) {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(value);
    }

    fn leak(&self) {
        // A lock that is taken belongs to a thread that the fork lacks.
        if let Ok(value) = self.0.try_lock() {
            std::mem::forget(value.clone());
        }
    }
}

/// A value until the process leaves the job.
pub(crate) struct Handle<T>(Arc<Slot<T>>);

impl<T: Send + Sync + 'static> Handle<T> {
    pub(crate) fn new(value: T) -> Self {
        let slot = Arc::new(Slot(Mutex::new(Some(Arc::new(value)))));
        let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
        if handles.len() == handles.capacity() {
            handles.retain(|handle| handle.strong_count() > 0);
        }
        let weak: Weak<Slot<T>> = Arc::downgrade(&slot);
        handles.push(weak);
        Handle(slot)
    }

    /// The value.
    ///
    /// # Errors
    /// The process has left the job, or is a fork of a rank.
    pub(crate) fn get(&self) -> PyResult<Arc<T>> {
        refuse_fork()?;
        let value = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        value.clone().ok_or_else(|| error("this process has left the job"))
    }

    /// Ends this handle alone.
    pub(crate) fn end(&self) {
        self.0.end();
    }
}

/// Ends all handles.
pub(crate) fn end_all() {
    let handles = std::mem::take(&mut *HANDLES.lock().unwrap_or_else(PoisonError::into_inner));
    handles.iter().filter_map(Weak::upgrade).for_each(|handle| handle.end());
}

/// Notes that this process is a fork, if its parent is a rank. Called by Python in the child.
#[pyfunction(name = "_forked")]
pub(crate) fn forked() {
    let handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    let used: Vec<_> = handles.iter().filter_map(Weak::upgrade).collect();
    // A process that had joined no job may join one.
    if !used.is_empty() {
        // Relaxed: as in `is_fork`.
        IS_FORK.store(true, Ordering::Relaxed);
    }
    used.iter().for_each(|handle| handle.leak());
}
