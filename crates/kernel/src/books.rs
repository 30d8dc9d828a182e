//! What a rank knows about its arena: what is prepared, which runs there are, and which wait for
//! room.

use crate::arena::Arena;
use crate::layout::{ARENA, ARENA_BYTES, RUN_COMPLETE, RUN_UNDER_WAY, Run};
use crate::prepared::PreparedSchedule;
use crate::system::Mapping;
use goal::schedule::Schedule;
use network::backend::{CommunicatorContext, RunId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A run is known by the place of its frame, so that to look whether it is complete is one load,
/// and by a count, so that no later run in the same place is taken for it. One that waited for room
/// at its start has place 0, where no frame ever is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunName {
    pub(crate) frame: u32,
    pub(crate) count: u32,
}

impl RunName {
    pub(crate) fn of(ticket: RunId) -> Self {
        RunName { frame: ticket.0 as u32, count: (ticket.0 >> 32) as u32 }
    }

    pub(crate) fn ticket(self) -> RunId {
        RunId(u64::from(self.count) << 32 | u64::from(self.frame))
    }
}

/// A run that has not been fetched.
#[derive(Debug)]
struct Known {
    /// The number of its schedule.
    schedule: u64,
    /// The frame in its name.
    named: u32,
    at: At,
    /// When somebody first waited for it, and had to.
    awaited_since: Option<Instant>,
}

#[derive(Debug)]
enum At {
    /// In this frame.
    Frame(u32),
    /// Nowhere yet; its inputs.
    Queue { sequence: u64, inputs: Vec<Vec<u8>> },
    /// It is complete, and its frame has made room for another one. What the program said of it,
    /// and what it wrote.
    Aside { run: Run, written: Vec<Vec<u8>> },
}

/// A run whose results are wanted.
pub(crate) enum Results<'a> {
    /// They lie in this frame.
    Frame(u32),
    /// They lie here, in the order of what the schedule writes.
    Aside(&'a Run, &'a [Vec<u8>]),
}

#[derive(Debug)]
pub(crate) struct Books {
    arena: Arena,
    prepared: BTreeMap<u64, PreparedSchedule>,
    next_schedule: u64,
    runs: BTreeMap<u32, Known>,
    next_run: u32,
    /// Runs that wait for room, in the order of their starts.
    queue: VecDeque<u32>,
    /// Runs that nobody will fetch.
    forgotten: Vec<u32>,
    /// Whether runs note when each operation is executed.
    pub(crate) timed: bool,
}

impl Books {
    pub(crate) fn new() -> Self {
        Books {
            arena: Arena::new(),
            prepared: BTreeMap::new(),
            next_schedule: 0,
            runs: BTreeMap::new(),
            next_run: 0,
            queue: VecDeque::new(),
            forgotten: Vec::new(),
            timed: false,
        }
    }

    /// Takes a schedule; none if there is no room for it and for runs beside it.
    pub(crate) fn prepare(
        &mut self,
        memory: &Mapping,
        context: &CommunicatorContext,
        schedule: &Schedule,
        stamp: u32,
    ) -> Option<u64> {
        let mut made = PreparedSchedule::new(&mut self.arena, memory, context, schedule, stamp);
        if made.is_none() {
            self.give_up_frames();
            made = PreparedSchedule::new(&mut self.arena, memory, context, schedule, stamp);
        }
        let number = self.next_schedule;
        self.next_schedule += 1;
        self.prepared.insert(number, made?);
        Some(number)
    }

    pub(crate) fn schedule(&self, number: u64) -> Option<&PreparedSchedule> {
        self.prepared.get(&number)
    }

    /// Nobody will start it again.
    pub(crate) fn release(&mut self, number: u64) {
        if let Some(prepared) = self.prepared.get_mut(&number) {
            prepared.is_released = true;
        }
        self.drop_unused(number);
    }

    /// A run with these inputs, ready to be submitted, or one that waits for room.
    pub(crate) fn start(
        &mut self,
        memory: &Mapping,
        schedule: u64,
        sequence: u64,
        inputs: &[&[u8]],
    ) -> Option<RunName> {
        if !self.forgotten.is_empty() {
            self.sweep(memory);
        }
        self.prepared.get_mut(&schedule)?.runs += 1;
        let count = self.next_run;
        self.next_run = count.wrapping_add(1);
        let frame = if self.queue.is_empty() {
            self.frame(memory, schedule, sequence, inputs)
        } else {
            None
        };
        let at = match frame {
            Some(frame) => At::Frame(frame),
            None => {
                self.queue.push_back(count);
                At::Queue { sequence, inputs: inputs.iter().map(|input| input.to_vec()).collect() }
            }
        };
        let named = frame.unwrap_or(0);
        self.runs.insert(count, Known { schedule, named, at, awaited_since: None });
        Some(RunName { frame: named, count })
    }

    /// Makes room for runs that wait for it, as far as that is possible: frames to be submitted.
    /// Something may be possible whenever a run is complete.
    pub(crate) fn advance(&mut self, memory: &Mapping) -> Vec<u32> {
        self.sweep(memory);
        let mut ready = Vec::new();
        while let Some(count) = self.queue.front().copied() {
            let Some(Known { schedule, at: At::Queue { sequence, inputs }, .. }) =
                self.runs.get_mut(&count)
            else {
                self.queue.pop_front();
                continue;
            };
            let (schedule, sequence, inputs) = (*schedule, *sequence, std::mem::take(inputs));
            let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let mut frame = self.frame(memory, schedule, sequence, &slices);
            if frame.is_none() && self.put_aside(memory) {
                frame = self.frame(memory, schedule, sequence, &slices);
            }
            let at = frame.map_or(At::Queue { sequence, inputs }, At::Frame);
            if let Some(known) = self.runs.get_mut(&count) {
                known.at = at;
            }
            let Some(frame) = frame else { break };
            self.queue.pop_front();
            ready.push(frame);
        }
        ready
    }

    /// The frame of a run, if it has one.
    pub(crate) fn frame_of(&self, name: RunName) -> Option<(u32, &PreparedSchedule)> {
        let known = self.runs.get(&name.count)?;
        let At::Frame(frame) = known.at else { return None };
        Some((frame, self.prepared.get(&known.schedule)?))
    }

    /// Whether a run is complete, wherever it is.
    pub(crate) fn is_complete(&self, memory: &Mapping, count: u32) -> bool {
        match self.runs.get(&count).map(|known| &known.at) {
            Some(At::Frame(frame)) => state(memory, *frame) != RUN_UNDER_WAY,
            Some(At::Queue { .. }) => false,
            Some(At::Aside { .. }) | None => true,
        }
    }

    /// The results of a complete run, with its schedule.
    pub(crate) fn results(&self, name: RunName) -> Option<(Results<'_>, &PreparedSchedule)> {
        let known = self.runs.get(&name.count)?;
        let results = match &known.at {
            At::Frame(frame) => Results::Frame(*frame),
            At::Aside { run, written } => Results::Aside(run, written),
            At::Queue { .. } => return None,
        };
        Some((results, self.prepared.get(&known.schedule)?))
    }

    /// The end of a complete run. The frame of one that failed stays: what arrives for it is
    /// dropped there.
    pub(crate) fn end(&mut self, memory: &Mapping, count: u32) {
        let Some(Known { schedule, at, .. }) = self.runs.remove(&count) else { return };
        let Some(prepared) = self.prepared.get_mut(&schedule) else { return };
        match at {
            At::Frame(frame) if state(memory, frame) == RUN_COMPLETE => prepared.give_back(frame),
            At::Frame(_) => return,
            At::Aside { .. } | At::Queue { .. } => {}
        }
        prepared.runs -= 1;
        self.drop_unused(schedule);
    }

    /// Nobody will fetch it.
    pub(crate) fn forget(&mut self, name: RunName) {
        if self.runs.contains_key(&name.count) {
            self.forgotten.push(name.count);
        }
    }

    /// Whether any run is elsewhere than its name says.
    pub(crate) fn is_crowded(&self) -> bool {
        self.runs
            .values()
            .any(|known| !matches!(known.at, At::Frame(frame) if frame == known.named))
    }

    /// Communicator and number of every run that was started and not fetched, and whether it is
    /// under way.
    pub(crate) fn started(&self, memory: &Mapping) -> HashMap<(u32, u64), bool> {
        let name = |known: &Known| {
            let run = match &known.at {
                At::Frame(frame) => read_run(memory, *frame),
                At::Aside { run, .. } => *run,
                At::Queue { .. } => return None,
            };
            let communicator = self.prepared.get(&known.schedule)?.context.number;
            Some(((communicator, run.sequence), run.state == RUN_UNDER_WAY))
        };
        self.runs.values().filter_map(name).collect()
    }

    /// Whether any run waits for room.
    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether any run has a send that the program has not executed: in its frame, or because it
    /// waits for room.
    pub(crate) fn has_unsent(&self, memory: &Mapping) -> bool {
        self.runs.values().any(|known| match known.at {
            At::Queue { .. } => true,
            At::Aside { .. } => false,
            At::Frame(frame) => {
                state(memory, frame) == RUN_UNDER_WAY
                    && self
                        .prepared
                        .get(&known.schedule)
                        .is_some_and(|prepared| prepared.has_unsent(memory, frame))
            }
        })
    }

    /// For how long a run has been waited for.
    pub(crate) fn awaited_for(&mut self, name: RunName) -> Duration {
        let known = self.runs.get_mut(&name.count);
        known.map_or(Duration::ZERO, |known| {
            known.awaited_since.get_or_insert_with(Instant::now).elapsed()
        })
    }

    /// Takes back the frames of forgotten runs that are complete.
    fn sweep(&mut self, memory: &Mapping) {
        for count in std::mem::take(&mut self.forgotten) {
            if self.is_complete(memory, count) {
                self.end(memory, count);
            } else {
                self.forgotten.push(count);
            }
        }
    }

    /// A frame with a run and its inputs, if need be from the frames that other schedules have put
    /// by.
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
            self.give_up_frames();
            frame =
                self.prepared.get_mut(&schedule)?.frame(&mut self.arena, memory, sequence, timed);
        }
        let (frame, prepared) = (frame?, self.prepared.get(&schedule)?);
        for (buffer, input) in inputs.iter().enumerate().filter(|(_, input)| !input.is_empty()) {
            memory.write(ARENA + frame as usize + prepared.memory(buffer), input);
        }
        Some(frame)
    }

    fn give_up_frames(&mut self) {
        self.prepared.values_mut().for_each(|prepared| prepared.give_up_frames(&mut self.arena));
    }

    /// Moves what complete runs have written out of the arena, for whoever waits for a later run
    /// may not have fetched them. False if there were none.
    fn put_aside(&mut self, memory: &Mapping) -> bool {
        let mut moved = false;
        for known in self.runs.values_mut() {
            let At::Frame(frame) = known.at else { continue };
            let Some(prepared) = self.prepared.get_mut(&known.schedule) else { continue };
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
            let (run, written) =
                (read_run(memory, frame), prepared.written().iter().map(read).collect());
            prepared.give_up_frame(&mut self.arena, frame);
            known.at = At::Aside { run, written };
            moved = true;
        }
        moved
    }

    /// Gives up a schedule that nobody will start again and that has no run.
    fn drop_unused(&mut self, number: u64) {
        if self
            .prepared
            .get(&number)
            .is_some_and(|prepared| prepared.is_released && prepared.runs == 0)
            && let Some(prepared) = self.prepared.remove(&number)
        {
            prepared.give_up(&mut self.arena);
        }
    }
}

fn state(memory: &Mapping, frame: u32) -> u32 {
    // Partner: `end_run`.
    memory.word(ARENA + in_arena(frame)).load(Ordering::Acquire)
}

/// A copy of what the program says about a run.
pub(crate) fn read_run(memory: &Mapping, frame: u32) -> Run {
    let mut run: Run = bytemuck::Zeroable::zeroed();
    memory.read(ARENA + in_arena(frame), bytemuck::bytes_of_mut(&mut run));
    run
}

pub(crate) fn in_arena(place: u32) -> usize {
    place as usize & (ARENA_BYTES - 1) & !63
}
