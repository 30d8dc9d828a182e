//! Blocks of different sizes.

use crate::error::{Result, does_not_fit};
use engine::signature::CallKind;
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
        // The multiplier is 2⁶⁴ divided by the golden ratio (Knuth, The Art of Computer Programming 3,
        // section 6.4).
        let mix = |so_far: u64, size: &u64| {
            (so_far.rotate_left(23) ^ size).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        self.bytes.iter().fold(self.bytes.len() as u64, mix)
    }
}
