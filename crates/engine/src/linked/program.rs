//! A linked program in the segment: the frames, run states and join counts that its runs use, as
//! one rank sees them.

use crate::error::Error;
use crate::linked::frame::{FrameLayout, ProgramLayout};
use crate::linked::matcher::{MatchedPair, WildcardMatcher};
use crate::protocol::run_state::RunStates;
use crate::state::SharedStates;
use crate::trace::ProgramTrace;
use goal::link::{Linked, LinkedRank};
use goal::schedule::{BlockRecord, OperationRecord, SCRATCHPAD};
use shm::completion::Completion;
use shm::mapped::{Mapped, MappedSlice};
use shm::memory::SegmentMemory;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use std::ops::Range;
use std::sync::Arc;

shm::shared_lines! {
    /// Counts the ranks that have arrived at a join, over all uses of the slot.
    struct JoinLine {
        arrived: AtomicU32,
    }

    /// A counter of arrivals over all uses of the slot, with space for a short message.
    pub(crate) struct CounterLine {
        /// AcqRel by every arrival: the arrival that completes the count acquires what all others
        /// wrote.
        pub(crate) arrivals: AtomicU32,
    }

    /// A rank's completion word.
    struct DoneLine {
        done: Completion,
        /// `uses << 32 | vertex` of the rank's first operation in that use of the slot that divided
        /// an integer by zero. Release by `record_fault`, Acquire by `failure`.
        fault: AtomicU64,
        /// `uses << 32 | pair` of the rank's first wildcard receive in that use of the slot that took
        /// a message of another length, see `fail_pair`. Release by `record_fault`, Acquire by
        /// `failure`.
        unequal_pair: AtomicU64,
    }

    /// The ends of the queue of tasks that only the rank itself may execute.
    pub(crate) struct OwnerQueueLine {
        /// Number of appended tasks.
        pub(crate) tail: AtomicU32,
        /// Number of tasks taken. Accessed by the owner only.
        pub(crate) head: AtomicU32,
    }
}

/// One rank's frame in one slot.
#[derive(Debug)]
pub(crate) struct RankFrame {
    at: u64,
    done: Mapped<DoneLine>,
    pub(crate) owner_queue_line: Mapped<OwnerQueueLine>,
    bindings: MappedSlice<AtomicU64>,
    pub(crate) counters: MappedSlice<CounterLine>,
    pub(crate) owner_queue: MappedSlice<AtomicU64>,
    pub(crate) matcher: Option<WildcardMatcher>,
}

/// A linked program and its memory, as one rank sees them.
#[derive(Debug)]
pub(crate) struct LinkedProgram {
    pub(crate) memory: SegmentMemory,
    pub(crate) linked: Linked,
    layout: ProgramLayout,
    /// This rank.
    pub(crate) rank: u32,
    /// The byte ranges of each user buffer of this rank that its operations write: the result of a
    /// run.
    pub(crate) written: Vec<Vec<Range<u64>>>,
    frames: Vec<RankFrame>,
    joins: Vec<Mapped<JoinLine>>,
    pub(crate) states: Vec<SharedStates>,
    pub(crate) skip_calc: bool,
    pub(crate) trace: Option<ProgramTrace>,
}

/// Properties of a program other than its schedules.
#[derive(Debug)]
pub(crate) struct ProgramOptions {
    /// This rank.
    pub(crate) rank: u32,
    pub(crate) skip_calc: bool,
    pub(crate) trace: Option<ProgramTrace>,
}

impl LinkedProgram {
    /// Returns a program with a zeroed block at `at`.
    pub(crate) fn new(
        memory: SegmentMemory,
        at: Offset,
        linked: Linked,
        layout: ProgramLayout,
        options: ProgramOptions,
    ) -> Result<Self, Error> {
        let segment = memory.segment();
        let states = (0..linked.ranks.len() as u64)
            .map(|rank| {
                let at = Offset(at.0 + layout.states_at(rank));
                Ok(RunStates::new(MappedSlice::new(segment, at, layout.slots as usize)?))
            })
            .collect::<Result<_, Error>>()?;
        let mut frames = Vec::new();
        let mut joins = Vec::new();
        for slot in 0..layout.slots {
            for join in 0..linked.joins.len() as u64 {
                let join_at = at.0 + layout.slot_at(slot) + 64 * join;
                joins.push(Mapped::new(segment, Offset(join_at))?);
            }
            let mut frame_at = at.0 + layout.frames_at(slot);
            for (rank, frame_layout) in linked.ranks.iter().zip(&layout.frames) {
                frames.push(frame(segment, frame_at, rank, frame_layout)?);
                frame_at += frame_layout.bytes;
            }
        }
        let view = linked.ranks[options.rank as usize].schedule.view();
        let mut written = vec![Vec::new(); view.buffers().len()];
        for (buffer, range) in view.written() {
            written[buffer].push(range);
        }
        Ok(LinkedProgram {
            states,
            rank: options.rank,
            written,
            skip_calc: options.skip_calc,
            trace: options.trace,
            linked,
            layout,
            memory,
            frames,
            joins,
        })
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.linked.ranks.len() as u32
    }

    /// Returns the number of slots: a power of two.
    #[inline]
    pub(crate) fn slots(&self) -> u64 {
        self.layout.slots
    }

    #[inline]
    pub(crate) fn slot(&self, run: u64) -> u32 {
        (run & (self.layout.slots - 1)) as u32
    }

    /// Returns the number of uses of the run's slot, this run included. Counts that are never reset
    /// are multiples of it.
    #[inline]
    pub(crate) fn uses(&self, run: u64) -> u32 {
        ((run >> self.layout.slots.ilog2()) as u32).wrapping_add(1)
    }

    #[inline]
    pub(crate) fn frame(&self, slot: u32, rank: u32) -> &RankFrame {
        &self.frames[(slot * self.ranks() + rank) as usize]
    }

    #[inline]
    pub(crate) fn linked(&self, rank: u32) -> &LinkedRank {
        &self.linked.ranks[rank as usize]
    }

    #[inline]
    fn layout(&self, rank: u32) -> &FrameLayout {
        &self.layout.frames[rank as usize]
    }

    /// Returns the completion word of a rank's run and the count at which it is complete.
    #[inline]
    pub(crate) fn completion(&self, run: u64, rank: u32) -> (&Completion, u32) {
        // The product wraps as the count in the word does, which is compared by the sign of the
        // difference.
        let sinks = self.linked(rank).sinks;
        (&self.frame(self.slot(run), rank).done.done, sinks.wrapping_mul(self.uses(run)))
    }

    /// Publishes the location of a long user buffer for a run.
    pub(crate) fn bind(&self, slot: u32, buffer: usize, at: Offset) {
        // Relaxed: executors read the word after an arrival that follows this store in the owner's
        // order (Release there, Acquire by the executor).
        self.frame(slot, self.rank).bindings[buffer].store(at.0, Ordering::Relaxed);
    }

    /// Returns the location of this rank's user buffer in the frame, if it is staged there.
    pub(crate) fn staged(&self, slot: u32, buffer: usize) -> Option<Offset> {
        let at = self.layout(self.rank).staging[buffer]?;
        Some(Offset(self.frame(slot, self.rank).at + at))
    }

    /// Returns the location to which a long user buffer of this rank is bound.
    pub(crate) fn bound(&self, slot: u32, buffer: usize) -> Offset {
        // Relaxed: this rank wrote the word in `bind`.
        Offset(self.frame(slot, self.rank).bindings[buffer].load(Ordering::Relaxed))
    }

    /// Returns the location of a block of a rank's schedule.
    #[inline]
    pub(crate) fn place(&self, slot: u32, rank: u32, block: &BlockRecord) -> Offset {
        let frame = self.frame(slot, rank);
        let layout = self.layout(rank);
        if block.memory == SCRATCHPAD {
            return Offset(frame.at + layout.scratchpad + block.offset);
        }
        let base = match layout.staging[block.memory as usize] {
            Some(at) => frame.at + at,
            // Relaxed: see `bind`.
            None => frame.bindings[block.memory as usize].load(Ordering::Relaxed),
        };
        // A corrupt binding leads out of the segment; the access is then refused.
        Offset(base.wrapping_add(block.offset))
    }

    /// Returns the memory in which an eager message of `bytes` bytes waits for its receive.
    #[inline]
    pub(crate) fn mailbox(&self, slot: u32, rank: u32, receive: u32, bytes: u64) -> Offset {
        Offset(self.frame(slot, rank).at + self.layout(rank).mailbox(receive, bytes))
    }

    /// Returns the memory in which the message of a wildcard send to `rank` waits for its receive;
    /// `None` if the message stays at the sender.
    pub(crate) fn wildcard_mailbox(&self, slot: u32, rank: u32, send: u32) -> Option<Offset> {
        let at = self.layout(rank).wildcard_mailboxes[send as usize]?;
        Some(Offset(self.frame(slot, rank).at + at))
    }

    /// Returns the count of ranks that have arrived at a join, over all uses of the slot.
    pub(crate) fn join(&self, slot: u32, join: u32) -> &AtomicU32 {
        &self.joins[slot as usize * self.linked.joins.len() + join as usize].arrived
    }

    /// Records that a rank's operation divided an integer by zero.
    pub(crate) fn fail(&self, run: u64, rank: u32, record: &OperationRecord) {
        self.record_fault(run, &self.frame(self.slot(run), rank).done.fault, record.vertex);
    }

    /// Records that a wildcard receive of a rank took a message of another length.
    pub(crate) fn fail_pair(&self, run: u64, rank: u32, pair: MatchedPair) {
        // With more than 2³² possible pairs, the number wraps, and the error names another pair.
        let receives = self.linked(rank).wildcards.len() as u32;
        let code = pair.send.wrapping_mul(receives).wrapping_add(pair.receive);
        self.record_fault(run, &self.frame(self.slot(run), rank).done.unequal_pair, code);
    }

    /// Keeps the first fault of a run.
    #[cold]
    fn record_fault(&self, run: u64, fault: &AtomicU64, code: u32) {
        let use_of_slot = self.fault_of(run);
        // Relaxed: the exchange below decides, and reads the word again.
        let before = fault.load(Ordering::Relaxed);
        if before & !0xffff_ffff != use_of_slot {
            // AcqRel: the Release half pairs with the Acquire in `failure`. A failed exchange means
            // that another operation of this use failed first.
            let _ = fault.compare_exchange(
                before,
                use_of_slot | u64::from(code),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }

    /// Returns the upper half of a fault of this run: the number of the use of its slot, which skips
    /// 0 where it wraps, because a word that has never been written is 0.
    fn fault_of(&self, run: u64) -> u64 {
        ((run >> self.layout.slots.ilog2()) % u64::from(u32::MAX) + 1) << 32
    }

    /// Returns the error of a complete run: of this rank's operations first, then of other ranks'.
    pub(crate) fn failure(&self, run: u64) -> Result<(), Error> {
        let others = (0..self.ranks()).filter(|rank| *rank != self.rank);
        for rank in std::iter::once(self.rank).chain(others) {
            let done = &self.frame(self.slot(run), rank).done;
            // Acquire: pairs with the Release in `record_fault`.
            let code = |fault: &AtomicU64| {
                let fault = fault.load(Ordering::Acquire);
                (fault & !0xffff_ffff == self.fault_of(run)).then_some(fault as u32)
            };
            if let Some(pair) = code(&done.unequal_pair) {
                return Err(self.unequal_pair(rank, pair));
            }
            if let Some(vertex) = code(&done.fault) {
                return Err(Error::DivisionByZero { vertex: Some((rank, vertex)) });
            }
        }
        Ok(())
    }

    /// Returns the error of a wildcard receive of a rank that took a message of another length.
    #[cold]
    fn unequal_pair(&self, rank: u32, code: u32) -> Error {
        let LinkedRank { wildcards, wildcard_sends, schedule, .. } = self.linked(rank);
        let receives = wildcards.len() as u32;
        let send = wildcard_sends.get((code / receives) as usize);
        let receive = wildcards[(code % receives) as usize];
        let receive = &schedule.view().operations()[receive as usize];
        Error::Argument {
            what: "the length of a message that a wildcard receive takes",
            found: send.map_or_else(String::new, |send| {
                format!("{} bytes, sent by rank {} with tag {}", send.bytes, send.rank, send.tag)
            }),
            expected: format!(
                "{} bytes, as vertex {} of rank {rank} says",
                receive.bytes, receive.vertex
            ),
        }
    }
}

fn frame(
    segment: &Arc<Segment>,
    at: u64,
    rank: &LinkedRank,
    layout: &FrameLayout,
) -> Result<RankFrame, Error> {
    let part = |offset: u64| Offset(at + offset);
    let buffers = rank.schedule.view().buffers().len();
    let owner_queue_entries = layout.owner_queue_entries as usize;
    let has_matcher = !rank.wildcards.is_empty() || !rank.wildcard_sends.is_empty();
    Ok(RankFrame {
        at,
        done: Mapped::new(segment, part(0))?,
        owner_queue_line: Mapped::new(segment, part(64))?,
        bindings: MappedSlice::new(segment, part(layout.bindings), buffers)?,
        counters: MappedSlice::new(segment, part(layout.counters), rank.counters as usize)?,
        owner_queue: MappedSlice::new(segment, part(layout.owner_queue), owner_queue_entries)?,
        matcher: has_matcher
            .then(|| WildcardMatcher::new(segment, part(layout.matcher), rank))
            .transpose()?,
    })
}
