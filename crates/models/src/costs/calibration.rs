//! Corrections of an engine's parameters between nodes by times of collectives.

use super::level::Costs;
use crate::parameters::{Parameters, Point};
use serde::{Deserialize, Serialize};

/// Corrections of the parameters of an engine between nodes, fitted to times of collectives.
///
/// Parameters are those of one pair of ranks. In a collective more ranks share the cores and the way
/// to the other nodes, a message finds its receiver in a wait, and one call follows the other: what
/// a pair does not show. So the parameters keep the shape of their curves, and a few constants are
/// fitted. Times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Cost of a run besides its messages.
    pub start: f64,
    /// The same for each byte of private buffers.
    pub start_per_byte: f64,
    /// Time to combine two contributions, for each byte.
    pub combine: f64,
    /// γ, the contention ratio of the direct all-to-all.
    pub contention: f64,
    /// Messages inside a node.
    pub inside: MessageCalibration,
    /// Messages between nodes.
    pub between: MessageCalibration,
    /// Relative error after the fit: three quarters of the fitted times are nearer.
    pub error: f64,
}

/// Corrections of the parameters of messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageCalibration {
    /// Factor of the latency.
    pub latency: f64,
    /// Factor of the gap.
    pub gap: f64,
    /// Factor of the overheads; of the gap, where no overheads were measured.
    pub overhead: f64,
    /// Addition to the overheads, in microseconds.
    pub more_overhead: f64,
}

impl Calibration {
    /// Corrects the costs of messages inside nodes, or between them.
    pub(crate) fn apply(&self, costs: &mut Costs, is_inside: bool) {
        let messages = if is_inside { &self.inside } else { &self.between };
        // Corrections are checked when they are read; without a result the pair's parameters stay.
        if let Some(network) = messages.corrected(&costs.network) {
            costs.network = network;
        }
        costs.start.fixed = self.start;
        costs.start.per_byte = self.start_per_byte;
        costs.combine = self.combine;
        costs.contention = self.contention;
    }

    /// The first number that cannot be, with its name.
    pub(crate) fn check(&self) -> Result<(), (&'static str, f64)> {
        let Calibration { start, start_per_byte, combine, contention, inside, between, error } =
            self;
        let own = [
            ("start", *start),
            ("start_per_byte", *start_per_byte),
            ("combine", *combine),
            ("contention", *contention),
            ("error", *error),
        ];
        let of = |one: &MessageCalibration, names: [&'static str; 4]| {
            let values = [one.latency, one.gap, one.overhead, one.more_overhead];
            names.into_iter().zip(values)
        };
        let inside =
            of(inside, ["inside.latency", "inside.gap", "inside.overhead", "inside.more_overhead"]);
        let between = of(
            between,
            ["between.latency", "between.gap", "between.overhead", "between.more_overhead"],
        );
        let is_wrong = |(_, value): &(&'static str, f64)| !(0.0..1e6).contains(value);
        own.into_iter().chain(inside).chain(between).find(is_wrong).map_or(Ok(()), Err)
    }
}

impl MessageCalibration {
    fn corrected(&self, network: &Parameters) -> Option<Parameters> {
        let has_overheads = network
            .points()
            .iter()
            .any(|point| point.send_overhead > 0.0 || point.receive_overhead > 0.0);
        let overhead = |measured: f64, gap: f64| {
            self.overhead * if has_overheads { measured } else { gap } + self.more_overhead
        };
        let point = |point: &Point| Point {
            bytes: point.bytes,
            send_overhead: overhead(point.send_overhead, point.gap),
            receive_overhead: overhead(point.receive_overhead, point.gap),
            gap: self.gap * point.gap,
        };
        let points = network.points().iter().map(point).collect();
        Parameters::new(self.latency * network.latency(), points).ok()
    }
}
