//! Timed plans of calls, from the rows of runs.

use crate::harness::Doubts;
use crate::rows::{Quantity, Row, Run};
use models::builtin;
use models::calibration::TimedCall;
use models::decision::{CallForm, Measured, Query, pooled};
use models::machine_file::Engine;
use models::statistics::{Quantiles, Sample};
use std::collections::BTreeMap;

/// Timed plans of each call.
pub(super) type Timed = BTreeMap<Query, Vec<Measured>>;

/// Timed plans of the calls in these runs. Between nodes plans with equal graphs have one time.
pub(super) fn timed(runs: &[&Run]) -> Timed {
    let mut calls = Timed::new();
    for (query, engine, row) in rows(runs) {
        calls.entry(query).or_default().extend(measured(row, engine));
    }
    for (query, plans) in calls.iter_mut().filter(|(query, _)| query.nodes() > 1) {
        *plans = pooled(query, std::mem::take(plans));
    }
    calls
}

/// All times between nodes in these runs, by the engine that ran the call.
pub(super) fn by_engine(runs: &[&Run]) -> BTreeMap<Engine, Vec<TimedCall>> {
    let mut times: BTreeMap<Engine, Vec<TimedCall>> = BTreeMap::new();
    for (query, plans) in timed(runs) {
        for Measured { plan, engine, median, .. } in plans {
            let Some(engine) = engine else { continue };
            let time = TimedCall { query, plan, microseconds: median };
            times.entry(engine).or_default().push(time);
        }
    }
    times
}

/// The times of whole steps in these runs with their calls and, between nodes, their engines.
pub(super) fn rows<'r>(runs: &[&'r Run]) -> impl Iterator<Item = (Query, Option<Engine>, &'r Row)> {
    runs.iter().flat_map(|run| {
        let has_kernel = run.rows().any(|row| row.engine == Some(Engine::Kernel));
        run.whole_rows().filter(|row| row.quantity == Quantity::Alone).filter_map(move |row| {
            let query = row.query()?;
            let engine = match query.nodes() {
                1 => None,
                _ => Some(engine_of(row, &query, has_kernel)?),
            };
            Some((query, engine, row))
        })
    })
}

/// The engine between nodes that a time counts for. In a job with the kernel calls that are too long
/// for it count for none.
fn engine_of(row: &Row, query: &Query, has_kernel: bool) -> Option<Engine> {
    match query.form {
        _ if has_kernel => {
            Some(Engine::Kernel).filter(|kernel| builtin::models().runs(*kernel, query))
        }
        CallForm::Blocking => row.engine,
        // The ranks run some of them in the place of the node service.
        CallForm::Nonblocking => Some(Engine::Agent),
    }
}

fn measured(row: &Row, engine: Option<Engine>) -> Option<Measured> {
    let Quantiles { p25, median, p75, .. } = Sample::of(row.times.clone()).quantiles;
    Some(Measured { plan: row.algorithm?, engine, median, quartiles: [p25, p75] })
}

/// Calls that something disturbed while their plans were timed, in the order of the measurement, with
/// the disturbance in words.
pub(super) fn disturbed(runs: &[&Run]) -> impl Iterator<Item = (Query, String)> {
    runs.iter().flat_map(|run| run.found.values()).filter(|step| step.whole).filter_map(|step| {
        let timed = || step.rows.iter().filter(|row| row.quantity == Quantity::Alone);
        let doubts = Doubts::beside(timed());
        let query = timed().next()?.query()?;
        doubts.is_disturbed().then(|| (query, doubts.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::decisions::trial::trial;
    use crate::rows::{Load, StepRows};
    use collectives::{Algorithm, Choice, Collective};

    const SHAPE: Query = Query {
        operation: Collective::Reduce,
        form: CallForm::Blocking,
        ranks: 4,
        ranks_per_node: 2,
        bytes: 0,
    };

    fn flat(bytes: u64, engine: Engine) -> Row {
        let plan = Choice::of(Algorithm::Flat);
        Row { engine: Some(engine), ..trial(&Query { bytes, ..SHAPE }, &plan, 500.0) }
    }

    #[test]
    fn a_call_that_is_too_long_for_the_kernel_has_no_time_of_the_kernel() {
        let sizes = |engine| {
            let run = Run::of([flat(64 << 10, engine), flat(512 << 10, engine)]);
            timed(&[&run]).into_keys().map(|query| query.bytes).collect::<Vec<_>>()
        };
        assert_eq!(sizes(Engine::Kernel), [64 << 10]);
        assert_eq!(sizes(Engine::Direct), [64 << 10, 512 << 10]);
    }

    #[test]
    fn nonblocking_calls_outside_the_kernel_count_for_the_node_service() {
        let row = Row { form: Some(CallForm::Nonblocking), ..flat(8, Engine::Direct) };
        let times = by_engine(&[&Run::of([row, flat(8, Engine::Direct)])]);
        let counted: Vec<_> = times.iter().map(|(engine, times)| (*engine, times.len())).collect();
        assert_eq!(counted, [(Engine::Direct, 1), (Engine::Agent, 1)]);
    }

    #[test]
    fn a_step_with_load_by_others_is_disturbed() {
        let step = |others: f64| {
            let load = Some(Load { others, stolen: 0.0 });
            StepRows::from(vec![Row { load, ..flat(64, Engine::Direct) }])
        };
        let mut run = Run::of([]);
        run.found = [(0, step(0.01)), (1, step(0.43))].into();
        let words = "other processes used 43 % of the cores".to_owned();
        let found: Vec<(Query, String)> = disturbed(&[&run]).collect();
        assert_eq!(found, [(Query { bytes: 64, ..SHAPE }, words)]);
    }
}
