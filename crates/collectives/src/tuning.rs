//! What some algorithms can be adjusted by.

use std::num::{NonZeroU32, NonZeroU64};

/// What some algorithms can be adjusted by; the others ignore it. All ranks give the same.
///
/// ```
/// use collectives::{Tuning, bcast};
/// use std::num::NonZeroU64;
///
/// let tuning = Tuning { segment_bytes: NonZeroU64::new(1000).expect("more than nothing"), ..Tuning::default() };
/// let graph = bcast::Algorithm::SegmentedChain.graph(1, 3, 0, 2500, tuning)?;
/// assert_eq!(graph.vertices().len(), 6); // three segments come and go
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Bytes in each segment of a segmented algorithm; the last segment may be shorter. Reductions
    /// round it down to whole elements, but not below one.
    pub segment_bytes: NonZeroU64,
    /// How many children a rank has in a tree of any degree, and how many ranks exchange with each
    /// other in a phase of the multiphase all-to-all.
    pub degree: NonZeroU32,
}

impl Default for Tuning {
    /// Segments of 8 KiB, trees of degree 4.
    fn default() -> Self {
        const SEGMENT_BYTES: NonZeroU64 = NonZeroU64::new(8192).expect("more than nothing");
        const DEGREE: NonZeroU32 = NonZeroU32::new(4).expect("more than nothing");
        Tuning { segment_bytes: SEGMENT_BYTES, degree: DEGREE }
    }
}
