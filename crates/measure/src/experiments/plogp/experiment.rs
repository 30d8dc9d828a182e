//! The steps on one node: each class of pairs under each engine, and then flat collectives and the
//! constants of cooperative progress.

use super::contention;
use super::found::{doubts_of_messages, sizes};
use super::noise;
use super::pair::{self, Clock, Extent, OverheadsBy};
use super::patterns::FIRST;
use super::progress::{self as of_node, Plan, Progress};
use super::starts;
use super::transport::RoundsPlan;
use crate::experiments::algorithms::compare;
use crate::experiments::models::engine_of;
use crate::harness::options::numbers_of_ranks;
use crate::harness::timer::{Batches, Budget};
use crate::harness::{
    ATTEMPTS, Doubts, Error, Experiment, JobShape, QUICK_ATTEMPTS, Setting, Step, StepContext,
    agreement, undisturbed_rows,
};
use crate::rows::{Measurements, Row};
use collectives::Collective;
use models::machine::{PairClass, Topology};
use models::machine_file::Engine;
use tradewind::{CallForm, EngineKind};

/// Each class and engine has so many turns: a machine keeps one speed for seconds, and two
/// measurements are to have the same speeds.
const PASSES: u32 = 6;
/// Form of the calls.
const FORM: CallForm = CallForm::Nonblocking;

const QUICK_PROGRESS: Plan = Plan {
    operations: &[Collective::Barrier, Collective::Bcast, Collective::Allreduce],
    sizes: &[8, 4096],
    budget: Budget::QUICK,
    visits: 1,
    attempts: QUICK_ATTEMPTS,
};
const PROGRESS: Plan = Plan {
    operations: Collective::ALL,
    sizes: &[8, 512, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20],
    budget: Budget { milliseconds: 8.0, most_rounds: 51 },
    visits: 2,
    attempts: ATTEMPTS,
};

fn extent(setting: &Setting) -> Extent {
    setting.choose(
        Extent {
            plan: RoundsPlan::quick(),
            batches: Batches { rounds: 5, microseconds: 200.0 },
            exchanges: &[8, 4096],
            combinations: 5,
            attempts: QUICK_ATTEMPTS,
        },
        Extent {
            plan: RoundsPlan::default(),
            batches: Batches { rounds: 25, microseconds: 1_000.0 },
            exchanges: &[8, 512, 4 << 10, 32 << 10, 256 << 10],
            combinations: 101,
            attempts: ATTEMPTS,
        },
    )
}

/// The experiment on one node.
pub(super) fn on_one_node(setting: &Setting) -> Experiment {
    let steps = message_steps(setting).into_iter().chain(progress_steps(setting));
    Experiment::new("plogp", setting, steps).noting(unknown()).noting_crowds()
}

/// Flat collectives and cooperative progress alone: what the models of collectives on one node
/// need.
pub(super) fn progress(setting: &Setting) -> Experiment {
    let steps = progress_steps(setting);
    Experiment::new("progress", setting, steps).noting(unknown()).noting_crowds()
}

/// Properties of this machine that are not known.
pub(super) fn unknown() -> Vec<String> {
    let here = Topology::here();
    here.unknown().map(|unknown| format!("Of this machine, {unknown}.")).collect()
}

/// Each class of pairs under each engine.
fn message_steps(setting: &Setting) -> Vec<Step> {
    let extent = extent(setting);
    let noise = setting.choose(5, 500);
    let here = Topology::here();
    let cores: Vec<u32> =
        setting.cores.iter().filter_map(|core| u32::try_from(*core).ok()).collect();
    let mut steps = Vec::new();
    let passes = setting.choose(1, PASSES);
    for pass in 1..=passes {
        // The farthest class first: there no other rank shares the core of the noise measurement.
        for (class, pair) in here.pairs_among(&cores).into_iter().rev() {
            for kind in [EngineKind::Caller, EngineKind::Peers] {
                let shape = JobShape::on(2, &[pair.0 as usize, pair.1 as usize]).with_engine(kind);
                let turn = Turn {
                    class,
                    engine: engine_of(kind),
                    pass,
                    noise: steps.is_empty().then_some(noise),
                    is_last: pass == passes,
                };
                let extent = extent.clone();
                let what = format!("{class}, {kind}, pass {pass} of {passes}");
                let milliseconds = setting.choose(300, 2_500);
                steps.push(Step::new(what, shape, milliseconds, move |here| {
                    pair_step(here, turn, &extent)
                }));
            }
        }
    }
    steps
}

/// Each number of ranks.
fn progress_steps(setting: &Setting) -> Vec<Step> {
    let plan = setting.choose(QUICK_PROGRESS, PROGRESS);
    let ranks = numbers_of_ranks(&setting.options, setting.quick);
    let step = |ranks: u32| {
        let shape = JobShape::bound(setting, ranks);
        let what = format!("flat collectives and cooperative progress, {}", shape.describe());
        Step::new(what, shape, setting.choose(400, 5_000), move |here| {
            let doubts = |rows: &[Row]| {
                Ok(Progress::of(rows).map_or_else(Doubts::default, |times| times.doubts()))
            };
            undisturbed_rows(here, plan.attempts, || of_node::measure(here, plan), doubts)
        })
    };
    ranks.into_iter().map(step).collect()
}

/// The class and engine of a pass.
#[derive(Clone, Copy)]
struct Turn {
    class: PairClass,
    engine: Engine,
    pass: u32,
    /// Milliseconds for which noise is looked for; only in the first step.
    noise: Option<u64>,
    /// This is the last pass.
    is_last: bool,
}

/// Measures one class under one engine once more.
fn pair_step(here: &StepContext<'_>, turn: Turn, extent: &Extent) -> Result<Vec<Row>, Error> {
    let plan = same_sizes(here, turn, &extent.plan)?;
    let extent = Extent { plan, ..extent.clone() };
    let attempt = || once(here, turn, &extent);
    let mut rows = undisturbed_rows(here, extent.attempts, attempt, doubts_of_messages)?;
    if let (Some(milliseconds), FIRST) = (turn.noise, here.world.rank()) {
        rows.extend(noise::look(here, milliseconds));
    }
    Ok(rows)
}

/// The plan with the sizes of the passes before: all passes go over the same. All ranks call this.
fn same_sizes(here: &StepContext<'_>, turn: Turn, plan: &RoundsPlan) -> Result<RoundsPlan, Error> {
    let mut before = Vec::new();
    if let (true, Some(directory)) = (turn.pass > 1 && here.world.rank() == FIRST, here.directory) {
        let measurements = Measurements::read(directory)?;
        let run = measurements.run("plogp");
        before = run.map_or(before, |run| sizes(run, (turn.engine, turn.class)));
    }
    let own = (here.world.rank() == FIRST).then_some(&before);
    let before: Vec<u64> = agreement::of_first(here.world, own)?;
    let plan = plan.clone();
    let is_known = !before.is_empty();
    Ok(if is_known { RoundsPlan { sizes: before, most_added: 0, ..plan } } else { plan })
}

/// Measures a pair once. Both ranks call this.
fn once(here: &StepContext<'_>, turn: Turn, extent: &Extent) -> Result<Vec<Row>, Error> {
    let clocks = (Clock::Inside, OverheadsBy::Timestamps);
    let mut rows = pair::rows(here, (FORM, turn.engine), clocks, extent)?;
    if turn.is_last {
        let milliseconds = extent.batches.milliseconds() as f64;
        let budget = Budget { milliseconds, most_rounds: 51 };
        rows.extend(contention::exchanges(FORM, extent.exchanges, 2, |call, direct| {
            compare(here, call, direct, budget)
        })?);
    }
    let class = Some(turn.class);
    let mut rows: Vec<Row> = rows.into_iter().map(|row| Row { pair: class, ..row }).collect();
    if turn.noise.is_some() {
        rows.push(starts::combination(here, extent.combinations)?);
    }
    Ok(rows)
}
