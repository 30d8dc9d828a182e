//! Executor of flat collectives: the n-th flat collective of a communicator uses slot n mod K.
//!
//! A slot has a cell for each rank: the arrival word (see [`arrivals`](crate::flat::arrivals)) and,
//! behind it, the rank's small contribution. Arriving means writing the rank's own cell; a barrier
//! or a small allreduce moves each rank's line to the other ranks and nothing back. Digests in the
//! arrival words detect ranks that are in different collectives.

use crate::argument::{Argument, Binding};
use crate::error::{Error, Outcome};
use crate::flat::chunks::{ChunkedReduction, ContributionLocation, WorkLine};
use crate::flat::pattern::{ContributionPlacement, FlatCollective};
use crate::flat::result_binding::ResultBinding;
use crate::flat::role::{ReducedBy, ResultRule, Role};
use crate::flat::variable_blocks::{Edge, VariableBlocks, block};
use crate::staging::{Staging, class_of};
use crate::state::{
    CELL_SETS, CONTRIBUTION_BYTES, CommunicatorState, FLAT_SLOTS, RankCell, SharedStates,
    SleepersLine,
};
use crate::wait::CountReached;
use crate::window::blocking::BlockingExecutor;
use crate::window::{Executor, RunNumber};
use shm::mapped::{Mapped, MappedSlice};
use shm::memory::SegmentMemory;
use shm::segment::Offset;
use std::ops::Range;
use std::sync::Arc;

/// Distance of consecutive slots in memory. Processors prefetch lines at equal distances and would
/// take the next slot's lines from the rank about to write them, so consecutive slots are not
/// neighbours. Odd, so every slot has its own position.
const SCATTER: u64 = 27;

/// The shared words of one slot.
#[derive(Debug)]
pub(super) struct FlatSlot {
    at: Offset,
    pub(super) rank_cells: MappedSlice<RankCell>,
    pub(super) work: Mapped<WorkLine>,
}

/// A rank's view of its communicator's slots.
#[derive(Debug)]
pub(crate) struct FlatExecutor {
    pub(crate) memory: SegmentMemory,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    cells: u64,
    pub(crate) cell_bytes: u64,
    pub(crate) sleepers: Mapped<SleepersLine>,
    slots: Vec<FlatSlot>,
    states: Vec<SharedStates>,
    pub(super) state: Arc<CommunicatorState>,
}

impl FlatExecutor {
    pub(crate) fn new(
        memory: SegmentMemory,
        state: Arc<CommunicatorState>,
        rank: u32,
        ranks: u32,
    ) -> Outcome<Self> {
        let layout = *state.layout();
        let segment = memory.segment();
        let slots = (0..FLAT_SLOTS)
            .map(|index| {
                let at = state.place(layout.slot_at(index * SCATTER % FLAT_SLOTS));
                Ok(FlatSlot {
                    at,
                    rank_cells: MappedSlice::new(segment, at, ranks as usize)?,
                    work: Mapped::new(segment, Offset(at.0 + layout.slot.work))?,
                })
            })
            .collect::<Outcome<_>>()?;
        let states =
            (0..ranks).map(|rank| state.states(segment, rank)).collect::<Result<_, Error>>()?;
        let sleepers = Mapped::new(segment, state.sleepers_at())?;
        let cells = state.place(layout.cell_at(0, 0)).0;
        let cell_bytes = layout.cell_bytes();
        Ok(FlatExecutor { memory, rank, ranks, cells, cell_bytes, sleepers, slots, states, state })
    }

    #[inline]
    pub(super) fn slot(&self, run: u64) -> &FlatSlot {
        &self.slots[(run % FLAT_SLOTS) as usize]
    }

    #[inline]
    pub(super) fn lap(run: u64) -> u32 {
        (run / FLAT_SLOTS) as u32
    }

    /// Returns the location of the small contribution of `rank`, or of the offsets of its large
    /// one.
    #[inline]
    pub(crate) fn cell(&self, run: u64, placement: ContributionPlacement, rank: u32) -> Offset {
        match placement {
            ContributionPlacement::Inline | ContributionPlacement::Variable => {
                let rank_cell = size_of::<RankCell>() as u64;
                Offset(
                    self.slot(run).at.0
                        + u64::from(rank) * rank_cell
                        + (rank_cell - CONTRIBUTION_BYTES),
                )
            }
            ContributionPlacement::Cell | ContributionPlacement::Arena => {
                let number = run % CELL_SETS * u64::from(self.ranks) + u64::from(rank);
                Offset(self.cells + number * self.cell_bytes)
            }
        }
    }

    #[inline(always)]
    pub(crate) fn placement(&self, collective: &FlatCollective) -> ContributionPlacement {
        collective.placement(CONTRIBUTION_BYTES, self.cell_bytes)
    }

    /// Returns whether contributions are too long for the slots' cells, or long enough for a stream
    /// between two ranks to be quicker. Between neighbours this is known if all blocks have one
    /// length.
    #[inline]
    pub(crate) fn is_long(&self, collective: &FlatCollective) -> bool {
        /// A stream has the lines of its next piece in the sender's cache, and the cell of the next
        /// run may belong to any collective. With shorter contributions both took as long.
        const STREAMED_BETWEEN_TWO: u64 = 512;
        // The first rank of a scan only contributes: it writes its cell and leaves.
        let longest = if self.ranks == 2 && !collective.is_scan() {
            STREAMED_BETWEEN_TWO
        } else {
            self.cell_bytes
        };
        match &collective.blocks {
            None => collective.bytes > longest,
            Some(blocks) => blocks.sources.is_some() && collective.call.bytes > self.cell_bytes,
        }
    }

    /// Returns the arena memory that a collective takes, if any, in bytes.
    #[inline]
    pub(crate) fn large_bytes(&self, collective: &FlatCollective) -> Option<u64> {
        self.is_large(collective).then(|| {
            collective
                .blocks
                .as_ref()
                .map_or(collective.bytes, |blocks| self.table_and_blocks_bytes(blocks))
        })
    }

    /// Returns this rank's part in a collective.
    #[inline(always)]
    pub(crate) fn role(&self, collective: &FlatCollective) -> Role {
        collective.role(self.rank, self.ranks)
    }

    /// Returns the executor of the collective's reduction.
    #[inline(always)]
    pub(crate) fn reduced_by(&self, collective: &FlatCollective) -> ReducedBy {
        self.role(collective).reduced_by
    }

    /// Writes a small contribution to its cell.
    #[inline(always)]
    fn put(&self, cell: Offset, argument: &Argument<'_>) -> Outcome {
        match argument.binding {
            Binding::Private => self.memory.write(cell, argument.data)?,
            Binding::Segment(at) => self.memory.copy(at, cell, argument.length)?,
        }
        Ok(())
    }

    /// Publishes the locations of the bytes of a large collective and stages private ones.
    #[cold]
    fn publish_locations(
        &self,
        staging: &mut Staging,
        run: u64,
        consumed_by_all: u64,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> Outcome {
        let mut stage = |bytes: u64| staging.take(bytes, run, consumed_by_all);
        let [input, output] = arguments else { return Ok(()) };
        let role = self.role(collective);
        let contribution = match input.binding {
            _ if !role.contributes => Offset(0),
            // Read in place; the caller's memory does not change before (see `InputReaders`).
            Binding::Segment(at) => at,
            Binding::Private => {
                let at = stage(collective.bytes)?;
                self.stage(at, collective, input)?;
                at
            }
        };
        let (result, fetches) = match (role.reduced_by, output.binding, input.binding) {
            (ReducedBy::Reader, ..) => (contribution, true),
            (ReducedBy::Chunks, Binding::Segment(at), _) => (at, false),
            // The caller's input is not written.
            (ReducedBy::Chunks, Binding::Private, Binding::Segment(_)) => {
                (stage(collective.bytes)?, true)
            }
            (ReducedBy::Chunks, Binding::Private, Binding::Private) => (contribution, true),
        };
        // Plain writes: the arrival publishes the cell, and readers wait for the arrival.
        let cell = self.cell(run, ContributionPlacement::Arena, self.rank);
        Ok(ContributionLocation { contribution, result, fetches }.write(&self.memory, cell)?)
    }

    /// Copies a contribution to its staging memory, except the part that no rank reads.
    fn stage(&self, at: Offset, collective: &FlatCollective, input: &Argument<'_>) -> Outcome {
        let own = collective
            .own_part(self.rank, &self.role(collective))
            .unwrap_or(collective.bytes..collective.bytes);
        self.put_piece(at, input, 0..own.start)?;
        self.put_piece(at, input, own.end..collective.bytes)
    }

    /// Executes unclaimed chunks. Returns whether there were any.
    pub(crate) fn help(&self, run: u64, collective: &FlatCollective) -> Outcome<bool> {
        let slot = self.slot(run);
        let lap = Self::lap(run).wrapping_add(1);
        // Chunks read all contributions, so they begin after the last arrival. A rank that dies
        // before it arrives leaves the work undone; the waiters' liveness check reports the death.
        if slot.work.done.reached(lap) || !self.have_all_arrived(run, collective) {
            return Ok(false);
        }
        let arithmetic = collective.arithmetic.filter(|_| !self.signatures_differ(run, collective));
        let Some(arithmetic) = arithmetic else {
            // The ranks are in different collectives, so their contributions do not match. Each
            // rank detects this when it fetches. All ranks that find the mismatch here set the same
            // count. The slot is not used again before this rank has consumed the run, so a late
            // store cannot hide a later lap.
            slot.work.done.set(lap);
            return Ok(true);
        };
        let placement = self.placement(collective);
        let locations = match placement {
            ContributionPlacement::Arena => self.all_locations(run)?,
            _ => (0..self.ranks)
                .map(|rank| ContributionLocation::staged(self.cell(run, placement, rank)))
                .collect(),
        };
        // Every helping rank computes the same list of chunks from the same locations, so a chunk's
        // number means the same bytes on all ranks.
        let reduction = ChunkedReduction { arithmetic, locations, bytes: collective.bytes };
        Ok(reduction.claim(&self.memory, &slot.work, Self::lap(run))?)
    }

    /// Returns the wait condition of a collective with chunked work.
    pub(crate) fn work_of(&self, run: u64) -> CountReached<'_> {
        CountReached(&self.slot(run).work.done, Self::lap(run).wrapping_add(1))
    }

    pub(crate) fn all_locations(&self, run: u64) -> Outcome<Vec<ContributionLocation>> {
        (0..self.ranks)
            .map(|rank| {
                Ok(ContributionLocation::read(
                    &self.memory,
                    self.cell(run, ContributionPlacement::Arena, rank),
                )?)
            })
            .collect()
    }

    pub(crate) fn claimed_failure(&self, run: u64, collective: &FlatCollective) -> Outcome {
        if self.reduced_by(collective) == ReducedBy::Chunks
            && self.slot(run).work.failed(Self::lap(run))
        {
            return Err(Error::DivisionByZero { vertex: None }.into());
        }
        Ok(())
    }
}

impl Executor for FlatExecutor {
    type Parameters = FlatCollective;
    type Bindings = ResultBinding;
    type Scratch = Staging;

    #[inline]
    fn bindings(arguments: &[Argument<'_>]) -> ResultBinding {
        ResultBinding::of(arguments)
    }

    #[inline(always)]
    fn is_large(&self, collective: &FlatCollective) -> bool {
        match &collective.blocks {
            None => self.placement(collective) == ContributionPlacement::Arena,
            Some(blocks) => self.table_and_blocks_bytes(blocks) > self.cell_bytes,
        }
    }

    #[inline]
    fn states(&self) -> &[SharedStates] {
        &self.states
    }

    #[inline(always)]
    fn window(&self, collective: &FlatCollective) -> u64 {
        // Longer contributions, and the locations of the longest, lie in one of `CELL_SETS` cells of
        // a rank: a run begins after every rank has consumed the run before it in the same cell.
        if self.placement(collective) == ContributionPlacement::Inline {
            FLAT_SLOTS
        } else {
            CELL_SETS
        }
    }

    #[inline]
    fn rank(&self) -> u32 {
        self.rank
    }

    #[inline(always)]
    fn is_complete(&self, run: u64, collective: &FlatCollective) -> bool {
        match self.reduced_by(collective) {
            ReducedBy::Reader => self.have_all_arrived(run, collective),
            ReducedBy::Chunks => self.slot(run).work.done.reached(Self::lap(run).wrapping_add(1)),
        }
    }

    #[inline]
    fn memory_needed(&self, collective: &FlatCollective, arguments: &[Argument<'_>]) -> u64 {
        let (Some(bytes), [input, output]) = (self.large_bytes(collective), arguments) else {
            return 0;
        };
        let role = self.role(collective);
        match (input.binding, &collective.blocks) {
            (Binding::Private, _) if role.contributes => class_of(bytes),
            (Binding::Segment(_), Some(blocks)) => class_of(blocks.table_bytes()),
            // The result of a reduction, which does not replace the caller's input.
            (Binding::Segment(_), None)
                if role.reduced_by == ReducedBy::Chunks && output.binding == Binding::Private =>
            {
                class_of(bytes)
            }
            _ => 0,
        }
    }

    fn release(&self, staging: &mut Staging, run: u64) {
        staging.release(run);
    }

    fn free_idle(&self, staging: &mut Staging, active: Range<u64>) {
        staging.free_idle(active.start);
    }

    fn free_settled(&self, staging: &mut Staging, consumed_by_all: u64) -> bool {
        staging.free_idle(consumed_by_all);
        staging.is_empty()
    }

    #[inline]
    fn prepare(
        &self,
        staging: &mut Staging,
        run: u64,
        consumed_by_all: u64,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> Outcome {
        if !self.is_large(collective) {
            return self.place(run, collective, arguments);
        }
        match (&collective.blocks, arguments) {
            (None, _) => {
                self.publish_locations(staging, run, consumed_by_all, collective, arguments)
            }
            (Some(blocks), [input, ..]) => {
                let bytes = match input.binding {
                    Binding::Private => self.table_and_blocks_bytes(blocks),
                    Binding::Segment(_) => blocks.table_bytes(),
                };
                let staged = staging.take(bytes, run, consumed_by_all)?;
                self.publish_blocks(run, (collective, blocks), input, Some(staged))
            }
            (Some(_), []) => Ok(()),
        }
    }

    #[inline(always)]
    fn launch(&self, run: u64, collective: &FlatCollective) -> Outcome {
        self.arrive(run, collective)
    }

    #[inline(always)]
    fn collect(
        &self,
        RunNumber { run, sequence }: RunNumber,
        collective: &FlatCollective,
        bindings: &ResultBinding,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        // Before any copy: contributions of another collective have other lengths and places.
        self.check_signatures(run, sequence, collective)?;
        let [_, output] = outputs else { return Ok(()) };
        let role = self.role(collective);
        if role.result == ResultRule::Nothing {
            return Ok(());
        }
        let expected = collective.result_bytes(&role);
        match bindings.output() {
            Binding::Private if output.is_empty() => self.claimed_failure(run, collective),
            Binding::Private if output.len() as u64 != expected => {
                Err(Error::BufferLength { buffer: 1, expected, found: output.len() as u64 }.into())
            }
            Binding::Private => self.fetch(run, collective, output),
            // The chunks are written to their place.
            Binding::Segment(_)
                if role.reduced_by == ReducedBy::Chunks
                    && self.placement(collective) == ContributionPlacement::Arena =>
            {
                self.claimed_failure(run, collective)
            }
            Binding::Segment(at) => {
                self.memory.fill(at, expected, |bytes| self.fetch(run, collective, bytes))?
            }
        }
    }

    fn output_lengths(&self, collective: &FlatCollective, bindings: &ResultBinding) -> Vec<usize> {
        match bindings.output() {
            _ if !collective.has_buffers() => Vec::new(),
            Binding::Private => vec![0, collective.result_bytes(&self.role(collective)) as usize],
            Binding::Segment(_) => vec![0, 0],
        }
    }

    fn put_back(
        &self,
        collective: &FlatCollective,
        _buffer: usize,
        kept: &[u8],
        output: &mut [u8],
    ) {
        // The input is not written.
        let role = self.role(collective);
        if role.result == ResultRule::Nothing || kept.is_empty() || kept.len() != output.len() {
            return;
        }
        if let Some(VariableBlocks { sources: Some(sources), received, .. }) =
            collective.blocks.as_deref()
        {
            // Bytes that no neighbour writes keep their values.
            let is_written = |source: &Option<Edge>| {
                source.is_some_and(|edge| !collective.leaves_own || edge.rank != self.rank)
            };
            for (number, _) in sources.iter().enumerate().filter(|(_, one)| is_written(one)) {
                let piece = block(received, number);
                let piece = piece.start as usize..piece.end as usize;
                output[piece.clone()].copy_from_slice(&kept[piece]);
            }
            return;
        }
        let end = kept.len() as u64;
        let own = collective.own_block(self.rank, &role).unwrap_or(end..end);
        for piece in [0..own.start as usize, own.end as usize..kept.len()] {
            output[piece.clone()].copy_from_slice(&kept[piece]);
        }
    }
}

impl BlockingExecutor for FlatExecutor {
    #[inline(always)]
    fn place(&self, run: u64, collective: &FlatCollective, arguments: &[Argument<'_>]) -> Outcome {
        let Some(input) = arguments.first().filter(|_| self.role(collective).contributes) else {
            return Ok(());
        };
        match &collective.blocks {
            None => self.put(self.cell(run, self.placement(collective), self.rank), input),
            Some(blocks) => self.publish_blocks(run, (collective, blocks), input, None),
        }
    }
}
