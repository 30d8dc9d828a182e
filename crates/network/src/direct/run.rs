//! A run, shared between the rank's calls and the engine, and the schedule that it executes.

use crate::error::{Error, system};
use crate::runs::run::{PreparedRun, RunOutcome};
use crate::runs::run_context::RunKey;
use crate::runs::schedule::RegisteredSchedule;
use crate::runs::zero_copy::BorrowedMemory;
use goal::graph::Access;
use interpreter::{Interpreter, Limits};
use shm::borrowed::{BorrowedBytes, CallerBuffer, Substitute};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Largest number of sets of buffers that a schedule keeps for its next runs, and the largest of
/// them but one.
const IDLE_SETS: usize = 64;
const IDLE_BYTES: u64 = 1 << 20;

/// A schedule that a rank has registered.
#[derive(Debug)]
pub(super) struct DirectSchedule {
    pub(super) registered: Arc<RegisteredSchedule>,
    /// Bytes that a run [exchanges](super::background_need::exchanged) with one rank.
    pub(super) exchanged: u64,
    limits: Limits,
    /// Ranges that a run writes, by buffer.
    results: Vec<Vec<Range<usize>>>,
    /// True if a call waits for the end of every run.
    pub(super) is_blocking: bool,
    /// Buffers of runs that have been fetched.
    idle: Mutex<Vec<Vec<BorrowedBytes>>>,
}

impl DirectSchedule {
    pub(super) fn new(
        registered: RegisteredSchedule,
        exchanged: u64,
        limits: Limits,
        is_blocking: bool,
    ) -> Self {
        let in_memory = |range: &Range<u64>| range.start as usize..range.end as usize;
        let written = registered.layout.buffers.iter().map(|buffer| &buffer.written);
        let results = written.map(|ranges| ranges.iter().map(in_memory).collect()).collect();
        let registered = Arc::new(registered);
        DirectSchedule {
            registered,
            exchanged,
            limits,
            results,
            is_blocking,
            idle: Mutex::default(),
        }
    }

    /// Returns true if a buffer of the caller can take the place of the run's own one during a
    /// call: it is long, and runs do nothing with it but this.
    fn is_replaced(&self, buffer: usize, access: Access) -> bool {
        let layout = &self.registered.layout;
        layout.buffers[buffer].is_borrowed() && layout.records[buffer].access == access as u32
    }

    /// The inputs that the start of a run uses in the place of these buffers.
    pub(super) fn borrowed_inputs<'a>(
        &self,
        buffers: &[BorrowedBytes],
        inputs: &[&'a [u8]],
    ) -> Vec<Substitute<'a>> {
        let all = buffers.iter().zip(inputs).enumerate();
        let long = all.filter(|(buffer, _)| self.is_replaced(*buffer, Access::Input));
        let substitute = |(_, (bytes, input)): (usize, (&BorrowedBytes, &&'a [u8]))| Substitute {
            bytes: bytes.clone(),
            buffer: CallerBuffer::Read(input),
            results: &[],
        };
        long.map(substitute).collect()
    }

    /// Buffers for a run with these inputs, which [fit](crate::backend::check_inputs) the schedule.
    /// Those that are [used in place](Self::borrowed_inputs) are not copied.
    pub(super) fn buffers(&self, inputs: &[&[u8]]) -> Result<Vec<BorrowedBytes>, Error> {
        let layout = &self.registered.layout;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let buffers = match idle {
            Some(buffers) => buffers,
            None => layout
                .buffers
                .iter()
                .map(|buffer| allocate(buffer.length))
                .collect::<Result<Vec<BorrowedBytes>, Error>>()?,
        };
        for (number, (buffer, input)) in buffers.iter().zip(inputs).enumerate() {
            buffer.renew();
            if layout.buffers[number].is_read && !self.is_replaced(number, Access::Input) {
                buffer.with_mut(|bytes| bytes.copy_from_slice(input));
            }
        }
        Ok(buffers)
    }

    /// Keeps the buffers of a run that has been fetched, unless there are many or they are long.
    fn put_idle(&self, buffers: Vec<BorrowedBytes>) {
        let bytes: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_SETS && (bytes <= IDLE_BYTES || idle.is_empty()) {
            idle.push(buffers);
        }
    }
}

fn allocate(length: u64) -> Result<BorrowedBytes, Error> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(length)
        .map_err(|_| system("take memory for a run", "there is none left"))?;
    bytes.resize(length, 0);
    Ok(BorrowedBytes::owned(bytes))
}

/// A run that a rank has started and not fetched.
#[derive(Debug)]
pub(super) struct DirectRun {
    pub(super) key: RunKey,
    pub(super) schedule: Arc<DirectSchedule>,
    /// By buffer of the schedule, and as long.
    pub(super) buffers: Vec<BorrowedBytes>,
    /// True if the buffers are those of a call, which must not return before the run has ended.
    pub(super) is_in_place: bool,
    /// Set once the results are in the buffers.
    pub(super) outcome: OnceLock<RunOutcome>,
}

impl DirectRun {
    pub(super) fn has_ended(&self) -> bool {
        self.outcome.get().is_some()
    }

    pub(super) fn registered(&self) -> &Arc<RegisteredSchedule> {
        &self.schedule.registered
    }

    /// Copies the rest of the inputs that the start of the run used in place: `unread` returns the
    /// ranges of a buffer that the run still reads.
    pub(super) fn keep_inputs(&self, unread: impl Fn(usize) -> Vec<Range<usize>>) {
        for (number, buffer) in self.buffers.iter().enumerate() {
            if self.schedule.is_replaced(number, Access::Input) {
                buffer.keep(&unread(number));
            }
        }
    }

    /// The outputs of the caller that its wait uses in place, one for each buffer of the run.
    pub(super) fn borrowed_outputs<'a>(
        &'a self,
        outputs: &'a mut [&mut [u8]],
    ) -> Vec<Substitute<'a>> {
        let all = self.buffers.iter().zip(outputs).enumerate();
        let wanted = all.filter(|(number, (_, output))| {
            !output.is_empty() && self.schedule.is_replaced(*number, Access::Output)
        });
        let substitute =
            |(number, (bytes, output)): (usize, (&BorrowedBytes, &'a mut &mut [u8]))| {
                let results = self.schedule.results[number].as_slice();
                Substitute { bytes: bytes.clone(), buffer: CallerBuffer::Write(output), results }
            };
        wanted.map(substitute).collect()
    }

    /// Copies the results in borrowed outputs to the run's own buffers, because it goes on without
    /// them.
    pub(super) fn keep_results(&self) {
        for (buffer, results) in self.buffers.iter().zip(&self.schedule.results) {
            buffer.keep(results);
        }
    }

    /// Copies the results to `outputs`, one for each buffer or none at all, and returns the
    /// outcome. The run has ended, and is not fetched again.
    pub(super) fn fetch(&self, outputs: &mut [&mut [u8]]) -> RunOutcome {
        let outcome = self.outcome.get().cloned().unwrap_or(Ok(()));
        if let Ok(()) | Err(Error::DivisionByZero { .. }) = outcome {
            let uses = self.schedule.results.iter().zip(&self.buffers).zip(outputs);
            for ((results, bytes), output) in uses.filter(|(_, output)| !output.is_empty()) {
                for range in results.iter().cloned() {
                    bytes.with(|bytes| output[range.clone()].copy_from_slice(&bytes[range]));
                }
            }
            // The engine uses buffers until it sets the outcome.
            if !self.is_in_place {
                self.schedule.put_idle(self.buffers.clone());
            }
        }
        outcome
    }

    /// An interpreter that uses long buffers in place, and copies of the others.
    pub(super) fn prepare(&self) -> Result<PreparedRun, Error> {
        let mut prepared = PreparedRun::of(self.registered().take_idle(self.schedule.limits)?);
        let uses = self.registered().layout.buffers.iter().zip(&self.buffers);
        for (number, (buffer, bytes)) in uses.enumerate() {
            if buffer.is_borrowed() {
                prepared.borrow_buffer(number, BorrowedMemory::Caller(bytes.clone()))?;
            } else if buffer.is_read {
                bytes.with(|bytes| prepared.buffers[number].copy_from_slice(bytes));
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
            let uses = self.schedule.results.iter().zip(&self.buffers).zip(&copies);
            for ((results, bytes), copy) in uses.filter(|(_, copy)| has_results && !copy.is_empty())
            {
                for range in results.iter().cloned() {
                    bytes.with_mut(|bytes| bytes[range.clone()].copy_from_slice(&copy[range]));
                }
            }
            self.registered().put_idle(interpreter, copies);
        }
        // Only the engine ends runs, and each once.
        let _ = self.outcome.set(outcome);
    }
}
