//! The search for the segment size that makes a segmented algorithm fastest.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// Largest number of moves at each step width. A convex cost needs two at most; on others the
/// search must end.
const MOVES: u32 = 32;

/// From how many sizes to climb: costs with steps, as protocols have, hide a better valley behind
/// the best start.
const CLIMBS: usize = 3;

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// The size of a segment in bytes.
    pub bytes: NonZeroU64,
    /// Its cost.
    pub cost: f64,
    /// For how many sizes the cost function was asked.
    pub evaluations: usize,
}

/// The segment size for a message of `bytes` bytes at which `cost` is least: all of m/2^i, i = 0 …
/// ⌊log₂ m⌋, then from the best three of them hill climbing, in steps from half the size down to
/// one `granule`.
///
/// Barchet-Estefanel, Mounié 2004, section 3, with the climbing of Kielmann, Bal, Gorlatch,
/// Verstoep, Hofman, Parallel Computing 27(11), 2001. Every size is a multiple of the granule, the
/// size of one element, except that the whole message is one segment whatever its size. The result
/// is never worse than the best m/2^i, and is the minimum where the cost falls, then rises. Costs
/// that are not numbers lose against all others. Of equal sizes, the longest wins: it has fewer
/// segments.
///
/// ```
/// use models::costs::segment;
/// use std::num::NonZeroU64;
///
/// // A pipeline of 5 ranks, 10 µs a segment and 0.01 µs a byte: the longer a segment, the longer the others wait for it.
/// let pipeline = |segment: u64| (4.0 + 100_000f64 / segment as f64 - 1.0) * (10.0 + 0.01 * segment as f64);
/// let found = segment::search(100_000, NonZeroU64::MIN, pipeline);
/// assert_eq!(found.bytes.get(), 5774); // √(m × 10 / (3 × 0.01)) is 5773.5
/// ```
pub fn search(bytes: u64, granule: NonZeroU64, cost: impl FnMut(u64) -> f64) -> Segment {
    let mut search =
        Search { whole: bytes.max(1), granule: granule.get(), cost, known: BTreeMap::new() };
    let mut starts: Vec<(f64, u64)> = Vec::new();
    for halvings in 0..=search.whole.ilog2() {
        let size = search.whole_granules(search.whole >> halvings);
        starts.push((search.cost_of(size), size));
    }
    // A stable sort: of equal costs, the longest segments come first.
    starts.sort_by(|left, right| left.0.total_cmp(&right.0));
    starts.dedup_by_key(|start| start.1);
    let mut best = starts[0];
    for start in starts.into_iter().take(CLIMBS) {
        let found = search.climb(start);
        if found.0 < best.0 {
            best = found;
        }
    }
    let bytes = NonZeroU64::new(best.1).unwrap_or(NonZeroU64::MIN);
    Segment { bytes, cost: best.0, evaluations: search.known.len() }
}

struct Search<F> {
    whole: u64,
    granule: u64,
    cost: F,
    known: BTreeMap<u64, f64>,
}

impl<F: FnMut(u64) -> f64> Search<F> {
    fn cost_of(&mut self, size: u64) -> f64 {
        *self.known.entry(size).or_insert_with(|| match (self.cost)(size) {
            cost if cost.is_nan() => f64::INFINITY,
            cost => cost,
        })
    }

    /// Rounded down to whole granules, but not below one; the whole message remains as it is.
    fn whole_granules(&self, size: u64) -> u64 {
        if size >= self.whole {
            self.whole
        } else {
            ((size / self.granule).max(1) * self.granule).min(self.whole)
        }
    }

    /// Goes to better neighbours, in steps that become smaller.
    fn climb(&mut self, mut best: (f64, u64)) -> (f64, u64) {
        let mut granules = best.1 / 2 / self.granule;
        while granules > 0 {
            for _ in 0..MOVES {
                let next = self.best_neighbour(best, granules * self.granule);
                if next == best {
                    break;
                }
                best = next;
            }
            granules /= 2;
        }
        best
    }

    /// The better one of the two sizes a step away, or the size itself.
    fn best_neighbour(&mut self, from: (f64, u64), step: u64) -> (f64, u64) {
        let mut best = from;
        for size in [from.1.saturating_sub(step), from.1.saturating_add(step)] {
            let size = self.whole_granules(size);
            let cost = self.cost_of(size);
            if cost < best.0 {
                best = (cost, size);
            }
        }
        best
    }
}
