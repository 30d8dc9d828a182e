//! The meeting ring: a communicator's n-th meeting takes place at slot n mod K, without any linking.
//!
//! A slot's first line holds the arrival count, one stamp a rank and small contributions. To arrive is to write the
//! contribution and add one to the count; the count is also the completion word, so that a barrier or a small allreduce
//! moves one cache line. The count is never reset: in lap l of the ring a run is complete at (l + 1) × ranks arrivals.
//! Stamps tell ranks that met by mistake, in different collectives.

use crate::board::{Board, CELL_BYTES, CELL_SETS, RING_SLOTS};
use crate::call::{Call, CallKind};
use crate::error::Error;
use crate::lane::{Argument, Binding, Plan, SharedStates};
use crate::meeting::{Meeting, Travel, Work};
use crate::staging::Staging;
use crate::work::{self, Places, WorkLine};
use goal::arithmetic::{self, ArithmeticError};
use goal::schedule::JoinKind;
use shm::completion::Completion;
use shm::handle::{Mapped, MappedSlice};
use shm::memory::Memory;
use shm::segment::Offset;
use shm::sync::{AtomicU32, Ordering};
use smallvec::SmallVec;
use std::sync::Arc;

/// A rank that reduces by itself goes over all contributions in pieces that stay in its first cache.
const FOLD_BYTES: usize = 8 << 10;

/// One slot's shared words.
#[derive(Debug)]
struct Slot {
    at: Offset,
    arrivals: Mapped<Completion>,
    stamps: MappedSlice<AtomicU32>,
    work: Mapped<WorkLine>,
}

/// A rank's view of its communicator's slots.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: Memory,
    rank: u32,
    ranks: u32,
    inline: u64,
    inline_bytes: u64,
    cells: u64,
    slots: Vec<Slot>,
    states: Vec<SharedStates>,
    board: Arc<Board>,
}

/// A meeting and the number of the collective on its communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeetingCall {
    pub(crate) meeting: Meeting,
    pub(crate) sequence: u64,
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
                    arrivals: Mapped::new(segment, at)?,
                    stamps: MappedSlice::new(segment, Offset(at.0 + 4), ranks as usize)?,
                    work: Mapped::new(segment, Offset(at.0 + layout.slot.work))?,
                })
            })
            .collect::<Result<_, Error>>()?;
        let states = (0..ranks).map(|rank| board.states(segment, rank)).collect::<Result<_, Error>>()?;
        Ok(Ring {
            memory,
            rank,
            ranks,
            inline: layout.slot.inline,
            inline_bytes: layout.slot.inline_bytes,
            cells: board.place(layout.cell_at(0, 0)).0,
            slots,
            states,
            board,
        })
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
    fn cell(&self, run: u64, travel: Travel, rank: u32, bytes: u64) -> Offset {
        match travel {
            Travel::Inline => Offset(self.slot(run).at.0 + self.inline + u64::from(rank) * bytes),
            Travel::Cell | Travel::Arena => {
                let number = run % CELL_SETS * u64::from(self.ranks) + u64::from(rank);
                Offset(self.cells + number * CELL_BYTES)
            }
        }
    }

    #[inline]
    pub(crate) fn travel(&self, meeting: &Meeting) -> Travel {
        meeting.travel(self.ranks, self.inline_bytes, CELL_BYTES)
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
        let cell = self.cell(run, Travel::Arena, self.rank, meeting.bytes);
        Places { contribution, result, spare, fetches }.write(&self.memory, cell)
    }

    /// Arrives at the meeting; the last to come does what work there is.
    #[inline]
    fn arrive(&self, run: u64, meeting: &Meeting) -> Result<(), Error> {
        let slot = self.slot(run);
        let travel = self.travel(meeting);
        let arrivals = meeting.arrivals(self.rank, self.ranks, travel);
        if arrivals == 0 {
            return Ok(());
        }
        let lap = Self::lap(run).wrapping_add(1);
        let stamp = &slot.stamps[self.rank as usize];
        // Ordered for readers by the arrival below (Release) and their look at the completion word (Acquire).
        stamp.store(meeting.call.stamp(Self::lap(run)), Ordering::Relaxed);
        if travel == Travel::Arena && meeting.kind == JoinKind::Broadcast && self.rank == meeting.root {
            let cell = self.cell(run, travel, self.rank, 0);
            if Places::read(&self.memory, cell)?.spare.0 == 0 {
                // Staged: there is nothing to wait for.
                slot.work.done.set(lap);
            }
        }
        let last = slot.arrivals.add_threshold(arrivals, lap.wrapping_mul(self.ranks)).crossed;
        if last && self.work(meeting) == Work::Claimed {
            self.help(run, meeting)?;
        }
        Ok(())
    }

    /// Does what chunks nobody has claimed; true when it did any.
    pub(crate) fn help(&self, run: u64, meeting: &Meeting) -> Result<bool, Error> {
        let slot = self.slot(run);
        let lap = Self::lap(run).wrapping_add(1);
        if !slot.arrivals.reached(lap.wrapping_mul(self.ranks)) || slot.work.done.reached(lap) {
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
            _ => (0..self.ranks).map(|rank| Places::staged(self.cell(run, travel, rank, meeting.bytes))).collect(),
        };
        match work::Work::of(meeting, travel == Travel::Arena, places) {
            Some(work) => work.claim(&self.memory, &slot.work, Self::lap(run)),
            None => {
                slot.work.done.set(lap);
                Ok(true)
            }
        }
    }

    fn all_places(&self, run: u64) -> Result<Vec<Places>, Error> {
        (0..self.ranks).map(|rank| Places::read(&self.memory, self.cell(run, Travel::Arena, rank, 0))).collect()
    }

    /// Whether ranks that have come are in another collective than this one.
    fn stamps_differ(&self, run: u64, meeting: &Meeting) -> bool {
        let mine = meeting.call.stamp(Self::lap(run));
        let slot = self.slot(run);
        let differs = |rank: u32| slot.stamps[rank as usize].load(Ordering::Relaxed) != mine;
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
        let kind = |rank: u32| Call::kind_of(slot.stamps[rank as usize].load(Ordering::Relaxed));
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
        // A broadcast that its root has staged is complete at once, before anyone could put it anywhere.
        let staged = || -> Result<bool, Error> {
            let cell = self.cell(run, Travel::Arena, meeting.root, 0);
            Ok(Places::read(&self.memory, cell)?.spare.0 == 0)
        };
        Ok(meeting.kind != JoinKind::Broadcast || !staged()?)
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
            let cell = self.cell(run, travel, rank, meeting.bytes);
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
                    _ => self.cell(run, travel, 0, meeting.bytes),
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
        let places = (0..self.ranks).map(contribution).collect::<Result<SmallVec<[Offset; 8]>, Error>>()?;
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
    type Call = MeetingCall;
    type Scratch = Staging;

    #[inline]
    fn states(&self) -> &[SharedStates] {
        &self.states
    }

    #[inline]
    fn window(&self, call: &MeetingCall) -> u64 {
        if self.travel(&call.meeting) == Travel::Inline { RING_SLOTS } else { CELL_SETS }
    }

    #[inline]
    fn rank(&self) -> u32 {
        self.rank
    }

    #[inline]
    fn completion(&self, run: u64, call: &MeetingCall) -> (&Completion, u32) {
        let slot = self.slot(run);
        let lap = Self::lap(run).wrapping_add(1);
        match self.work(&call.meeting) {
            Work::Owner => (&slot.arrivals, lap.wrapping_mul(self.ranks)),
            Work::Claimed => (&slot.work.done, lap),
        }
    }

    #[inline]
    fn launch(
        &self,
        staging: &mut Staging,
        run: u64,
        everyone: u64,
        call: &MeetingCall,
        arguments: &[Argument<'_>],
    ) -> Result<(), Error> {
        let meeting = &call.meeting;
        let travel = self.travel(meeting);
        if travel == Travel::Arena {
            self.put_places(staging, run, everyone, meeting, arguments)?;
        } else if let Some(input) = arguments.first().filter(|_| meeting.contributes(self.rank)) {
            self.put(self.cell(run, travel, self.rank, meeting.bytes), input)?;
        }
        self.arrive(run, meeting)
    }

    #[inline]
    fn collect(
        &self,
        run: u64,
        call: &MeetingCall,
        bindings: &[Binding],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let meeting = &call.meeting;
        self.check_stamps(run, call.sequence, meeting)?;
        let (Some(binding), Some(output)) = (bindings.get(1), outputs.get_mut(1)) else { return Ok(()) };
        if meeting.kind == JoinKind::Broadcast && self.rank == meeting.root {
            return Ok(());
        }
        let expected = meeting.result_bytes(self.ranks);
        match *binding {
            Binding::Private if output.is_empty() => self.claimed_failure(run, meeting),
            Binding::Private if output.len() as u64 != expected => {
                Err(Error::BufferLength { buffer: 1, expected, found: output.len() as u64 })
            }
            Binding::Private => self.fetch(run, meeting, output),
            Binding::Segment(_) if self.is_in_place(run, meeting)? => self.claimed_failure(run, meeting),
            Binding::Segment(at) => self.memory.fill(at, expected, |bytes| self.fetch(run, meeting, bytes))?,
        }
    }

    fn output_lengths(&self, call: &MeetingCall, bindings: &[Binding]) -> Vec<usize> {
        let wanted = |binding: &Binding| match binding {
            Binding::Private => call.meeting.result_bytes(self.ranks) as usize,
            Binding::Segment(_) => 0,
        };
        match bindings {
            [_, output] => vec![0, wanted(output)],
            _ => Vec::new(),
        }
    }
}
