//! The profile: which operation ran when, and who ran it (Schneider et al. 2011, sections 2.1 and 5: timing operations
//! recorded by the scheduler itself).
//!
//! Every process keeps its own list; nothing is shared while the job runs, so that recording costs two clock readings.

use crate::execute::monotonic_nanoseconds;
use std::sync::{Mutex, PoisonError};

/// Events a process keeps; later ones are counted and dropped, so that a long job cannot fill its memory.
const EVENT_LIMIT: usize = 1 << 20;

/// One executed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The program on its communicator.
    pub program: u64,
    /// The run of the program.
    pub run: u64,
    /// Whose operation it is.
    pub rank: u32,
    /// The operation's record in the schedule.
    pub operation: u32,
    /// Who executed it.
    pub executor: u32,
    /// When it began, on the node's monotonic clock, in nanoseconds.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
}

/// A process's list of events.
#[derive(Debug, Default)]
pub struct Trace {
    events: Mutex<(Vec<TraceEvent>, u64)>,
}

impl Trace {
    pub(crate) fn now(&self) -> u64 {
        monotonic_nanoseconds()
    }

    pub(crate) fn record(&self, program: u64, run: u64, rank: u32, operation: u32, executor: u32, begun: u64) {
        let event = TraceEvent { program, run, rank, operation, executor, begun, ended: self.now() };
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.0.len() < EVENT_LIMIT {
            events.0.push(event);
        } else {
            events.1 += 1;
        }
    }

    /// Takes the events recorded so far, and how many did not fit.
    pub fn take(&self) -> (Vec<TraceEvent>, u64) {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
