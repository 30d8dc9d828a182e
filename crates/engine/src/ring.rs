//! The meeting ring: a communicator's n-th meeting takes place at slot n mod K, without any
//! linking.
//!
//! A slot has a seat a rank: the word that says that the rank has come (see [`attendance`]) and,
//! behind it, its small contribution. To arrive is to write one's own seat; a barrier or a small
//! allreduce moves each rank's line to the others and nothing back. Stamps in the words tell ranks
//! that met by mistake, in different collectives.

mod binding;
mod roll;

pub(crate) use binding::ResultBinding;
pub(crate) use roll::Attendance;

use crate::attendance;
use crate::board::{Board, CELL_SETS, RING_SLOTS, SEAT_BYTES, Seat, SleepersLine};
use crate::call::{Call, CallKind};
use crate::error::{Error, Outcome};
use crate::lane::{Argument, Binding, Numbered, Plan, SharedStates};
use crate::meeting::{Awaits, Blocks, Meeting, Pattern, Travel, Work, block};
use crate::staging::Staging;
use crate::wait::Counted;
use crate::work::{self, Places, WorkLine};
use shm::futex;
use shm::mapped::{Mapped, MappedSlice};
use shm::memory::{Purpose, SegmentMemory};
use shm::prefetch::prefetch;
use shm::segment::Offset;
use shm::sync::{Ordering, fence};
use std::sync::Arc;

/// Neighbouring slots do not follow each other in memory: processors that see lines fetched at
/// equal distances fetch the next ones beforehand, and would take those from the rank that is about
/// to write there. Odd, so that every slot has its place.
const SCATTER: u64 = 27;

/// A line takes as long from core to core as two small meetings from call to call, where nobody
/// waits.
const AHEAD: u64 = 2;

/// One slot's shared words.
#[derive(Debug)]
struct Slot {
    at: Offset,
    seats: MappedSlice<Seat>,
    work: Mapped<WorkLine>,
}

/// A rank's view of its communicator's slots.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) memory: SegmentMemory,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    cells: u64,
    pub(crate) cell_bytes: u64,
    sleepers: Mapped<SleepersLine>,
    slots: Vec<Slot>,
    states: Vec<SharedStates>,
    board: Arc<Board>,
}

impl Ring {
    pub(crate) fn new(
        memory: SegmentMemory,
        board: Arc<Board>,
        rank: u32,
        ranks: u32,
    ) -> Outcome<Self> {
        let layout = *board.layout();
        let segment = memory.segment();
        let slots = (0..RING_SLOTS)
            .map(|index| {
                let at = board.place(layout.slot_at(index * SCATTER % RING_SLOTS));
                Ok(Slot {
                    at,
                    seats: MappedSlice::new(segment, at, ranks as usize)?,
                    work: Mapped::new(segment, Offset(at.0 + layout.slot.work))?,
                })
            })
            .collect::<Outcome<_>>()?;
        let states =
            (0..ranks).map(|rank| board.states(segment, rank)).collect::<Result<_, Error>>()?;
        let sleepers = Mapped::new(segment, board.sleepers_at())?;
        let (cells, cell_bytes) = (board.place(layout.cell_at(0, 0)).0, layout.cell_bytes());
        Ok(Ring { memory, rank, ranks, cells, cell_bytes, sleepers, slots, states, board })
    }

    #[inline]
    fn slot(&self, run: u64) -> &Slot {
        &self.slots[(run % RING_SLOTS) as usize]
    }

    #[inline]
    fn lap(run: u64) -> u32 {
        (run / RING_SLOTS) as u32
    }

    /// Where the small contribution of `rank` lies, or the pointers to its large one.
    #[inline]
    pub(crate) fn cell(&self, run: u64, travel: Travel, rank: u32) -> Offset {
        match travel {
            Travel::Inline | Travel::Parcel => {
                let seat = size_of::<Seat>() as u64;
                Offset(self.slot(run).at.0 + u64::from(rank) * seat + (seat - SEAT_BYTES))
            }
            Travel::Cell | Travel::Arena => {
                let number = run % CELL_SETS * u64::from(self.ranks) + u64::from(rank);
                Offset(self.cells + number * self.cell_bytes)
            }
        }
    }

    /// The word that sleepers of this communicator mark.
    pub(crate) fn sleepers(&self) -> &shm::sync::AtomicU32 {
        &self.sleepers.word
    }

    #[inline]
    pub(crate) fn travel(&self, meeting: &Meeting) -> Travel {
        meeting.travel(SEAT_BYTES, self.cell_bytes)
    }

    /// Bytes of memory of its own that a meeting takes, if it takes any.
    #[inline]
    pub(crate) fn large_bytes(&self, meeting: &Meeting) -> Option<u64> {
        self.is_large(meeting).then(|| {
            meeting.blocks.as_ref().map_or(meeting.bytes, |blocks| self.parcel_bytes(blocks))
        })
    }

    /// Who computes results.
    #[inline]
    pub(crate) fn work(&self, meeting: &Meeting) -> Work {
        meeting.work(self.ranks, self.travel(meeting))
    }

    /// Puts a small contribution on the table.
    #[inline]
    fn put(&self, cell: Offset, argument: &Argument<'_>) -> Outcome {
        match argument.binding {
            Binding::Private => self.memory.write(cell, argument.data)?,
            Binding::Segment(at) => self.memory.copy(at, cell, argument.length)?,
        }
        Ok(())
    }

    /// Puts this rank's contribution to a meeting that takes no memory where the others look for
    /// it.
    #[inline]
    pub(crate) fn place(&self, run: u64, meeting: &Meeting, arguments: &[Argument<'_>]) -> Outcome {
        let Some(input) = arguments.first().filter(|_| meeting.contributes(self.rank)) else {
            return Ok(());
        };
        match &meeting.blocks {
            None => self.put(self.cell(run, self.travel(meeting), self.rank), input),
            Some(blocks) => self.put_parcel(run, (meeting, blocks), input, None),
        }
    }

    /// Says where the bytes of a large meeting lie, staging private ones.
    #[cold]
    fn put_places(
        &self,
        staging: &mut Staging,
        run: u64,
        everyone: u64,
        meeting: &Meeting,
        arguments: &[Argument<'_>],
    ) -> Outcome {
        let mut stage = |bytes: u64| staging.take(bytes, run, everyone);
        let [input, output] = arguments else { return Ok(()) };
        let contributes = meeting.contributes(self.rank);
        let reduces = meeting.pattern == Pattern::Reduce;
        let owners = self.work(meeting) == Work::Owner;
        let (contribution, spare) = match input.binding {
            _ if !contributes => (Offset(0), Offset(0)),
            // Those who fetch may do so when the caller has its buffer back.
            _ if owners || input.binding == Binding::Private => {
                let at = stage(meeting.bytes)?;
                self.stage(at, meeting, input)?;
                (at, Offset(0))
            }
            Binding::Private => (Offset(0), Offset(0)),
            // A reduction reads contributions before it is complete; in all else somebody may fetch
            // them afterwards.
            Binding::Segment(at) if reduces => (at, Offset(0)),
            Binding::Segment(at) => (at, stage(meeting.bytes)?),
        };
        let (result, fetches) = match (output.binding, input.binding) {
            _ if owners => (contribution, true),
            (Binding::Segment(at), _) => (at, false),
            (Binding::Private, Binding::Segment(_)) if reduces => (stage(meeting.bytes)?, true),
            (Binding::Private, _) => (contribution, true),
        };
        let cell = self.cell(run, Travel::Arena, self.rank);
        Ok(Places { contribution, result, spare, fetches }.write(&self.memory, cell)?)
    }

    /// Copies a contribution to where it is staged, except what nobody takes from there.
    fn stage(&self, at: Offset, meeting: &Meeting, input: &Argument<'_>) -> Outcome {
        let own = meeting.own_part(self.rank, self.ranks).unwrap_or(meeting.bytes..meeting.bytes);
        self.put_piece(at, input, 0..own.start)?;
        self.put_piece(at, input, own.end..meeting.bytes)
    }

    /// Arrives at the meeting; the last to come does what work there is.
    #[inline]
    fn arrive(&self, run: u64, meeting: &Meeting) -> Outcome {
        let slot = self.slot(run);
        let travel = self.travel(meeting);
        if self.rank == 0 && self.work(meeting) == Work::Owner {
            slot.work.pass(Self::lap(run));
        }
        if !meeting.is_awaited(self.rank, self.ranks, travel) {
            if Self::lap(run).is_multiple_of(work::REFRESH_LAPS) {
                // Words are told apart by the sign of their difference: one that is never written
                // would once seem new.
                let word = attendance::word(run, meeting.call.stamp());
                attendance::arrive(&slot.seats[self.rank as usize].came, word);
            }
            return Ok(());
        }
        attendance::arrive(
            &slot.seats[self.rank as usize].came,
            attendance::word(run, meeting.call.stamp()),
        );
        if travel == Travel::Arena
            && meeting.contributes(self.rank)
            && self.is_staged_broadcast(run, meeting)?
        {
            // There is nothing to wait for. Those who find it complete find the stamp, too.
            slot.work.done.set(Self::lap(run).wrapping_add(1));
        }
        if self.work(meeting) == Work::Claimed {
            // Of two ranks that arrive last at once, at least one sees the other and begins the
            // work.
            fence(Ordering::SeqCst);
            self.help(run, meeting)?;
        }
        let wakes_after = meeting.wakes_after(self.rank, travel);
        if attendance::must_wake(&self.sleepers.word, || self.have_come(run, wakes_after)) {
            futex::wake_all(&self.sleepers.word);
        }
        Ok(())
    }

    /// For a rank that found all here at once: where those it waits for do not wait for it, they
    /// are ahead, and what they will have said in later calls can come while this one ends.
    #[inline]
    pub(crate) fn look_ahead(&self, run: u64, meeting: &Meeting) {
        if let Awaits::First(count) = meeting.awaits(self.rank, self.travel(meeting)) {
            let others = (0..count).filter(|rank| *rank != self.rank);
            let seats = &*self.slot(run + AHEAD).seats;
            others.for_each(|rank| {
                prefetch((&raw const seats[rank as usize]).cast(), 64, Purpose::Read)
            });
        }
    }

    /// Whether all whom this meeting waits for have come.
    #[inline]
    fn all_are_here(&self, run: u64, meeting: &Meeting) -> bool {
        match (meeting.awaits(self.rank, self.travel(meeting)), &meeting.blocks) {
            (Awaits::Sources, Some(blocks)) => {
                let seats = &*self.slot(run).seats;
                let came = |rank: u32| {
                    rank == self.rank || attendance::has_come(&seats[rank as usize].came, run)
                };
                blocks.source_ranks().all(came)
            }
            (awaited, _) => self.have_come(run, awaited),
        }
    }

    #[inline]
    fn have_come(&self, run: u64, awaited: Awaits) -> bool {
        let seats = &*self.slot(run).seats;
        let came = |seat: &Seat| attendance::has_come(&seat.came, run);
        match awaited {
            Awaits::All => {
                // This rank asks because it has come itself; its own word is looked at last.
                let (before, after) = seats.split_at(self.rank as usize + 1);
                after.iter().chain(before).all(came)
            }
            Awaits::One(rank) => came(&seats[rank as usize]),
            Awaits::AllBut(rank) => {
                let (before, after) = seats.split_at(rank as usize);
                before.iter().chain(&after[1..]).all(came)
            }
            // This rank has come, and may be one that need not say so.
            Awaits::Sources => true,
            Awaits::First(count) => {
                (0..count).zip(seats.iter()).all(|(rank, seat)| rank == self.rank || came(seat))
            }
        }
    }

    /// Does what chunks nobody has claimed; true when it did any.
    pub(crate) fn help(&self, run: u64, meeting: &Meeting) -> Outcome<bool> {
        let slot = self.slot(run);
        let lap = Self::lap(run).wrapping_add(1);
        if slot.work.done.reached(lap) || !self.all_are_here(run, meeting) {
            return Ok(false);
        }
        if self.stamps_differ(run, meeting) {
            // Ranks met by mistake: what they put on the table does not fit together. Each finds
            // out when it fetches.
            slot.work.done.set(lap);
            return Ok(true);
        }
        let travel = self.travel(meeting);
        let places = match travel {
            Travel::Arena => self.all_places(run)?,
            _ => (0..self.ranks).map(|rank| Places::staged(self.cell(run, travel, rank))).collect(),
        };
        let staged = travel == Travel::Arena && self.is_staged_broadcast(run, meeting)?;
        match work::Work::of(meeting, travel == Travel::Arena, places) {
            Some(work) if !staged => Ok(work.claim(&self.memory, &slot.work, Self::lap(run))?),
            _ => {
                slot.work.done.set(lap);
                Ok(true)
            }
        }
    }

    /// What a large meeting waits for.
    pub(crate) fn work_of(&self, run: u64) -> Counted<'_> {
        Counted(&self.slot(run).work.done, Self::lap(run).wrapping_add(1))
    }

    pub(crate) fn all_places(&self, run: u64) -> Outcome<Vec<Places>> {
        (0..self.ranks)
            .map(|rank| Ok(Places::read(&self.memory, self.cell(run, Travel::Arena, rank))?))
            .collect()
    }

    /// Whether ranks that have come are in another collective than this one.
    fn stamps_differ(&self, run: u64, meeting: &Meeting) -> bool {
        let mine = attendance::word(run, meeting.call.stamp());
        let slot = self.slot(run);
        // Ordered by the look that found all of them here (Acquire).
        let differs = |rank: u32| slot.seats[rank as usize].came.load(Ordering::Relaxed) != mine;
        match meeting.awaits(self.rank, self.travel(meeting)) {
            // All have come to a large broadcast, but who finds it complete at once knows of the
            // root alone.
            Awaits::All => match meeting.pattern {
                Pattern::Broadcast { root } => differs(root),
                _ => (0..self.ranks).any(differs),
            },
            Awaits::One(rank) => differs(rank),
            Awaits::AllBut(rank) => (0..self.ranks).any(|other| other != rank && differs(other)),
            Awaits::First(count) => (0..count).any(|other| other != self.rank && differs(other)),
            Awaits::Sources => {
                meeting.blocks.iter().any(|blocks| blocks.source_ranks().any(differs))
            }
        }
    }

    /// Compares what the ranks called. Only for a run that is complete.
    fn check_stamps(&self, run: u64, sequence: u64, meeting: &Meeting) -> Outcome {
        if !self.stamps_differ(run, meeting) {
            return Ok(());
        }
        let slot = self.slot(run);
        self.board.find_mismatch(sequence, meeting.call)?;
        // The journals have gone on meanwhile; the stamps still tell the kinds.
        let kind = |rank: u32| {
            Call::kind_of(attendance::stamp(slot.seats[rank as usize].came.load(Ordering::Relaxed)))
        };
        let calls = (0..self.ranks).map(|rank| match kind(rank) {
            CallKind::None => Call::new(CallKind::None, 0, 0),
            kind => Call::new(kind, 0, u64::from(rank == self.rank)),
        });
        Err(Error::Mismatch { sequence, calls: calls.collect() }.into())
    }

    /// Whether whoever did the work has put results where they are wanted in the segment.
    fn is_in_place(&self, run: u64, meeting: &Meeting) -> Outcome<bool> {
        if self.travel(meeting) != Travel::Arena || self.work(meeting) == Work::Owner {
            return Ok(false);
        }
        Ok(!self.is_staged_broadcast(run, meeting)?)
    }

    /// Whether this is a broadcast that its root has staged: it is complete at once, and nobody
    /// puts it anywhere but the one who fetches it. Only for large meetings to which the root has
    /// come.
    fn is_staged_broadcast(&self, run: u64, meeting: &Meeting) -> Outcome<bool> {
        let Pattern::Broadcast { root } = meeting.pattern else { return Ok(false) };
        let cell = self.cell(run, Travel::Arena, root);
        Ok(Places::read(&self.memory, cell)?.spare.0 == 0)
    }

    pub(crate) fn claimed_failure(&self, run: u64, meeting: &Meeting) -> Outcome {
        if self.work(meeting) == Work::Claimed && self.slot(run).work.failed(Self::lap(run)) {
            return Err(Error::DivisionByZero { rank: self.rank, vertex: 0 }.into());
        }
        Ok(())
    }
}

impl Plan for Ring {
    type Call = Meeting;
    type Bindings = ResultBinding;
    type Scratch = Staging;

    #[inline]
    fn bindings(arguments: &[Argument<'_>]) -> ResultBinding {
        ResultBinding::of(arguments)
    }

    #[inline]
    fn is_large(&self, meeting: &Meeting) -> bool {
        match &meeting.blocks {
            None => self.travel(meeting) == Travel::Arena,
            Some(blocks) => self.parcel_bytes(blocks) > self.cell_bytes,
        }
    }

    #[inline]
    fn states(&self) -> &[SharedStates] {
        &self.states
    }

    #[inline]
    fn window(&self, meeting: &Meeting) -> u64 {
        if self.travel(meeting) == Travel::Inline { RING_SLOTS } else { CELL_SETS }
    }

    #[inline]
    fn rank(&self) -> u32 {
        self.rank
    }

    #[inline]
    fn is_complete(&self, run: u64, meeting: &Meeting) -> bool {
        match self.work(meeting) {
            Work::Owner => self.all_are_here(run, meeting),
            Work::Claimed => self.slot(run).work.done.reached(Self::lap(run).wrapping_add(1)),
        }
    }

    #[inline]
    fn prepare(
        &self,
        staging: &mut Staging,
        run: u64,
        everyone: u64,
        meeting: &Meeting,
        arguments: &[Argument<'_>],
    ) -> Outcome {
        if !self.is_large(meeting) {
            return self.place(run, meeting, arguments);
        }
        match (&meeting.blocks, arguments) {
            (None, _) => self.put_places(staging, run, everyone, meeting, arguments),
            (Some(blocks), [input, ..]) => {
                let room = staging.take(self.parcel_bytes(blocks), run, everyone)?;
                self.put_parcel(run, (meeting, blocks), input, Some(room))
            }
            (Some(_), []) => Ok(()),
        }
    }

    #[inline]
    fn launch(&self, run: u64, meeting: &Meeting) -> Outcome {
        self.arrive(run, meeting)
    }

    #[inline]
    fn collect(
        &self,
        Numbered { run, sequence }: Numbered,
        meeting: &Meeting,
        bindings: &ResultBinding,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        self.check_stamps(run, sequence, meeting)?;
        let [_, output] = outputs else { return Ok(()) };
        if !meeting.listens(self.rank) {
            return Ok(());
        }
        let expected = meeting.result_bytes(self.rank, self.ranks);
        match bindings.output() {
            Binding::Private if output.is_empty() => self.claimed_failure(run, meeting),
            Binding::Private if output.len() as u64 != expected => {
                Err(Error::BufferLength { buffer: 1, expected, found: output.len() as u64 }.into())
            }
            Binding::Private => self.fetch(run, meeting, output),
            Binding::Segment(_) if self.is_in_place(run, meeting)? => {
                self.claimed_failure(run, meeting)
            }
            Binding::Segment(at) => {
                self.memory.fill(at, expected, |bytes| self.fetch(run, meeting, bytes))?
            }
        }
    }

    fn output_lengths(&self, meeting: &Meeting, bindings: &ResultBinding) -> Vec<usize> {
        match bindings.output() {
            _ if meeting.pattern == Pattern::Barrier => Vec::new(),
            Binding::Private => vec![0, meeting.result_bytes(self.rank, self.ranks) as usize],
            Binding::Segment(_) => vec![0, 0],
        }
    }

    fn put_back(&self, meeting: &Meeting, _buffer: usize, kept: &[u8], output: &mut [u8]) {
        // The input has nothing to put back.
        if !meeting.listens(self.rank) || kept.is_empty() || kept.len() != output.len() {
            return;
        }
        if let Some(Blocks { sources: Some(sources), received, .. }) = meeting.blocks.as_deref() {
            // What no neighbour writes keeps its value.
            for (number, _) in sources.iter().enumerate().filter(|(_, source)| source.is_some()) {
                let piece = block(received, number);
                let piece = piece.start as usize..piece.end as usize;
                output[piece.clone()].copy_from_slice(&kept[piece]);
            }
            return;
        }
        let end = kept.len() as u64;
        let own = meeting.own_block(self.rank, self.ranks).unwrap_or(end..end);
        for piece in [0..own.start as usize, own.end as usize..kept.len()] {
            output[piece.clone()].copy_from_slice(&kept[piece]);
        }
    }
}
