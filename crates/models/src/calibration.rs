//! Fits the [corrections](Calibration) of an engine's parameters to times of collectives.

use crate::costs::{Calibration, MessageCalibration};
use crate::machine::PairClass;
use crate::machine_file::{Engine, Machine};
use crate::prediction::Models;
pub use crate::prediction::TimedCall;
use crate::statistics::percentile;

/// Number of constants.
const CONSTANTS: usize = 12;
/// Fewer times do not determine them.
const FEWEST: usize = 3 * CONSTANTS;
/// Steps of the search, as logarithms of factors: from the first by halves down to the last.
const STEPS: [f64; 2] = [0.8, 0.02];
/// First additions to the overheads, in microseconds: the search ends in the nearest minimum.
const MORE_OVERHEADS: [f64; 2] = [0.3, 2.0];
/// Searches from where the one before has ended.
const SEARCHES: usize = 2;
/// Passes over all constants with one step, at most.
const PASSES: usize = 8;
/// Weight of the logarithms of all corrections beside those of the errors: constants that no time
/// depends on stay.
const RESTRAINT: f64 = 0.002;
/// A ratio of times that counts no more than this, as a logarithm: outliers.
const FAR: f64 = 2.0;

/// Returns the corrections with which the models predict these times of an engine between nodes
/// best: the least mean of the absolute logarithms of ratios. `None` for an engine without
/// parameters between nodes, or with too few times.
///
/// The search changes one constant at a time by a factor, which gets smaller. It needs no
/// derivatives, which the formulas do not have where one term becomes the longest.
pub fn calibrate(machine: &Machine, engine: Engine, times: &[TimedCall]) -> Option<Calibration> {
    let costs = machine.engines.get(&engine)?;
    if !engine.is_between_nodes() {
        return None;
    }
    // Corrections begin with the parameters as they were measured.
    let mut bare = Machine::new(machine.fingerprint.clone());
    bare.combine = machine.combine;
    bare.engines.insert(
        engine,
        crate::machine_file::EngineCosts {
            samples: std::collections::BTreeMap::new(),
            calibration: None,
            ..costs.clone()
        },
    );
    let models = Models::of(&bare);
    let is_predicted = |time: &&TimedCall| {
        time.microseconds > 0.0 && models.price(Some(engine), &time.plan, &time.query).is_some()
    };
    let times: Vec<TimedCall> = times.iter().filter(is_predicted).copied().collect();
    if times.len() < FEWEST {
        return None;
    }
    let begin = begin(machine, engine)?;
    let mut search = Search { machine: bare, engine, times, begin };
    let found = MORE_OVERHEADS.map(|more| {
        search.begin = Calibration {
            inside: MessageCalibration { more_overhead: more, ..begin.inside },
            between: MessageCalibration { more_overhead: more, ..begin.between },
            ..begin
        };
        let (constants, loss) = search.best();
        (search.calibration(&constants), loss)
    });
    let (calibration, _) = found.into_iter().min_by(|one, other| one.1.total_cmp(&other.1))?;
    let mut errors = search.ratios(&calibration);
    errors.iter_mut().for_each(|logarithm| *logarithm = (logarithm.exp() - 1.0).abs());
    errors.sort_by(f64::total_cmp);
    Some(Calibration { error: percentile(&errors, 0.75), ..calibration })
}

/// The corrections that change nothing, with small numbers for costs that were not measured:
/// factors would leave zero as it is.
fn begin(machine: &Machine, engine: Engine) -> Option<Calibration> {
    const LEAST_START: f64 = 1.0;
    const LEAST_PER_BYTE: f64 = 1e-5;
    const CONTENTION: [f64; 2] = [0.1, 10.0];
    let costs = machine.engines.get(&engine)?;
    costs.classes.get(PairClass::OtherNode)?;
    let start = costs.starts.get(&PairClass::OtherNode).copied().unwrap_or_default();
    let contention = costs.contention.get(&PairClass::OtherNode).copied().unwrap_or(1.0);
    let messages = MessageCalibration { latency: 1.0, gap: 1.0, overhead: 1.0, more_overhead: 0.0 };
    Some(Calibration {
        start: start.fixed.max(LEAST_START),
        start_per_byte: start.per_byte.max(LEAST_PER_BYTE),
        combine: costs.combine.unwrap_or(machine.combine).max(LEAST_PER_BYTE),
        contention: contention.clamp(CONTENTION[0], CONTENTION[1]),
        inside: messages,
        between: messages,
        error: 0.0,
    })
}

struct Search {
    machine: Machine,
    engine: Engine,
    times: Vec<TimedCall>,
    begin: Calibration,
}

impl Search {
    /// The logarithms of the factors of all constants with the least loss, and the loss.
    fn best(&mut self) -> ([f64; CONSTANTS], f64) {
        let mut best = ([0.0; CONSTANTS], self.loss(&[0.0; CONSTANTS]));
        for _ in 0..SEARCHES {
            let mut step = STEPS[0];
            while step >= STEPS[1] {
                // One constant after the other, as long as that helps.
                for _ in 0..PASSES {
                    if !self.pass(&mut best, step) {
                        break;
                    }
                }
                step /= 2.0;
            }
        }
        best
    }

    /// Changes each constant by a step if that makes the loss less; `false` if none did.
    fn pass(&mut self, best: &mut ([f64; CONSTANTS], f64), step: f64) -> bool {
        let before = best.1;
        for place in 0..CONSTANTS {
            for change in [step, -step] {
                let mut other = best.0;
                other[place] += change;
                let loss = self.loss(&other);
                if loss < best.1 {
                    *best = (other, loss);
                    break;
                }
            }
        }
        best.1 < before
    }

    fn calibration(&self, constants: &[f64; CONSTANTS]) -> Calibration {
        let [start, per_byte, combine, contention, inside @ .., a, b, c, d] = constants;
        let messages = |of: &MessageCalibration, [latency, gap, overhead, more]: [f64; 4]| {
            MessageCalibration {
                latency: of.latency * latency.exp(),
                gap: of.gap * gap.exp(),
                overhead: of.overhead * overhead.exp(),
                more_overhead: of.more_overhead * more.exp(),
            }
        };
        Calibration {
            start: self.begin.start * start.exp(),
            start_per_byte: self.begin.start_per_byte * per_byte.exp(),
            combine: self.begin.combine * combine.exp(),
            contention: self.begin.contention * contention.exp(),
            inside: messages(&self.begin.inside, *inside),
            between: messages(&self.begin.between, [*a, *b, *c, *d]),
            error: 0.0,
        }
    }

    fn loss(&mut self, constants: &[f64; CONSTANTS]) -> f64 {
        let ratios = self.ratios(&self.calibration(constants));
        let count = ratios.len().max(1) as f64;
        let misses: f64 = ratios.iter().map(|ratio| ratio.abs().min(FAR)).sum();
        let restraint: f64 = constants.iter().map(|constant| constant * constant).sum();
        misses / count + RESTRAINT * restraint
    }

    /// Logarithms of predicted over measured times.
    fn ratios(&mut self, calibration: &Calibration) -> Vec<f64> {
        if let Some(costs) = self.machine.engines.get_mut(&self.engine) {
            costs.calibration = Some(*calibration);
        }
        let models = Models::of(&self.machine);
        let ratio = |time: &TimedCall| {
            let predicted = models.price(Some(self.engine), &time.plan, &time.query)?;
            Some((predicted.max(1e-3) / time.microseconds).ln())
        };
        self.times.iter().filter_map(ratio).collect()
    }
}
