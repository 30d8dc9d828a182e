//! Blocks of different sizes: who knows them, and how ranks that link a schedule come to know them.

use crate::communicator::Communicator;
use crate::error::{Error, Result, argument};
use engine::call::Call;
use smallvec::SmallVec;

/// Sizes in bytes, one after the other, and where they begin.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Few are kept in place: a list of its own would cost a call as much as a small collective.
    pub(crate) bytes: SmallVec<[u64; 8]>,
    pub(crate) total: u64,
}

impl Counts {
    /// The bytes of so many elements of type `T` each.
    #[inline]
    pub(crate) fn of<T>(what: &'static str, counts: &[usize], expected: u32) -> Result<Self> {
        if counts.len() != expected as usize {
            return Err(argument(
                what,
                format!("{} counts", counts.len()),
                format!("{expected} counts"),
            ));
        }
        let bytes: Option<SmallVec<[u64; 8]>> =
            counts.iter().map(|count| (*count as u64).checked_mul(size_of::<T>() as u64)).collect();
        let total = bytes
            .as_ref()
            .and_then(|all| all.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes)));
        match (bytes, total) {
            (Some(bytes), Some(total)) => Ok(Counts { bytes, total }),
            _ => Err(argument(
                what,
                "more elements than can be",
                "counts whose bytes 64 bits can count together",
            )),
        }
    }

    /// Where the block of this number begins.
    pub(crate) fn offset(&self, number: u32) -> u64 {
        self.bytes.iter().take(number as usize).sum()
    }

    /// The bytes of the block of this number.
    pub(crate) fn block(&self, number: u32) -> u64 {
        self.bytes.get(number as usize).copied().unwrap_or(0)
    }

    /// A number that differs, as a rule, where the sizes do.
    pub(crate) fn digest(&self) -> u64 {
        digest(&self.bytes)
    }
}

/// A number that differs, as a rule, where the sizes do.
pub(crate) fn digest(sizes: &[u64]) -> u64 {
    // The multiplier is 2⁶⁴ divided by the golden ratio (Knuth, The Art of Computer Programming 3,
    // section 6.4).
    let mix = |so_far: u64, size: &u64| {
        (so_far.rotate_left(23) ^ size).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    sizes.iter().fold(sizes.len() as u64, mix)
}

impl Communicator {
    /// Every rank tells the others a number. Waits for all ranks.
    pub(crate) fn tell_all(&self, number: u64, call: Call) -> Result<Vec<u64>> {
        let told = self.exchange_words([number, 0, 0, 0, 0, 0], call)?;
        Ok(told.into_iter().map(|[number, ..]| number).collect())
    }

    /// Every rank tells how long its block is, and the root, which has counts for all, whether they
    /// are the same. Waits for all ranks, and fails on all if they are not.
    pub(super) fn agree_with_root(
        &self,
        own: u64,
        counts: Option<&Counts>,
        (root, call): (u32, Call),
    ) -> Result<Vec<u64>> {
        let expected = counts.map_or(0, Counts::digest);
        let told = self.exchange_words([own, expected, 0, 0, 0, 0], call)?;
        let sizes: Vec<u64> = told.iter().map(|[own, ..]| *own).collect();
        if told.get(root as usize).is_some_and(|[_, expected, ..]| *expected == digest(&sizes)) {
            return Ok(sizes);
        }
        let differs = |(rank, sent): (u32, &u64)| {
            let expected = counts?.block(rank);
            let call = call.kind.name();
            let error =
                engine::Error::BlockLength { call, from: rank, to: root, sent: *sent, expected };
            (*sent != expected).then_some(Error::Engine(error))
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
