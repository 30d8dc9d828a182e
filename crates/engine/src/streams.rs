//! Long blocking collectives: every rank sends and receives in pieces, at the same time.
//!
//! A meeting stages a whole contribution before anybody may fetch it. When all ranks are inside the call they can do better:
//! each pair of ranks has a ring of pieces in each direction, and while one rank writes a piece the other reads the one
//! before. The rings stay in the caches, however long the message is.
//!
//! | word | written by | read by |
//! |---|---|---|
//! | a piece's stamp | the sender, when the piece is there | the receiver, until it is the stamp of the piece it wants |
//! | pieces taken | the receiver | the sender, when the ring may be full |
//!
//! A stamp is the piece's position, which grows for ever, and a digest of the call: pieces of another collective are never
//! taken for those of this one.

mod ring;
mod transfer;
mod words;

use crate::call::Call;
use crate::error::Error;
use crate::group::{Group, let_go};
use crate::meeting::Meeting;
use crate::node::EngineKind;
use crate::program::ReleaseLine;
use crate::ring::Ring;
use goal::schedule::JoinKind;
use ring::PieceRing;
use shm::segment::Offset;
use smallvec::SmallVec;
use std::sync::PoisonError;
use transfer::Transfer;

/// Rings in one direction, for each pair of ranks.
#[derive(Debug)]
pub(crate) struct Streams {
    at: Offset,
    /// To each rank, and from each rank; none to itself.
    out: Vec<Option<PieceRing>>,
    from: Vec<Option<PieceRing>>,
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

/// Of each ring. Two mebibytes are twice what a core's second cache commonly holds: to write lines that lie in the reader's cache
/// costs four times as much as to write lines that have left it.
const RING_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=2 << 20;

fn ring_bytes(ranks: u32) -> u64 {
    let pairs = u64::from(ranks) * u64::from(ranks.saturating_sub(1)).max(1);
    (ALL_RINGS / pairs).clamp(*RING_BYTES.start(), *RING_BYTES.end()).next_power_of_two().min(*RING_BYTES.end())
}

impl Streams {
    /// Bytes of the shared memory: a release line, then a ring for every pair.
    fn bytes(ranks: u32) -> u64 {
        size_of::<ReleaseLine>() as u64 + u64::from(ranks * ranks) * PieceRing::bytes(ring_bytes(ranks))
    }

    fn open(group: &Group, at: Offset) -> Result<Self, Error> {
        let (me, ranks) = (group.rank(), group.size());
        let bytes = ring_bytes(ranks);
        let memory = group.member.node().memory();
        let ring = |from: u32, to: u32| -> Result<Option<PieceRing>, Error> {
            if from == to {
                return Ok(None);
            }
            let number = u64::from(from * ranks + to);
            let place = at.0 + size_of::<ReleaseLine>() as u64 + number * PieceRing::bytes(bytes);
            PieceRing::new(memory, Offset(place), bytes).map(Some)
        };
        let out = (0..ranks).map(|rank| ring(me, rank)).collect::<Result<_, _>>()?;
        let from = (0..ranks).map(|rank| ring(rank, me)).collect::<Result<_, _>>()?;
        Ok(Streams { at, out, from })
    }
}

impl Group {
    /// Whether a blocking call of this meeting goes through streams. The same answer on all ranks.
    #[inline]
    pub(crate) fn streams(&self, meeting: &Meeting) -> bool {
        let ranks = self.size();
        self.ring.plan.is_long(meeting)
            && ranks > 1
            && ranks <= MOST_RANKS
            && self.engine() == EngineKind::Peers
            && self.member.node().has_cores_for_all()
            && (ranks == 2 || meeting.kind == JoinKind::Exchange)
    }

    /// Holds a long meeting as a stream of pieces; `None` when there is no memory for streams.
    pub(crate) fn stream_meeting(
        &self,
        sequence: u64,
        meeting: &Meeting,
        input: &[u8],
        output: &mut [u8],
    ) -> Option<Result<(), Error>> {
        let (me, ranks) = (self.rank(), self.size());
        self.stream(sequence, meeting.call, |transfer| {
            match meeting.kind {
                JoinKind::Barrier => {}
                JoinKind::Broadcast if me == meeting.root => {
                    (0..ranks).filter(|rank| *rank != me).for_each(|rank| transfer.send(rank, input));
                }
                JoinKind::Broadcast => transfer.receive(meeting.root, output),
                JoinKind::Gather => {
                    let blocks = output.chunks_exact_mut(input.len());
                    for (rank, block) in (0..ranks).zip(blocks) {
                        transfer.send(rank, input);
                        transfer.receive(rank, block);
                    }
                }
                JoinKind::Exchange => {
                    let part = input.len() / ranks as usize;
                    let mut blocks: SmallVec<[_; 16]> =
                        input.chunks_exact(part).zip(output.chunks_exact_mut(part)).map(Some).collect();
                    // Each rank begins with the next one, so that not all send to the same.
                    for step in 0..ranks {
                        let rank = (me + step) % ranks;
                        if let Some((from, to)) = blocks[rank as usize].take() {
                            transfer.send(rank, from);
                            transfer.receive(rank, to);
                        }
                    }
                }
                JoinKind::Reduce => {
                    let other = 1 - me;
                    transfer.send(other, input);
                    if let Some(rule) = meeting.arithmetic {
                        transfer.fold(other, input, rule, output);
                    }
                }
            }
        })
    }

    /// Sends and receives what `fill` asks for; `None` when there is no memory for streams, on all ranks alike.
    fn stream<'a>(&self, sequence: u64, call: Call, fill: impl FnOnce(&mut Transfer<'a>)) -> Option<Result<(), Error>> {
        let mut state = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let StreamsState::Unknown = *state {
            match self.open_streams(sequence, call) {
                Ok(opened) => *state = opened,
                Err(error) => return Some(Err(error)),
            }
        }
        let streams = match &mut *state {
            StreamsState::Ready(streams) => streams,
            StreamsState::Broken { .. } => return Some(Err(Error::Broken)),
            StreamsState::Unknown | StreamsState::Missing => return None,
        };
        let mut transfer = Transfer::new(self.rank());
        fill(&mut transfer);
        let outcome = transfer.run(self, streams, sequence, call);
        if !matches!(outcome, Ok(()) | Err(Error::DivisionByZero { .. })) {
            // The two ends of a ring may not agree any more on what comes next.
            *state = StreamsState::Broken { at: streams.at };
        }
        Some(outcome)
    }

    /// The ranks agree on where the streams lie.
    #[cold]
    fn open_streams(&self, sequence: u64, call: Call) -> Result<StreamsState, Error> {
        let needed = Streams::bytes(self.size());
        let block = if self.rank() == 0 { self.member.allocate_shared(needed).map_or(u64::MAX, |at| at.0) } else { 0 };
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = self.exchange(&mut exchanges, [block, 0, 0, 0, 0, 0], sequence, call)?;
        match answers[0][0] {
            u64::MAX => Ok(StreamsState::Missing),
            at => Streams::open(self, Offset(at)).map(StreamsState::Ready),
        }
    }

    /// Lets go of the streams' memory.
    pub(crate) fn close_streams(&mut self) {
        let state = self.streams.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let StreamsState::Ready(Streams { at, .. }) | StreamsState::Broken { at } = state {
            let_go(&self.member, *at, self.members.len() as u32, self.rank == 0);
        }
    }
}

impl Ring {
    /// Whether contributions are too long for the slots' cells.
    #[inline]
    pub(crate) fn is_long(&self, meeting: &Meeting) -> bool {
        self.travel(meeting) == crate::meeting::Travel::Arena
    }
}
