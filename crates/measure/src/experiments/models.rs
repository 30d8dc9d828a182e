//! Predicted against measured, for every algorithm of every collective (2004, sections 3 to 5).
//!
//! Each step times all algorithms of one operation, size and number of ranks side by side. Rank 0
//! predicts them from the parameters in `machine.json`, where the directory has one: predictions are
//! rows, too. The rest follows from all rows: the constants of the [model of
//! sharing](models::simulation), fitted to the simplest algorithm of each operation alone, and its
//! predictions of all others; the errors of both models; γ; guidelines that are broken; anomalies
//! of small messages.

mod guidelines;
mod part;
mod simulated;

use crate::experiments::algorithms::{CollectiveCall, SEGMENTS, compare};
use crate::experiments::entry::SuiteEntry;
use crate::harness::timer::Budget;
use crate::harness::{Experiment, JobShape, Setting, Step, StepContext};
use crate::rows::{Quantity, Row, What};
use collectives::{Algorithm, Choice, Collective};
use models::costs::Costs;
use models::decision::CallForm;
use models::formulas::alltoall;
use models::machine_file::{Engine, Machine};
use tradewind::EngineKind;

/// The caller engine is measured for the formulas alone, which are far off for other reasons.
const VISITS_OF_THE_CALLER: u32 = 2;
/// No collective takes more memory than this.
const MOST_MEMORY: u64 = 1 << 28;
/// The operations, those of the paper's tables first.
const OPERATIONS: [Collective; 10] = [
    Collective::Bcast,
    Collective::Scatter,
    Collective::Alltoall,
    Collective::Gather,
    Collective::Allgather,
    Collective::Reduce,
    Collective::Allreduce,
    Collective::ReduceScatter,
    Collective::Scan,
    Collective::Barrier,
];
/// Extent of a measurement.
struct Extent {
    operations: Vec<Collective>,
    ranks: Vec<u32>,
    bytes: Vec<u64>,
    budget: Budget,
    /// Number of visits to each collective of the peers engine: a machine keeps one speed
    /// for seconds, and one that is slow when a size is measured would make that size alone slow,
    /// for all algorithms.
    visits: u32,
}

impl Extent {
    fn of(setting: &Setting) -> Self {
        let quick = setting.quick;
        Extent {
            operations: if quick { OPERATIONS[..3].to_vec() } else { OPERATIONS.to_vec() },
            ranks: if quick { vec![2] } else { vec![2, 4, 8] },
            bytes: if quick {
                vec![8, 4 << 10]
            } else {
                (0..8).map(|power| 1 << (3 * power).min(20)).collect()
            },
            budget: if quick {
                Budget::QUICK
            } else {
                Budget { milliseconds: 30.0, most_rounds: 101 }
            },
            visits: if quick { 1 } else { 4 },
        }
    }
}

/// The experiment.
pub const ENTRY: SuiteEntry = SuiteEntry {
    name: "models",
    title: "Predicted against measured",
    about: "Every algorithm of an operation takes turns with the others; a point is the time from a common \
            start until the slowest rank is done, on the fastest of several visits. Dashed are \
            predictions. Those named pLogP come from the formulas of tables 1 to 3 and the parameters in \
            machine.json, with what a run costs besides its messages: each rank works for itself. Those \
            named sharing come from a simulation of the engine: the rank that enables an operation executes \
            it, for any rank, and ranks of one core take turns; its constants are fitted to the simplest \
            algorithm of each operation, which the tables mark, and predict all others.",
    source: "Barchet-Estefanel, Mounié 2004, sections 3 to 5",
    steps,
    view: part::view,
};

fn steps(setting: &Setting) -> Experiment {
    let extent = Extent::of(setting);
    let mut steps = Vec::new();
    let visited = |visit: u32| extent.ranks.iter().map(move |ranks| (visit, ranks));
    for (visit, ranks) in (1..=extent.visits).flat_map(visited) {
        // The model of sharing has to know which ranks share a core.
        let shape = JobShape::on(*ranks, setting.map.as_deref().unwrap_or(&setting.cores));
        let with_caller = !shape.is_crowded() && visit <= VISITS_OF_THE_CALLER;
        let engines: &[EngineKind] = if with_caller {
            &[EngineKind::Peers, EngineKind::Caller]
        } else {
            &[EngineKind::Peers]
        };
        for engine in engines {
            let calls = |operation: &Collective| {
                let forms = &[CallForm::Blocking];
                CollectiveCall::all(*operation, forms, *ranks, &extent.bytes, MOST_MEMORY)
            };
            for collective in extent.operations.iter().flat_map(calls) {
                let shape = shape.clone().with_engine(*engine);
                let budget = extent.budget;
                let milliseconds = budget.milliseconds as u64 * 2;
                let what =
                    format!("{collective}, {engine} engine, visit {visit} of {}", extent.visits);
                steps.push(Step::new(what, shape, milliseconds, move |here| {
                    let plans = plans(here, &collective);
                    let mut rows = compare(here, &collective, &plans, budget)?;
                    // Later visits would have the same predictions.
                    if visit == 1 {
                        rows.extend(predicted(here, &collective, &plans));
                    }
                    Ok(rows)
                }));
            }
        }
    }
    Experiment::new(ENTRY.name, setting, steps).noting_crowds()
}

/// With the caller engine its own ranks execute a join, so figures of other engines do not apply
/// to it.
fn plans(here: &StepContext<'_>, collective: &CollectiveCall) -> Vec<Choice> {
    let joins = here.shape.engine == EngineKind::Peers;
    let mut plans = collective.plans(&SEGMENTS);
    plans.retain(|plan| joins || plan.algorithm != Algorithm::Join);
    plans
}

/// Times that the formulas predict.
fn predicted(here: &StepContext<'_>, collective: &CollectiveCall, plans: &[Choice]) -> Vec<Row> {
    let Some(costs) = costs(here) else { return Vec::new() };
    let CollectiveCall { operation, form, ranks, bytes, .. } = *collective;
    let engine = engine_of(here.shape.engine);
    let row = |quantity, plan, microseconds: f64| {
        let row = here.row(What::Collective(operation), quantity, vec![microseconds]).sized(bytes);
        (microseconds.is_finite() && microseconds >= 0.0).then(|| row.by(engine, form, plan))
    };
    let of_plan = |plan: &Choice| {
        let time = if plan.algorithm == Algorithm::Join {
            costs.predict(operation, plan, ranks, bytes)
        } else {
            let messages = costs.messages(operation, plan, ranks, bytes);
            messages.map(|time| time + costs.start.of(operation, ranks, bytes))
        };
        row(Quantity::Predicted, Some(*plan), time?)
    };
    let mut rows: Vec<Row> = plans.iter().filter_map(of_plan).collect();
    if operation == Collective::Alltoall {
        let bounds = alltoall::bounds(&costs.network, ranks, bytes);
        rows.extend(row(Quantity::LowerBound, None, bounds.lower));
        rows.extend(row(Quantity::UpperBound, None, bounds.upper));
    }
    rows
}

/// Costs under the step's engine; none if they have not been measured.
fn costs(here: &StepContext<'_>) -> Option<Costs> {
    let machine = Machine::read(&here.directory?.join("machine.json")).ok()?;
    let engine = engine_of(here.shape.engine);
    machine.costs(engine, CallForm::Blocking, machine.farthest_inside(engine)?)
}

/// The engine as a machine's file names it.
pub(crate) fn engine_of(engine: EngineKind) -> Engine {
    match engine {
        EngineKind::Caller => Engine::Caller,
        EngineKind::Peers => Engine::Peers,
    }
}
