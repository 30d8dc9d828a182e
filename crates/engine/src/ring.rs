//! The meeting ring: a communicator's n-th meeting takes place at slot n mod K, without any linking.
//!
//! A slot has one line a rank: the word that says that the rank has come (see [`attendance`]) and its small contribution.
//! To arrive is to write one's own line; a barrier or a small allreduce moves each rank's line to the others and nothing
//! back. Stamps in the words tell ranks that met by mistake, in different collectives.

use crate::attendance;
use crate::board::{Board, CELL_BYTES, CELL_SETS, RING_SLOTS, SEAT_BYTES, SeatLine, SleepersLine};
use crate::call::{Call, CallKind};
use crate::error::Error;
use crate::lane::{Argument, Binding, Numbered, Plan, SharedStates};
use crate::meeting::{Meeting, Travel, Work};
use crate::staging::Staging;
use crate::wait::{Awaited, Counted};
use crate::work::{self, Places, WorkLine};
use goal::arithmetic::{self, ArithmeticError};
use goal::schedule::JoinKind;
use shm::futex;
use shm::handle::{Mapped, MappedSlice};
use shm::memory::Memory;
use shm::segment::Offset;
use shm::sync::{Ordering, fence};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// A rank that reduces by itself goes over all contributions in pieces that stay in its first cache.
const FOLD_BYTES: usize = 8 << 10;

/// One slot's shared words.
#[derive(Debug)]
struct Slot {
    at: Offset,
    seats: MappedSlice<SeatLine>,
    work: Mapped<WorkLine>,
}

/// A rank's view of its communicator's slots.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: Memory,
    rank: u32,
    ranks: u32,
    cells: u64,
    sleepers: Mapped<SleepersLine>,
    slots: Vec<Slot>,
    states: Vec<SharedStates>,
    board: Arc<Board>,
}

impl Ring {
    pub(crate) fn new(memory: Memory, board: Arc<Board>, rank: u32, ranks: u32) -> Result<Self, Error> {
        let layout = *board.layout();
        let segment = memory.segment();
        let slots = (0..RING_SLOTS)
            .map(|index| {
                let at = board.place(layout.slot_at(index));
                Ok(Slot {
                    at,
                    seats: MappedSlice::new(segment, at, ranks as usize)?,
                    work: Mapped::new(segment, Offset(at.0 + layout.slot.work))?,
                })
            })
            .collect::<Result<_, Error>>()?;
        let states = (0..ranks).map(|rank| board.states(segment, rank)).collect::<Result<_, Error>>()?;
        let sleepers = Mapped::new(segment, board.sleepers_at())?;
        Ok(Ring { memory, rank, ranks, cells: board.place(layout.cell_at(0, 0)).0, sleepers, slots, states, board })
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
    fn cell(&self, run: u64, travel: Travel, rank: u32) -> Offset {
        match travel {
            Travel::Inline => Offset(self.slot(run).at.0 + u64::from(rank) * 64 + (64 - SEAT_BYTES)),
            Travel::Cell | Travel::Arena => {
                let number = run % CELL_SETS * u64::from(self.ranks) + u64::from(rank);
                Offset(self.cells + number * CELL_BYTES)
            }
        }
    }

    /// The word that sleepers of this communicator mark.
    pub(crate) fn sleepers(&self) -> &shm::sync::AtomicU32 {
        &self.sleepers.word
    }

    #[inline]
    pub(crate) fn travel(&self, meeting: &Meeting) -> Travel {
        meeting.travel(SEAT_BYTES, CELL_BYTES)
    }

    /// Who computes results.
    #[inline]
    pub(crate) fn work(&self, meeting: &Meeting) -> Work {
        meeting.work(self.ranks, self.travel(meeting))
    }

    /// Puts a small contribution on the table.
    fn put(&self, cell: Offset, argument: &Argument<'_>) -> Result<(), Error> {
        match argument.binding {
            Binding::Private => self.memory.write(cell, argument.data)?,
            Binding::Segment(at) => self.memory.copy(at, cell, argument.length)?,
        }
        Ok(())
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
    ) -> Result<(), Error> {
        let mut stage = |bytes: u64| staging.take(bytes, run, everyone);
        let [input, output] = arguments else { return Ok(()) };
        let contributes = meeting.contributes(self.rank);
        let reduces = meeting.kind == JoinKind::Reduce;
        let (contribution, spare) = match input.binding {
            _ if !contributes => (Offset(0), Offset(0)),
            Binding::Private => {
                let at = stage(meeting.bytes)?;
                self.memory.write(at, input.data)?;
                (at, Offset(0))
            }
            // A reduction reads contributions before it is complete; in all else somebody may fetch them afterwards.
            Binding::Segment(at) if reduces => (at, Offset(0)),
            Binding::Segment(at) => (at, stage(meeting.bytes)?),
        };
        let (result, fetches) = match (output.binding, input.binding) {
            (Binding::Segment(at), _) => (at, false),
            (Binding::Private, Binding::Segment(_)) if reduces => (stage(meeting.bytes)?, true),
            (Binding::Private, _) => (contribution, true),
        };
        let cell = self.cell(run, Travel::Arena, self.rank);
        Places { contribution, result, spare, fetches }.write(&self.memory, cell)
    }

    /// Arrives at the meeting; the last to come does what work there is.
    #[inline]
    fn arrive(&self, run: u64, meeting: &Meeting) -> Result<(), Error> {
        let slot = self.slot(run);
        let travel = self.travel(meeting);
        if self.rank == 0 && self.work(meeting) == Work::Owner {
            slot.work.pass(Self::lap(run));
        }
        if !meeting.is_awaited(self.rank, travel) {
            if Self::lap(run).is_multiple_of(work::REFRESH_LAPS) {
                // Words are told apart by the sign of their difference: one that is never written would once seem new.
                let word = attendance::word(run, meeting.call.stamp());
                attendance::arrive(&slot.seats[self.rank as usize].came, word);
            }
            return Ok(());
        }
        attendance::arrive(&slot.seats[self.rank as usize].came, attendance::word(run, meeting.call.stamp()));
        if travel == Travel::Arena && self.rank == meeting.root && self.is_staged_broadcast(run, meeting)? {
            // There is nothing to wait for. Those who find it complete find the stamp, too.
            slot.work.done.set(Self::lap(run).wrapping_add(1));
        }
        if self.work(meeting) == Work::Claimed {
            // Of two ranks that arrive last at once, at least one sees the other and begins the work.
            fence(Ordering::SeqCst);
            self.help(run, meeting)?;
        }
        if attendance::must_wake(&self.sleepers.word, || self.all_are_here(run, meeting)) {
            futex::wake_all(&self.sleepers.word);
        }
        Ok(())
    }

    /// Whether all whom this meeting waits for have come.
    #[inline]
    fn all_are_here(&self, run: u64, meeting: &Meeting) -> bool {
        let seats = &*self.slot(run).seats;
        match meeting.kind {
            JoinKind::Broadcast if self.travel(meeting) != Travel::Arena => {
                attendance::has_come(&seats[meeting.root as usize].came, run)
            }
            _ => {
                // This rank asks because it has come itself; its own word is looked at last.
                let (before, after) = seats.split_at(self.rank as usize + 1);
                after.iter().chain(before).all(|seat| attendance::has_come(&seat.came, run))
            }
        }
    }

    /// Does what chunks nobody has claimed; true when it did any.
    pub(crate) fn help(&self, run: u64, meeting: &Meeting) -> Result<bool, Error> {
        let slot = self.slot(run);
        let lap = Self::lap(run).wrapping_add(1);
        if slot.work.done.reached(lap) || !self.all_are_here(run, meeting) {
            return Ok(false);
        }
        if self.stamps_differ(run, meeting) {
            // Ranks met by mistake: what they put on the table does not fit together. Each finds out when it fetches.
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
            Some(work) if !staged => work.claim(&self.memory, &slot.work, Self::lap(run)),
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

    fn all_places(&self, run: u64) -> Result<Vec<Places>, Error> {
        (0..self.ranks).map(|rank| Places::read(&self.memory, self.cell(run, Travel::Arena, rank))).collect()
    }

    /// Whether ranks that have come are in another collective than this one.
    fn stamps_differ(&self, run: u64, meeting: &Meeting) -> bool {
        let mine = attendance::word(run, meeting.call.stamp());
        let slot = self.slot(run);
        // Ordered by the look that found all of them here (Acquire).
        let differs = |rank: u32| slot.seats[rank as usize].came.load(Ordering::Relaxed) != mine;
        match meeting.kind {
            JoinKind::Broadcast => differs(meeting.root),
            _ => (0..self.ranks).any(differs),
        }
    }

    /// Compares what the ranks called. Only for a run that is complete.
    fn check_stamps(&self, run: u64, sequence: u64, meeting: &Meeting) -> Result<(), Error> {
        if !self.stamps_differ(run, meeting) {
            return Ok(());
        }
        let slot = self.slot(run);
        self.board.find_mismatch(sequence, meeting.call)?;
        // The journals have gone on meanwhile; the stamps still tell the kinds.
        let kind = |rank: u32| Call::kind_of(attendance::stamp(slot.seats[rank as usize].came.load(Ordering::Relaxed)));
        let calls = (0..self.ranks).map(|rank| match kind(rank) {
            CallKind::None => Call::new(CallKind::None, 0, 0),
            kind => Call::new(kind, 0, u64::from(rank == self.rank)),
        });
        Err(Error::Mismatch { sequence, calls: calls.collect() })
    }

    /// Whether whoever did the work has put results where they are wanted in the segment.
    fn is_in_place(&self, run: u64, meeting: &Meeting) -> Result<bool, Error> {
        if self.travel(meeting) != Travel::Arena {
            return Ok(false);
        }
        Ok(!self.is_staged_broadcast(run, meeting)?)
    }

    /// Whether this is a broadcast that its root has staged: it is complete at once, and nobody puts it anywhere but the one
    /// who fetches it. Only for large meetings to which the root has come.
    fn is_staged_broadcast(&self, run: u64, meeting: &Meeting) -> Result<bool, Error> {
        if meeting.kind != JoinKind::Broadcast {
            return Ok(false);
        }
        let cell = self.cell(run, Travel::Arena, meeting.root);
        Ok(Places::read(&self.memory, cell)?.spare.0 == 0)
    }

    fn claimed_failure(&self, run: u64, meeting: &Meeting) -> Result<(), Error> {
        if self.work(meeting) == Work::Claimed && self.slot(run).work.failed(Self::lap(run)) {
            return Err(Error::DivisionByZero { rank: self.rank, vertex: 0 });
        }
        Ok(())
    }

    fn fetch(&self, run: u64, meeting: &Meeting, result: &mut [u8]) -> Result<(), Error> {
        let travel = self.travel(meeting);
        // Where a rank's contribution lies.
        let contribution = |rank: u32| -> Result<Offset, Error> {
            let cell = self.cell(run, travel, rank);
            match travel {
                Travel::Arena => Ok(Places::read(&self.memory, cell)?.kept()),
                _ => Ok(cell),
            }
        };
        match meeting.kind {
            JoinKind::Barrier => Ok(()),
            JoinKind::Broadcast => Ok(self.memory.read(contribution(meeting.root)?, result)?),
            JoinKind::Gather | JoinKind::Exchange => {
                let (part, skip) = match meeting.kind {
                    JoinKind::Gather => (meeting.bytes, 0),
                    _ => {
                        let part = meeting.bytes / u64::from(self.ranks);
                        (part, part * u64::from(self.rank))
                    }
                };
                if part == 0 {
                    return Ok(());
                }
                for (rank, piece) in (0..self.ranks).zip(result.chunks_exact_mut(part as usize)) {
                    self.memory.read(Offset(contribution(rank)?.0 + skip), piece)?;
                }
                Ok(())
            }
            JoinKind::Reduce if self.work(meeting) == Work::Claimed => {
                self.claimed_failure(run, meeting)?;
                let place = match travel {
                    Travel::Arena => {
                        let all = self.all_places(run)?;
                        if Places::owners_reduce(&all) {
                            return self.reduce_here(meeting, contribution, result);
                        }
                        Places::first_result(&all)
                    }
                    _ => self.cell(run, travel, 0),
                };
                Ok(self.memory.read(place, result)?)
            }
            JoinKind::Reduce => self.reduce_here(meeting, contribution, result),
        }
    }

    /// Folds all contributions from the left, in rank order, into this rank's own memory.
    fn reduce_here(
        &self,
        meeting: &Meeting,
        contribution: impl Fn(u32) -> Result<Offset, Error>,
        result: &mut [u8],
    ) -> Result<(), Error> {
        let Some((operation, data_type)) = meeting.arithmetic else { return Ok(()) };
        let mut places = SmallVec::<[Offset; 8]>::with_capacity(self.ranks as usize);
        for rank in 0..self.ranks {
            places.push(contribution(rank)?);
        }
        let mut outcome = Ok(());
        for (index, piece) in result.chunks_mut(FOLD_BYTES).enumerate() {
            let (from, length) = ((index * FOLD_BYTES) as u64, piece.len() as u64);
            let at = |place: &Offset| Offset(place.0 + from);
            let rest = match places.as_slice() {
                [first, second, rest @ ..] => {
                    let applied = self.memory.inspect(at(first), length, |left| {
                        self.memory.inspect(at(second), length, |right| {
                            arithmetic::apply(operation, data_type, left, right, piece)
                        })
                    })??;
                    outcome = outcome.and(applied);
                    rest
                }
                [only] => {
                    self.memory.read(at(only), piece)?;
                    &[]
                }
                [] => &[],
            };
            for place in rest {
                let applied = self.memory.inspect(at(place), length, |right| {
                    arithmetic::apply_in_place_left(operation, data_type, piece, right)
                })?;
                outcome = outcome.and(applied);
            }
        }
        match outcome {
            Ok(()) => Ok(()),
            Err(ArithmeticError::DivisionByZero { .. }) => Err(Error::DivisionByZero { rank: self.rank, vertex: 0 }),
            Err(other) => Err(Error::Argument {
                what: "the contribution",
                found: other.to_string(),
                expected: "whole elements that the operation applies to".into(),
            }),
        }
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
        self.travel(meeting) == Travel::Arena
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
    ) -> Result<(), Error> {
        let travel = self.travel(meeting);
        if travel == Travel::Arena {
            self.put_places(staging, run, everyone, meeting, arguments)?;
        } else if let Some(input) = arguments.first().filter(|_| meeting.contributes(self.rank)) {
            self.put(self.cell(run, travel, self.rank), input)?;
        }
        Ok(())
    }

    #[inline]
    fn launch(&self, run: u64, meeting: &Meeting) -> Result<(), Error> {
        self.arrive(run, meeting)
    }

    #[inline]
    fn collect(
        &self,
        Numbered { run, sequence }: Numbered,
        meeting: &Meeting,
        bindings: &ResultBinding,
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        self.check_stamps(run, sequence, meeting)?;
        let [_, output] = outputs else { return Ok(()) };
        if meeting.kind == JoinKind::Broadcast && self.rank == meeting.root {
            return Ok(());
        }
        let expected = meeting.result_bytes(self.ranks);
        match bindings.output() {
            Binding::Private if output.is_empty() => self.claimed_failure(run, meeting),
            Binding::Private if output.len() as u64 != expected => {
                Err(Error::BufferLength { buffer: 1, expected, found: output.len() as u64 })
            }
            Binding::Private => self.fetch(run, meeting, output),
            Binding::Segment(_) if self.is_in_place(run, meeting)? => self.claimed_failure(run, meeting),
            Binding::Segment(at) => self.memory.fill(at, expected, |bytes| self.fetch(run, meeting, bytes))?,
        }
    }

    fn output_lengths(&self, meeting: &Meeting, bindings: &ResultBinding) -> Vec<usize> {
        match bindings.output() {
            _ if meeting.kind == JoinKind::Barrier => Vec::new(),
            Binding::Private => vec![0, meeting.result_bytes(self.ranks) as usize],
            Binding::Segment(_) => vec![0, 0],
        }
    }
}

/// Where a meeting's result goes, in one word: requests are moved about, and this keeps them small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultBinding(u64);

impl ResultBinding {
    const PRIVATE: u64 = u64::MAX;

    #[inline]
    fn of(arguments: &[Argument<'_>]) -> Self {
        match arguments {
            [_, Argument { binding: Binding::Segment(at), .. }] => ResultBinding(at.0),
            _ => ResultBinding(ResultBinding::PRIVATE),
        }
    }

    #[inline]
    fn output(self) -> Binding {
        if self.0 == ResultBinding::PRIVATE { Binding::Private } else { Binding::Segment(Offset(self.0)) }
    }
}

/// The ranks that a small meeting waits for.
#[derive(Debug)]
pub(crate) struct Attendance<'a> {
    pub(crate) ring: &'a Ring,
    pub(crate) run: u64,
    pub(crate) meeting: &'a Meeting,
}

impl Awaited for Attendance<'_> {
    type Mark = u32;

    #[inline]
    fn is_there(&self) -> bool {
        self.ring.all_are_here(self.run, self.meeting)
    }

    fn prepare_sleep(&self) -> Option<u32> {
        attendance::mark(&self.ring.sleepers.word, || self.is_there())
    }

    fn sleep(&self, mark: u32, limit: Duration) {
        futex::wait(&self.ring.sleepers.word, mark, Some(limit));
    }
}
