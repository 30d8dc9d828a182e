//! A linked program: all ranks' schedules, their links, and the frames in the segment that their
//! runs use.
//!
//! | part of the block | records | bytes each |
//! |---|---|---|
//! | released count | 1 | 64 |
//! | run states | ranks | 8 × slots, in whole lines |
//! | slots | | |
//! | · join counts | joins, a slot | 64 |
//! | · frames | ranks, a slot | see [`FrameLayout`] |

use crate::error::Error;
use crate::linked::linker::{Delivery, FrameLayout, Linked, LinkedRank};
use crate::linked::matcher::WildcardMatcher;
use crate::protocol::run_state::RunStates;
use crate::trace::ProgramTrace;
use crate::window::SharedStates;
use goal::schedule::{BlockRecord, OperationRecord, SCRATCHPAD};
use shm::completion::Completion;
use shm::mapped::{Mapped, MappedSlice};
use shm::memory::SegmentMemory;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

shm::shared_lines! {
    /// How many ranks have let go of shared memory. Release by each, Acquire by who frees it.
    pub(crate) struct ReleaseLine {
        pub(crate) released: AtomicU32,
    }

    /// Counts the ranks that have come to a join, over all laps.
    struct JoinLine {
        arrived: AtomicU32,
    }

    /// An operation's arrivals over all laps, and room for a small message.
    pub(crate) struct NodeLine {
        /// AcqRel by every arrival: the one that completes the count sees what all others wrote.
        pub(crate) arrivals: AtomicU32,
    }

    /// A rank's completion word.
    struct DoneLine {
        done: Completion,
        /// `uses << 32 | vertex` of the rank's first operation in that use of the slot that divided
        /// an integer by zero. Release by `fail`, Acquire by `failure`.
        fault: AtomicU64,
    }

    /// Work that only the rank itself may do.
    pub(crate) struct ReadyLine {
        /// ContributionLocation given out.
        pub(crate) tail: AtomicU32,
        /// ContributionLocation done; the owner's.
        pub(crate) head: AtomicU32,
    }
}

/// One rank's frame in one slot.
#[derive(Debug)]
pub(crate) struct Frame {
    at: u64,
    done: Mapped<DoneLine>,
    pub(crate) ready_line: Mapped<ReadyLine>,
    bindings: MappedSlice<AtomicU64>,
    pub(crate) nodes: MappedSlice<NodeLine>,
    pub(crate) ready: MappedSlice<AtomicU64>,
    pub(crate) matcher: Option<WildcardMatcher>,
}

/// Everything runs of a program use, as one rank sees it.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) memory: SegmentMemory,
    pub(crate) linked: Linked,
    /// This rank.
    pub(crate) rank: u32,
    frames: Vec<Frame>,
    joins: Vec<Mapped<JoinLine>>,
    pub(crate) states: Vec<SharedStates>,
    pub(crate) skip_calc: bool,
    pub(crate) trace: Option<ProgramTrace>,
}

/// Sizes of the program's block in the segment.
struct BlockLayout {
    slot: u64,
    first_slot: u64,
    joins: u64,
}

impl BlockLayout {
    fn new(linked: &Linked) -> Self {
        let joins = 64 * linked.joins.len() as u64;
        let frames: u64 = linked.ranks.iter().map(|rank| rank.frame.bytes).sum();
        BlockLayout {
            slot: joins + frames,
            first_slot: 64 + states_bytes(linked) * linked.ranks.len() as u64,
            joins,
        }
    }
}

/// Bytes of a rank's run states: lines of its own.
fn states_bytes(linked: &Linked) -> u64 {
    (8 * linked.slots).next_multiple_of(64)
}

/// Bytes of the block that the program's runs need.
pub(crate) fn block_bytes(linked: &Linked) -> u64 {
    let layout = BlockLayout::new(linked);
    layout.first_slot + layout.slot.saturating_mul(linked.slots)
}

/// What a program is told by its communicator.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) rank: u32,
    pub(crate) skip_calc: bool,
    pub(crate) trace: Option<ProgramTrace>,
}

impl Program {
    /// A program whose zeroed block lies at `at`.
    pub(crate) fn new(
        memory: SegmentMemory,
        at: Offset,
        linked: Linked,
        setting: Setting,
    ) -> Result<Self, Error> {
        let layout = BlockLayout::new(&linked);
        let segment = memory.segment();
        let states = (0..linked.ranks.len() as u64)
            .map(|rank| {
                let at = Offset(at.0 + 64 + rank * states_bytes(&linked));
                Ok(RunStates::new(MappedSlice::new(segment, at, linked.slots as usize)?))
            })
            .collect::<Result<_, Error>>()?;
        let (mut frames, mut joins) = (Vec::new(), Vec::new());
        for slot in 0..linked.slots {
            let start = at.0 + layout.first_slot + slot * layout.slot;
            for join in 0..linked.joins.len() as u64 {
                joins.push(Mapped::new(segment, Offset(start + 64 * join))?);
            }
            let mut frame_at = start + layout.joins;
            for rank in &linked.ranks {
                frames.push(frame(segment, frame_at, rank)?);
                frame_at += rank.frame.bytes;
            }
        }
        Ok(Program {
            states,
            rank: setting.rank,
            skip_calc: setting.skip_calc,
            trace: setting.trace,
            linked,
            memory,
            frames,
            joins,
        })
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.linked.ranks.len() as u32
    }

    #[inline]
    pub(crate) fn slot(&self, run: u64) -> u32 {
        (run & (self.linked.slots - 1)) as u32
    }

    /// How often the run's slot was used, this run included: counts that are never reset are
    /// multiples of it.
    #[inline]
    pub(crate) fn uses(&self, run: u64) -> u32 {
        (run >> self.linked.slots.ilog2()) as u32 + 1
    }

    #[inline]
    pub(crate) fn frame(&self, slot: u32, rank: u32) -> &Frame {
        &self.frames[(slot * self.ranks() + rank) as usize]
    }

    #[inline]
    pub(crate) fn linked(&self, rank: u32) -> &LinkedRank {
        &self.linked.ranks[rank as usize]
    }

    /// The completion word of a rank's run and the count at which it is complete.
    #[inline]
    pub(crate) fn completion(&self, run: u64, rank: u32) -> (&Completion, u32) {
        let sinks = self.linked(rank).sinks;
        (&self.frame(self.slot(run), rank).done.done, sinks.wrapping_mul(self.uses(run)))
    }

    /// Says where a long user buffer lies for this run.
    pub(crate) fn bind(&self, slot: u32, buffer: usize, at: Offset) {
        // Read by executors after an arrival that follows this in the owner's order (Release there,
        // Acquire at them).
        self.frame(slot, self.rank).bindings[buffer].store(at.0, Ordering::Relaxed);
    }

    /// Where this rank's user buffer is staged in the frame, if it is.
    pub(crate) fn staged(&self, slot: u32, buffer: usize) -> Option<Offset> {
        let at = self.linked(self.rank).staging[buffer]?;
        Some(Offset(self.frame(slot, self.rank).at + at))
    }

    /// Where a long user buffer of this rank is bound.
    pub(crate) fn bound(&self, slot: u32, buffer: usize) -> Offset {
        Offset(self.frame(slot, self.rank).bindings[buffer].load(Ordering::Relaxed))
    }

    /// The place of a block of a rank's schedule.
    #[inline]
    pub(crate) fn place(&self, slot: u32, rank: u32, block: &BlockRecord) -> Offset {
        let (frame, linked) = (self.frame(slot, rank), self.linked(rank));
        if block.memory == SCRATCHPAD {
            return Offset(frame.at + linked.frame.scratchpad + block.offset);
        }
        let base = match linked.staging[block.memory as usize] {
            Some(at) => frame.at + at,
            None => frame.bindings[block.memory as usize].load(Ordering::Relaxed),
        };
        Offset(base.wrapping_add(block.offset))
    }

    /// Where a message of the eager kind waits for its receive.
    #[inline]
    pub(crate) fn mailbox(&self, slot: u32, rank: u32, operation: u32) -> Option<Offset> {
        match self.linked(rank).links[operation as usize].delivery {
            Delivery::Eager(at) => Some(Offset(self.frame(slot, rank).at + at)),
            _ => None,
        }
    }

    /// A place in a rank's frame.
    pub(crate) fn frame_place(&self, slot: u32, rank: u32, at: u64) -> Offset {
        Offset(self.frame(slot, rank).at + at)
    }

    /// The count of ranks at a join, over all laps.
    pub(crate) fn join(&self, slot: u32, join: u32) -> &AtomicU32 {
        &self.joins[slot as usize * self.linked.joins.len() + join as usize].arrived
    }

    /// Notes that a rank's operation divided an integer by zero.
    pub(crate) fn fail(&self, run: u64, rank: u32, record: &OperationRecord) {
        let fault = &self.frame(self.slot(run), rank).done.fault;
        let mine = u64::from(self.uses(run)) << 32;
        let before = fault.load(Ordering::Relaxed);
        if before & !0xffff_ffff != mine {
            // AcqRel: the Release half pairs with the Acquire in `failure`. Who loses the race was
            // not first.
            let _ = fault.compare_exchange(
                before,
                mine | u64::from(record.vertex),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }

    /// What failed in a complete run: of this rank's operations first, then of any other's.
    pub(crate) fn failure(&self, run: u64) -> Result<(), Error> {
        let others = (0..self.ranks()).filter(|rank| *rank != self.rank);
        for rank in std::iter::once(self.rank).chain(others) {
            // Acquire: pairs with the Release in `fail`.
            let fault = self.frame(self.slot(run), rank).done.fault.load(Ordering::Acquire);
            if fault >> 32 == u64::from(self.uses(run)) {
                return Err(Error::DivisionByZero { rank, vertex: fault as u32 });
            }
        }
        Ok(())
    }
}

fn frame(segment: &Arc<Segment>, at: u64, rank: &LinkedRank) -> Result<Frame, Error> {
    let layout: &FrameLayout = &rank.frame;
    let part = |offset: u64| Offset(at + offset);
    let has_matcher = !rank.wildcards.is_empty() || !rank.wildcard_sends.is_empty();
    Ok(Frame {
        at,
        done: Mapped::new(segment, part(0))?,
        ready_line: Mapped::new(segment, part(64))?,
        bindings: MappedSlice::new(
            segment,
            part(layout.bindings),
            rank.schedule.view().buffers().len(),
        )?,
        nodes: MappedSlice::new(segment, part(layout.nodes), layout.node_count as usize)?,
        ready: MappedSlice::new(segment, part(layout.ready), layout.ready_count as usize)?,
        matcher: has_matcher
            .then(|| WildcardMatcher::new(segment, part(layout.matcher), rank))
            .transpose()?,
    })
}
