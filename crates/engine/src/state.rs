//! Shared state of a communicator: exchanges of a few words, journals of calls, slots of flat
//! collectives.
//!
//! | section | records | bytes each |
//! |---|---|---|
//! | released count | 1 | 64 |
//! | collective count | 1 | 64 |
//! | sleepers | 1 | 64 |
//! | [entries of linked schedules](crate::protocol::link_table) | [`ENTRIES`] | 8 |
//! | exchange cells, two a rank, used in turn | 2 × ranks | 64 |
//! | progress lines (collectives begun) | ranks | 64 |
//! | run states of the collective slots | ranks | 8 × [`FLAT_SLOTS`] |
//! | journals: the last [`JOURNAL`] calls of a rank | ranks | 16 × [`JOURNAL`] |
//! | [collective slots](crate::flat::executor) | [`FLAT_SLOTS`] | see [`SlotLayout`] |
//! | contribution cells, [`CELL_SETS`] for each rank | | see [`StateLayout::cell_bytes`] |

pub(crate) mod observed;

use crate::error::{Error, Outcome};
use crate::protocol::link_table::{ENTRIES, LinkProgress};
use crate::protocol::run_state::RunStates;
use crate::signature::{CallKind, Signature};
use crate::wait::{self, CountReached, OwnTasks, SpinPolicy};
use shm::completion::Completion;
use shm::mapped::{Mapped, MappedSlice};
use shm::published_wait::Wait;
use shm::segment::{Offset, Segment};
use shm::shared::SharedBytes;
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// Number of calls in a rank's journal.
pub(crate) const JOURNAL: u64 = 64;
/// Number of slots of flat collectives on a communicator; collectives without a slot are queued.
pub(crate) const FLAT_SLOTS: u64 = 64;
/// Largest number of started flat collectives with more bytes than the first lines of a slot hold.
/// Small, so their cells stay in the cache.
pub(crate) const CELL_SETS: u64 = 8;
/// Longest contribution in a cell, among few ranks and among many: the cells of all ranks together
/// should stay in a cache. Up to a few kilobytes, a copy takes less time than dividing it would
/// save.
const CELL_DATA: [u64; 2] = [4 << 10, 2 << 10];
/// Largest number of ranks that counts as few.
const FEW_RANKS: u32 = 16;
/// Additional bytes of a cell: capacity for a block table. Also avoids distances that are powers of
/// two.
const CELL_TABLE: u64 = 256;
/// Offset behind the release count, with which every shared block begins.
const EXCHANGE_LINE_AT: u64 = 64;
const SLEEPERS_AT: u64 = EXCHANGE_LINE_AT + 64;
const LINK_TABLE_AT: u64 = SLEEPERS_AT + 64;
/// Capacity for a contribution behind the arrival word in a slot. The lines behind the word are
/// fetched with it.
pub(crate) const CONTRIBUTION_BYTES: u64 = 4 * 64 - 8;
/// Number of words in an exchange.
pub(crate) const EXCHANGE_WORDS: usize = 6;

/// Run states of a rank, in the segment.
pub(crate) type SharedStates = RunStates<MappedSlice<AtomicU64>>;

shm::shared_lines! {
    /// Counts arrivals at exchanges.
    pub(crate) struct ExchangeLine {
        arrivals: Completion,
        /// Offset of the communicator's streams, published by rank 0; see [`crate::streams`].
        pub(crate) streams: AtomicU64,
    }

    /// Marked by ranks that sleep until a flat collective completes.
    pub(crate) struct SleepersLine {
        pub(crate) word: AtomicU32,
    }

    /// A rank's cell in a slot.
    pub(crate) struct RankCell {
        /// The last run at which it arrived, see [`crate::protocol::arrival`].
        pub(crate) arrived: AtomicU64,
        /// Its small contribution.
        contribution: SharedBytes<{ CONTRIBUTION_BYTES as usize }>,
    }

    /// A rank's cell of an exchange.
    pub(crate) struct ExchangeCell {
        words: [AtomicU64; EXCHANGE_WORDS],
        /// Its call.
        call: [AtomicU64; 2],
    }

    /// Progress of a rank.
    pub(crate) struct ProgressLine {
        /// Number of collectives that this rank has started. Release by the rank, Acquire by a
        /// waiter that checks.
        started: AtomicU64,
        /// Number of exchanges that this rank has started. Release by the rank, Acquire by a waiter
        /// that checks.
        exchanged: AtomicU64,
        /// See [`LinkProgress`].
        oldest_pending_link: AtomicU64,
        /// The rank on the node plus one, for an observer of the job.
        member: AtomicU64,
    }
}

/// Layout of one slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotLayout {
    /// Offset of the completion word's line, behind the ranks' cells.
    pub(crate) work: u64,
    /// Bytes of a slot.
    pub(crate) bytes: u64,
}

impl SlotLayout {
    fn new(ranks: u32) -> Self {
        let work = size_of::<RankCell>() as u64 * u64::from(ranks);
        SlotLayout { work, bytes: work + 64 }
    }
}

/// Layout of the whole state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateLayout {
    ranks: u32,
    exchange: u64,
    progress: u64,
    states: u64,
    journal: u64,
    slots: u64,
    pub(crate) slot: SlotLayout,
}

impl StateLayout {
    pub(crate) fn new(ranks: u32) -> Self {
        let count = u64::from(ranks);
        let exchange = LINK_TABLE_AT + 8 * ENTRIES;
        let progress = exchange + 2 * 64 * count;
        let states = progress + 64 * count;
        let journal = states + 8 * FLAT_SLOTS * count;
        let slots = journal + 16 * JOURNAL * count;
        StateLayout {
            ranks,
            exchange,
            progress,
            states,
            journal,
            slots,
            slot: SlotLayout::new(ranks),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.cell_at(CELL_SETS, 0)
    }

    /// Returns the capacity of a cell in bytes.
    pub(crate) fn cell_bytes(&self) -> u64 {
        CELL_DATA[usize::from(self.ranks > FEW_RANKS)] + CELL_TABLE
    }

    /// Returns the offset of the cell of `rank` in cell set `set`.
    pub(crate) fn cell_at(&self, set: u64, rank: u32) -> u64 {
        let cells = self.slots + FLAT_SLOTS * self.slot.bytes;
        cells + (set * u64::from(self.ranks) + u64::from(rank)) * self.cell_bytes()
    }

    /// Returns the offset of slot `index`.
    pub(crate) fn slot_at(&self, index: u64) -> u64 {
        self.slots + index * self.slot.bytes
    }
}

/// A rank's view of its communicator's state.
#[derive(Debug)]
pub(crate) struct CommunicatorState {
    rank: u32,
    pub(crate) exchange_line: Mapped<ExchangeLine>,
    cells: MappedSlice<ExchangeCell>,
    progress: MappedSlice<ProgressLine>,
    journal: MappedSlice<AtomicU64>,
    link_table: MappedSlice<AtomicU64>,
    layout: StateLayout,
    at: Offset,
}

impl CommunicatorState {
    pub(crate) fn new(
        segment: &Arc<Segment>,
        at: Offset,
        rank: u32,
        ranks: u32,
    ) -> Result<Self, Error> {
        let layout = StateLayout::new(ranks);
        let place = |part: u64| Offset(at.0 + part);
        Ok(CommunicatorState {
            rank,
            exchange_line: Mapped::new(segment, place(EXCHANGE_LINE_AT))?,
            cells: MappedSlice::new(segment, place(layout.exchange), 2 * ranks as usize)?,
            progress: MappedSlice::new(segment, place(layout.progress), ranks as usize)?,
            journal: MappedSlice::new(
                segment,
                place(layout.journal),
                2 * (JOURNAL as usize) * ranks as usize,
            )?,
            link_table: MappedSlice::new(segment, place(LINK_TABLE_AT), ENTRIES as usize)?,
            layout,
            at,
        })
    }

    /// Publishes which rank of the node this rank is.
    pub(crate) fn publish_member(&self, member: u32) {
        // Relaxed: only an observer reads it.
        let line = &self.progress[self.rank as usize];
        line.member.store(u64::from(member) + 1, Ordering::Relaxed);
    }

    /// Returns the entry in which the ranks agree on the block of link `sequence`.
    pub(crate) fn link_entry(&self, sequence: u64) -> &AtomicU64 {
        &self.link_table[(sequence % ENTRIES) as usize]
    }

    /// Returns a rank's progress through the links.
    pub(crate) fn link_progress(&self, rank: u32) -> LinkProgress<'_> {
        let line = &self.progress[rank as usize];
        LinkProgress { started: &line.started, oldest_pending: &line.oldest_pending_link }
    }

    /// Returns whether all ranks are past link `sequence`.
    pub(crate) fn are_past_link(&self, sequence: u64) -> bool {
        (0..self.layout.ranks).all(|rank| self.link_progress(rank).is_past(sequence))
    }

    /// Returns the location of a part of the state.
    pub(crate) fn place(&self, part: u64) -> Offset {
        Offset(self.at.0 + part)
    }

    pub(crate) fn layout(&self) -> &StateLayout {
        &self.layout
    }

    /// Returns the location of the sleepers' line.
    pub(crate) fn sleepers_at(&self) -> Offset {
        self.place(SLEEPERS_AT)
    }

    /// Returns the run states of a rank for flat collectives.
    pub(crate) fn states(&self, segment: &Arc<Segment>, rank: u32) -> Result<SharedStates, Error> {
        let at = self.place(self.layout.states + 8 * FLAT_SLOTS * u64::from(rank));
        Ok(RunStates::new(MappedSlice::new(segment, at, FLAT_SLOTS as usize)?))
    }

    /// Records that this rank has started its `sequence`-th collective, for ranks that wait too
    /// long.
    #[inline]
    pub(crate) fn note(&self, sequence: u64, call: Signature) {
        let at = self.journal_at(self.rank, sequence);
        let [first, second] = call.encode(sequence);
        // Release, twice: the word with the sequence number publishes the size word, and the count
        // publishes both; `noted` and `has_arrived` acquire them. A reader either has acquired a
        // later arrival of this rank, or is a waiter that checks again after its next sleep.
        self.journal[at + 1].store(second, Ordering::Relaxed);
        self.journal[at].store(first, Ordering::Release);
        self.progress[self.rank as usize].started.store(sequence + 1, Ordering::Release);
    }

    /// Removes the record of this rank's last collective, which could not start.
    pub(crate) fn forget(&self, sequence: u64) {
        // The count goes back first, so other ranks wait for this number again. The journal word is
        // then cleared: a record of a call that never started would be reported as a mismatch.
        self.progress[self.rank as usize].started.store(sequence, Ordering::Release);
        // Relaxed: publishes nothing.
        self.journal[self.journal_at(self.rank, sequence)].store(0, Ordering::Relaxed);
    }

    /// Returns whether `rank` has started its `sequence`-th collective.
    pub(crate) fn has_arrived(&self, rank: u32, sequence: u64) -> bool {
        // Acquire: pairs with the Release in `note`.
        self.progress[rank as usize].started.load(Ordering::Acquire) > sequence
    }

    fn journal_at(&self, rank: u32, sequence: u64) -> usize {
        2 * (u64::from(rank) * JOURNAL + sequence % JOURNAL) as usize
    }

    /// Returns the call that `rank` recorded for its `sequence`-th collective, if it has started it
    /// and has not overwritten the record.
    fn noted(&self, rank: u32, sequence: u64) -> Option<Signature> {
        let at = self.journal_at(rank, sequence);
        // Acquire: pairs with the Release in `note`.
        let first = self.journal[at].load(Ordering::Acquire);
        let second = self.journal[at + 1].load(Ordering::Relaxed);
        // The journal is a ring: a later call of the rank may have overwritten the record, which
        // the sequence number shows. A zero word is an empty record.
        let (seen, call) = Signature::decode([first, second]);
        (seen == sequence & ((1 << 40) - 1) && first != 0).then_some(call)
    }

    /// Checks whether a rank is in another collective than this one at the same number.
    pub(crate) fn find_mismatch(&self, sequence: u64, call: Signature) -> Result<(), Error> {
        self.find_mismatch_of(sequence, call, |_| true)
    }

    /// As [`find_mismatch`](Self::find_mismatch), for ranks that have not started the exchange of
    /// this turn. The others may be past it and have recorded later calls.
    pub(crate) fn find_mismatch_before(
        &self,
        turn: u64,
        sequence: u64,
        call: Signature,
    ) -> Result<(), Error> {
        self.find_mismatch_of(sequence, call, |rank| !self.has_exchanged(rank, turn))
    }

    /// Returns whether `rank` has started the exchange of this turn.
    pub(crate) fn has_exchanged(&self, rank: u32, turn: u64) -> bool {
        // Acquire: pairs with the Release in `exchange`.
        self.progress[rank as usize].exchanged.load(Ordering::Acquire) > turn
    }

    /// Returns whether all ranks have arrived at the exchange of this turn, so that they read the same
    /// words.
    pub(crate) fn is_exchanged(&self, turn: u64) -> bool {
        self.exchange_line.arrivals.reached(self.arrivals_after(turn))
    }

    /// Every exchange adds one arrival of each rank, so the count needs no reset.
    fn arrivals_after(&self, turn: u64) -> u32 {
        ((turn + 1).wrapping_mul(u64::from(self.layout.ranks))) as u32
    }

    /// Checks the collectives in this rank's journal for one that some ranks have started here and
    /// others in another library.
    pub(crate) fn find_external_mismatch(&self) -> Result<(), Error> {
        // Acquire: pairs with the Release in `note`, where another thread of this rank calls it.
        let started = self.progress[self.rank as usize].started.load(Ordering::Acquire);
        let is_external = |call: Signature| call.kind == CallKind::External;
        for sequence in started.saturating_sub(JOURNAL)..started {
            // A newer call may have replaced the entry since `started` was read.
            let Some(own) = self.noted(self.rank, sequence) else { continue };
            let differs = |other: Signature| is_external(other) != is_external(own);
            let mut others = (0..self.layout.ranks).filter_map(|rank| self.noted(rank, sequence));
            if others.any(differs) {
                self.find_mismatch(sequence, own)?;
            }
        }
        Ok(())
    }

    fn find_mismatch_of(
        &self,
        sequence: u64,
        call: Signature,
        counts: impl Fn(u32) -> bool,
    ) -> Result<(), Error> {
        let noted: Vec<Option<Signature>> =
            (0..self.layout.ranks).map(|rank| self.noted(rank, sequence)).collect();
        let differs = |(rank, other): (u32, &Option<Signature>)| {
            other.is_some_and(|other| other != call) && counts(rank)
        };
        if !(0..).zip(&noted).any(differs) {
            return Ok(());
        }
        let none = Signature::new(CallKind::None, 0, 0);
        Err(Error::Mismatch {
            sequence,
            calls: noted.into_iter().map(|call| call.unwrap_or(none)).collect(),
        })
    }

    /// Returns the ranks that have not started this collective.
    pub(crate) fn not_yet(&self, sequence: u64) -> Vec<u32> {
        (0..self.layout.ranks).filter(|rank| !self.has_arrived(*rank, sequence)).collect()
    }

    /// Publishes `words` and returns the words of every rank, in rank order. `turn` counts this
    /// state's exchanges from 0.
    ///
    /// Two cells a rank suffice: to write the cell of turn t + 2, a rank must have left turn t + 1,
    /// so all ranks have arrived there, which they do after reading turn t.
    pub(crate) fn exchange(
        &self,
        turn: u64,
        words: [u64; EXCHANGE_WORDS],
        (sequence, call): (u64, Signature),
        spin_policy: SpinPolicy,
        progress: impl FnMut() -> Outcome<OwnTasks>,
        check_liveness: impl FnMut() -> Result<(), Error>,
    ) -> Result<Vec<[u64; EXCHANGE_WORDS]>, Error> {
        let ranks = self.layout.ranks;
        let cell = |rank: u32| &self.cells[(2 * rank + (turn % 2) as u32) as usize];
        let mine = cell(self.rank);
        // Only this rank writes its cell, and all ranks have read the words of turn t − 2.
        for (place, word) in
            mine.words.iter().zip(words).chain(mine.call.iter().zip(call.encode(sequence)))
        {
            place.store(word, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `find_mismatch_before`.
        self.progress[self.rank as usize].exchanged.store(turn + 1, Ordering::Release);
        // A rank that dies before its arrival is found by the liveness check of the waiting ranks.
        let threshold = self.arrivals_after(turn);
        // Relaxed stores above: the completion word publishes them (Release and Acquire).
        self.exchange_line.arrivals.add_threshold(1, threshold);
        wait::until(
            &CountReached(&self.exchange_line.arrivals, threshold),
            spin_policy,
            None,
            || Wait::Collective { state: self.at, ranks, sequence },
            progress,
            check_liveness,
        )?;
        // Relaxed: `until` has acquired the arrivals of all ranks, which publish the cells.
        let read = |locations: &[AtomicU64], at: usize| locations[at].load(Ordering::Relaxed);
        let calls: Vec<Signature> = (0..ranks)
            .map(|rank| Signature::decode([0, 1].map(|at| read(&cell(rank).call, at))).1)
            .collect();
        // Every rank reads the same cells, so either all ranks report the mismatch or none does.
        if calls.iter().any(|other| *other != call) {
            return Err(Error::Mismatch { sequence, calls });
        }
        Ok((0..ranks).map(|rank| std::array::from_fn(|at| read(&cell(rank).words, at))).collect())
    }
}
