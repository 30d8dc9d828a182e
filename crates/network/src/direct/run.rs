//! A run, shared between the rank's calls and the engine.

use crate::agent::run::{RunKey, RunOutcome};
use crate::agent::schedule::RegisteredSchedule;
use crate::error::Error;
use interpreter::{ExternalBuffer, Interpreter, Limits};
use shm::loan::LentBytes;
use std::ops::Range;
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
    pub(super) fn prepare(&self, limits: Limits) -> Result<(Interpreter, Vec<Vec<u8>>), Error> {
        let (mut interpreter, mut copies) = self.schedule.take_idle(limits)?;
        let uses = self.schedule.layout.buffers.iter().zip(&self.buffers).zip(&mut copies);
        for (number, ((buffer, lent), copy)) in uses.enumerate() {
            if buffer.is_borrowed_by(&interpreter, number) {
                interpreter
                    .borrow_buffer(number, Box::new(LentBuffer(lent.clone())))
                    .map_err(|error| Error::Operation(error.to_string()))?;
            } else if buffer.is_read {
                lent.with(|bytes| copy.copy_from_slice(bytes));
            }
        }
        Ok((interpreter, copies))
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

/// A buffer of the caller, as the interpreter sees it.
#[derive(Debug)]
struct LentBuffer(LentBytes);

impl ExternalBuffer for LentBuffer {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, range: Range<u64>, into: &mut Vec<u8>) {
        let range = range.start as usize..range.end as usize;
        let length = range.len();
        let read = self.0.with(|bytes| into.extend_from_slice(&bytes[range]));
        // A run is cancelled before its buffers are revoked, so this does not happen. The
        // interpreter relies on the length all the same.
        debug_assert!(read.is_some(), "the buffer is lent");
        if read.is_none() {
            into.resize(into.len() + length, 0);
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.0.with_mut(|own| own[at..at + bytes.len()].copy_from_slice(bytes));
    }
}
