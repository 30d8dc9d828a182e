//! Flat collectives, and the constants of cooperative progress, among some number of ranks of one
//! node: what predicts collectives there.

use crate::experiments::algorithms::{CollectiveCall, compare};
use crate::experiments::sharing::{Model, is_fitted};
use crate::harness::timer::Budget;
use crate::harness::{Doubts, Error, Sign, StepContext};
use crate::rows::{Cores, Row, Run};
use collectives::{Algorithm, Choice, Collective};
use models::calibration::TimedCall;
use models::costs::{FlatCosts, FlatPoint};
use models::decision::{CallForm, Query};
use models::machine_file::Machine;
use std::num::NonZeroU64;

/// Segments of the one segmented algorithm that constants are fitted to.
const SEGMENT: NonZeroU64 = NonZeroU64::new(8 << 10).expect("not zero");
/// No collective takes more memory than this.
const MOST_MEMORY: u64 = 1 << 27;
/// The speed has changed if two visits differ by this factor.
const CHANGED: f64 = 1.5;

/// Times among some number of ranks.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) ranks: u32,
    /// The least time of each plan of each call.
    times: Vec<TimedCall>,
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
    /// Attempts at a measurement that something disturbs.
    pub(super) attempts: u32,
}

/// Times flat collectives in both forms, and the graphs that constants are fitted to. All ranks
/// call this.
pub(super) fn measure(here: &StepContext<'_>, plan: Plan) -> Result<Vec<Row>, Error> {
    let ranks = here.world.size();
    let mut rows = Vec::new();
    let visits = (0..plan.visits).flat_map(|_| plan.operations);
    for operation in visits.copied() {
        let calls = CollectiveCall::all(operation, CallForm::ALL, ranks, plan.sizes, MOST_MEMORY);
        for call in calls {
            rows.extend(compare(here, &call, &plans(&call), plan.budget)?);
        }
    }
    Ok(rows)
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
    /// Times in rows of [`measure`]; `None` without any. The rows of pairs of ranks are others.
    pub(super) fn of(rows: &[Row]) -> Option<Self> {
        let mut found = Progress { ranks: 0, times: Vec::new(), again: 0, changed: 0 };
        for row in rows.iter().filter(|row| row.pair.is_none()) {
            if let (Some(query), Some(plan)) = (row.query(), row.algorithm) {
                found.ranks = row.ranks;
                found.add(TimedCall { query, plan, microseconds: row.median() });
            }
        }
        (found.ranks > 0).then_some(found)
    }

    /// Adds a time, if no visit has found a shorter one.
    fn add(&mut self, time: TimedCall) {
        let is_same = |old: &&mut TimedCall| (old.query, old.plan) == (time.query, time.plan);
        let Some(known) = self.times.iter_mut().find(is_same) else {
            return self.times.push(time);
        };
        let changed = (time.microseconds / known.microseconds.max(f64::MIN_POSITIVE)).ln().abs();
        self.again += 1;
        self.changed += usize::from(changed > CHANGED.ln());
        known.microseconds = known.microseconds.min(time.microseconds);
    }

    /// Doubts that follow from times that changed between two visits.
    pub(super) fn doubts(&self) -> Doubts {
        Doubts::of([(Sign::ChangedSpeed, self.changed as f64 / self.again.max(1) as f64)])
    }

    /// Puts all into a machine's file, in the place of what it has for these ranks and sizes. So many
    /// cores run the ranks.
    pub(super) fn put(&self, machine: &mut Machine, cores: u32) {
        let is_flat = |time: &&TimedCall| time.plan.algorithm == Algorithm::Join;
        let (flat, graphs): (Vec<&TimedCall>, Vec<&TimedCall>) =
            self.times.iter().partition(|time| is_flat(time));
        for TimedCall { query, microseconds, .. } in flat.into_iter().copied() {
            let Query { operation, form, ranks, bytes, .. } = query;
            let of_form = machine.flat.entry(form).or_default();
            let mut points =
                of_form.get(&operation).map_or(Vec::new(), |costs| costs.points().to_vec());
            points.retain(|old| (old.ranks, old.bytes) != (ranks, bytes));
            points.push(FlatPoint { ranks, bytes, microseconds });
            // Times of a clock are times.
            if let Ok(costs) = FlatCosts::new(points) {
                of_form.insert(operation, costs);
            }
        }
        let model = Model::of(graphs.iter().copied(), cores.min(self.ranks) as usize);
        if let Some(model) = model {
            machine.sharing.retain(|old| old.ranks != self.ranks);
            machine.sharing.push(model.sharing(self.ranks, cores, graphs));
            machine.sharing.sort_by_key(|one| one.ranks);
        }
    }
}

/// Number of cores that the ranks of a run may use.
pub(super) fn cores_of(run: &Run) -> u32 {
    let list = run.setting.get("cores").map(|list| list.split(',').count() as u32);
    let of_rows = run.rows().filter_map(|row| row.cores.as_ref());
    list.or_else(|| of_rows.map(Cores::number).max()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::plogp::found::tests::row;
    use crate::rows::{Quantity, What};
    use models::machine::Fingerprint;
    use models::machine_file::Engine;

    fn bcast(bytes: u64, algorithm: Algorithm, time: f64) -> Row {
        let row = row(What::Collective(Collective::Bcast), Quantity::Alone, &[time]).sized(bytes);
        row.by(Engine::Peers, CallForm::Blocking, Some(Choice::of(algorithm)))
    }

    /// Four sizes, of which some take twice as long at the second visit.
    #[test]
    fn a_speed_that_changes_is_a_doubt() {
        let of = |slow: u64| {
            let mut rows = Vec::new();
            for visit in 0..2 {
                for bytes in 0..4 {
                    let time = if visit == 1 && bytes < slow { 2.0 } else { 1.0 };
                    rows.push(bcast(bytes, Algorithm::Join, time));
                    rows.push(bcast(bytes, Algorithm::Binomial, time));
                }
            }
            let progress = Progress::of(&rows).expect("times");
            assert!(progress.times.iter().all(|time| time.microseconds == 1.0));
            progress.doubts()
        };
        assert!(!of(1).is_disturbed(), "{:?}", of(1));
        assert_eq!(of(3).to_string(), "75 % of the times changed by half meanwhile");
        assert!(Progress::of(&[]).is_none());
    }

    #[test]
    fn earlier_times_of_a_size_are_replaced() {
        let mut machine = Machine::new(Fingerprint::default());
        for (bytes, time) in [(8, 1.0), (64, 2.0), (8, 3.0)] {
            let progress = Progress::of(&[bcast(bytes, Algorithm::Join, time)]).expect("times");
            progress.put(&mut machine, 2);
        }
        let kept = &machine.flat[&CallForm::Blocking][&Collective::Bcast];
        let point = |bytes, microseconds| FlatPoint { ranks: 2, bytes, microseconds };
        assert_eq!(kept.points(), [point(8, 3.0), point(64, 2.0)]);
    }
}
