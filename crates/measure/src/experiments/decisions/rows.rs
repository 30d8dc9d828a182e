//! The decision table: by the models, corrected by measurements.

use super::candidates::of_table;
use super::disturbed;
use super::grid::{SIZES, figure_of, shape_of};
use super::nodes::Purpose;
use crate::results::{Figure, Part, Role};
use collectives::{Algorithm, Choice, Collective, Levels};
use models::calibration::{TimedCall, calibrate};
use models::decision::{DecisionTable, Grid, Measured, Query, Range, Row, TableError, Times};
use models::machine_file::{Engine, Machine};
use models::prediction::Models;
use std::collections::BTreeMap;
use tradewind::CallForm;

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

/// Names of the parts of measurements between nodes for a purpose, and the engine of nonblocking
/// calls in their jobs.
pub fn parts_of(purpose: Purpose) -> [(String, Engine); 3] {
    [("", Engine::Agent), ("-direct", Engine::Agent), ("-kernel", Engine::Kernel)]
        .map(|(suffix, engine)| (format!("{}{suffix}", purpose.part()), engine))
}

/// The engine of calls of a form in a job with this engine of nonblocking calls.
fn engine_of(models: &Models, form: CallForm, nonblocking: Engine) -> Engine {
    match form {
        CallForm::Blocking if models.has(Engine::Direct) && nonblocking == Engine::Agent => {
            Engine::Direct
        }
        _ => nonblocking,
    }
}

/// The shapes of calls in these parts.
pub(super) fn shapes_of(parts: &[(Part, Engine)]) -> Vec<(Collective, CallForm, u32, u32)> {
    let figures = parts.iter().flat_map(|(part, _)| &part.figures);
    let mut shapes: Vec<_> = figures.filter_map(|figure| shape_of(&figure.name)).collect();
    shapes.sort_unstable();
    shapes.dedup();
    shapes
}

/// Measurements of a shape in these parts, at each size, ascending. What was measured in the kernel's
/// job at sizes that the kernel does not run is no time of the kernel.
pub(super) fn measured_between_nodes(
    parts: &[(Part, Engine)],
    models: &Models,
    shape: (Collective, CallForm, u32, u32),
) -> Vec<(u64, Vec<Measured>)> {
    let (operation, form, ranks, ranks_per_node) = shape;
    let mut found: Vec<(u64, Vec<Measured>)> = Vec::new();
    for (part, engine) in parts {
        let engine = engine_of(models, shape.1, *engine);
        let figure = part.figure(&figure_of(shape));
        for (bytes, plans) in figure.map(|one| measured(one, Some(engine))).unwrap_or_default() {
            let query = Query { operation, form, ranks, ranks_per_node, bytes };
            if engine == Engine::Kernel && !models.runs(engine, &query) {
                continue;
            }
            match found.iter_mut().find(|(size, _)| *size == bytes) {
                Some((_, all)) => all.extend(plans),
                None => found.push((bytes, plans)),
            }
        }
    }
    found.sort_by_key(|(bytes, _)| *bytes);
    found
}

/// The machine with corrections by all times in these parts, for each engine that has enough.
pub fn corrected(parts: &[(Part, Engine)], machine: &Machine) -> Machine {
    let models = Models::of(machine);
    let mut times: BTreeMap<Engine, Vec<TimedCall>> = BTreeMap::new();
    for shape in shapes_of(parts) {
        let (operation, form, ranks, ranks_per_node) = shape;
        for (bytes, plans) in measured_between_nodes(parts, &models, shape) {
            let query = Query { operation, form, ranks, ranks_per_node, bytes };
            for Measured { plan, engine, median, .. } in plans {
                let Some(engine) = engine else { continue };
                let time = TimedCall { query, plan, microseconds: median };
                times.entry(engine).or_default().push(time);
            }
        }
    }
    let mut corrected = machine.clone();
    for (engine, times) in times {
        if let Some(found) = calibrate(machine, engine, &times) {
            corrected.engine_mut(engine).calibration = Some(found);
        }
    }
    corrected
}

/// The rows between nodes: for the shapes of these parts, what the models find fastest, corrected
/// by what was measured.
///
/// # Errors
/// Ranges that cannot be, which is a mistake of this function.
pub fn between_nodes(
    parts: &[(Part, Engine)],
    machine: &Machine,
) -> Result<DecisionTable, TableError> {
    let models = of_table(machine);
    let sizes = Grid::usual(Vec::new(), Vec::new(), LARGEST).bytes;
    let mut rows = Vec::new();
    for shape in shapes_of(parts) {
        let (operation, form, ranks, ranks_per_node) = shape;
        let query = Query { operation, form, ranks, ranks_per_node, bytes: 0 };
        let Some(mut row) = Row::build(&models, &query, &sizes) else { continue };
        let found = measured_between_nodes(parts, &models, shape);
        refine(&mut row, &models, &query, found, (Purpose::Decision.sizes(), &[]));
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
        row.refine(bytes, window, None, &found, |engine, plan| models.price(engine, plan, &at));
    }
}

/// A row without measurements, for a machine without models.
fn flat_row(query: &Query) -> Row {
    let Query { operation, form, ranks, ranks_per_node, .. } = *query;
    let plan = Choice::of(Algorithm::Join);
    let engine = None;
    let time = Times::default();
    let runner_up = None;
    let held = None;
    let ranges = vec![Range { from: 0, to: None, plan, engine, at: 0, time, runner_up, held }];
    Row { operation, form, ranks, ranks_per_node, error: None, disturbed: None, ranges }
}

/// Returns the measurements at each size, ascending.
pub(super) fn measured(figure: &Figure, engine: Option<Engine>) -> Vec<(u64, Vec<Measured>)> {
    let mut sizes: Vec<(u64, Vec<Measured>)> = Vec::new();
    for series in figure.series.iter().filter(|series| series.role == Role::Measured) {
        let Some(plan) = plan_of(&series.name) else { continue };
        for point in &series.points {
            let quartiles = [point.lower_quartile, point.upper_quartile]
                .map(|quartile| quartile.unwrap_or(point.median));
            let one = Measured { plan, engine, median: point.median, quartiles };
            let bytes = point.x as u64;
            match sizes.iter_mut().find(|(size, _)| *size == bytes) {
                Some((_, plans)) => plans.push(one),
                None => sizes.push((bytes, vec![one])),
            }
        }
    }
    sizes.sort_by_key(|(bytes, _)| *bytes);
    sizes
}

/// The plan that a text is of: the inverse of its `Display`.
fn plan_of(text: &str) -> Option<Choice> {
    let (levels, one_level) = match text.strip_prefix("two-level ") {
        Some(rest) => (Levels::Two, rest),
        None => (Levels::One, text),
    };
    let (name, tuning) = one_level.split_once(' ').unwrap_or((one_level, ""));
    let plan = Choice { levels, ..Choice::of(name.parse().ok()?) };
    let between = |before, after| tuning.strip_prefix(before)?.strip_suffix(after);
    let plan = if let Some(bytes) = between("in segments of ", " bytes") {
        Choice { segment_bytes: Some(bytes.parse().ok()?), ..plan }
    } else if let Some(degree) = between("of degree ", "") {
        Choice { degree: Some(degree.parse().ok()?), ..plan }
    } else {
        plan
    };
    (plan.to_string() == text).then_some(plan)
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
    use crate::experiments::decisions::grid::empty_figure;
    use crate::results::Point;
    use proptest::prelude::*;
    use std::num::{NonZeroU32, NonZeroU64};

    #[test]
    fn every_plan_is_found_by_its_text() {
        for operation in Collective::ALL {
            for algorithm in operation.algorithms().iter().copied() {
                let segment_bytes = NonZeroU64::new(4096).filter(|_| algorithm.is_segmented());
                let degree = NonZeroU32::new(3).filter(|_| algorithm.has_degree());
                let plan = Choice { segment_bytes, degree, ..Choice::of(algorithm) };
                assert_eq!(plan_of(&plan.to_string()), Some(plan));
                let plan = Choice { levels: Levels::Two, ..plan };
                assert_eq!(plan_of(&plan.to_string()), Some(plan));
            }
        }
        for text in ["", "ringg", "ring in segments", "ring, predicted", "dary of degree many"] {
            assert_eq!(plan_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_call_that_is_too_long_for_the_kernel_has_no_time_of_the_kernel() {
        let shape = (Collective::Reduce, CallForm::Blocking, 4, 2);
        let mut figure = empty_figure(&figure_of(shape), "");
        for (bytes, time) in [(64.0 * 1024.0, 500.0), (512.0 * 1024.0, 400.0)] {
            figure.add("flat", Role::Measured, Point::exact(bytes, time));
        }
        let mut part = Part::new("decisions-nodes-kernel", "");
        part.figures.push(figure);
        let sizes = |engine| {
            let parts = [(part.clone(), engine)];
            let found = measured_between_nodes(&parts, models::builtin::models(), shape);
            found.into_iter().map(|(bytes, _)| bytes).collect::<Vec<_>>()
        };
        assert_eq!(sizes(Engine::Kernel), [64 << 10]);
        assert_eq!(sizes(Engine::Agent), [64 << 10, 512 << 10]);
    }

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
