//! Ranks with connections that have ended, for threads that do not have the engine.

use crate::backend::LostRank;
use std::sync::{Mutex, PoisonError};

/// The ranks that have been lost, in the order of the losses.
#[derive(Debug, Default)]
pub(super) struct Losses(Mutex<Vec<LostRank>>);

impl Losses {
    /// Adds a rank, which is lost once only.
    pub(super) fn add(&self, lost: LostRank) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(lost);
    }

    /// Number of ranks that have been lost.
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The ranks that have been lost.
    pub(super) fn all(&self) -> Vec<LostRank> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
