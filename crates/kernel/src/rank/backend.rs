//! The kernel engine as a backend: registering, starting, waiting for and fetching runs.

use super::Rank;
use super::drain::drain;
use super::limits::{OTHER_ENGINE, refusal, system_error, too_large};
use crate::memory::layout::{ARENA, ARENA_BYTES, PHASE_RUNNING, Progress, RUN_UNDER_WAY};
use crate::rank::fault::Fault;
use crate::rank::prepared_schedule::{LIMIT_BYTES, Sizes};
use crate::rank::run_table::{RunHandle, RunResults, in_arena, read_run};
use goal::schedule::{Kind, OperationRecord, Schedule};
use network::backend::{
    Backend, CommunicatorContext, DrainOutcome, RankExits, RunId, ScheduleId, check_inputs,
    check_outputs,
};
use network::error::Error;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Shortest and longest sleep of a waiter between two calls of `progress`, which continues work
/// that was left over and recovers lost packets. Each sleep is half of the time waited so far.
const SLEEPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(128)];

impl Backend for Rank {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn set_timed(&self, timed: bool) {
        self.run_table().timed = timed;
    }

    fn times(&self, run: RunId) -> Vec<u64> {
        let run_table = self.run_table();
        let found = run_table.frame_of(RunHandle::of(run));
        let Some((frame, prepared)) =
            found.filter(|(frame, _)| read_run(&self.memory, *frame).times != 0)
        else {
            return Vec::new();
        };
        let mut times = vec![0u64; prepared.schedule.view().operations().len()];
        self.memory
            .read(ARENA + frame as usize + prepared.times(), bytemuck::cast_slice_mut(&mut times));
        times
    }

    fn supports(&self, schedule: &Schedule) -> bool {
        refusal(schedule).is_none()
    }

    fn register(
        &self,
        context: &CommunicatorContext,
        schedule: &Schedule,
        signature: u32,
    ) -> Result<ScheduleId, Error> {
        if let Some(refusal) = refusal(schedule) {
            return Err(refusal);
        }
        let number = self.run_table().prepare(&self.memory, context, schedule, signature);
        let needed = || Sizes::of(&schedule.view()).prepared;
        number.map(ScheduleId).ok_or_else(|| {
            too_large(
                "the schedule beside all that are registered",
                needed(),
                ARENA_BYTES as u64 - LIMIT_BYTES,
                OTHER_ENGINE,
            )
        })
    }

    fn release(&self, prepared: ScheduleId) {
        self.run_table().release(prepared.0);
    }

    fn end_communicators(&self, numbers: RangeInclusive<u32>) {
        // No check: a rank that counts its own communicators makes no more ranges than it has.
        self.run_table().counts.end(numbers);
    }

    fn start(&self, prepared: ScheduleId, sequence: u64, inputs: &[&[u8]]) -> Result<RunId, Error> {
        let mut run_table = self.run_table();
        let unknown = || Error::Operation("the schedule was released: prepare it again".to_owned());
        let buffers = run_table.schedule(prepared.0).ok_or_else(unknown)?.schedule.view().buffers();
        check_inputs(buffers, inputs)?;
        let handle =
            run_table.start(&self.memory, prepared.0, sequence, inputs).ok_or_else(unknown)?;
        if handle.frame == 0 {
            // The run is in the queue, behind others. An error of `advance` appears again in the
            // next wait.
            let _ = self.advance(run_table);
            return Ok(handle.run_id());
        }
        drop(run_table);
        self.submit(handle.frame);
        // The run is submitted. If the program cannot be started now, the next wait starts it.
        let _ = self.notify_program();
        let _ = self.put_back();
        Ok(handle.run_id())
    }

    #[inline]
    fn is_complete(&self, run: RunId) -> bool {
        let handle = RunHandle::of(run);
        // Acquire pairs with the exchange in `end_run`, which publishes the results. The frame can
        // belong to another run only if this one is complete, so a wrong answer is impossible: the
        // other run's state is read only after this run was fetched or moved aside.
        let state = self.memory.word(ARENA + in_arena(handle.frame)).load(Ordering::Acquire);
        state != RUN_UNDER_WAY
            || (self.has_displaced.load(Ordering::Relaxed) && self.is_complete_elsewhere(handle))
    }

    fn wait(&self, run: RunId, deadline: Option<Instant>) -> Result<bool, Error> {
        if self.spin(run) {
            return Ok(true);
        }
        let [first, longest] = SLEEPS;
        while !self.is_complete(run) {
            let sleep = (self.run_table().waited_for(RunHandle::of(run)) / 2).clamp(first, longest);
            let left = deadline.map_or(sleep, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(sleep)
            });
            if left.is_zero() {
                return Ok(false);
            }
            // A message of the ring may refer to another run of this rank, so the state decides.
            let before = Instant::now();
            let is_complete = || self.is_complete(run);
            self.wakeup
                .sleep(&self.memory, left, is_complete)
                .map_err(system_error("waiting for a run"))?;
            // Only after a whole sleep. A thread that was woken earlier has no reason to assume a
            // lost packet, and a request costs the other node an activation.
            if before.elapsed() >= sleep && !is_complete() {
                self.progress(run)?;
            }
        }
        Ok(true)
    }

    fn progress(&self, run: RunId) -> Result<(), Error> {
        self.advance(self.run_table())?;
        self.notify_program()?;
        self.relieve_slots()?;
        self.request_missing(run)
    }

    fn waiting_for(&self, run: RunId) -> Vec<u32> {
        self.ranks_of(
            run,
            |record| if record.kind() == Kind::Receive { record.peer() } else { None },
        )
    }

    fn fetch(&self, run: RunId, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let handle = RunHandle::of(run);
        // The lock is held from the check to the copy: no other thread can fetch the run or move it
        // out of the arena in between.
        let mut run_table = self.run_table();
        let unknown = || {
            Error::Operation(
                "the run was fetched before, or has not ended: wait for it once".to_owned(),
            )
        };
        if !run_table.is_complete(&self.memory, handle.count) {
            return Err(unknown());
        }
        let (results, prepared) = run_table.results(handle).ok_or_else(unknown)?;
        check_outputs(prepared.schedule.view().buffers(), outputs)?;
        let run = match &results {
            RunResults::Frame(frame) => read_run(&self.memory, *frame),
            RunResults::Aside(run, _) => **run,
        };
        let fault = Fault::of(&run).map(|fault| fault.error(&prepared.context, run.sequence));
        self.copy_out(prepared, &results, outputs);
        // After the copy: another run may use the frame from here on.
        run_table.end(&self.memory, handle.count);
        if self.has_displaced.load(Ordering::Relaxed) {
            // An error of another run appears again when that run is waited for.
            let _ = self.advance(run_table);
        }
        fault.map_or(Ok(()), Err)
    }

    fn discard(&self, run: RunId) {
        self.run_table().forget(RunHandle::of(run));
    }

    fn abandon(&self, run: RunId) {
        // The program keeps the run, because a message may still arrive for it. Only the exit does
        // not wait.
        self.run_table().abandon(RunHandle::of(run));
    }

    fn drain(&self, deadline: Instant, exits: &dyn RankExits) -> Result<DrainOutcome, Error> {
        drain(self, deadline, exits)
    }
}

impl Rank {
    /// Returns the ranks with which a run exchanges messages now, in either direction: packets from
    /// or to them may be lost.
    pub(super) fn partners(&self, run: RunId) -> Vec<u32> {
        let is_from_any =
            |record: &OperationRecord| record.kind() == Kind::Receive && record.peer().is_none();
        let mut from_any = false;
        let partners = self.ranks_of(run, |record| {
            from_any |= is_from_any(record);
            matches!(record.kind(), Kind::Send | Kind::Receive).then(|| record.peer())?
        });
        if from_any { (0..self.node_of_rank.len() as u32).collect() } else { partners }
    }

    /// Returns the ranks of the job for operations of a run that are started and not complete.
    /// `peer` returns the rank of the communicator for one of them.
    fn ranks_of(
        &self,
        run: RunId,
        mut peer: impl FnMut(&OperationRecord) -> Option<u32>,
    ) -> Vec<u32> {
        let run_table = self.run_table();
        let Some((frame, prepared)) = run_table.frame_of(RunHandle::of(run)) else {
            return Vec::new();
        };
        let states = ARENA + frame as usize + prepared.progress();
        let is_running = |index: usize| {
            let at = states + size_of::<Progress>() * index + std::mem::offset_of!(Progress, phase);
            // Relaxed: the phase selects the recipients of requests; an outdated one costs one of
            // them.
            self.memory.word(at).load(Ordering::Relaxed) == PHASE_RUNNING
        };
        let operations = prepared.schedule.view().operations();
        let running = operations.iter().enumerate().filter(|(index, _)| is_running(*index));
        let mut ranks: Vec<u32> = running
            .filter_map(|(_, record)| prepared.context.members.get(peer(record)? as usize).copied())
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}
