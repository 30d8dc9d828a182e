//! A run, shared between the rank's calls and the engine.

use crate::agent::run::{PreparedRun, RunOutcome};
use crate::agent::run_context::RunKey;
use crate::agent::schedule::RegisteredSchedule;
use crate::agent::zero_copy::BorrowedMemory;
use crate::error::Error;
use interpreter::{Interpreter, Limits};
use shm::loan::LentBytes;
use std::sync::{Arc, OnceLock};

/// A run that a rank has started and not fetched.
#[derive(Debug)]
pub(super) struct DirectRun {
    pub(super) key: RunKey,
    pub(super) schedule: Arc<RegisteredSchedule>,
    /// By buffer of the schedule, and as long.
    pub(super) buffers: Vec<LentBytes>,
    /// Set once the results are in the buffers.
    pub(super) outcome: OnceLock<RunOutcome>,
}

impl DirectRun {
    pub(super) fn has_ended(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// An interpreter that uses long buffers in place, and copies of the others.
    pub(super) fn prepare(&self, limits: Limits) -> Result<PreparedRun, Error> {
        let mut prepared = PreparedRun::of(self.schedule.take_idle(limits)?);
        let uses = self.schedule.layout.buffers.iter().zip(&self.buffers);
        for (number, (buffer, lent)) in uses.enumerate() {
            if buffer.is_borrowed() {
                prepared.borrow_buffer(number, BorrowedMemory::Lent(lent.clone()))?;
            } else if buffer.is_read {
                lent.with(|bytes| prepared.buffers[number].copy_from_slice(bytes));
            }
        }
        Ok(prepared)
    }

    /// Copies the results that are not in place, keeps the interpreter for the next run, and ends
    /// this one.
    pub(super) fn finish(
        &self,
        interpreter: Option<Interpreter>,
        has_results: bool,
        outcome: RunOutcome,
    ) {
        if let Some(mut interpreter) = interpreter {
            let copies = interpreter.reset();
            let uses = self.schedule.layout.buffers.iter().zip(&self.buffers).zip(&copies);
            for ((buffer, lent), copy) in uses.filter(|(_, copy)| has_results && !copy.is_empty()) {
                for range in &buffer.written {
                    let range = range.start as usize..range.end as usize;
                    lent.with_mut(|bytes| bytes[range.clone()].copy_from_slice(&copy[range]));
                }
            }
            self.schedule.put_idle(interpreter, copies);
        }
        // Only the engine ends runs, and each once.
        let _ = self.outcome.set(outcome);
    }
}
