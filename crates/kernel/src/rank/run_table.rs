//! Table of a rank's schedules and runs in its arena, and of the runs that wait for memory.

use crate::memory::arena::Arena;
use crate::memory::layout::{ARENA, ARENA_BYTES, RUN_COMPLETE, RUN_UNDER_WAY, Run};
use crate::memory::mapping::Mapping;
use crate::rank::live_runs::{LiveRuns, RunKey, RunStage};
use crate::rank::prepared_schedule::PreparedSchedule;
use goal::schedule::Schedule;
use network::backend::{CommunicatorContext, ExitedRank, RunId};
use network::run_counts::RunCounts;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Handle of a run: the offset of its frame, so that a completion check is one load, and a number,
/// so that a later run in the same frame has another handle. The offset is 0, where no frame is, if
/// the run waited for memory when it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunHandle {
    pub(crate) frame: u32,
    pub(crate) count: u32,
}

impl RunHandle {
    pub(crate) fn of(run: RunId) -> Self {
        RunHandle { frame: run.0 as u32, count: (run.0 >> 32) as u32 }
    }

    pub(crate) fn run_id(self) -> RunId {
        RunId(u64::from(self.count) << 32 | u64::from(self.frame))
    }
}

/// Run that has not been fetched.
#[derive(Debug)]
struct RunEntry {
    /// Number of its schedule.
    schedule: u64,
    key: RunKey,
    /// Frame in its handle.
    named: u32,
    at: RunLocation,
    /// Time of the first wait that had to sleep.
    waited_since: Option<Instant>,
    /// True if it cannot complete, because a rank or a node has failed.
    abandoned: bool,
}

/// Location of a run.
#[derive(Debug)]
enum RunLocation {
    /// Frame of the arena.
    Frame(u32),
    /// Queue of runs that wait for memory.
    Queue { inputs: Vec<Vec<u8>> },
    /// Outside of the arena: the run is complete, and another run uses its frame. Contains the
    /// program's record and the results.
    Aside { run: Run, written: Vec<Vec<u8>> },
}

/// The runs of a rank that keep it from leaving.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnsentRuns {
    /// Number of runs with a send that the program has not executed, or without memory.
    pub(crate) count: usize,
    /// A number that changes when one of them advances; `None` if ranks that are not gone could
    /// advance one.
    pub(crate) stuck_at: Option<u64>,
}

/// Ranks of the job that advance no run of this rank any more.
#[derive(Debug, Default)]
pub(crate) struct GoneRanks {
    /// Those that have exited.
    pub(crate) exited: Vec<ExitedRank>,
    /// By communicator and number of a run, those that will never start it.
    pub(crate) never_start: HashMap<RunKey, Vec<u32>>,
}

impl GoneRanks {
    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.exited.is_empty() && self.never_start.is_empty()
    }

    /// Returns true if a rank does not advance this run any more.
    fn contains(&self, rank: u32, run: RunKey) -> bool {
        self.exited.iter().any(|exited| exited.rank == rank)
            || self.never_start.get(&run).is_some_and(|ranks| ranks.contains(&rank))
    }
}

/// Results of a complete run.
pub(crate) enum RunResults<'a> {
    /// In this frame.
    Frame(u32),
    /// Outside of the arena, in the order of the schedule's outputs.
    Aside(&'a Run, &'a [Vec<u8>]),
}

/// Schedules, runs and arena of a rank. Only the rank allocates from the arena; the program trusts
/// none of it.
#[derive(Debug)]
pub(crate) struct RunTable {
    arena: Arena,
    prepared: BTreeMap<u64, PreparedSchedule>,
    next_schedule: u64,
    runs: BTreeMap<u32, RunEntry>,
    next_run: u32,
    /// Runs that wait for memory, in the order of their starts.
    queue: VecDeque<u32>,
    /// Runs that will not be fetched.
    discarded: Vec<u32>,
    /// Runs started.
    pub(crate) counts: RunCounts,
    /// True if runs record the time of each operation.
    pub(crate) timed: bool,
}

impl RunTable {
    pub(crate) fn new() -> Self {
        RunTable {
            arena: Arena::new(),
            prepared: BTreeMap::new(),
            next_schedule: 0,
            runs: BTreeMap::new(),
            next_run: 0,
            queue: VecDeque::new(),
            discarded: Vec::new(),
            counts: RunCounts::default(),
            timed: false,
        }
    }

    /// Registers a schedule; `None` if the arena has no memory for it and for runs beside it.
    pub(crate) fn prepare(
        &mut self,
        memory: &Mapping,
        context: &CommunicatorContext,
        schedule: &Schedule,
        signature: u32,
    ) -> Option<u64> {
        // Frames are a cache: if the arena is full, releasing the unused ones may be enough.
        let mut made = PreparedSchedule::new(&mut self.arena, memory, context, schedule, signature);
        if made.is_none() {
            self.release_frames();
            made = PreparedSchedule::new(&mut self.arena, memory, context, schedule, signature);
        }
        let number = self.next_schedule;
        self.next_schedule += 1;
        self.prepared.insert(number, made?);
        Some(number)
    }

    pub(crate) fn schedule(&self, number: u64) -> Option<&PreparedSchedule> {
        self.prepared.get(&number)
    }

    /// Marks a schedule as not to be started again.
    pub(crate) fn release(&mut self, number: u64) {
        if let Some(prepared) = self.prepared.get_mut(&number) {
            prepared.is_released = true;
        }
        self.drop_unused(number);
    }

    /// Creates a run with these inputs. It is ready to be submitted, or waits for memory if the
    /// frame in its handle is 0.
    pub(crate) fn start(
        &mut self,
        memory: &Mapping,
        schedule: u64,
        sequence: u64,
        inputs: &[&[u8]],
    ) -> Option<RunHandle> {
        if !self.discarded.is_empty() {
            self.end_discarded(memory);
        }
        let prepared = self.prepared.get_mut(&schedule)?;
        // Counted before there is memory: a queued run keeps its schedule as well.
        prepared.runs += 1;
        let key = (prepared.context.number, sequence);
        self.counts.start_in_order(key.0, sequence);
        let count = self.next_run;
        // Numbers repeat after 2³² runs. A handle is then ambiguous only if the older run was never
        // fetched.
        self.next_run = count.wrapping_add(1);
        // A run behind queued ones joins the queue even if its own frame would fit: otherwise small
        // runs could keep a large one waiting forever, and other ranks wait for its messages.
        let frame = if self.queue.is_empty() {
            self.frame(memory, schedule, sequence, inputs)
        } else {
            None
        };
        let at = match frame {
            Some(frame) => RunLocation::Frame(frame),
            None => {
                self.queue.push_back(count);
                RunLocation::Queue { inputs: inputs.iter().map(|input| input.to_vec()).collect() }
            }
        };
        let named = frame.unwrap_or(0);
        let entry = RunEntry { schedule, key, named, at, waited_since: None, abandoned: false };
        self.runs.insert(count, entry);
        Some(RunHandle { frame: named, count })
    }

    /// Allocates frames for queued runs, in their order, as far as there is memory, and returns the
    /// frames to be submitted. Each completion may make memory available.
    pub(crate) fn advance(&mut self, memory: &Mapping) -> Vec<u32> {
        self.end_discarded(memory);
        let mut ready = Vec::new();
        while let Some(count) = self.queue.front().copied() {
            let Some(RunEntry { schedule, key, at: RunLocation::Queue { inputs }, .. }) =
                self.runs.get_mut(&count)
            else {
                self.queue.pop_front();
                continue;
            };
            let schedule = *schedule;
            let sequence = key.1;
            // The inputs leave the entry for the attempt, and return to it if there is no memory.
            let inputs = std::mem::take(inputs);
            let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let mut frame = self.frame(memory, schedule, sequence, &slices);
            // Copying results out costs time, so it comes last: only if no unused frame is left.
            if frame.is_none() && self.move_aside(memory) {
                frame = self.frame(memory, schedule, sequence, &slices);
            }
            let at = frame.map_or(RunLocation::Queue { inputs }, RunLocation::Frame);
            if let Some(entry) = self.runs.get_mut(&count) {
                entry.at = at;
            }
            // Later runs stay in the queue as well: the order of starts is that of the caller.
            let Some(frame) = frame else { break };
            self.queue.pop_front();
            ready.push(frame);
        }
        ready
    }

    /// Returns the frame of a run, if it has one.
    pub(crate) fn frame_of(&self, name: RunHandle) -> Option<(u32, &PreparedSchedule)> {
        let entry = self.runs.get(&name.count)?;
        let RunLocation::Frame(frame) = entry.at else { return None };
        Some((frame, self.prepared.get(&entry.schedule)?))
    }

    /// Returns true if a run is complete, in the arena or outside of it.
    pub(crate) fn is_complete(&self, memory: &Mapping, count: u32) -> bool {
        match self.runs.get(&count).map(|entry| &entry.at) {
            Some(RunLocation::Frame(frame)) => state(memory, *frame) != RUN_UNDER_WAY,
            Some(RunLocation::Queue { .. }) => false,
            Some(RunLocation::Aside { .. }) | None => true,
        }
    }

    /// Returns the results of a complete run, with its schedule.
    pub(crate) fn results(&self, name: RunHandle) -> Option<(RunResults<'_>, &PreparedSchedule)> {
        let entry = self.runs.get(&name.count)?;
        let results = match &entry.at {
            RunLocation::Frame(frame) => RunResults::Frame(*frame),
            RunLocation::Aside { run, written } => RunResults::Aside(run, written),
            RunLocation::Queue { .. } => return None,
        };
        Some((results, self.prepared.get(&entry.schedule)?))
    }

    /// Removes a complete run. The frame of a failed run stays allocated: the program still uses it
    /// to drop messages that arrive for the run.
    pub(crate) fn end(&mut self, memory: &Mapping, count: u32) {
        let Some(RunEntry { schedule, at, .. }) = self.runs.remove(&count) else { return };
        let Some(prepared) = self.prepared.get_mut(&schedule) else { return };
        match at {
            RunLocation::Frame(frame) if state(memory, frame) == RUN_COMPLETE => {
                prepared.keep_frame(frame)
            }
            // The count of runs stays, so the schedule stays as well: the frame refers to it.
            RunLocation::Frame(_) => return,
            RunLocation::Aside { .. } | RunLocation::Queue { .. } => {}
        }
        // The last run of a released schedule frees it: the program reads the operations of a run
        // from the schedule's memory.
        prepared.runs -= 1;
        self.drop_unused(schedule);
    }

    /// Marks a run as not to be fetched.
    pub(crate) fn forget(&mut self, name: RunHandle) {
        if self.runs.contains_key(&name.count) {
            self.discarded.push(name.count);
        }
    }

    /// Returns true if any run is elsewhere than in the frame of its handle.
    pub(crate) fn has_displaced(&self) -> bool {
        self.runs
            .values()
            .any(|entry| !matches!(entry.at, RunLocation::Frame(frame) if frame == entry.named))
    }

    /// Returns the runs that were started and not fetched.
    pub(crate) fn live(&self, memory: &Mapping) -> LiveRuns {
        let stage = |entry: &RunEntry| match &entry.at {
            RunLocation::Queue { .. } => RunStage::Queued,
            RunLocation::Frame(frame) if state(memory, *frame) == RUN_UNDER_WAY => {
                RunStage::UnderWay
            }
            RunLocation::Frame(_) | RunLocation::Aside { .. } => RunStage::Complete,
        };
        let stages = self.runs.values().map(|entry| (entry.key, stage(entry)));
        LiveRuns::new(stages.collect(), self.counts.clone())
    }

    /// Returns true if any run waits for memory.
    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Marks a run that cannot complete.
    pub(crate) fn abandon(&mut self, name: RunHandle) {
        if let Some(entry) = self.runs.get_mut(&name.count) {
            entry.abandoned = true;
        }
    }

    /// Returns the runs that can still complete and have a send that the program has not executed,
    /// or wait for memory. Ranks that are `gone` advance none of them.
    pub(crate) fn unsent(&self, memory: &Mapping, gone: &GoneRanks) -> UnsentRuns {
        let mut unsent = UnsentRuns::default();
        let mut can_advance = false;
        for entry in self.runs.values().filter(|entry| !entry.abandoned) {
            match entry.at {
                RunLocation::Aside { .. } => {}
                RunLocation::Queue { .. } => unsent.count += 1,
                RunLocation::Frame(frame) if state(memory, frame) == RUN_UNDER_WAY => {
                    let Some(prepared) = self.prepared.get(&entry.schedule) else { continue };
                    let is_gone = |rank| gone.contains(rank, entry.key);
                    let run = prepared.progress_of(memory, frame, is_gone);
                    unsent.count += usize::from(run.has_unsent);
                    // A run without sends counts as well if others wait for its memory.
                    if run.has_unsent || self.has_queue() {
                        *unsent.stuck_at.get_or_insert(0) += run.position;
                        can_advance |= run.can_advance;
                    }
                }
                RunLocation::Frame(_) => {}
            }
        }
        unsent.stuck_at = unsent.stuck_at.filter(|_| !can_advance);
        unsent
    }

    /// Returns the time since the first wait for a run.
    pub(crate) fn waited_for(&mut self, name: RunHandle) -> Duration {
        let entry = self.runs.get_mut(&name.count);
        entry.map_or(Duration::ZERO, |entry| {
            entry.waited_since.get_or_insert_with(Instant::now).elapsed()
        })
    }

    /// Removes discarded runs that are complete.
    fn end_discarded(&mut self, memory: &Mapping) {
        // A discarded run without memory is not complete: it still starts, because other ranks wait
        // for its messages.
        for count in std::mem::take(&mut self.discarded) {
            if self.is_complete(memory, count) {
                self.end(memory, count);
            } else {
                // Other ranks may wait for what the run has left to send, so the program keeps its
                // frame.
                self.discarded.push(count);
            }
        }
    }

    /// Returns a frame with a run and its inputs. If the arena is full, schedules release the
    /// unused frames that they keep.
    fn frame(
        &mut self,
        memory: &Mapping,
        schedule: u64,
        sequence: u64,
        inputs: &[&[u8]],
    ) -> Option<u32> {
        let timed = self.timed;
        let mut frame =
            self.prepared.get_mut(&schedule)?.frame(&mut self.arena, memory, sequence, timed);
        if frame.is_none() {
            self.release_frames();
            frame =
                self.prepared.get_mut(&schedule)?.frame(&mut self.arena, memory, sequence, timed);
        }
        // Not submitted yet, so the program does not refer to the frame and plain writes suffice.
        let frame = frame?;
        let prepared = self.prepared.get(&schedule)?;
        for (buffer, input) in inputs.iter().enumerate().filter(|(_, input)| !input.is_empty()) {
            memory.write(ARENA + frame as usize + prepared.memory(buffer), input);
        }
        Some(frame)
    }

    fn release_frames(&mut self) {
        self.prepared.values_mut().for_each(|prepared| prepared.release_frames(&mut self.arena));
    }

    /// Moves the results of complete runs out of the arena: a thread that waits for a queued run
    /// may not fetch earlier runs first. Returns false if there were none.
    fn move_aside(&mut self, memory: &Mapping) -> bool {
        let mut moved = false;
        for entry in self.runs.values_mut() {
            let RunLocation::Frame(frame) = entry.at else { continue };
            let Some(prepared) = self.prepared.get_mut(&entry.schedule) else { continue };
            // The program uses the frames of running and of failed runs. It never writes to the
            // frame of a complete run again, and the acquire in `state` makes the results visible.
            if state(memory, frame) != RUN_COMPLETE {
                continue;
            }
            let read = |(buffer, bytes): &(usize, std::ops::Range<usize>)| {
                let mut copy = vec![0; bytes.len()];
                memory.read(
                    ARENA + frame as usize + prepared.memory(*buffer) + bytes.start,
                    &mut copy,
                );
                copy
            };
            let run = read_run(memory, frame);
            let written = prepared.written().iter().map(read).collect();
            prepared.release_frame(&mut self.arena, frame);
            entry.at = RunLocation::Aside { run, written };
            moved = true;
        }
        moved
    }

    /// Removes a schedule that is released and has no run.
    fn drop_unused(&mut self, number: u64) {
        if self
            .prepared
            .get(&number)
            .is_some_and(|prepared| prepared.is_released && prepared.runs == 0)
            && let Some(prepared) = self.prepared.remove(&number)
        {
            prepared.release(&mut self.arena);
        }
    }
}

fn state(memory: &Mapping, frame: u32) -> u32 {
    // Acquire pairs with the exchange in `end_run`, which publishes the results.
    memory.word(ARENA + in_arena(frame)).load(Ordering::Acquire)
}

/// Returns a copy of the program's record of a run.
pub(crate) fn read_run(memory: &Mapping, frame: u32) -> Run {
    let mut run: Run = bytemuck::Zeroable::zeroed();
    memory.read(ARENA + in_arena(frame), bytemuck::bytes_of_mut(&mut run));
    run
}

// The mask keeps every offset within the arena and aligned: an invalid run identifier refers to a
// word of this rank's own memory at worst.
pub(crate) fn in_arena(offset: u32) -> usize {
    offset as usize & (ARENA_BYTES - 1) & !63
}
