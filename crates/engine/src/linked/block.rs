//! The header of a linked schedule's block: the link that it belongs to.

use crate::error::Error;
use crate::linked::frame::HEADER_AT;
use crate::signature::Signature;
use goal::schedule::Schedule;
use shm::mapped::Mapped;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use std::sync::Arc;

shm::shared_lines! {
    /// Header of a block, written before the block is published and never changed.
    struct BlockHeader {
        /// One more than the link's sequence number.
        sequence: AtomicU64,
        call: [AtomicU64; 2],
        /// Hash of the schedules of all ranks.
        schedules: [AtomicU64; 2],
    }
}

/// A link of schedules that every rank has built itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkIdentity {
    pub(crate) sequence: u64,
    pub(crate) call: Signature,
    schedules: [u64; 2],
}

impl LinkIdentity {
    pub(crate) fn new(sequence: u64, call: Signature, schedules: [u64; 2]) -> Self {
        LinkIdentity { sequence, call, schedules }
    }

    /// Writes the header of a block that no other rank can find yet.
    pub(crate) fn write(&self, segment: &Arc<Segment>, block: Offset) -> Result<(), Error> {
        let header = header(segment, block)?;
        let words = self.call.encode(self.sequence).into_iter().chain(self.schedules);
        // Relaxed: the publication of the block releases the header.
        for (place, word) in header.call.iter().chain(&header.schedules).zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        header.sequence.store(self.sequence + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether the block has the sequence number of this link.
    pub(crate) fn has_number(&self, segment: &Arc<Segment>, block: Offset) -> bool {
        // Relaxed, as in `has_schedules`: the lookup has acquired the publication.
        header(segment, block)
            .is_ok_and(|header| header.sequence.load(Ordering::Relaxed) == self.sequence + 1)
    }

    /// Returns whether the block is for the same call with the same schedules.
    pub(crate) fn has_schedules(
        &self,
        segment: &Arc<Segment>,
        block: Offset,
    ) -> Result<bool, Error> {
        let header = header(segment, block)?;
        let words = self.call.encode(self.sequence).into_iter().chain(self.schedules);
        let places = header.call.iter().chain(&header.schedules);
        Ok(places.zip(words).all(|(place, word)| place.load(Ordering::Relaxed) == word))
    }
}

fn header(segment: &Arc<Segment>, block: Offset) -> Result<Mapped<BlockHeader>, Error> {
    Ok(Mapped::new(segment, Offset(block.0.saturating_add(HEADER_AT)))?)
}

/// Returns a hash of the schedules of all ranks, in rank order. Ranks compare it to detect that
/// they have built different graphs.
pub(crate) fn hash_of(schedules: &[Schedule]) -> [u64; 2] {
    let mut hasher = SipHasher13::new();
    for schedule in schedules {
        let bytes = schedule.as_bytes();
        hasher.write_u64(bytes.len() as u64);
        hasher.write(bytes);
    }
    let hash = hasher.finish128();
    [hash.h1, hash.h2]
}
