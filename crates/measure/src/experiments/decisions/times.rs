//! Times of plans in the parts of measurements.

use super::grid::{figure_of, shape_of};
use super::purpose::Purpose;
use crate::results::{Directory, Figure, Part, ResultsError, Role};
use collectives::Collective;
use models::calibration::TimedCall;
use models::decision::{Measured, Query, pooled};
use models::machine_file::Engine;
use models::prediction::Models;
use std::collections::BTreeMap;
use tradewind::CallForm;

/// Names of the parts of measurements between nodes for a purpose, and the engine of nonblocking
/// calls in their jobs.
pub fn parts_of(purpose: Purpose) -> [(String, Engine); 3] {
    [("", Engine::Agent), ("-direct", Engine::Agent), ("-kernel", Engine::Kernel)]
        .map(|(suffix, engine)| (format!("{}{suffix}", purpose.part()), engine))
}

/// The parts between nodes for a purpose that a directory has, with their engines of nonblocking calls.
///
/// # Errors
/// A part that cannot be read.
pub fn parts_between_nodes(
    directory: &Directory,
    purpose: Purpose,
) -> Result<Vec<(Part, Engine)>, ResultsError> {
    let mut parts = Vec::new();
    for (name, engine) in parts_of(purpose) {
        parts.extend(directory.read(&name)?.map(|part| (part, engine)));
    }
    Ok(parts)
}

/// The parts with times that correct predictions of a table.
///
/// # Errors
/// A part that cannot be read.
pub fn timed_between_nodes(directory: &Directory) -> Result<Vec<(Part, Engine)>, ResultsError> {
    let mut parts = parts_between_nodes(directory, Purpose::Calibration)?;
    parts.extend(parts_between_nodes(directory, Purpose::Decision)?);
    Ok(parts)
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

/// Measurements of a shape in these parts, at each size, ascending; plans with equal graphs have one
/// time. Left out are times of the kernel's job at sizes that the kernel does not run.
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
    let pooled = |(bytes, plans)| {
        let query = Query { operation, form, ranks, ranks_per_node, bytes };
        (bytes, pooled(&query, plans))
    };
    found.into_iter().map(pooled).collect()
}

/// All times in these parts, by the engine that ran the call.
pub(super) fn timed_calls(
    parts: &[(Part, Engine)],
    models: &Models,
) -> BTreeMap<Engine, Vec<TimedCall>> {
    let mut times: BTreeMap<Engine, Vec<TimedCall>> = BTreeMap::new();
    for shape in shapes_of(parts) {
        let (operation, form, ranks, ranks_per_node) = shape;
        for (bytes, plans) in measured_between_nodes(parts, models, shape) {
            let query = Query { operation, form, ranks, ranks_per_node, bytes };
            for Measured { plan, engine, median, .. } in plans {
                let Some(engine) = engine else { continue };
                let time = TimedCall { query, plan, microseconds: median };
                times.entry(engine).or_default().push(time);
            }
        }
    }
    times
}

/// Returns the measurements at each size, ascending.
pub(super) fn measured(figure: &Figure, engine: Option<Engine>) -> Vec<(u64, Vec<Measured>)> {
    let mut sizes: Vec<(u64, Vec<Measured>)> = Vec::new();
    for series in figure.series.iter().filter(|series| series.role == Role::Measured) {
        let Ok(plan) = series.name.parse() else { continue };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::decisions::grid::empty_figure;
    use crate::results::Point;

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
}
