//! Times of single plans beside their predictions.
//!
//! The constants of the models are those of all plans of an engine, so every plan keeps an error of
//! its own: the messages of a graph overlap more than the formula supposes, or less. That error
//! changes slowly with the size. Where a plan was timed at a few sizes, its predictions between them are
//! corrected by the ratios of time and prediction there, on a straight line over the logarithms.

use crate::machine_file::Engine;
use crate::query::{CallForm, Query};
use collectives::{Algorithm, Choice, Collective, Levels};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// A measured time of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedCall {
    /// The call.
    pub query: Query,
    /// The plan.
    pub plan: Choice,
    /// The time in microseconds.
    pub microseconds: f64,
}

/// Share of a ratio's logarithm that corrects predictions: times of equal graphs differ by chance, too.
/// Shares between 0.7 and 0.85 had the least regret for recorded times of two nodes.
const SHARE: f64 = 0.8;

/// A plan of calls among so many ranks, so many of them on each node. Plans that differ in segments
/// or degrees only are one: between timed sizes others are the best.
type TimedPlan = (Engine, CallForm, Collective, u32, u32, Levels, Algorithm);

/// Ratios of times and predictions of plans.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TimeRatios(BTreeMap<TimedPlan, Vec<Ratio>>);

/// Ratio at a size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio {
    /// Logarithm of the size to base 2.
    size: f64,
    /// Natural logarithm of the time over the prediction.
    logarithm: f64,
}

fn size(bytes: u64) -> f64 {
    (bytes.max(1) as f64).log2()
}

fn key(engine: Engine, plan: &Choice, query: &Query) -> TimedPlan {
    let Query { operation, form, ranks, ranks_per_node, .. } = *query;
    (engine, form, operation, ranks, ranks_per_node, plan.levels, plan.algorithm)
}

/// A tree of degree 1 as a chain, and one in which the root has all other ranks as a flat tree: their
/// times differ from those of the degrees between.
fn by_shape(plan: &Choice, query: &Query) -> Choice {
    let algorithm = match (plan.algorithm, plan.levels, plan.degree.map(NonZeroU32::get)) {
        (Algorithm::Dary, Levels::One, Some(1)) => Algorithm::Chain,
        (Algorithm::Dary, Levels::One, Some(degree)) if degree + 1 >= query.ranks => {
            Algorithm::Flat
        }
        (algorithm, ..) => algorithm,
    };
    Choice { algorithm, ..*plan }
}

impl TimeRatios {
    /// Adds the ratio of a time and its prediction.
    pub(super) fn add(&mut self, engine: Engine, plan: &Choice, query: &Query, ratio: f64) {
        if !(ratio > 0.0 && ratio.is_finite()) {
            return;
        }
        let ratios = self.0.entry(key(engine, plan, query)).or_default();
        let one = Ratio { size: size(query.bytes), logarithm: ratio.ln() };
        let at = ratios.partition_point(|other| other.size < one.size);
        match ratios.get_mut(at).filter(|other| other.size == one.size) {
            // Another segment size or degree: candidates have the best one.
            Some(same) => same.logarithm = same.logarithm.min(one.logarithm),
            None => ratios.insert(at, one),
        }
    }

    /// Ratios of a plan, or of its graph under another name.
    fn of(&self, engine: Engine, plan: &Choice, query: &Query) -> Option<&Vec<Ratio>> {
        let of = |plan: &Choice| self.0.get(&key(engine, plan, query));
        of(&by_shape(plan, query)).or_else(|| of(plan))
    }

    /// Returns `true` if a plan was timed at some size.
    pub(super) fn has(&self, engine: Engine, plan: &Choice, query: &Query) -> bool {
        self.of(engine, plan, query).is_some()
    }

    /// Factor for the prediction of a plan; 1 where the plan was not timed.
    pub(super) fn factor(&self, engine: Engine, plan: &Choice, query: &Query) -> f64 {
        let Some(ratios) = self.of(engine, plan, query) else { return 1.0 };
        let x = size(query.bytes);
        let after = ratios.partition_point(|ratio| ratio.size < x);
        let logarithm = match (after.checked_sub(1).map(|before| ratios[before]), ratios.get(after))
        {
            (Some(before), Some(after)) => {
                let share = (x - before.size) / (after.size - before.size);
                before.logarithm + share * (after.logarithm - before.logarithm)
            }
            (Some(end), None) => end.logarithm,
            (None, Some(end)) => end.logarithm,
            (None, None) => 0.0,
        };
        (SHARE * logarithm).exp()
    }
}
