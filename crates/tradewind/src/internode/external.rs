//! Collectives of the program that another library runs, on a communicator with ranks on several
//! nodes.
//!
//! Each takes the next number, as within a node. No rank reads the journals of other nodes, but a
//! rank that has started the collective here has sent something for it, or waits, which it announces
//! when it has waited long. A rank that has recorded the number as external then finds messages for a
//! run that it never starts.

use super::call_forms;
use crate::error::{Error, Result};
use engine::signature::{CallKind, Signature};
use network::backend::{Backend, CommunicatorContext};
use network::error::Error as BackendError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Number of the last collectives that are checked.
const CHECKED: usize = 8;

/// The last collectives of a communicator that another library runs.
#[derive(Debug, Default)]
pub(super) struct ExternalCollectives {
    /// One more than the number of each, or 0.
    last: [AtomicU64; CHECKED],
    recorded: AtomicU64,
    /// The mismatch that a check has found: number and calls.
    found: OnceLock<(u64, String)>,
}

impl ExternalCollectives {
    /// Records the collective of this number. The collectives of one communicator follow each
    /// other, so no other thread records one at the same time.
    pub(super) fn record(&self, sequence: u64) {
        let recorded = self.recorded.load(Ordering::Relaxed);
        self.recorded.store(recorded + 1, Ordering::Relaxed);
        // Relaxed: the number publishes nothing, and each is checked by itself.
        self.last[recorded as usize % CHECKED].store(sequence + 1, Ordering::Relaxed);
    }

    /// Fails if another rank runs one of these collectives on one of the backends, which then fails
    /// there, too.
    pub(super) fn check<'b>(
        &self,
        context: &CommunicatorContext,
        backends: impl Iterator<Item = &'b Arc<dyn Backend>> + Clone,
        translate: impl Fn(BackendError) -> Error,
    ) -> Result<()> {
        let signature = Signature::new(CallKind::External, 0, 0).digest24();
        let last = self.last.iter().map(|word| word.load(Ordering::Relaxed));
        for sequence in last.filter_map(|word| word.checked_sub(1)) {
            for backend in backends.clone() {
                match call_forms::mismatch(backend, context, sequence, signature)?.map(&translate) {
                    Some(Error::Mismatch { sequence, calls }) => {
                        self.found.get_or_init(|| (sequence, calls));
                    }
                    Some(other) => return Err(other),
                    None => {}
                }
            }
        }
        match self.found.get().cloned() {
            Some((sequence, calls)) => Err(Error::Mismatch { sequence, calls }),
            None => Ok(()),
        }
    }
}
