//! Parameters of one class of pairs.

use serde::{Deserialize, Serialize};

/// No time can be longer: a year, in microseconds. Keeps every sum and product of the models
/// finite.
pub(crate) const LONGEST: f64 = 3.2e13;

/// The pLogP parameters of one class of pairs. All times are microseconds, all sizes bytes.
///
/// A message of m bytes keeps its sender's processor for [`send_overhead`](Self::send_overhead)(m),
/// the way between the two for [`gap`](Self::gap)(m), and the receiver's processor for
/// [`receive_overhead`](Self::receive_overhead)(m). It has arrived [`latency`](Self::latency) +
/// gap(m) after it was sent; the sender may send the next one after gap(m).
///
/// Between two measured sizes each parameter is a straight line. Above the largest the line of the
/// last two goes on, but never downwards: a slope that noise has turned negative counts as zero.
///
/// ```
/// use models::parameters::{Parameters, Point};
///
/// let network = Parameters::new(
///     10.0,
///     vec![
///         Point { bytes: 0, send_overhead: 1.0, receive_overhead: 1.5, gap: 2.0 },
///         Point { bytes: 1000, send_overhead: 2.0, receive_overhead: 2.5, gap: 6.0 },
///     ],
/// )?;
/// assert_eq!(network.gap(250), 3.0);
/// assert_eq!(network.gap(2000), 10.0);
/// assert_eq!(network.arrival(1000), 16.0);
/// # Ok::<(), models::parameters::ParametersError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Parameters {
    latency: f64,
    points: Vec<Point>,
}

/// Measurements at one size. Times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The size of the messages, in bytes.
    pub bytes: u64,
    /// os: how long a send keeps the processor.
    pub send_overhead: f64,
    /// or: how long a receive keeps the processor when the message is already there.
    pub receive_overhead: f64,
    /// g: how long after a message the next one can follow on the same way.
    pub gap: f64,
}

/// Numbers that cannot be the parameters of a machine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParametersError {
    /// A time is negative, not a number, or longer than a year.
    #[error("{name}{place} is {value} µs: give a time that is not negative and below a year")]
    NotATime {
        /// Which parameter.
        name: &'static str,
        /// The place: " in the list of sizes at position 3", or nothing for the latency.
        place: String,
        /// Its value.
        value: f64,
    },
    /// There are fewer than two sizes, too few for a line.
    #[error("{count} sizes were measured: give at least two, and size 0 among them")]
    TooFewSizes {
        /// The number given.
        count: usize,
    },
    /// The first size is not zero.
    #[error("the smallest size measured is {bytes} bytes: measure size 0, too")]
    NoZero {
        /// The first size.
        bytes: u64,
    },
    /// A size is not above its predecessor.
    #[error(
        "size {bytes} at position {position} follows size {before}: give each size once, in \
         ascending order"
    )]
    NotAscending {
        /// Its place in the list, from 0.
        position: usize,
        /// The size.
        bytes: u64,
        /// The size before it.
        before: u64,
    },
}

impl Parameters {
    /// From a latency L in microseconds and what was measured at each size, ascending, beginning
    /// with size 0.
    ///
    /// # Errors
    /// [`ParametersError`] says which number cannot be.
    pub fn new(latency: f64, points: Vec<Point>) -> Result<Self, ParametersError> {
        time("the latency", latency, String::new)?;
        for (position, point) in points.iter().enumerate() {
            let place = || format!(" in the list of sizes at position {position}");
            time("the send overhead", point.send_overhead, place)?;
            time("the receive overhead", point.receive_overhead, place)?;
            time("the gap", point.gap, place)?;
        }
        if let Some(Point { bytes: bytes @ 1.., .. }) = points.first() {
            return Err(ParametersError::NoZero { bytes: *bytes });
        }
        for (before, pair) in points.windows(2).enumerate() {
            if pair[1].bytes <= pair[0].bytes {
                let position = before + 1;
                let bytes = pair[1].bytes;
                let before = pair[0].bytes;
                return Err(ParametersError::NotAscending { position, bytes, before });
            }
        }
        match points.len() {
            count @ ..2 => Err(ParametersError::TooFewSizes { count }),
            _ => Ok(Parameters { latency, points }),
        }
    }

    /// Creates parameters that are straight lines: each is (at size 0, for each byte), in
    /// microseconds.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn linear(
        latency: f64,
        send_overhead: (f64, f64),
        receive_overhead: (f64, f64),
        gap: (f64, f64),
    ) -> Result<Self, ParametersError> {
        const FAR: u64 = 1 << 20;
        let at = |bytes: u64| {
            let value = |(fixed, per_byte): (f64, f64)| fixed + per_byte * bytes as f64;
            let send_overhead = value(send_overhead);
            let receive_overhead = value(receive_overhead);
            Point { bytes, send_overhead, receive_overhead, gap: value(gap) }
        };
        Self::new(latency, vec![at(0), at(FAR)])
    }

    /// The same where so many senders share the way: a message of each follows after so many gaps.
    pub(crate) fn shared_by(&self, senders: f64) -> Self {
        let share = |point: &Point| Point { gap: senders * point.gap, ..*point };
        Parameters { latency: self.latency, points: self.points.iter().map(share).collect() }
    }

    /// L: how long the first byte is under way, in microseconds.
    pub fn latency(&self) -> f64 {
        self.latency
    }

    /// Returns the measurements, sizes ascending from 0; at least two.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// g(m): how long after a message of this size the next one can follow, in microseconds.
    pub fn gap(&self, bytes: u64) -> f64 {
        self.at(bytes, |point| point.gap)
    }

    /// os(m): how long a send of this size keeps the processor, in microseconds.
    pub fn send_overhead(&self, bytes: u64) -> f64 {
        self.at(bytes, |point| point.send_overhead)
    }

    /// or(m): how long a receive of this size keeps the processor, in microseconds.
    pub fn receive_overhead(&self, bytes: u64) -> f64 {
        self.at(bytes, |point| point.receive_overhead)
    }

    /// L + g(m): when a message has arrived, in microseconds after its send began.
    pub fn arrival(&self, bytes: u64) -> f64 {
        self.latency + self.gap(bytes)
    }

    /// Returns the time of a round in which a rank sends a message and waits for another of the
    /// same size: as long as one message is under way, but never shorter than one processor needs
    /// to send the one and receive the other, in microseconds.
    pub fn exchange(&self, bytes: u64) -> f64 {
        self.arrival(bytes).max(self.send_overhead(bytes) + self.receive_overhead(bytes))
    }

    fn at(&self, bytes: u64, parameter: impl Fn(&Point) -> f64) -> f64 {
        // The number of points not above `bytes` is at least one, since the first is at size 0.
        let after = self.points.partition_point(|point| point.bytes <= bytes).max(1);
        let beyond = after == self.points.len();
        let (left, right) = if beyond { (after - 2, after - 1) } else { (after - 1, after) };
        let left = &self.points[left];
        let right = &self.points[right];
        let low = parameter(left);
        let high = parameter(right);
        if beyond {
            let slope = (high - low).max(0.0) / (right.bytes - left.bytes) as f64;
            high + slope * (bytes - right.bytes) as f64
        } else {
            let share = (bytes - left.bytes) as f64 / (right.bytes - left.bytes) as f64;
            low + (high - low) * share
        }
    }
}

fn time(name: &'static str, value: f64, place: impl Fn() -> String) -> Result<(), ParametersError> {
    if (0.0..LONGEST).contains(&value) {
        Ok(())
    } else {
        Err(ParametersError::NotATime { name, place: place(), value })
    }
}

/// The form in files, before validation.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    latency: f64,
    points: Vec<Point>,
}

impl TryFrom<Unchecked> for Parameters {
    type Error = ParametersError;

    fn try_from(unchecked: Unchecked) -> Result<Self, Self::Error> {
        Parameters::new(unchecked.latency, unchecked.points)
    }
}

impl From<Parameters> for Unchecked {
    fn from(Parameters { latency, points }: Parameters) -> Self {
        Unchecked { latency, points }
    }
}
