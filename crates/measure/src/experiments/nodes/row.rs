//! Rows of the result, and the targets of the kernel engine.

use super::measure::{ExchangePattern, Measure};
use models::statistics::percentile;
use serde::Serialize;

/// In what a value is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Millionths of a second.
    #[serde(rename = "µs")]
    Microseconds,
    /// Thousandths of them.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Of a hundred.
    #[serde(rename = "%")]
    Percent,
}

impl Unit {
    /// As it is written behind a number.
    pub fn sign(self) -> &'static str {
        match self {
            Unit::Microseconds => "µs",
            Unit::Nanoseconds => "ns",
            Unit::Percent => "%",
        }
    }
}

/// One value of one engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The measured quantity.
    pub what: &'static str,
    /// Which engine.
    pub engine: String,
    /// Number of nodes.
    pub nodes: u32,
    /// Bytes of a message or vector, 0 where there is none.
    pub bytes: u64,
    /// In what the values are counted.
    pub unit: Unit,
    /// The middle of the rounds.
    pub median: f64,
    /// The least round.
    pub least: f64,
    /// The greatest round.
    pub greatest: f64,
    /// Number of rounds.
    pub rounds: usize,
}

impl Row {
    /// Summarises these rounds.
    pub(super) fn of(kind: Kind, engine: &str, nodes: u32, bytes: u64, rounds: &[f64]) -> Self {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share| (percentile(&sorted, share) * 1e3).round() / 1e3;
        let (what, unit) = kind.name();
        let median = at(0.5);
        let least = at(0.0);
        let greatest = at(1.0);
        Row {
            what,
            engine: engine.to_owned(),
            nodes,
            bytes,
            unit,
            median,
            least,
            greatest,
            rounds: sorted.len(),
        }
    }
}

/// Which value of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Latency,
    Barrier,
    Alone,
    Total,
    Exposed,
    Unattended,
    Stolen,
    Test,
    LateWait,
    Start,
    Operation,
    Reduction,
    Exchange(ExchangePattern),
    ExchangeByOne(ExchangePattern),
    ExchangeCost(ExchangePattern),
}

impl Kind {
    pub(super) fn name(self) -> (&'static str, Unit) {
        match self {
            Kind::Latency => ("ping-pong, half a round trip", Unit::Microseconds),
            Kind::Barrier => ("barrier", Unit::Microseconds),
            Kind::Alone => ("exchange alone", Unit::Microseconds),
            Kind::Total => ("exchange under computation, total", Unit::Microseconds),
            Kind::Exposed => ("exchange under computation, exposed", Unit::Microseconds),
            Kind::Unattended => ("exchange complete when the computation ended", Unit::Percent),
            Kind::Stolen => ("processor time of an exchange, all nodes", Unit::Microseconds),
            Kind::Test => ("test of a complete run", Unit::Nanoseconds),
            Kind::LateWait => ("wait for a complete run", Unit::Microseconds),
            Kind::Start => ("start with one send", Unit::Microseconds),
            Kind::Operation => ("operation in one activation", Unit::Nanoseconds),
            Kind::Reduction => ("greater of two f32 vectors", Unit::Microseconds),
            Kind::Exchange(ExchangePattern::AllRanks) => {
                ("alltoall, called by all ranks", Unit::Microseconds)
            }
            Kind::ExchangeByOne(ExchangePattern::AllRanks) => {
                ("alltoall, one thread for all ranks", Unit::Microseconds)
            }
            Kind::ExchangeCost(ExchangePattern::AllRanks) => {
                ("processor time of an alltoall by one thread", Unit::Microseconds)
            }
            Kind::Exchange(ExchangePattern::Torus) => {
                ("exchange on a torus, called by all ranks", Unit::Microseconds)
            }
            Kind::ExchangeByOne(ExchangePattern::Torus) => {
                ("exchange on a torus, one thread for all ranks", Unit::Microseconds)
            }
            Kind::ExchangeCost(ExchangePattern::Torus) => {
                ("processor time of an exchange on a torus by one thread", Unit::Microseconds)
            }
        }
    }

    /// The kinds of values of a measure, in the order of its rounds.
    pub(super) fn of(measure: Measure) -> Vec<Kind> {
        match measure {
            Measure::PingPong { .. } => vec![Kind::Latency],
            Measure::Barrier => vec![Kind::Barrier],
            Measure::Overlap { .. } => {
                vec![Kind::Alone, Kind::Total, Kind::Exposed, Kind::Unattended, Kind::Stolen]
            }
            Measure::Test => vec![Kind::Test],
            Measure::LateWait => vec![Kind::LateWait],
            Measure::Start => vec![Kind::Start],
            Measure::Operation => vec![Kind::Operation],
            Measure::Reduction { .. } => vec![Kind::Reduction],
            Measure::Exchange { pattern, .. } => {
                vec![
                    Kind::Exchange(pattern),
                    Kind::ExchangeByOne(pattern),
                    Kind::ExchangeCost(pattern),
                ]
            }
        }
    }
}

/// A limit that the kernel engine is to stay within, and the value found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The quantity.
    pub what: String,
    /// The most it may be.
    pub limit: f64,
    /// The limit.
    pub found: f64,
    /// Behind the numbers.
    pub unit: &'static str,
}

impl Target {
    /// Returns true if it is reached.
    pub fn holds(&self) -> bool {
        self.found <= self.limit
    }
}

/// Compares these rows with the kernel engine's targets, alone and beside the agent; only for what
/// was measured.
pub fn targets(rows: &[Row]) -> Vec<Target> {
    let value = |engine: &str, kind: Kind| {
        let (what, _) = kind.name();
        rows.iter()
            .find(|row| row.engine == engine && row.what == what && row.nodes == 2)
            .map(|row| row.median)
    };
    let mut targets = Vec::new();
    for (kind, limit) in [(Kind::Barrier, 0.7), (Kind::Exposed, 0.35), (Kind::Stolen, 0.5)] {
        if let (Some(kernel), Some(agent)) = (value("kernel", kind), value("agent", kind)) {
            let what = format!("{}, 2 nodes, kernel against agent", kind.name().0);
            targets.push(Target {
                what,
                limit,
                found: (kernel / agent * 1e3).round() / 1e3,
                unit: "×",
            });
        }
    }
    for (kind, limit) in
        [(Kind::Test, 10.0), (Kind::LateWait, 0.2), (Kind::Operation, 50.0), (Kind::Start, 12.0)]
    {
        if let Some(found) = value("kernel", kind) {
            let (what, unit) = kind.name();
            targets.push(Target {
                what: format!("{what}, kernel"),
                limit,
                found,
                unit: unit.sign(),
            });
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_made_of_what_was_measured_on_two_nodes() {
        let row = |kind, engine, nodes, value| Row::of(kind, engine, nodes, 0, &[value]);
        let rows = [
            row(Kind::Barrier, "agent", 2, 20.0),
            row(Kind::Barrier, "kernel", 4, 1.0),
            row(Kind::Barrier, "kernel", 2, 16.0),
            row(Kind::Test, "kernel", 2, 3.0),
        ];
        let targets = targets(&rows);
        let found: Vec<(f64, bool)> =
            targets.iter().map(|target| (target.found, target.holds())).collect();
        assert_eq!(found, [(0.8, false), (3.0, true)]);
    }
}
