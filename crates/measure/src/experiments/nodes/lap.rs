//! One rank's runs of one schedule.

use crate::harness::Error;
use goal::schedule::Schedule;
use network::backend::{Backend, CommunicatorContext, RunId, ScheduleId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A rank with a schedule that it can start again and again.
#[derive(Debug)]
pub(super) struct Runner {
    backend: Arc<dyn Backend>,
    prepared: ScheduleId,
    sequence: u64,
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

impl Runner {
    /// Hands the schedule to the rank's engine.
    pub(super) fn new(
        backend: &Arc<dyn Backend>,
        context: &CommunicatorContext,
        schedule: &Schedule,
    ) -> Result<Self, Error> {
        let prepared = backend.register(context, schedule, 0)?;
        let zeros = || {
            schedule
                .view()
                .buffers()
                .iter()
                .map(|buffer| vec![0u8; buffer.length as usize])
                .collect()
        };
        Ok(Runner {
            backend: Arc::clone(backend),
            prepared,
            sequence: 0,
            inputs: zeros(),
            outputs: zeros(),
        })
    }

    /// Starts a run.
    pub(super) fn start(&mut self) -> Result<RunId, Error> {
        let inputs: smallvec::SmallVec<[&[u8]; 4]> =
            self.inputs.iter().map(Vec::as_slice).collect();
        let sequence = self.sequence;
        self.sequence += 1;
        Ok(self.backend.start(self.prepared, sequence, &inputs)?)
    }

    /// Returns true if a run is complete.
    pub(super) fn is_complete(&self, run: RunId) -> bool {
        self.backend.is_complete(run)
    }

    /// Waits for a run.
    pub(super) fn wait(&self, run: RunId) -> Result<(), Error> {
        self.backend.wait(run, None)?;
        Ok(())
    }

    /// Takes the results of a complete run.
    pub(super) fn fetch(&mut self, run: RunId) -> Result<(), Error> {
        let mut outputs: smallvec::SmallVec<[&mut [u8]; 4]> =
            self.outputs.iter_mut().map(Vec::as_mut_slice).collect();
        Ok(self.backend.fetch(run, &mut outputs)?)
    }

    /// Starts a run, waits for it and takes its results.
    pub(super) fn call(&mut self) -> Result<(), Error> {
        let run = self.start()?;
        self.wait(run)?;
        self.fetch(run)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.backend.release(self.prepared);
    }
}

/// A barrier of the ranks' threads between laps.
#[derive(Debug)]
pub(super) struct StartBarrier {
    threads: u32,
    came: AtomicU32,
}

impl StartBarrier {
    pub(super) fn new(threads: u32) -> Self {
        StartBarrier { threads, came: AtomicU32::new(0) }
    }

    /// Returns when all threads have called it as often as this one has.
    pub(super) fn pass(&self, turn: &mut u32) {
        *turn += 1;
        // AcqRel: what a thread did before the barrier is seen by all after it (pairs with the load
        // below).
        self.came.fetch_add(1, Ordering::AcqRel);
        let mut looks = 0u32;
        while self.came.load(Ordering::Acquire) < *turn * self.threads {
            looks += 1;
            // More ranks than cores: the others need this one's core to arrive.
            if looks.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}
