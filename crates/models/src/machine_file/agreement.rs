//! Difference of two measurements of a machine.

use super::contents::Machine;
use crate::parameters::Parameters;
use serde::Serialize;
use std::collections::BTreeMap;

/// By how much the values of two machines differ.
///
/// ```
/// use models::machine_file::Agreement;
/// use models::machine::Fingerprint;
/// use models::machine_file::{Engine, Machine};
/// use models::machine::PairClass;
/// use models::parameters::Parameters;
///
/// let machine = |latency: f64| {
///     let mut machine = Machine::new(Fingerprint::default());
///     let network = Parameters::linear(latency, (0.2, 0.0), (0.2, 0.0), (0.5, 0.001)).expect("times");
///     machine.engine_mut(Engine::Caller).classes.insert(PairClass::SharedCache, network);
///     machine
/// };
/// let agreement = Agreement::of(&machine(1.0), &machine(1.5));
/// assert_eq!((agreement.all.values, agreement.all.median), (7, 0.0));
/// assert_eq!(agreement.each["L"].median, 0.4);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Of all values.
    pub all: Apart,
    /// By parameter: L, os, or, g.
    pub each: BTreeMap<&'static str, Apart>,
}

/// Relative difference of values: their difference over their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Apart {
    /// Number of values that both machines have.
    pub values: usize,
    /// Half of them lie closer together.
    pub median: f64,
    /// A tenth of them lies farther apart.
    pub p90: f64,
}

impl Agreement {
    /// Compares the parameters of each engine and class of pairs that both have, at the sizes that
    /// the first was measured at.
    pub fn of(one: &Machine, other: &Machine) -> Self {
        let mut found: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for (engine, left) in &one.engines {
            let Some(right) = other.engines.get(engine) else { continue };
            for (class, parameters) in left.classes.iter() {
                if let Some(right) = right.classes.get(class) {
                    compare(parameters, right, &mut found);
                }
            }
        }
        let all = Apart::of(found.values().flatten().copied().collect());
        Agreement {
            all,
            each: found.into_iter().map(|(name, values)| (name, Apart::of(values))).collect(),
        }
    }
}

fn compare(one: &Parameters, other: &Parameters, found: &mut BTreeMap<&'static str, Vec<f64>>) {
    let mut add =
        |name, left: f64, right: f64| found.entry(name).or_default().push(difference(left, right));
    add("L", one.latency(), other.latency());
    for point in one.points() {
        add("os", point.send_overhead, other.send_overhead(point.bytes));
        add("or", point.receive_overhead, other.receive_overhead(point.bytes));
        add("g", point.gap, other.gap(point.bytes));
    }
}

fn difference(left: f64, right: f64) -> f64 {
    let mean = f64::midpoint(left, right);
    if mean > 0.0 { (left - right).abs() / mean } else { 0.0 }
}

impl Apart {
    fn of(differences: Vec<f64>) -> Self {
        let values = differences.len();
        let quantiles = crate::statistics::Sample::of(differences).quantiles;
        Apart { values, median: quantiles.median, p90: quantiles.p90 }
    }
}
