//! The rings and buffers between all pairs of ranks, in one block of shared memory.

use super::passed_buffers::PassedBuffers;
use super::ring::PieceRing;
use crate::context::Context;
use crate::error::Error;
use crate::node::deferred_free::ReleaseLine;
use shm::mapped::Mapped;
use shm::process_memory::Guard;
use shm::segment::Offset;
use shm::sync::{AtomicU32, Ordering};
use std::ops::RangeInclusive;

shm::shared_lines! {
    /// Set after a transfer ended early on some rank: the two ends of a ring may then be at
    /// different pieces.
    pub(super) struct BrokenLine {
        broken: AtomicU32,
    }
}

impl BrokenLine {
    pub(super) fn is_set(&self) -> bool {
        // Relaxed: the flag publishes no other memory.
        self.broken.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set(&self) {
        // Relaxed: see `is_set`. Sleeping ranks poll the flag at every liveness check.
        self.broken.store(1, Ordering::Relaxed);
    }
}

/// Bytes of the rings of all pairs together.
const ALL_RINGS: u64 = 16 << 20;

/// Bytes of each ring. Two mebibytes are twice the usual size of a core's second-level cache: a
/// write to a line in the reader's cache costs four times as much as a write to a line that has
/// been evicted.
const RING_BYTES: RangeInclusive<u64> = 64 << 10..=2 << 20;

const HEADER_BYTES: u64 = (size_of::<ReleaseLine>() + size_of::<BrokenLine>()) as u64;

fn ring_bytes(ranks: u32) -> u64 {
    // Ranks compute the same from their number alone, so the layout is published nowhere.
    let each = ALL_RINGS / u64::from(ranks * ranks).max(1);
    (1 << each.ilog2()).clamp(*RING_BYTES.start(), *RING_BYTES.end())
}

/// Bytes of the longest message in a buffer that passes between two ranks, 0 for no buffers. Only a
/// communicator of two ranks has them: what they save was not measured among more, where a rank
/// has several such buffers and as many messages in its cache.
fn buffer_bytes(ranks: u32) -> u64 {
    if ranks == 2 { PieceRing::longest_piece_of(ring_bytes(ranks)) } else { 0 }
}

/// A rank's ends of the rings to and from every other rank, and the buffers that pass between them.
#[derive(Debug)]
pub(crate) struct RingSet {
    pub(super) at: Offset,
    /// The ring to each rank; none to this one.
    pub(super) out: Vec<Option<PieceRing>>,
    /// The ring from each rank; none from this one.
    pub(super) from: Vec<Option<PieceRing>>,
    /// The buffers between each rank and this one; none with itself.
    pub(super) buffers: Vec<Option<PassedBuffers>>,
    /// Copies of inputs that lie in the memory of the result.
    pub(super) scratch: Vec<u8>,
    pub(super) broken: Mapped<BrokenLine>,
    /// Identifies this process to ranks that access its memory, and states whether its offered
    /// messages still lie there.
    pub(super) guard: Guard,
}

impl RingSet {
    /// Returns the bytes of the shared memory: the release line, the broken line, a ring for every
    /// pair and direction, and the buffers of a pair that has them.
    pub(super) fn bytes(ranks: u32) -> u64 {
        let pairs = u64::from(ranks * (ranks - 1) / 2);
        Self::rings_bytes(ranks) + pairs * PassedBuffers::bytes(buffer_bytes(ranks))
    }

    /// Returns the bytes before the buffers.
    fn rings_bytes(ranks: u32) -> u64 {
        HEADER_BYTES + u64::from(ranks * (ranks - 1)) * PieceRing::bytes(ring_bytes(ranks))
    }

    /// Opens the rings at this location. Zeroed memory holds empty rings.
    pub(super) fn open(context: &Context, at: Offset) -> Result<Self, Error> {
        let rank = context.rank;
        let ranks = context.size();
        let bytes = ring_bytes(ranks);
        let memory = context.member.node().memory();
        let ring = |from: u32, to: u32| -> Result<Option<PieceRing>, Error> {
            if from == to {
                return Ok(None);
            }
            // Row by row over the senders, without the diagonal.
            let number = u64::from(from * (ranks - 1) + to - u32::from(to > from));
            let ring_at = at.0 + HEADER_BYTES + number * PieceRing::bytes(bytes);
            PieceRing::new(memory, Offset(ring_at), bytes).map(Some)
        };
        let out = (0..ranks).map(|other| ring(rank, other)).collect::<Result<_, _>>()?;
        let from = (0..ranks).map(|other| ring(other, rank)).collect::<Result<_, _>>()?;
        let longest = buffer_bytes(ranks);
        let buffers = |other: u32| {
            let first = rank.min(other);
            let second = rank.max(other);
            // Row by row over the second ranks: those of the pairs before this one.
            let number = u64::from(second * second.saturating_sub(1) / 2 + first);
            let pair_at = at.0 + Self::rings_bytes(ranks) + number * PassedBuffers::bytes(longest);
            let open = || PassedBuffers::new(memory, Offset(pair_at), longest, rank == first);
            (rank != other).then(open)
        };
        let buffers = (0..ranks).map(buffers).collect();
        let broken_at = Offset(at.0 + size_of::<ReleaseLine>() as u64);
        let broken = Mapped::new(memory.segment(), broken_at)?;
        let guard = Guard::new();
        Ok(RingSet { at, out, from, buffers, scratch: Vec::new(), broken, guard })
    }
}
