//! Programs, and the constants and counts of their costs.

use crate::parameters::{Parameters, ParametersError, Point};
use serde::{Deserialize, Serialize};

/// The operations of all ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The ranks, in order.
    pub ranks: Vec<Rank>,
    /// The operations of all of them.
    pub steps: Vec<ProgramStep>,
}

/// Work of a rank besides its operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rank {
    /// Bytes of private input.
    pub input: u64,
    /// Bytes of private output.
    pub output: u64,
    /// Operations that its start sets going or counts for, in order.
    pub starts: Vec<usize>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramStep {
    /// Its rank.
    pub rank: usize,
    /// The rank of the memory it copies from.
    pub from: usize,
    /// Number of arrivals it waits for: of its rank's start, of operations before it, of its
    /// message.
    pub waits: u32,
    /// Bytes that it copies.
    pub copied: u64,
    /// Bytes that it combines.
    pub combined: u64,
    /// To which operations its execution is an arrival.
    pub enables: Vec<usize>,
    /// Which operations are complete with its execution: as a rule itself, and the other end of its
    /// message; a send that waits for its receiver is complete with the receive.
    pub completes: Vec<usize>,
}

/// Constants of the simulation. Times in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// Begin and end of a process's part of a run.
    pub start: f64,
    /// To execute an operation without bytes.
    pub operation: f64,
    /// To see what another core has done.
    pub crossing: f64,
    /// To turn a core to another process.
    pub switch: f64,
    /// To copy bytes that the same core has written last.
    pub copy: Curve,
    /// To copy bytes that another core has written last, beyond what a copy costs anyway.
    pub fetch: Curve,
    /// To combine a byte.
    pub combine: f64,
}

/// A cost that grows with the size, on straight lines between the sizes below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Curve(pub [f64; KNOTS.len()]);

/// The sizes at which a [`Curve`] is told, in bytes; it is 0 at 0, and beyond the last it goes on
/// in proportion.
pub const KNOTS: [u64; 7] = [64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Returns the weight of each knot's value at a size.
pub(crate) fn weights(bytes: u64) -> impl Iterator<Item = (usize, f64)> {
    let last = KNOTS.len() - 1;
    let above = KNOTS.partition_point(|knot| *knot < bytes);
    let (lower, upper) = match above {
        _ if bytes == 0 => (None, None),
        0 => (None, Some((0, bytes as f64 / KNOTS[0] as f64))),
        above if above > last => (None, Some((last, bytes as f64 / KNOTS[last] as f64))),
        above => {
            let low = KNOTS[above - 1] as f64;
            let high = KNOTS[above] as f64;
            let share = (bytes as f64 - low) / (high - low);
            (Some((above - 1, 1.0 - share)), Some((above, share)))
        }
    };
    lower.into_iter().chain(upper)
}

impl Curve {
    /// The cost at a size.
    pub fn at(&self, bytes: u64) -> f64 {
        weights(bytes).map(|(knot, weight)| weight * self.0[knot]).sum()
    }
}

/// Number of times that each cost occurs on the way to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Processes that begin and end.
    pub starts: f64,
    /// Operations.
    pub operations: f64,
    /// Results seen from another core.
    pub crossings: f64,
    /// Turns to another process.
    pub switches: f64,
    /// Bytes combined.
    pub combined: f64,
    /// Copies, by knot.
    pub copies: [f64; KNOTS.len()],
    /// Those of them with bytes last written by another core.
    pub fetches: [f64; KNOTS.len()],
}

/// A moment with the costs before it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Microseconds since the start.
    pub microseconds: f64,
    /// Costs on the way; idle time is not counted.
    pub counts: Counts,
}

impl Moment {
    pub(crate) fn later(self, other: Moment) -> Moment {
        if other.microseconds > self.microseconds { other } else { self }
    }
}

impl Constants {
    /// Those that the parameters of messages suggest, before anything else is known: an operation
    /// costs what sending costs, bytes cost what the gap grows by, and a crossing the latency.
    pub fn guess(network: &Parameters) -> Self {
        let gap = |bytes| (network.gap(bytes) - network.gap(0)).max(0.0);
        Constants {
            start: network.send_overhead(0),
            operation: network.send_overhead(0),
            crossing: network.latency(),
            switch: 0.0,
            copy: Curve(KNOTS.map(gap)),
            fetch: Curve::default(),
            combine: 0.0,
        }
    }

    /// Parameters of messages that these constants suggest, the inverse of
    /// [`guess`](Self::guess).
    ///
    /// # Errors
    /// Constants that are no times.
    pub fn parameters(&self) -> Result<Parameters, ParametersError> {
        let overhead = self.operation;
        let point = |bytes| Point {
            bytes,
            send_overhead: overhead,
            receive_overhead: overhead,
            gap: overhead + self.copy.at(bytes) + self.fetch.at(bytes),
        };
        Parameters::new(self.crossing, [0].into_iter().chain(KNOTS).map(point).collect())
    }

    /// The same, all multiplied by a factor.
    pub fn scaled(self, factor: f64) -> Self {
        let Constants { start, operation, crossing, switch, copy, fetch, combine } = self;
        let curve = |curve: Curve| Curve(curve.0.map(|cost| cost * factor));
        Constants {
            start: start * factor,
            operation: operation * factor,
            crossing: crossing * factor,
            switch: switch * factor,
            copy: curve(copy),
            fetch: curve(fetch),
            combine: combine * factor,
        }
    }

    /// Returns the cost of these counts.
    pub fn price(&self, counts: &Counts) -> f64 {
        let sum = |curve: &Curve, counts: [f64; KNOTS.len()]| -> f64 {
            curve.0.iter().zip(counts).map(|(cost, count)| cost * count).sum()
        };
        self.start * counts.starts
            + self.operation * counts.operations
            + self.crossing * counts.crossings
            + self.switch * counts.switches
            + self.combine * counts.combined
            + sum(&self.copy, counts.copies)
            + sum(&self.fetch, counts.fetches)
    }
}
