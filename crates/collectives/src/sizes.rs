//! Number of bytes of each rank.

use crate::CollectiveError;

/// Number of bytes of each rank: the same for all, or a number for each. All ranks pass the same
/// sizes, so one function serves both MPI's scatter and its scatterv, and so on.
///
/// ```
/// use collectives::Sizes;
///
/// let equal = Sizes::equal(3, 100)?;
/// assert_eq!((equal.ranks(), equal.total()), (3, 300));
/// let each = Sizes::each(&[10, 0, 20])?;
/// assert_eq!((each.bytes(2), each.total()), (20, 30));
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    ranks: u32,
    kind: BlockSizes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum BlockSizes {
    /// The same for all ranks.
    Equal { bytes: u64 },
    /// As equal as whole elements can be: the first `larger` parts have an element more than the
    /// others.
    Even { elements: u64, larger: u64, unit: u64 },
    /// Start of each part, and the end of the last one.
    Each { offsets: Vec<u64> },
}

impl Sizes {
    /// The same number of bytes for each rank.
    ///
    /// # Errors
    /// [`CollectiveError::TooManyBytes`] when they are more than 64 bits can count together.
    pub fn equal(ranks: u32, bytes: u64) -> Result<Self, CollectiveError> {
        let count = u64::from(ranks);
        let too_many =
            CollectiveError::TooManyBytes { what: "the blocks of all ranks", count, bytes };
        count.checked_mul(bytes).ok_or(too_many)?;
        Ok(Sizes { ranks, kind: BlockSizes::Equal { bytes } })
    }

    /// A number of bytes for each rank, in rank order.
    ///
    /// # Errors
    /// [`CollectiveError::TooManyBytes`] when they are more than 64 bits can count together.
    pub fn each(bytes: &[u64]) -> Result<Self, CollectiveError> {
        let mut offsets = vec![0u64];
        let mut total = 0u64;
        for size in bytes {
            total = total.checked_add(*size).ok_or_else(|| CollectiveError::TooManyBytes {
                what: "the blocks of all ranks",
                count: bytes.len() as u64,
                bytes: bytes.iter().copied().max().unwrap_or(0),
            })?;
            offsets.push(total);
        }
        // A rank has a number of 32 bits, so no graph has more whatever their number
        // reads as here.
        let ranks = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Ok(Sizes { ranks, kind: BlockSizes::Each { offsets } })
    }

    /// `bytes` bytes, a whole number of elements of `unit` bytes, in as equal parts as can be.
    pub(crate) fn even(parts: u32, bytes: u64, unit: u64) -> Self {
        let count = bytes / unit;
        let kind = match u64::from(parts) {
            0 => BlockSizes::Equal { bytes: 0 },
            parts => BlockSizes::Even { elements: count / parts, larger: count % parts, unit },
        };
        Sizes { ranks: parts, kind }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The bytes of all ranks together.
    pub fn total(&self) -> u64 {
        self.offset(self.ranks)
    }

    /// The bytes of a rank; none for one that does not exist.
    pub fn bytes(&self, rank: u32) -> u64 {
        self.offset(rank.saturating_add(1)) - self.offset(rank)
    }

    /// Refuses different sizes for an algorithm that cannot do with them.
    pub(crate) fn must_be_equal(
        &self,
        algorithm: &'static str,
        instead: &'static str,
    ) -> Result<(), CollectiveError> {
        let equal = (1..self.ranks).all(|rank| self.bytes(rank) == self.bytes(0));
        if equal { Ok(()) } else { Err(CollectiveError::NeedsEqualBlocks { algorithm, instead }) }
    }

    /// The bytes of all ranks before this one, which need not exist.
    pub(crate) fn offset(&self, rank: u32) -> u64 {
        let rank = rank.min(self.ranks);
        let before = u64::from(rank);
        match &self.kind {
            BlockSizes::Equal { bytes } => before * bytes,
            BlockSizes::Even { elements, larger, unit } => {
                (before * elements + before.min(*larger)) * unit
            }
            BlockSizes::Each { offsets } => offsets[rank as usize],
        }
    }

    /// The bytes of `count` ranks from `first` on, which continue with rank 0 after the last rank.
    pub(crate) fn run(&self, first: u32, count: u32) -> u64 {
        let before_wrap = count.min(self.ranks - first);
        self.offset(first + before_wrap) - self.offset(first) + self.offset(count - before_wrap)
    }

    /// The sizes of `count` ranks from `first` on, none of them beyond the last rank.
    pub(crate) fn part(&self, first: u32, count: u32) -> Sizes {
        let kind = match &self.kind {
            BlockSizes::Equal { bytes } => BlockSizes::Equal { bytes: *bytes },
            _ => BlockSizes::Each {
                offsets: (first..=first + count)
                    .map(|rank| self.offset(rank) - self.offset(first))
                    .collect(),
            },
        };
        Sizes { ranks: count, kind }
    }

    /// The sizes of groups of `size` consecutive ranks, of which the last may be smaller.
    pub(crate) fn grouped(&self, size: u32) -> Sizes {
        let groups = self.ranks.div_ceil(size);
        let start = |group: u32| {
            u64::from(group).saturating_mul(u64::from(size)).min(u64::from(self.ranks)) as u32
        };
        Sizes {
            ranks: groups,
            kind: BlockSizes::Each {
                offsets: (0..=groups).map(|group| self.offset(start(group))).collect(),
            },
        }
    }
}
