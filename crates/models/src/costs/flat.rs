//! Flat collectives: all ranks of a node read each other's contributions in shared memory. No
//! messages, so no pLogP: their times are parameters of their own, measured at some sizes.

use serde::{Deserialize, Serialize};

/// Times of one flat collective at some numbers of ranks and sizes; straight lines between them.
///
/// Between two measured sizes, and between two measured numbers of ranks, the time is a straight
/// line. Beyond the largest size the line of the last two goes on, never downwards; beyond the
/// largest number of ranks the time grows in proportion.
///
/// ```
/// use models::costs::{FlatCosts, FlatPoint};
/// let point = |ranks, bytes, microseconds| FlatPoint { ranks, bytes, microseconds };
/// let costs = FlatCosts::new(vec![point(2, 0, 1.0), point(2, 100, 3.0), point(4, 0, 2.0)])?;
/// assert_eq!((costs.at(2, 50), costs.at(2, 200), costs.at(3, 0), costs.at(8, 0)), (2.0, 5.0, 1.5, 4.0));
/// # Ok::<(), models::costs::FlatError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<FlatPoint>", into = "Vec<FlatPoint>")]
pub struct FlatCosts {
    /// Ascending by ranks and bytes; not empty.
    points: Vec<FlatPoint>,
}

/// One measured time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlatPoint {
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes as [`Collective`](collectives::Collective) counts them.
    pub bytes: u64,
    /// The time.
    pub microseconds: f64,
}

/// Points that cannot be times of a flat collective.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FlatError {
    /// There are none.
    #[error("a flat collective has no measured time: leave it out")]
    Empty,
    /// A time is negative, not a number, or longer than a year.
    #[error(
        "the flat collective of {bytes} bytes among {ranks} ranks takes {microseconds} µs: give a \
         time that is not negative and below a year"
    )]
    NotATime {
        /// Number of ranks.
        ranks: u32,
        /// Bytes.
        bytes: u64,
        /// The value.
        microseconds: f64,
    },
    /// There are two times for one number of ranks and size.
    #[error("the flat collective of {bytes} bytes among {ranks} ranks has two times: give one")]
    Twice {
        /// Number of ranks.
        ranks: u32,
        /// Bytes.
        bytes: u64,
    },
}

impl FlatCosts {
    /// From measured times, in any order.
    ///
    /// # Errors
    /// [`FlatError`] names the point that cannot be.
    pub fn new(mut points: Vec<FlatPoint>) -> Result<Self, FlatError> {
        for FlatPoint { ranks, bytes, microseconds } in points.iter().copied() {
            if !(0.0..crate::parameters::LONGEST).contains(&microseconds) {
                return Err(FlatError::NotATime { ranks, bytes, microseconds });
            }
        }
        points.sort_by_key(|point| (point.ranks, point.bytes));
        let key = |point: &FlatPoint| (point.ranks, point.bytes);
        if let Some(pair) = points.windows(2).find(|pair| key(&pair[0]) == key(&pair[1])) {
            return Err(FlatError::Twice { ranks: pair[0].ranks, bytes: pair[0].bytes });
        }
        if points.is_empty() { Err(FlatError::Empty) } else { Ok(FlatCosts { points }) }
    }

    /// The measured times, ascending by ranks and bytes.
    pub fn points(&self) -> &[FlatPoint] {
        &self.points
    }

    /// The time among so many ranks, in microseconds.
    pub fn at(&self, ranks: u32, bytes: u64) -> f64 {
        among(&self.points, ranks, bytes)
    }

    /// The time among so many ranks on so many cores, in microseconds. Ranks that share cores wait
    /// for their turns, so only times of ranks that do, or do not, like these count; all times, if
    /// there are no such ones. Below the smallest number of ranks the time is that of this number.
    ///
    /// ```
    /// use models::costs::{FlatCosts, FlatPoint};
    /// let point = |ranks, microseconds| FlatPoint { ranks, bytes: 8, microseconds };
    /// let costs = FlatCosts::new(vec![point(2, 0.5), point(4, 3.5), point(8, 6.5)])?;
    /// let on_two_cores = [2, 3, 4, 6].map(|ranks| costs.on_cores(ranks, 8, 2));
    /// assert_eq!(on_two_cores, [0.5, 3.5, 3.5, 5.0]);
    /// assert_eq!(costs.at(3, 8), 2.0);
    /// # Ok::<(), models::costs::FlatError>(())
    /// ```
    pub fn on_cores(&self, ranks: u32, bytes: u64, cores: u32) -> f64 {
        let with_cores = self.points.partition_point(|point| point.ranks <= cores);
        let (with_cores, sharing) = self.points.split_at(with_cores);
        let own = if ranks <= cores { with_cores } else { sharing };
        among(if own.is_empty() { &self.points } else { own }, ranks, bytes)
    }
}

/// The time among so many ranks, by these points, which ascend.
fn among(points: &[FlatPoint], ranks: u32, bytes: u64) -> f64 {
    let above = points.partition_point(|point| point.ranks < ranks);
    let curve = |ranks: u32| {
        let first = points.partition_point(|point| point.ranks < ranks);
        let end = points.partition_point(|point| point.ranks <= ranks);
        along(&points[first..end], bytes)
    };
    match (points.get(above), above.checked_sub(1).map(|below| points[below].ranks)) {
        (Some(point), Some(below)) if point.ranks > ranks => {
            let share = f64::from(ranks - below) / f64::from(point.ranks - below);
            let low = curve(below);
            low + (curve(point.ranks) - low) * share
        }
        (Some(point), _) => curve(point.ranks),
        (None, Some(below)) => curve(below) * f64::from(ranks) / f64::from(below),
        (None, None) => 0.0,
    }
}

/// The time at a size, by points of one number of ranks.
fn along(points: &[FlatPoint], bytes: u64) -> f64 {
    let after = points.partition_point(|point| point.bytes <= bytes);
    match (after.checked_sub(1).map(|left| points[left]), points.get(after)) {
        (None, None) => 0.0,
        (None, Some(first)) => first.microseconds,
        (Some(left), Some(right)) => {
            let share = (bytes - left.bytes) as f64 / (right.bytes - left.bytes) as f64;
            left.microseconds + (right.microseconds - left.microseconds) * share
        }
        (Some(last), None) => {
            let Some(before) = after.checked_sub(2).map(|before| points[before]) else {
                return last.microseconds;
            };
            let rise = (last.microseconds - before.microseconds).max(0.0);
            let slope = rise / (last.bytes - before.bytes) as f64;
            last.microseconds + slope * (bytes - last.bytes) as f64
        }
    }
}

impl TryFrom<Vec<FlatPoint>> for FlatCosts {
    type Error = FlatError;

    fn try_from(points: Vec<FlatPoint>) -> Result<Self, Self::Error> {
        FlatCosts::new(points)
    }
}

impl From<FlatCosts> for Vec<FlatPoint> {
    fn from(costs: FlatCosts) -> Self {
        costs.points
    }
}
