//! Long blocking collectives: every rank sends and receives in pieces, at the same time.
//!
//! A collective stages a whole contribution before anybody may fetch it. When all ranks are inside
//! the call they can do better: each pair of ranks has a ring of pieces in each direction, and
//! while one rank writes a piece the other reads the one before. The rings stay in the caches,
//! however long the message is.
//!
//! | word | written by | read by |
//! |---|---|---|
//! | a piece's stamp | the sender, when the piece is there | the receiver, until it is the stamp of the piece it wants |
//! | pieces taken | the receiver | the sender, when the ring may be full |
//!
//! A stamp is the piece's position, which grows for ever, and a digest of the call: pieces of
//! another collective are never taken for those of this one.

mod ring;
mod route;
mod transfer;
mod words;

use crate::communicator::Communicator;
use crate::error::Error;
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::{ContributionPlacement, FlatCollective, Pattern};

use crate::node::EngineKind;
use crate::node::deferred_free::ReleaseLine;
use crate::protocol::arrival;
use crate::signature::Signature;
use crate::wait::{self, WaitCondition};
use ring::PieceRing;
use shm::futex;
use shm::mapped::Mapped;
use shm::segment::Offset;
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use std::ops::Range;
use std::sync::PoisonError;
use std::time::Duration;
use transfer::Transfer;

shm::shared_lines! {
    /// Not zero once a transfer ended half way on some rank: the two ends of a ring may not agree
    /// any more on what comes next.
    struct BrokenLine {
        broken: AtomicU32,
    }
}

impl BrokenLine {
    fn is_set(&self) -> bool {
        // Relaxed: nothing else is read on the strength of it.
        self.broken.load(Ordering::Relaxed) != 0
    }

    fn set(&self) {
        // Relaxed: see `is_set`. Sleepers look before they sleep on.
        self.broken.store(1, Ordering::Relaxed);
    }
}

/// Rings in one direction, for each pair of ranks.
#[derive(Debug)]
pub(crate) struct Streams {
    at: Offset,
    /// To each rank, and from each rank; none to itself.
    out: Vec<Option<PieceRing>>,
    from: Vec<Option<PieceRing>>,
    /// Copies of inputs that lie where results go.
    scratch: Vec<u8>,
    /// Tells the others.
    broken: Mapped<BrokenLine>,
}

/// Stands where a place would, if there is no memory.
const NO_MEMORY: u64 = u64::MAX;

/// That rank 0 says where the streams lie, as something to wait for.
struct Told<'a> {
    communicator: &'a Communicator,
    word: &'a AtomicU64,
}

impl WaitCondition for Told<'_> {
    type Mark = u32;

    fn is_met(&self) -> bool {
        // Acquire: pairs with the Release in `open_streams`.
        self.word.load(Ordering::Acquire) != 0
    }

    fn prepare_sleep(&self) -> Option<u32> {
        arrival::mark(self.communicator.flat.executor.sleepers(), || self.is_met())
    }

    fn sleep(&self, mark: u32, limit: Duration) {
        futex::wait(self.communicator.flat.executor.sleepers(), mark, Some(limit));
    }
}

/// What a communicator knows about its streams.
#[derive(Debug, Default)]
pub(crate) enum StreamsState {
    /// Not needed yet.
    #[default]
    Unknown,
    /// There is no memory for them, on any rank.
    Missing,
    /// There they are.
    Ready(Streams),
    /// A transfer ended half way.
    Broken {
        /// Where they lie.
        at: Offset,
    },
}

/// With more ranks the rings of all pairs would need too much memory.
const MOST_RANKS: u32 = 16;

/// The rings of all pairs together.
const ALL_RINGS: u64 = 16 << 20;

/// Of each ring. Two mebibytes are twice what a core's second cache commonly holds: to write lines
/// that lie in the reader's cache costs four times as much as to write lines that have left it.
const RING_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=2 << 20;

fn ring_bytes(ranks: u32) -> u64 {
    let each = ALL_RINGS / u64::from(ranks * ranks).max(1);
    (1 << each.ilog2()).clamp(*RING_BYTES.start(), *RING_BYTES.end())
}

/// So many bytes of a copied input are kept for the next one.
const KEPT_SCRATCH: usize = 4 << 20;

const HEADER_BYTES: u64 = (size_of::<ReleaseLine>() + size_of::<BrokenLine>()) as u64;

impl Streams {
    /// Bytes of the shared memory: a line for the release, one for what is broken, then a ring for
    /// every pair.
    fn bytes(ranks: u32) -> u64 {
        HEADER_BYTES + u64::from(ranks * ranks) * PieceRing::bytes(ring_bytes(ranks))
    }

    fn open(communicator: &Communicator, at: Offset) -> Result<Self, Error> {
        let (me, ranks) = (communicator.rank(), communicator.size());
        let bytes = ring_bytes(ranks);
        let memory = communicator.member.node().memory();
        let ring = |from: u32, to: u32| -> Result<Option<PieceRing>, Error> {
            if from == to {
                return Ok(None);
            }
            let number = u64::from(from * ranks + to);
            let place = at.0 + HEADER_BYTES + number * PieceRing::bytes(bytes);
            PieceRing::new(memory, Offset(place), bytes).map(Some)
        };
        let out = (0..ranks).map(|rank| ring(me, rank)).collect::<Result<_, _>>()?;
        let from = (0..ranks).map(|rank| ring(rank, me)).collect::<Result<_, _>>()?;
        let broken = Mapped::new(memory.segment(), Offset(at.0 + size_of::<ReleaseLine>() as u64))?;
        Ok(Streams { at, out, from, scratch: Vec::new(), broken })
    }
}

/// The input of a blocking call.
#[derive(Clone, Debug)]
pub enum BlockingInput<'a> {
    /// Apart from the output.
    Apart(&'a [u8]),
    /// There, in the output's memory.
    InOutput(Range<usize>),
}

impl Communicator {
    /// Whether a blocking call of this collective goes through streams. The same answer on all
    /// ranks.
    #[inline]
    pub fn streams(&self, collective: &FlatCollective) -> bool {
        self.flat.executor.is_long(collective) && self.can_stream(collective)
    }

    fn can_stream(&self, collective: &FlatCollective) -> bool {
        let ranks = self.size();
        // The rings join pairs of ranks: what goes to many at once, or is combined of many, is
        // staged once instead.
        let of_pairs = || {
            use Pattern::{Exchange, GatherTo, Scatter};
            matches!(collective.pattern, Exchange | GatherTo { .. } | Scatter { .. })
        };
        (ranks == 2 || (ranks > 2 && ranks <= MOST_RANKS && of_pairs()))
            && self.engine() == EngineKind::Peers
            && self.member.node().has_cores_for_all()
    }

    /// Holds a collective as a stream of pieces, if [`streams`](Self::streams) says so, and waits
    /// for it; `None` when there is no memory for streams, on all ranks alike.
    ///
    /// `memory` holds the result at its beginning, and the input if that is not apart.
    ///
    /// # Errors
    /// As [`run_flat`](Self::run_flat).
    pub fn stream(
        &self,
        collective: &FlatCollective,
        input: BlockingInput<'_>,
        memory: &mut [u8],
    ) -> Option<Result<(), Error>> {
        if let Err(error) = self.check_lengths(collective, &input, memory.len()) {
            return Some(Err(error));
        }
        // Pieces are for those who are inside the call: a rank that only starts it is somewhere
        // else.
        let call = collective.call.blocking();
        let sequence = self.begin(call);
        self.trace_call_begun(sequence);
        let outcome = self.open_and_stream(sequence, call, collective, input, memory);
        let ended = outcome.as_ref().is_some_and(Result::is_ok);
        self.trace_call_ended(sequence, ended.then_some(call));
        outcome
    }

    fn check_lengths(
        &self,
        collective: &FlatCollective,
        input: &BlockingInput<'_>,
        memory: usize,
    ) -> Result<(), Error> {
        let given = match input {
            BlockingInput::Apart(bytes) => bytes.len(),
            BlockingInput::InOutput(range) if range.end <= memory => range.len(),
            BlockingInput::InOutput(_) => 0,
        };
        let (found, expected) = (given as u64, collective.contribution_bytes());
        if collective.contributes(self.rank()) && found != expected {
            return Err(Error::BufferLength { buffer: 0, expected, found });
        }
        let (found, expected) = (memory as u64, collective.result_bytes(self.rank(), self.size()));
        if found < expected {
            Err(Error::BufferLength { buffer: 1, expected, found })
        } else {
            Ok(())
        }
    }

    fn open_and_stream(
        &self,
        sequence: u64,
        call: Signature,
        collective: &FlatCollective,
        input: BlockingInput<'_>,
        memory: &mut [u8],
    ) -> Option<Result<(), Error>> {
        let mut state = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let StreamsState::Unknown = *state {
            match self.open_streams(sequence, call) {
                Ok(opened) => *state = opened,
                Err(error) => return Some(Err(error)),
            }
        }
        let streams = match &mut *state {
            StreamsState::Ready(streams) if !streams.broken.is_set() => streams,
            StreamsState::Ready(_) | StreamsState::Broken { .. } => {
                return Some(Err(Error::Broken));
            }
            StreamsState::Unknown | StreamsState::Missing => return None,
        };
        // What is sent must stay as it is while results take its place.
        let mut scratch = std::mem::take(&mut streams.scratch);
        let input = match input {
            BlockingInput::Apart(bytes) => bytes,
            BlockingInput::InOutput(range) => {
                scratch.clear();
                scratch.extend_from_slice(memory.get(range).unwrap_or_default());
                &scratch
            }
        };
        let mut transfer = Transfer::new(self.rank());
        let filled =
            route::fill(&mut transfer, collective, (self.rank(), self.size()), input, memory);
        let outcome = transfer.run(self, streams, sequence, call);
        scratch.shrink_to(KEPT_SCRATCH);
        streams.scratch = scratch;
        if !matches!(outcome, Ok(()) | Err(Error::DivisionByZero { .. })) {
            streams.broken.set();
            *state = StreamsState::Broken { at: streams.at };
        }
        Some(outcome.and(filled))
    }

    /// Rank 0 says where the streams lie, and the others wait for that. Nothing is exchanged: after
    /// a mismatch, of which those hear who wait, rank 0 says it in its next stream.
    #[cold]
    fn open_streams(&self, sequence: u64, call: Signature) -> Result<StreamsState, Error> {
        let word = &self.state.exchange_line.streams;
        if self.rank() == 0 {
            let needed = Streams::bytes(self.size());
            let place = self.member.allocate_shared(needed).map_or(NO_MEMORY, |at| at.0);
            // Release: pairs with the Acquire in `Told`: the rings are zeroed.
            word.store(place, Ordering::Release);
            let sleepers = self.flat.executor.sleepers();
            if arrival::must_wake(sleepers, || true) {
                futex::wake_all(sleepers);
            }
        } else {
            let check_liveness = || {
                self.state.find_mismatch(sequence, call)?;
                self.member.liveness(&self.members).check(|rank| rank != 0)
            };
            let spin_policy = self.member.node().spin_policy();
            wait::until(
                &Told { communicator: self, word },
                spin_policy,
                None,
                || self.progress(),
                check_liveness,
            )?;
            // Rank 0 may have come to its next stream by now, after a mismatch in this one.
            self.state.find_mismatch(sequence, call)?;
        }
        // Relaxed: ordered by the wait, or this rank's own.
        match word.load(Ordering::Relaxed) {
            NO_MEMORY => Ok(StreamsState::Missing),
            at => Streams::open(self, Offset(at)).map(StreamsState::Ready),
        }
    }

    /// Lets go of the streams' memory.
    pub(crate) fn close_streams(&mut self) {
        let state = self.streams.get_mut().unwrap_or_else(PoisonError::into_inner);
        let at = match state {
            StreamsState::Ready(Streams { at, .. }) | StreamsState::Broken { at } => Some(*at),
            // Rank 0 may have opened them alone. Relaxed: nothing is read there.
            StreamsState::Unknown => {
                Some(Offset(self.state.exchange_line.streams.load(Ordering::Relaxed)))
            }
            StreamsState::Missing => None,
        };
        if let Some(at) = at.filter(|at| ![0, NO_MEMORY].contains(&at.0)) {
            self.member.release_shared(at, self.members.len() as u32, self.rank == 0);
        }
    }
}

impl FlatExecutor {
    /// Whether contributions are too long for the slots' cells. Neighbours know it where all blocks
    /// have one length.
    #[inline]
    pub(crate) fn is_long(&self, collective: &FlatCollective) -> bool {
        match &collective.blocks {
            None => self.placement(collective) == ContributionPlacement::Arena,
            Some(blocks) => blocks.edge_keys.is_some() && collective.call.bytes > self.cell_bytes,
        }
    }
}
