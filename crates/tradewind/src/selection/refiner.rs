//! Refinement of a decision table by the job that uses it.
//!
//! A communicator counts its calls by form, collective and doubling of the size. Its ranks make the
//! same calls in the same order, so a count is reached in the same call on all of them: no message is
//! needed to agree on it. A trial of the plans in the row is then due. It takes place
//! in a blocking call, where a rank may wait for the others; after nonblocking calls that is the next
//! blocking one.
//!
//! What a trial finds holds for the communicator at once, but for reductions whose result depends on
//! the order of the operands: equal calls of one job keep equal results. Rank 0 of the job also
//! corrects the file, for later jobs; what communicators without it find is not written.

use super::rules::SelectionRules;
use crate::error::Error;
use collectives::{Algorithm, Choice, Collective};
use engine::node::EngineKind;
use models::decision::{CallForm, Measured, Query, Row, private_bytes};
use models::machine_file::Engine;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls after which a trial is due. A trial makes 36 of each plan.
pub(crate) const CALLS: u32 = 1000;
/// Most plans of a trial.
const MOST_PLANS: usize = 4;
/// Most private memory of a trial.
const MOST_BYTES: u64 = 64 << 20;

/// Calls of a communicator, and the rules that trials have found.
#[derive(Debug)]
pub(crate) struct Refiner(Mutex<State>);

#[derive(Debug)]
struct State {
    rules: &'static SelectionRules,
    /// By form, collective and doubling of the size; `None` after a trial has failed.
    calls: Option<HashMap<(CallForm, Collective, u32), u32>>,
    /// A trial has ended without an agreement of all ranks.
    is_broken: bool,
    due: Vec<Query>,
}

/// A plan, and the engine between nodes that runs it.
pub(crate) type EnginePlan = (Option<Engine>, Choice);

impl Refiner {
    /// A refiner of these rules; `None` if the job refines nothing, or always goes by other rules.
    pub(crate) fn of(rules: &'static SelectionRules) -> Option<Self> {
        let is_used = rules.table().is_refined() && rules.engine() == EngineKind::Peers;
        let calls = Some(HashMap::new());
        let state = State { rules, calls, is_broken: false, due: Vec::new() };
        is_used.then(|| Refiner(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules, as far as they are refined.
    pub(crate) fn rules(&self) -> &'static SelectionRules {
        self.lock().rules
    }

    /// Counts a call. Returns the calls of which a trial is to be made now.
    pub(crate) fn count(&self, form: CallForm, operation: Collective, bytes: u64) -> Vec<Query> {
        let mut state = self.lock();
        let State { rules, calls: Some(calls), due, .. } = &mut *state else { return Vec::new() };
        let count = calls.entry((form, operation, doubling(bytes))).or_default();
        *count = count.saturating_add(1);
        if *count == CALLS {
            let query = rules.query(form, operation, bytes);
            let has_memory = private_bytes(operation, query.ranks, bytes) <= MOST_BYTES;
            // Block sizes that not all ranks know count as 0.
            let has_size = bytes > 0 || operation == Collective::Barrier;
            due.extend((has_memory && has_size).then_some(query));
        }
        match form {
            CallForm::Blocking => std::mem::take(due),
            CallForm::Nonblocking => Vec::new(),
        }
    }

    /// The plans of a trial: the present one, the flat collective, then those that the row has
    /// anywhere. One plan leaves nothing to decide.
    pub(crate) fn plans(&self, query: &Query) -> Vec<EnginePlan> {
        let rules = self.rules();
        let Query { operation, form, bytes, .. } = *query;
        let Some(row) = rules.row(form, operation) else { return Vec::new() };
        // The row's range may be for jobs with other connections.
        let present = rules.range(form, operation, bytes);
        let present = present.or_else(|| rules.built_in_range(form, operation, bytes));
        let Some(present) = present else { return Vec::new() };
        let flat = (None, Choice::of(Algorithm::Join));
        let of_row = row.ranges.iter().flat_map(|range| {
            let next = range.runner_up.map(|next| (next.engine, next.plan));
            [Some((range.engine, range.plan)), next].into_iter().flatten()
        });
        let next = present.runner_up.map(|next| (next.engine, next.plan));
        let first = [(present.engine, present.plan), flat].into_iter().chain(next);
        let mut plans: Vec<EnginePlan> = Vec::new();
        for one in first.chain(of_row) {
            // Where the user demands the kernel, the plans of other engines would run in it, too.
            let engine = one.0.unwrap_or(Engine::Kernel);
            let has_engine = !rules.demands_kernel() || engine == Engine::Kernel;
            if has_engine && !plans.contains(&one) && rules.admits(operation, &one.1, bytes) {
                plans.push(one);
            }
        }
        plans.truncate(MOST_PLANS);
        plans
    }

    /// Corrects the row, here and in the file, by the times of a trial, which are the same on all ranks.
    pub(crate) fn settle(&self, query: &Query, measured: &[Measured]) {
        let rules = self.rules();
        let held = rules.held();
        // Without the lock, which other calls take: the file is written to the disk.
        rules.table().correct_file(query, |row| corrected(row, query, measured, held));
        let mut state = self.lock();
        let rules = state.rules;
        let Some(row) = rules.row(query.form, query.operation) else { return };
        let corrected = corrected(row, query, measured, held);
        if corrected.ranges != row.ranges {
            state.rules = rules.with_row(corrected);
        }
    }

    /// Fails after a trial without an agreement of all ranks.
    pub(crate) fn check_intact(&self) -> Result<(), Error> {
        if self.lock().is_broken { Err(Error::Broken) } else { Ok(()) }
    }

    /// Fails all later calls: the ranks may have left a trial at different ones.
    pub(crate) fn break_off(&self) {
        self.stop();
        self.lock().is_broken = true;
    }

    /// Makes no more trials: one has failed.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.calls = None;
        state.due.clear();
    }
}

/// The number of a doubling of sizes: 0 for none, then 1 for 1 byte, 2 for 2 and 3 bytes, …
fn doubling(bytes: u64) -> u32 {
    u64::BITS - bytes.leading_zeros()
}

/// The row for exactly the ranks of a call, corrected by times for the doubling of its size. The job's
/// connections hold `held` bytes each.
fn corrected(row: &Row, query: &Query, measured: &[Measured], held: Option<u64>) -> Row {
    let Query { ranks, ranks_per_node, bytes, .. } = *query;
    let mut row = Row { ranks, ranks_per_node, ..row.clone() };
    let window = match doubling(bytes) {
        0 => (0, None),
        doubling => (1 << (doubling - 1), 1u64.checked_shl(doubling)),
    };
    let known = row.range(bytes).ok().copied();
    // A job has no models; the table has what they predicted for the present plan.
    row.refine(bytes, window, held, measured, |engine, plan| {
        let range = known.filter(|range| (range.engine, range.plan) == (engine, *plan));
        range.filter(|range| range.at == bytes).and_then(|range| range.time.predicted)
    });
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::job_table::{JobTable, Refinement, UsedTable};
    use models::decision::{self, DecisionTable, RunnerUp, Times};
    use std::ops;

    fn range(from: u64, to: Option<u64>, algorithm: Algorithm) -> decision::Range {
        let (plan, engine, time) = (Choice::of(algorithm), None, Times::predicted(1.0));
        decision::Range { from, to, plan, engine, at: from, time, runner_up: None, held: None }
    }

    fn row() -> Row {
        let (operation, form) = (Collective::Bcast, CallForm::Blocking);
        let next = RunnerUp {
            plan: Choice::of(Algorithm::Binomial),
            engine: None,
            time: Times::predicted(2.0),
        };
        let first =
            decision::Range { runner_up: Some(next), ..range(0, Some(4096), Algorithm::Flat) };
        let ranges = vec![first, range(4096, None, Algorithm::Chain)];
        Row { operation, form, ranks: 4, ranks_per_node: 4, error: None, disturbed: None, ranges }
    }

    fn query(bytes: u64) -> Query {
        let (operation, form) = (Collective::Bcast, CallForm::Blocking);
        Query { operation, form, ranks: 5, ranks_per_node: 5, bytes }
    }

    fn measured(algorithm: Algorithm, median: f64) -> Measured {
        let plan = Choice::of(algorithm);
        Measured { plan, engine: None, median, quartiles: [median; 2] }
    }

    #[test]
    fn a_wrong_plan_is_replaced_for_its_doubling_of_the_size() {
        let times = [measured(Algorithm::Flat, 9.0), measured(Algorithm::Binomial, 3.0)];
        let found = corrected(&row(), &query(100), &times, None);
        assert_eq!((found.ranks, found.ranks_per_node), (5, 5), "the row was one of 4 ranks");
        let plan = |bytes| found.range(bytes).map(|range| range.plan.algorithm);
        assert_eq!(
            [63, 64, 127, 128].map(plan),
            [
                Ok(Algorithm::Flat),
                Ok(Algorithm::Binomial),
                Ok(Algorithm::Binomial),
                Ok(Algorithm::Flat)
            ]
        );
        let range = found.range(100).expect("it covers all sizes");
        assert_eq!(range.time, Times { predicted: None, measured: Some(3.0) });
        assert_eq!(range.runner_up.map(|next| next.time.measured), Some(Some(9.0)));
    }

    #[test]
    fn a_correction_applies_to_its_connections_and_sizes_only() {
        let mut row = row();
        row.ranges[0].to = Some(64);
        row.ranges[1].from = 64;
        let times = [measured(Algorithm::Flat, 3.0), measured(Algorithm::Chain, 9.0)];
        let found = corrected(&row, &query(100), &times, Some(0));
        let of = |range: &decision::Range| (range.from, range.plan.algorithm, range.held);
        let expected = [
            (0, Algorithm::Flat, None),
            (64, Algorithm::Flat, Some(0)),
            (128, Algorithm::Chain, None),
        ];
        assert_eq!(found.ranges.iter().map(of).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_plan_stays_where_none_is_faster() {
        let times = [measured(Algorithm::Flat, 3.0), measured(Algorithm::Binomial, 2.95)];
        let found = corrected(&row(), &query(100), &times, None);
        assert_eq!(found.range(100).map(|range| range.plan), Ok(Choice::of(Algorithm::Flat)));
        assert_eq!(found.ranges.len(), 2);
    }

    #[test]
    fn corrections_by_several_jobs_stay_in_the_file() {
        let here = models::machine::Topology::here().fingerprint().clone();
        let table = DecisionTable::new(here, vec![row()]).expect("a table that can be");
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        table.write(file.path()).expect("space for a table");
        let (path, table) = (file.path().into(), table.into());
        // Each has the table as it was at the start of its job.
        let of_job = JobTable::Table(UsedTable { path, table, refinement: Refinement::InFile });
        let times = [measured(Algorithm::Flat, 9.0), measured(Algorithm::Binomial, 3.0)];
        let jobs = [0..6, 6..12u32];
        let correct = |doublings: ops::Range<u32>| {
            for query in doublings.map(|doubling| query(1 << doubling)) {
                of_job.correct_file(&query, |row| corrected(row, &query, &times, None));
            }
        };
        std::thread::scope(|scope| {
            for doublings in jobs {
                scope.spawn(|| correct(doublings));
            }
        });
        let table = DecisionTable::read(file.path()).expect("it is whole");
        for doubling in 0..12 {
            let found = table.look_up(&query(1 << doubling)).map(|found| found.range.plan);
            assert_eq!(found, Ok(Choice::of(Algorithm::Binomial)), "2^{doubling} bytes");
        }
        let other = table.look_up(&query(1 << 12)).map(|found| found.range.plan);
        assert_eq!(other, Ok(Choice::of(Algorithm::Chain)));
    }

    #[test]
    fn doublings_cover_every_size_once() {
        assert_eq!([0, 1, 2, 3, 4, u64::MAX].map(doubling), [0, 1, 2, 2, 3, 64]);
        let longest =
            corrected(&row(), &query(u64::MAX), &[measured(Algorithm::Binomial, 1.0)], None);
        assert_eq!(longest.range(u64::MAX).map(|range| range.from), Ok(1 << 63));
    }
}
