//! A step: the plans of a call, predicted and timed.

use super::calls::{Grid, visits};
use super::candidates::{self, Candidates, Extent};
use super::purpose::Purpose;
use crate::experiments::algorithms::{CollectiveCall, compare_in_batches, settle};
use crate::harness::timer::Budget;
use crate::harness::{
    ATTEMPTS, Doubts, Error, Experiment, JobShape, QUICK_ATTEMPTS, Setting, Step, StepContext,
    undisturbed_rows,
};
use crate::rows::{Quantity, Row, What};
use collectives::Choice;
use models::decision::Query;
use std::num::NonZeroU32;

/// Rounds of a call's plans on one node at most.
const MOST_ROUNDS: u32 = 101;

/// Extent of the measurement of a call.
#[derive(Clone, Copy)]
struct Effort {
    purpose: Purpose,
    extent: Extent,
    budget: Budget,
    attempts: u32,
}

/// The experiment for a purpose, on one node or between the nodes of the setting.
pub fn experiment(purpose: Purpose, setting: &Setting) -> Experiment {
    let calls = match &setting.nodes {
        None => Grid::on_one_node(purpose, &setting.words()).calls(),
        Some(nodes) => Grid::between(purpose, setting, nodes).visited(visits(setting)),
    };
    let steps = calls.into_iter().map(|query| step(purpose, setting, query));
    Experiment::new(purpose.name(), setting, steps).noting_crowds()
}

/// The step that times the plans of a call.
fn step(purpose: Purpose, setting: &Setting, query: Query) -> Step {
    let is_between_nodes = setting.nodes.is_some();
    let milliseconds = purpose.milliseconds(is_between_nodes);
    let visits = if is_between_nodes { visits(setting) as f64 } else { 1.0 };
    let full = Budget { milliseconds: milliseconds / visits, most_rounds: MOST_ROUNDS };
    let budget = setting.choose(Budget::QUICK, full);
    let extent = Extent::of(purpose, setting);
    let attempts = setting.choose(QUICK_ATTEMPTS, ATTEMPTS);
    let effort = Effort { purpose, extent, budget, attempts };
    let shape = JobShape::bound(setting, query.ranks);
    Step::new(query.to_string(), shape, 2 * budget.milliseconds as u64, move |here| {
        measure(here, &query, effort)
    })
}

fn measure(here: &StepContext<'_>, query: &Query, effort: Effort) -> Result<Vec<Row>, Error> {
    let found = candidates::of(here, query, effort.purpose, effort.extent)?;
    let Candidates { predicted, measured, chosen } = &found;
    let row = |(plan, time): &(Choice, f64)| {
        let what = What::Collective(query.operation);
        let row = here.row(what, Quantity::Predicted, vec![*time]).sized(query.bytes);
        Row { form: Some(query.form), algorithm: Some(*plan), ..row }
    };
    let mut rows: Vec<Row> = predicted.iter().map(row).collect();
    if let Some(first) = measured.first() {
        let mut favourites: Vec<Choice> = chosen.iter().map(|(_, plan)| *plan).collect();
        if favourites.is_empty() {
            favourites.push(*first);
        }
        let attempt = || time(here, query, measured, &favourites, effort.budget);
        rows.extend(undisturbed_rows(here, effort.attempts, attempt, |_| Ok(Doubts::default()))?);
    }
    for row in &mut rows {
        let is_this = |plan: &Choice| row.algorithm == Some(*plan);
        let by = chosen.iter().filter(|(_, plan)| is_this(plan)).map(|(by, _)| *by);
        row.chosen_by = by.collect();
    }
    Ok(rows)
}

/// Times plans side by side, on one node the favourites longer.
fn time(
    here: &StepContext<'_>,
    query: &Query,
    plans: &[Choice],
    favourites: &[Choice],
    budget: Budget,
) -> Result<Vec<Row>, Error> {
    let call = CollectiveCall::from(*query);
    if query.nodes() == 1 {
        return settle(here, &call, plans, favourites, budget);
    }
    let per_node = NonZeroU32::new(query.ranks_per_node);
    compare_in_batches(here, &call, plans, per_node, budget.milliseconds)
}
