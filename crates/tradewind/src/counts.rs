//! Blocks of different sizes, and the agreement of ranks on sizes that not all of them know.

use crate::communicator::Communicator;
use crate::error::{Error, Result, argument, does_not_fit};
use engine::signature::{CallKind, Signature};
use smallvec::SmallVec;

/// Sizes of consecutive blocks in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// A few sizes are stored inline: an allocation would cost a call as much as a small collective.
    pub(crate) bytes: SmallVec<[u64; 8]>,
    pub(crate) total: u64,
}

impl Counts {
    /// The sizes of blocks of these numbers of elements; there must be `expected` of them.
    #[inline]
    pub(crate) fn of<T>(
        kind: CallKind,
        what: &'static str,
        counts: &[usize],
        expected: u32,
    ) -> Result<Self> {
        if counts.len() != expected as usize {
            let found = format!("has a length of {}", counts.len());
            return Err(does_not_fit(kind, what, found, format!("have a length of {expected}")));
        }
        let bytes: Option<SmallVec<[u64; 8]>> =
            counts.iter().map(|count| (*count as u64).checked_mul(size_of::<T>() as u64)).collect();
        let total = bytes
            .as_ref()
            .and_then(|all| all.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes)));
        match (bytes, total) {
            (Some(bytes), Some(total)) => Ok(Counts { bytes, total }),
            _ => Err(does_not_fit(
                kind,
                what,
                "has more elements than memory can hold",
                "have counts whose bytes 64 bits can count together",
            )),
        }
    }

    /// Offset of the block with this number.
    pub(crate) fn offset(&self, number: u32) -> u64 {
        self.bytes.iter().take(number as usize).sum()
    }

    /// Bytes of the block with this number.
    pub(crate) fn block(&self, number: u32) -> u64 {
        self.bytes.get(number as usize).copied().unwrap_or(0)
    }

    /// Hash of the sizes.
    pub(crate) fn digest(&self) -> u64 {
        digest(&self.bytes)
    }
}

/// Hash of the sizes.
pub(crate) fn digest(sizes: &[u64]) -> u64 {
    // The multiplier is 2⁶⁴ divided by the golden ratio (Knuth, The Art of Computer Programming 3,
    // section 6.4).
    let mix = |so_far: u64, size: &u64| {
        (so_far.rotate_left(23) ^ size).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    sizes.iter().fold(sizes.len() as u64, mix)
}

impl Communicator {
    /// Gathers the size of every rank's block and compares them with the root's counts. Waits for
    /// all ranks, and fails on all of them if a size differs.
    pub(crate) fn agree_with_root(
        &self,
        own: u64,
        counts: Option<&Counts>,
        (root, call): (u32, Signature),
    ) -> Result<Vec<u64>> {
        let expected = counts.map_or(0, Counts::digest);
        let gathered = self.allgather_words([own, expected, 0, 0, 0, 0], call)?;
        let sizes: Vec<u64> = gathered.iter().map(|[own, ..]| *own).collect();
        if gathered.get(root as usize).is_some_and(|[_, expected, ..]| *expected == digest(&sizes))
        {
            return Ok(sizes);
        }
        let differs = |(rank, sent): (u32, &u64)| {
            let expected = counts?.block(rank);
            let call = call.kind.name();
            let error = Error::BlockLength { call, from: rank, to: root, sent: *sent, expected };
            (*sent != expected).then_some(error)
        };
        let error = (0..).zip(&sizes).find_map(differs);
        let elsewhere = || {
            argument(
                "the list of counts at the root",
                "another than that of the ranks' blocks",
                "the same",
            )
        };
        Err(error.unwrap_or_else(elsewhere))
    }
}
