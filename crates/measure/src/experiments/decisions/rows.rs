//! The decision table: by the models, corrected by measurements.

use super::disturbed;
use super::grid::{SIZES, figure_of, shape_of};
use super::purpose::Purpose;
use super::times::{measured, measured_between_nodes, shapes_of, timed_calls};
use crate::results::{Figure, Part};
use collectives::{Algorithm, Choice, Collective};
use models::calibration::calibrate;
use models::decision::{DecisionTable, Grid, Measured, Query, Range, Row, TableError, Times};
use models::machine_file::{Engine, Machine};
use models::prediction::Models;

/// Largest size that the models predict; its plan also applies to longer messages.
const LARGEST: u64 = 4 << 20;

/// The decision table of a machine: what its models find fastest, corrected by the part of the
/// [experiment](super::experiment), as far as that has been measured.
///
/// # Errors
/// Ranges that cannot be, which is a mistake of this function.
pub fn table(part: &Part, machine: &Machine) -> Result<DecisionTable, TableError> {
    let models = Models::of(machine);
    let sizes = Grid::usual(Vec::new(), Vec::new(), LARGEST).bytes;
    let row = |figure: &Figure| {
        let (operation, form, ranks, ranks_per_node) = shape_of(&figure.name)?;
        let query = Query { operation, form, ranks, ranks_per_node, bytes: 0 };
        let measured = measured(figure, None);
        let row = Row::build(&models, &query, &sizes);
        if row.is_none() && measured.is_empty() {
            return None;
        }
        let mut row = row.unwrap_or_else(|| flat_row(&query));
        let changes = flat_changes(operation, ranks);
        refine(&mut row, &models, &query, measured, (&SIZES, &changes));
        row.disturbed = disturbance(machine, &query, disturbed::of_figure([part], &figure.name));
        Some(row)
    };
    let rows = part.figures.iter().filter_map(row).collect();
    DecisionTable::new(machine.fingerprint.clone(), rows)
}

/// The machine with corrections by all times in these parts, for each engine that has enough.
pub fn corrected(parts: &[(Part, Engine)], machine: &Machine) -> Machine {
    let mut corrected = machine.clone();
    for (engine, times) in timed_calls(parts, &Models::of(machine)) {
        if let Some(found) = calibrate(machine, engine, &times) {
            corrected.engine_mut(engine).calibration = Some(found);
        }
    }
    corrected
}

/// The rows between nodes: for the shapes of these parts, what the models of a table find
/// fastest, corrected by what was measured.
///
/// # Errors
/// Ranges that cannot be, which is a mistake of this function.
pub fn between_nodes(
    parts: &[(Part, Engine)],
    (machine, models): (&Machine, &Models),
) -> Result<DecisionTable, TableError> {
    let sizes = Grid::usual(Vec::new(), Vec::new(), LARGEST).bytes;
    let mut rows = Vec::new();
    for shape in shapes_of(parts) {
        let (operation, form, ranks, ranks_per_node) = shape;
        let query = Query { operation, form, ranks, ranks_per_node, bytes: 0 };
        let Some(mut row) = Row::build(models, &query, &sizes) else { continue };
        let found = measured_between_nodes(parts, models, shape);
        refine(&mut row, models, &query, found, (Purpose::Decision.sizes(), &[]));
        let of_parts = parts.iter().map(|(part, _)| part);
        let of_candidates = disturbed::of_figure(of_parts, &figure_of(shape));
        row.disturbed = disturbance(machine, &query, of_candidates);
        rows.push(row);
    }
    DecisionTable::new(machine.fingerprint.clone(), rows)
}

/// The disturbance of a row: that of the parameters, else that of its candidates.
fn disturbance(machine: &Machine, query: &Query, of_candidates: Option<String>) -> Option<String> {
    let of_parameters = machine.disturbance_of(query).map(|why| format!("parameters: {why}"));
    of_parameters.or(of_candidates)
}

/// Corrects a row by measurements at some of these sizes.
fn refine(
    row: &mut Row,
    models: &Models,
    query: &Query,
    measured: Vec<(u64, Vec<Measured>)>,
    (sizes, changes): (&[u64], &[u64]),
) {
    for (bytes, found) in measured {
        let at = Query { bytes, ..*query };
        let window = window(sizes, changes, bytes);
        row.refine(bytes, window, &found, |engine, plan| models.price(engine, plan, &at));
    }
}

/// A row without measurements, for a machine without models.
fn flat_row(query: &Query) -> Row {
    let Query { operation, form, ranks, ranks_per_node, .. } = *query;
    let plan = Choice::of(Algorithm::Join);
    let engine = None;
    let time = Times::default();
    let runner_up = None;
    let ranges = vec![Range { from: 0, to: None, plan, engine, at: 0, time, runner_up }];
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
fn flat_changes(operation: Collective, ranks: u32) -> Vec<u64> {
    use Collective as O;
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
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn windows_cover_every_size_once(ranks in 2u32..64, bytes in 0u64..1 << 30) {
            for operation in Collective::ALL {
                let changes = flat_changes(*operation, ranks);
                let of = |size: &u64| window(&SIZES, &changes, *size);
                let inside = |(from, to): &(u64, Option<u64>)| *from <= bytes && to.is_none_or(|to| bytes < to);
                prop_assert_eq!(SIZES.iter().map(of).filter(inside).count(), 1);
            }
        }
    }
}
