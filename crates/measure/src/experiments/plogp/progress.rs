//! Flat collectives, and the constants of cooperative progress, among some number of ranks of one
//! node: what predicts collectives there.

use crate::experiments::algorithms::{CollectiveCall, compare};
use crate::experiments::sharing::{self, Model, is_fitted};
use crate::harness::timer::Budget;
use crate::harness::{Doubts, Error, Sign, StepContext};
use collectives::{Algorithm, Choice, Collective};
use models::costs::{FlatCosts, FlatPoint, Sharing};
use models::decision::CallForm;
use models::machine_file::Machine;
use std::num::NonZeroU64;

/// Segments of the one segmented algorithm that constants are fitted to.
const SEGMENT: NonZeroU64 = NonZeroU64::new(8 << 10).expect("not zero");
/// No collective takes more memory than this.
const MOST_MEMORY: u64 = 1 << 27;
/// The speed has changed if two visits differ by this factor.
const CHANGED: f64 = 1.5;

/// Times among the ranks of a job.
#[derive(Debug, Default)]
pub(super) struct Progress {
    flat: Vec<(CallForm, Collective, FlatPoint)>,
    graphs: Vec<sharing::Measured>,
    /// Times that were measured again, and those among them that had changed by half.
    again: usize,
    changed: usize,
}

/// Operations and sizes of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) operations: &'static [Collective],
    pub(super) sizes: &'static [u64],
    pub(super) budget: Budget,
    /// Number of visits to each size. A machine keeps one speed for seconds, and the faster visit
    /// counts: what comes between makes a machine slower and never faster.
    pub(super) visits: u32,
}

/// Times flat collectives in both forms, and the graphs that constants are fitted to. All ranks
/// call this.
pub(super) fn measure(here: &StepContext<'_>, plan: Plan) -> Result<Progress, Error> {
    let ranks = here.world.size();
    let mut found = Progress::default();
    let visits = (0..plan.visits).flat_map(|_| plan.operations);
    for operation in visits.copied() {
        let sizes: &[u64] = if operation == Collective::Barrier { &[0] } else { plan.sizes };
        for bytes in sizes.iter().copied() {
            for form in CallForm::ALL.iter().copied() {
                let shape = CollectiveCall { operation, form, ranks, bytes, root: 0 };
                if shape.memory() > MOST_MEMORY {
                    continue;
                }
                let plans = plans(&shape);
                for row in compare(here, &shape, &plans, plan.budget)? {
                    if let Some(plan) = row.algorithm {
                        found.add(shape, plan, row.median());
                    }
                }
            }
        }
    }
    Ok(found)
}

/// The flat collective, and in blocking form the graphs that constants are fitted to: both forms
/// run graphs alike.
fn plans(shape: &CollectiveCall) -> Vec<Choice> {
    let mut plans = vec![Choice::of(Algorithm::Join)];
    if shape.form == CallForm::Blocking {
        let all = shape.plans(&[SEGMENT]).into_iter();
        plans.extend(all.filter(|plan| {
            plan.algorithm != Algorithm::Join && is_fitted(shape.operation, plan.algorithm)
        }));
    }
    plans
}

impl Progress {
    /// Adds a time, if no visit has found a shorter one.
    fn add(&mut self, shape: CollectiveCall, plan: Choice, microseconds: f64) {
        let CollectiveCall { operation, form, ranks, bytes, .. } = shape;
        let known = if plan.algorithm == Algorithm::Join {
            let same = |(of_form, of, old): &&mut (CallForm, Collective, FlatPoint)| {
                (*of_form, *of, old.bytes) == (form, operation, bytes)
            };
            self.flat.iter_mut().find(same).map(|(.., old)| &mut old.microseconds)
        } else {
            let same = |old: &&mut sharing::Measured| (old.shape, old.plan) == (shape, plan);
            self.graphs.iter_mut().find(same).map(|old| &mut old.microseconds)
        };
        match known {
            Some(known) => {
                let changed = (microseconds / known.max(f64::MIN_POSITIVE)).ln().abs();
                self.again += 1;
                self.changed += usize::from(changed > CHANGED.ln());
                *known = known.min(microseconds);
            }
            None if plan.algorithm == Algorithm::Join => {
                self.flat.push((form, operation, FlatPoint { ranks, bytes, microseconds }));
            }
            None => self.graphs.push(sharing::Measured { shape, plan, microseconds }),
        }
    }

    /// Doubts that follow from times that changed between two visits.
    pub(super) fn doubts(&self) -> Doubts {
        Doubts::of([(Sign::ChangedSpeed, self.changed as f64 / self.again.max(1) as f64)])
    }

    /// The constants of cooperative progress among these ranks.
    pub(super) fn sharing(&self, ranks: u32, cores: u32) -> Option<Sharing> {
        let model = Model::of(&self.graphs, cores.min(ranks) as usize)?;
        Some(model.sharing(ranks, cores, &self.graphs))
    }

    /// The times of flat collectives.
    pub(super) fn flat(&self) -> impl Iterator<Item = &(CallForm, Collective, FlatPoint)> {
        self.flat.iter()
    }

    /// Puts everything into a machine's file, in the place of what it has for these ranks.
    pub(super) fn keep(&self, machine: &mut Machine, sharing: Option<Sharing>) {
        for (form, operation, point) in &self.flat {
            let of_form = machine.flat.entry(*form).or_default();
            let mut points =
                of_form.get(operation).map_or(Vec::new(), |costs| costs.points().to_vec());
            points.retain(|old| (old.ranks, old.bytes) != (point.ranks, point.bytes));
            points.push(*point);
            // Times of a clock are times.
            if let Ok(costs) = FlatCosts::new(points) {
                of_form.insert(*operation, costs);
            }
        }
        if let Some(sharing) = sharing {
            machine.sharing.retain(|old| old.ranks != sharing.ranks);
            machine.sharing.push(sharing);
            machine.sharing.sort_by_key(|one| one.ranks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::machine::Fingerprint;

    /// Four sizes, of which some take twice as long at the second visit.
    #[test]
    fn a_speed_that_changes_is_a_doubt() {
        let of = |slow: u64| {
            let mut progress = Progress::default();
            for visit in 0..2 {
                for bytes in 0..4 {
                    let operation = Collective::Bcast;
                    let form = CallForm::Blocking;
                    let shape = CollectiveCall { operation, form, ranks: 2, bytes, root: 0 };
                    let time = if visit == 1 && bytes < slow { 2.0 } else { 1.0 };
                    progress.add(shape, Choice::of(Algorithm::Join), time);
                    progress.add(shape, Choice::of(Algorithm::Binomial), time);
                }
            }
            assert!(progress.flat.iter().all(|(.., point)| point.microseconds == 1.0));
            progress.doubts()
        };
        assert!(!of(1).is_disturbed(), "{:?}", of(1));
        assert_eq!(of(3).to_string(), "75 % of the times changed by half meanwhile");
        assert!(!Progress::default().doubts().is_disturbed());
    }

    #[test]
    fn what_was_measured_before_is_replaced() {
        let point = |bytes, microseconds| FlatPoint { ranks: 2, bytes, microseconds };
        let of = |point| Progress {
            flat: vec![(CallForm::Blocking, Collective::Bcast, point)],
            ..Progress::default()
        };
        let mut machine = Machine::new(Fingerprint::default());
        for one in [point(8, 1.0), point(64, 2.0), point(8, 3.0)] {
            of(one).keep(&mut machine, None);
        }
        let kept = &machine.flat[&CallForm::Blocking][&Collective::Bcast];
        assert_eq!(kept.points(), [point(8, 3.0), point(64, 2.0)]);
    }
}
