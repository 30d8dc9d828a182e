//! A schedule in a rank's arena, and the image from which each of its runs starts.

use crate::memory::arena::{ALIGNMENT, Arena};
use crate::memory::layout::{
    ARENA, ARENA_BYTES, NamedReceive, PHASE_COMPLETE, PHASE_RUNNING, Progress, Run, receive_hash,
};
use crate::memory::mapping::Mapping;
use goal::schedule::{Kind, Schedule, ScheduleView};
use network::backend::CommunicatorContext;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Largest size of a schedule with one run, so that several fit into the arena. As many bytes at
/// the beginning of the arena are reserved for runs: without other runs, each run finds memory.
pub(crate) const LIMIT_BYTES: u64 = ARENA_BYTES as u64 / 3;

/// Schedule that a rank has registered.
#[derive(Debug)]
pub(crate) struct PreparedSchedule {
    pub(crate) schedule: Schedule,
    pub(crate) context: CommunicatorContext,
    /// Initial run, with offsets relative to its frame.
    run: Run,
    progress: Vec<Progress>,
    /// Offset of each buffer in a frame; the last one is the scratchpad's.
    memories: Vec<u32>,
    frame_bytes: u32,
    /// Outputs of a run: buffers and disjoint ranges of their bytes.
    written: Vec<(usize, Range<usize>)>,
    /// Offset and size of schedule, table and members.
    offset: u32,
    bytes: u32,
    /// Unused frames, kept for later runs.
    frames: Vec<u32>,
    /// True if it will not be started again.
    pub(crate) is_released: bool,
    /// Number of runs that have not been fetched.
    pub(crate) runs: usize,
}

/// State of a run that is under way, as far as it matters to the exit of its rank.
pub(crate) struct RunProgress {
    /// True if the program has not executed all sends.
    pub(crate) has_unsent: bool,
    /// True if a message from or to a rank that has not exited could advance the run.
    pub(crate) can_advance: bool,
    /// A number that changes when the run advances.
    pub(crate) position: u64,
}

/// Sizes of a schedule and of its runs in the arena.
pub(crate) struct Sizes {
    /// Size of schedule, table of receives and members.
    pub(crate) prepared: u64,
    /// Size of one run.
    pub(crate) frame: u64,
}

impl Sizes {
    /// Returns the sizes of a schedule.
    pub(crate) fn of(view: &ScheduleView<'_>) -> Self {
        let header = view.header();
        let table = named_receives(view).count().max(1).next_power_of_two() as u64 * 2;
        let operations = u64::from(header.operation_count);
        // Lengths that no memory can hold: the arena of the rank is shorter.
        let align =
            |bytes: u64| bytes.checked_next_multiple_of(u64::from(ALIGNMENT)).unwrap_or(u64::MAX);
        let lengths = view.buffers().iter().map(|buffer| buffer.length);
        let memories = lengths.chain([header.scratchpad_bytes]).map(align);
        let memories = memories.fold(0, u64::saturating_add);
        let control = size_of::<Run>() as u64
            + operations * size_of::<Progress>() as u64
            + 4 * (u64::from(header.buffer_count) + 1);
        Sizes {
            prepared: align(header.total_bytes)
                + table * size_of::<NamedReceive>() as u64
                + 4 * u64::from(header.ranks),
            frame: memories.saturating_add(align(control) + 8 * operations + 8),
        }
    }
}

/// Returns the receives without wildcards, as entries of the table.
fn named_receives(view: &ScheduleView<'_>) -> impl Iterator<Item = NamedReceive> {
    (1..).zip(view.operations()).filter(|(_, record)| record.kind() == Kind::Receive).filter_map(
        |(operation, record)| {
            Some(NamedReceive {
                source: record.peer()?,
                tag: record.tag()?,
                ordinal: record.ordinal,
                operation,
            })
        },
    )
}

/// Returns the hash table in which the program finds receives: open addressing, at least half
/// empty.
fn receive_table(view: &ScheduleView<'_>) -> Vec<NamedReceive> {
    let count = named_receives(view).count().max(1).next_power_of_two() * 2;
    let mut table = vec![NamedReceive::default(); count];
    for receive in named_receives(view) {
        let hash = receive_hash(receive.source, receive.tag, receive.ordinal) as usize;
        // At least half of the table is empty, so the search always finds an entry.
        let offset = (0..count)
            .map(|step| (hash + step) & (count - 1))
            .find(|offset| table[*offset].operation == 0);
        if let Some(offset) = offset {
            table[offset] = receive;
        }
    }
    table
}

impl PreparedSchedule {
    /// Writes a schedule to the arena; `None` without memory.
    pub(crate) fn new(
        arena: &mut Arena,
        memory: &Mapping,
        context: &CommunicatorContext,
        schedule: &Schedule,
        signature: u32,
    ) -> Option<Self> {
        let view = schedule.view();
        let header = view.header();
        let table = receive_table(&view);
        let sections = [
            schedule.as_bytes(),
            bytemuck::cast_slice(&table),
            bytemuck::cast_slice(&context.members[..]),
        ];
        let bytes: usize = sections.iter().map(|section| section.len()).sum();
        // Schedules fill the arena from its end and frames from its beginning, so long-lived
        // schedules do not fragment the memory of runs.
        let offset = arena.allocate_last(bytes as u32, LIMIT_BYTES as u32)?;
        // No padding: the length of a schedule is a multiple of 4, and the two other sections
        // consist of 32-bit words.
        let mut offsets = [0; 3];
        let mut next = offset;
        for (section, at) in sections.iter().zip(&mut offsets) {
            memory.write(ARENA + next as usize, section);
            *at = next;
            next += section.len() as u32;
        }
        // Order and record sizes of a schedule's sections, as `goal::schedule` documents them. The
        // program gets these offsets and checks only that they lie in the arena.
        let operations = offsets[0] + 64;
        let buffers = operations + 64 * header.operation_count;
        let blocks = buffers + 16 * header.buffer_count;
        let run = Run {
            communicator: context.number,
            signature,
            member: context.rank,
            members: offsets[2],
            member_count: context.members.len() as u32,
            operation_count: header.operation_count,
            operations,
            blocks,
            edges: blocks + 24 * header.block_count,
            buffer_count: header.buffer_count,
            receives: offsets[1],
            receive_mask: table.len() as u32 - 1,
            remaining: header.operation_count,
            ready_first: u32::from(header.independent_count > 0),
            ready_last: header.independent_count,
            ..bytemuck::Zeroable::zeroed()
        };
        let mut prepared = PreparedSchedule {
            schedule: schedule.clone(),
            context: context.clone(),
            run,
            progress: Vec::new(),
            memories: Vec::new(),
            frame_bytes: 0,
            written: view
                .written()
                .into_iter()
                .map(|(buffer, bytes)| (buffer, bytes.start as usize..bytes.end as usize))
                .collect(),
            offset,
            bytes: bytes as u32,
            frames: Vec::new(),
            is_released: false,
            runs: 0,
        };
        prepared.lay_out_frame();
        Some(prepared)
    }

    /// Lays out a frame: run, progress, offsets of the buffers, times, buffers, scratchpad.
    fn lay_out_frame(&mut self) {
        let view = self.schedule.view();
        let header = view.header();
        self.progress = (1..)
            .zip(view.operations())
            .map(|(number, record)| Progress {
                counter: record.dependencies,
                // The independent operations are the first ones: they form the ready list.
                next: if number < header.independent_count { number + 1 } else { 0 },
                ..bytemuck::Zeroable::zeroed()
            })
            .collect();
        self.run.progress = size_of::<Run>() as u32;
        self.run.memories = self.run.progress + size_of_val(&self.progress[..]) as u32;
        self.run.times = (self.run.memories + 4 * (header.buffer_count + 1)).next_multiple_of(8);
        let mut next = self.run.times + 8 * header.operation_count;
        let lengths =
            view.buffers().iter().map(|buffer| buffer.length).chain([header.scratchpad_bytes]);
        self.memories = lengths
            .map(|length| {
                let offset = next.next_multiple_of(ALIGNMENT);
                next = offset + length as u32;
                offset
            })
            .collect();
        self.frame_bytes = next;
    }

    /// Returns a frame with a run, complete but for its inputs; `None` without memory.
    pub(crate) fn frame(
        &mut self,
        arena: &mut Arena,
        memory: &Mapping,
        sequence: u64,
        timed: bool,
    ) -> Option<u32> {
        let frame = self.frames.pop().or_else(|| arena.allocate(self.frame_bytes))?;
        // The frame is not submitted yet, so the program does not refer to it: plain writes
        // suffice, and the release in `Rank::submit` publishes them. All control data of an earlier
        // run in this frame is overwritten; the caller writes the inputs.
        let mut run = self.run;
        run.sequence = sequence;
        // The image has offsets within a frame. 0 means none to the program, so absent times stay
        // 0.
        run.progress += frame;
        run.memories += frame;
        run.times = if timed { run.times + frame } else { 0 };
        let at = ARENA + frame as usize;
        memory.write(at, bytemuck::bytes_of(&run));
        memory.write(at + self.run.progress as usize, bytemuck::cast_slice(&self.progress));
        for (index, offset) in self.memories.iter().enumerate() {
            memory.write(
                at + self.run.memories as usize + 4 * index,
                &(offset + frame).to_le_bytes(),
            );
        }
        if timed {
            memory.clear(at + self.run.times as usize, 8 * self.progress.len());
        }
        let scratchpad = self.schedule.view().header().scratchpad_bytes as usize;
        memory.clear(at + self.memory(self.memories.len() - 1), scratchpad);
        Some(frame)
    }

    /// Returns the offset of a buffer in a frame.
    pub(crate) fn memory(&self, buffer: usize) -> usize {
        self.memories[buffer] as usize
    }

    /// Returns the outputs of a run: buffers and ranges of their bytes.
    pub(crate) fn written(&self) -> &[(usize, Range<usize>)] {
        &self.written
    }

    /// Returns the offset of the operations' times in a frame.
    pub(crate) fn times(&self) -> usize {
        self.run.times as usize
    }

    /// Returns the offset of the operations' states in a frame.
    pub(crate) fn progress(&self) -> usize {
        self.run.progress as usize
    }

    /// Returns the progress of the run in this frame, which is under way, after these ranks of the
    /// job have exited.
    pub(crate) fn progress_of(
        &self,
        memory: &Mapping,
        frame: u32,
        is_gone: impl Fn(u32) -> bool,
    ) -> RunProgress {
        let CommunicatorContext { members, rank: own, .. } = &self.context;
        // The rank itself counts as exited: its receives from itself depend on its own sends.
        let is_gone = |member: u32| {
            member == *own || members.get(member as usize).is_some_and(|rank| is_gone(*rank))
        };
        let mut state = RunProgress { has_unsent: false, can_advance: false, position: 0 };
        let view = self.schedule.view();
        for (index, record) in view.operations().iter().enumerate() {
            let at = ARENA + frame as usize + self.progress() + size_of::<Progress>() * index;
            let word = |offset: usize| memory.word(at + offset).load(Ordering::Acquire);
            // Acquire: the program stores the phase after the exchange in `wire_post`, a full
            // barrier. So a send that is complete here has put its packets into the window.
            let phase = word(std::mem::offset_of!(Progress, phase));
            let moved = word(std::mem::offset_of!(Progress, moved));
            state.position += u64::from(phase) + u64::from(moved);
            state.has_unsent |= record.kind() == Kind::Send && phase != PHASE_COMPLETE;
            // An operation that has not started depends on one that has, or the program starts it
            // in the next activation.
            let is_message = matches!(record.kind(), Kind::Send | Kind::Receive);
            if phase == PHASE_RUNNING && is_message {
                let is_hopeless = match record.peer() {
                    Some(peer) => is_gone(peer),
                    None => (0..members.len() as u32).all(is_gone),
                };
                state.can_advance |= !is_hopeless;
            }
        }
        state
    }

    /// Keeps the frame of an ended run for a later one. The program refers to it no more: `finish`
    /// removes the run from its bucket before it publishes the end.
    pub(crate) fn keep_frame(&mut self, frame: u32) {
        self.frames.push(frame);
    }

    /// Frees the unused frames.
    pub(crate) fn release_frames(&mut self, arena: &mut Arena) {
        for frame in self.frames.drain(..) {
            arena.free(frame, self.frame_bytes);
        }
    }

    /// Frees the frame of an ended run.
    pub(crate) fn release_frame(&self, arena: &mut Arena, frame: u32) {
        arena.free(frame, self.frame_bytes);
    }

    /// Frees everything.
    pub(crate) fn release(mut self, arena: &mut Arena) {
        // No run refers to this memory: `drop_unused` has counted them.
        self.release_frames(arena);
        arena.free(self.offset, self.bytes);
    }
}
