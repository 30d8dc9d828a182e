//! The decision table: by the models, corrected by measurements.

use super::calls::Grid;
use super::purpose::Purpose;
use super::timed::{Timed, by_engine, disturbed, timed};
use crate::rows::Run;
use collectives::{Algorithm, Choice, Collective};
use models::builtin;
use models::calibration::calibrate;
use models::decision::{self, DecisionTable, Query, Range, Row, TableError, Times};
use models::machine_file::Machine;
use models::prediction::{Models, USUALLY_HELD};
use std::collections::BTreeSet;

/// The file of the table in a directory of results.
pub const FILE: &str = "decision-table.json";
/// Largest size that the models predict; its plan also applies to longer messages.
const LARGEST: u64 = 4 << 20;

/// The decision table of one node of a machine: what its models find fastest, corrected by a run of
/// [`Purpose::Decision`] there.
///
/// # Errors
/// Ranges that cannot be, which is a mistake of this function.
pub fn on_one_node(run: &Run, machine: &Machine) -> Result<DecisionTable, TableError> {
    let shapes = Grid::on_one_node(Purpose::Decision, &run.setting).shapes();
    table(shapes, &[run], machine, &Models::of(machine))
}

/// The rows between nodes: for the calls of these runs, what the [models of a table](of_table) find
/// fastest, corrected by what was measured.
///
/// # Errors
/// Ranges that cannot be, which is a mistake of this function.
pub fn between_nodes(
    runs: &[&Run],
    machine: &Machine,
    models: &Models,
) -> Result<DecisionTable, TableError> {
    let calls = runs.iter().flat_map(|run| run.whole_rows()).filter_map(|row| row.query());
    let shapes: BTreeSet<Query> = calls.map(|query| Query { bytes: 0, ..query }).collect();
    table(shapes, runs, machine, models)
}

/// The models of a table between nodes: those of the machine, with the times of single plans in these
/// runs.
pub fn of_table(machine: &Machine, runs: &[&Run]) -> Models {
    let models = Models::of(machine).with_connected_ranks(USUALLY_HELD);
    let with_times =
        |models: Models, (engine, times): (_, Vec<_>)| models.with_times(engine, &times);
    by_engine(runs).into_iter().fold(models, with_times).beside(builtin::models())
}

/// The machine with corrections by all times between nodes in these runs, for each engine that has
/// enough.
pub fn corrected(runs: &[&Run], machine: &Machine) -> Machine {
    let mut corrected = machine.clone();
    for (engine, times) in by_engine(runs) {
        if let Some(found) = calibrate(machine, engine, &times) {
            corrected.engine_mut(engine).calibration = Some(found);
        }
    }
    corrected
}

fn table(
    shapes: impl IntoIterator<Item = Query>,
    runs: &[&Run],
    machine: &Machine,
    models: &Models,
) -> Result<DecisionTable, TableError> {
    let timed = timed(runs);
    let row = |shape: Query| {
        let mut row = row(&shape, models, &timed)?;
        let of_parameters = machine.disturbance_of(&shape);
        let of_parameters = of_parameters.map(|why| format!("parameters: {why}"));
        row.disturbed = of_parameters.or_else(|| disturbance(runs, &shape));
        Some(row)
    };
    let rows = shapes.into_iter().filter_map(row).collect();
    DecisionTable::new(machine.fingerprint.clone(), rows)
}

/// The row of a shape; `None` if nothing is known of it.
fn row(shape: &Query, models: &Models, timed: &Timed) -> Option<Row> {
    let sizes = decision::Grid::usual(Vec::new(), Vec::new(), LARGEST).bytes;
    let last = Query { bytes: u64::MAX, ..*shape };
    let is_between_nodes = shape.nodes() > 1;
    let unknown = || {
        let is_timed = timed.range(*shape..=last).next().is_some();
        (is_timed && !is_between_nodes).then(|| flat_row(shape))
    };
    let mut row = Row::build(models, shape, &sizes).or_else(unknown)?;
    let changes = if is_between_nodes { Vec::new() } else { flat_changes(shape) };
    for (query, plans) in timed.range(*shape..=last) {
        let window = window(Purpose::Decision.sizes(is_between_nodes), &changes, query.bytes);
        row.refine(query.bytes, window, plans, |engine, plan| models.price(engine, plan, query));
    }
    Some(row)
}

/// The disturbances of the times of a shape, in words.
fn disturbance(runs: &[&Run], shape: &Query) -> Option<String> {
    let of_shape = |(query, _): &(Query, String)| Query { bytes: 0, ..*query } == *shape;
    let found: Vec<(Query, String)> = disturbed(runs).filter(of_shape).collect();
    let (Query { bytes, .. }, why) = found.first()?;
    match found.len() {
        1 => Some(format!("{bytes} bytes: {why}")),
        sizes => Some(format!("{sizes} sizes, such as {bytes} bytes: {why}")),
    }
}

/// A row without measurements, for a machine without models.
fn flat_row(query: &Query) -> Row {
    let Query { operation, form, ranks, ranks_per_node, .. } = *query;
    let plan = Choice::of(Algorithm::Join);
    let time = Times::default();
    let range = Range { from: 0, to: None, plan, engine: None, at: 0, time, runner_up: None };
    let ranges = vec![range];
    Row { operation, form, ranks, ranks_per_node, error: None, disturbed: None, ranges }
}

/// The sizes to which a measurement applies: up to the middle, by ratio, between it and the next
/// measured sizes, or up to the size at which a flat collective changes its protocol.
fn window(sizes: &[u64], changes: &[u64], bytes: u64) -> (u64, Option<u64>) {
    let middle = |below: u64, above: u64| {
        let change = changes.iter().find(|change| (below..above).contains(*change));
        let middle = (below as f64 * above as f64).sqrt() as u64;
        change.map_or(middle, |change| change + 1).clamp(below + 1, above)
    };
    let below = sizes.iter().copied().filter(|size| *size < bytes).max();
    let above = sizes.iter().copied().filter(|size| *size > bytes).min();
    (below.map_or(0, |below| middle(below, bytes)), above.map(|above| middle(bytes, above)))
}

/// The largest sizes of the ways that a flat collective goes: above each of them it costs something
/// else.
fn flat_changes(shape: &Query) -> Vec<u64> {
    use Collective as O;
    let Query { operation, ranks, .. } = *shape;
    let blocks = match operation {
        O::Scatter | O::Alltoall | O::ReduceScatter => u64::from(ranks),
        _ => 1,
    };
    let folds = (operation == O::Allreduce).then(|| engine::flat::folded_by_all(ranks));
    folds.into_iter().chain([engine::flat::kept_in_cells(ranks) / blocks]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::decisions::trial::trial;
    use crate::rows::{Load, StepRows};
    use models::decision::CallForm;
    use proptest::prelude::*;

    fn shape(ranks: u32) -> Query {
        let operation = Collective::Bcast;
        Query { operation, form: CallForm::Blocking, ranks, ranks_per_node: ranks, bytes: 0 }
    }

    proptest! {
        #[test]
        fn windows_cover_every_size_once(ranks in 2u32..64, bytes in 0u64..1 << 30) {
            for operation in Collective::ALL.iter().copied() {
                let changes = flat_changes(&Query { operation, ..shape(ranks) });
                let sizes = Purpose::Decision.sizes(false);
                let of = |size: &u64| window(sizes, &changes, *size);
                let inside = |(from, to): &(u64, Option<u64>)| *from <= bytes && to.is_none_or(|to| bytes < to);
                prop_assert_eq!(sizes.iter().map(of).filter(inside).count(), 1);
            }
        }
    }

    #[test]
    fn disturbed_sizes_are_named_for_their_shape_alone() {
        let step = |bytes: u64| {
            let load = Some(Load { others: 0.43, stolen: 0.0 });
            let query = Query { bytes, ..shape(2) };
            let row = trial(&query, &Choice::of(Algorithm::Join), 1.0);
            StepRows::from(vec![crate::rows::Row { load, ..row }])
        };
        let mut run = Run::of([]);
        run.found.insert(0, step(64));
        let one = "64 bytes: other processes used 43 % of the cores";
        assert_eq!(disturbance(&[&run], &shape(2)).as_deref(), Some(one));
        assert_eq!(disturbance(&[&run], &shape(4)), None);
        run.found.insert(1, step(8));
        let both = "2 sizes, such as 64 bytes: other processes used 43 % of the cores";
        assert_eq!(disturbance(&[&run], &shape(2)).as_deref(), Some(both));
    }
}
