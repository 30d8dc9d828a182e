//! The steps of the experiment: each class of pairs under each engine, and then flat collectives
//! and the constants of cooperative progress.

use super::contention::{self, Exchange};
use super::machine;
use super::noise;
use super::pair::{Clock, OverheadsBy, Pair};
use super::part::{
    CONTENTION, FIGURES, FLAT, MACHINE, PARAMETERS, SHARING, note_of, outline, points_of, row_of,
};
use super::patterns::FIRST;
use super::progress::{self as of_node, Plan};
use super::rounds::{Pass, Passes};
use super::starts;
use super::survey::{Survey, SurveyPlan, rounds_of};
use super::transport::Reading;
use crate::experiments::models::engine_of;
use crate::harness::timer::{Batches, Budget};
use crate::harness::{
    ATTEMPTS, Doubts, Error, Experiment, Finding, JobShape, QUICK_ATTEMPTS, Setting, Step,
    StepContext, undisturbed,
};
use crate::results::Value;
use collectives::Collective;
use models::costs::StartCosts;
use models::machine::{PairClass, Topology};
use models::machine_file::Machine;
use models::parameters::ParametersError;
use tradewind::{CallForm, EngineKind};

/// The option with the numbers of ranks: a list with commas.
pub const RANKS: &str = "ranks";
/// The numbers of ranks if the option is not there.
pub const USUAL_RANKS: [u32; 3] = [2, 4, 8];
/// Each class and engine has so many turns: a machine keeps one speed for seconds, and two
/// measurements are to have the same speeds.
const PASSES: u32 = 6;

/// Extent of a measurement besides messages.
#[derive(Clone, Copy)]
struct Extent {
    batches: Batches,
    noise_milliseconds: u64,
    combinations: usize,
    exchanges: &'static [u64],
    progress: Plan,
    attempts: u32,
}

impl Extent {
    const QUICK: Extent = Extent {
        attempts: QUICK_ATTEMPTS,
        batches: Batches { rounds: 5, microseconds: 200.0 },
        noise_milliseconds: 5,
        combinations: 5,
        exchanges: &[8, 4096],
        progress: Plan {
            operations: &[Collective::Barrier, Collective::Bcast, Collective::Allreduce],
            sizes: &[8, 4096],
            budget: Budget::QUICK,
            visits: 1,
        },
    };
    const FULL: Extent = Extent {
        attempts: ATTEMPTS,
        batches: Batches { rounds: 25, microseconds: 1_000.0 },
        noise_milliseconds: 500,
        combinations: 101,
        exchanges: &[8, 512, 4 << 10, 32 << 10, 256 << 10],
        progress: Plan {
            operations: Collective::ALL,
            sizes: &[8, 512, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20],
            budget: Budget { milliseconds: 8.0, most_rounds: 51 },
            visits: 2,
        },
    };
}

/// The experiment on one node.
pub(super) fn on_one_node(setting: &Setting) -> Experiment {
    let mut steps = message_steps(setting);
    steps.extend(progress_steps(setting, !steps.is_empty()));
    let here = Topology::here();
    Experiment::new(outline(&here), steps)
}

/// Flat collectives and cooperative progress alone: what the models of collectives on one node
/// need.
pub fn progress(setting: &Setting) -> Experiment {
    let here = Topology::here();
    let mut part = outline(&here);
    part.name = "progress".to_owned();
    part.title = "Flat collectives and cooperative progress".to_owned();
    part.figures.clear();
    part.tables.retain(|table| [FLAT, SHARING].contains(&table.name.as_str()));
    Experiment::new(part, progress_steps(setting, false))
}

/// Each class of pairs under each engine.
fn message_steps(setting: &Setting) -> Vec<Step> {
    let plan = setting.choose(SurveyPlan::quick(), SurveyPlan::default());
    let extent = setting.choose(Extent::QUICK, Extent::FULL);
    let here = Topology::here();
    let cores: Vec<u32> =
        setting.cores.iter().filter_map(|core| u32::try_from(*core).ok()).collect();
    let mut steps = Vec::new();
    let passes = setting.choose(1, PASSES);
    for pass in 1..=passes {
        // The farthest class first: there no other rank shares the core of the noise measurement.
        for (class, pair) in here.pairs_among(&cores).into_iter().rev() {
            for engine in [EngineKind::Caller, EngineKind::Peers] {
                let shape =
                    JobShape::on(2, &[pair.0 as usize, pair.1 as usize]).with_engine(engine);
                let of =
                    Turn { class, engine, is_first: steps.is_empty(), is_last: pass == passes };
                let plan = plan.clone();
                let what = format!("{class}, {engine}, pass {pass} of {passes}");
                let milliseconds = setting.choose(300, 2_500);
                steps.push(Step::new(what, shape, milliseconds, move |here| {
                    pair_step(here, of, &plan, extent)
                }));
            }
        }
    }
    steps
}

/// Each number of ranks; `has_file` if earlier steps begin the machine's file.
fn progress_steps(setting: &Setting, has_file: bool) -> Vec<Step> {
    let extent = setting.choose(Extent::QUICK, Extent::FULL);
    let ranks = setting.choose(vec![2], ranks_of(setting));
    let step = |(index, ranks): (usize, u32)| {
        let shape = JobShape::bound(setting, ranks);
        let note = shape
            .is_crowded()
            .then(|| format!("More ranks than cores, which take turns: {}.", shape.describe()));
        let what = format!("flat collectives and cooperative progress, {}", shape.describe());
        let begins = index == 0 && !has_file;
        let cores = setting.cores.len() as u32;
        Step::new(what, shape, setting.choose(400, 5_000), move |here| {
            let mut findings =
                progress_step(here, (extent.progress, extent.attempts), begins, cores)?;
            findings.extend(note.clone().map(Finding::Note));
            Ok(findings)
        })
    };
    ranks.into_iter().enumerate().map(step).collect()
}

/// Numbers of ranks: the requested ones, else 2, 4 and 8.
fn ranks_of(setting: &Setting) -> Vec<u32> {
    let asked = setting.options.get(RANKS);
    let asked = asked.map(|list| list.split(',').filter_map(|one| one.parse().ok()).collect());
    asked.filter(|ranks: &Vec<u32>| !ranks.is_empty()).unwrap_or_else(|| USUAL_RANKS.to_vec())
}

/// The class and engine of a pass.
#[derive(Clone, Copy)]
struct Turn {
    class: PairClass,
    engine: EngineKind,
    /// Nothing was measured before.
    is_first: bool,
    /// This is the last pass.
    is_last: bool,
}

impl Turn {
    /// Name of its curves.
    fn curve(self) -> String {
        format!("{}, {}", self.class, self.engine)
    }
}

/// Measurements of a pair in one pass; on the other rank without rounds.
struct OncePair {
    rounds: Vec<Vec<Reading>>,
    run: StartCosts,
    combine: f64,
    exchanges: Vec<Exchange>,
}

/// Measures a pair once. Returns the measurements, and the doubts that follow from their times on
/// the first rank. Both ranks call this.
fn once(
    here: &StepContext<'_>,
    turn: Turn,
    plan: &SurveyPlan,
    extent: Extent,
) -> Result<(OncePair, Doubts), Error> {
    let world = here.world;
    let form = CallForm::Nonblocking;
    let engine = engine_of(turn.engine);
    let mut pair = Pair::new(world, form, engine, (Clock::Inside, OverheadsBy::Timestamps))?;
    let rounds = if world.rank() == FIRST {
        let rounds = rounds_of(&mut pair, plan)?;
        pair.end()?;
        rounds
    } else {
        pair.follow()?;
        Vec::new()
    };
    let run = starts::measure(world, form, extent.batches)?;
    let combine = starts::combine(world, extent.combinations)?;
    let exchanges = if turn.is_last {
        let budget = Budget { milliseconds: extent.batches.milliseconds() as f64, most_rounds: 51 };
        contention::measure(here, form, extent.exchanges, budget)?
    } else {
        Vec::new()
    };
    let doubts = match world.rank() {
        FIRST => Survey::of(&rounds).map_err(why)?.doubts,
        _ => Doubts::default(),
    };
    Ok((OncePair { rounds, run, combine, exchanges }, doubts))
}

/// Measures one class under one engine once more. What all passes found goes into the file, in the
/// end into the part.
fn pair_step(
    here: &StepContext<'_>,
    turn: Turn,
    plan: &SurveyPlan,
    extent: Extent,
) -> Result<Vec<Finding>, Error> {
    let world = here.world;
    let leads = world.rank() == FIRST;
    if let (true, true, Some(directory)) = (leads, turn.is_first, here.directory) {
        machine::check(directory)?;
    }
    let mut passes =
        if turn.is_first || !leads { Passes::default() } else { Passes::read(here.directory)? };
    let plan = match passes.sizes(&turn.curve()) {
        Some(sizes) => SurveyPlan { sizes, most_added: 0, ..plan.clone() },
        None => plan.clone(),
    };
    let attempt = || once(here, turn, &plan, extent);
    let (OncePair { rounds, run, combine, exchanges }, doubts) =
        undisturbed(here, extent.attempts, attempt)?;
    if !leads {
        return Ok(Vec::new());
    }
    let start = starts::without_messages(run, &Survey::of(&rounds).map_err(why)?.parameters);
    passes.add(&turn.curve(), Pass { rounds, start, doubts });
    let (found, start) = passes.survey(&turn.curve()).map_err(why)?;
    if let (true, Some(directory)) = (turn.is_first, here.directory) {
        // The first pass begins the file anew, so all of the old one would be lost.
        let is_quiet = |there: &Machine| {
            let is_empty = there.engines.is_empty() && there.flat.is_empty();
            !is_empty && there.disturbances().is_empty()
        };
        if machine::is_spoilt(here.directory, found.doubts, is_quiet) {
            return Err(machine::too_noisy(directory, &turn.curve(), found.doubts));
        }
    }
    passes.write(here.directory)?;
    let ratio = contention::fit(&exchanges, world.size(), &found.parameters, start);
    let clock = turn.is_first.then(|| noise::look(extent.noise_milliseconds));
    if let Some(directory) = here.directory {
        let keep = |machine: &mut Machine| {
            if let Some((resolution, noise)) = clock {
                (machine.clock_nanoseconds, machine.noise, machine.combine) =
                    (resolution, noise, combine);
            }
            keep(machine, turn, &found, start, ratio);
        };
        if turn.is_first {
            machine::begin(directory, keep)?
        } else {
            machine::add(directory, keep)?
        }
    }
    let mut findings =
        if turn.is_last { findings_of(here, turn, &found, start) } else { Vec::new() };
    findings.extend(ratio.map(|ratio| {
        let row = [turn.class.name().into(), turn.engine.name().into(), ratio.into()];
        Finding::row(CONTENTION, row)
    }));
    if let Some((resolution, noise)) = clock {
        let row = |what: &str, value: f64, unit: &str| {
            Finding::row(MACHINE, [what.into(), value.into(), unit.into()])
        };
        findings.extend([
            row("a step of the clock", resolution, "ns"),
            row("noise", noise.share * 100.0, "%"),
            row("interruptions", noise.per_second, "a second"),
            row("longest interruption", noise.longest, "µs"),
            row("combining doubles", combine * 1024.0, "µs/KiB"),
        ]);
    }
    Ok(findings)
}

pub(super) fn why(error: ParametersError) -> Error {
    let way_out = "measure again, with less going on beside".to_owned();
    Error::Impossible { what: format!("what was measured makes no parameters: {error}"), way_out }
}

fn keep(machine: &mut Machine, turn: Turn, found: &Survey, start: StartCosts, ratio: Option<f64>) {
    let costs = machine.engine_mut(engine_of(turn.engine));
    costs.classes.insert(turn.class, found.parameters.clone());
    costs.samples.insert(turn.class, found.samples.clone());
    costs.starts.insert(turn.class, start);
    machine::keep_doubts(&mut costs.disturbed, turn.class, found.doubts);
    if let Some(ratio) = ratio {
        costs.contention.insert(turn.class, ratio);
    }
}

fn findings_of(
    here: &StepContext<'_>,
    turn: Turn,
    found: &Survey,
    start: StartCosts,
) -> Vec<Finding> {
    let mut findings = points_of(&FIGURES, &turn.curve(), found);
    let cores: Vec<String> = here.shape.cores.iter().map(usize::to_string).collect();
    let words = [turn.class.name(), turn.engine.name(), &cores.join(", ")];
    findings.push(Finding::row(PARAMETERS, row_of(words, found, start)));
    findings.extend(note_of(&turn.curve(), found.doubts, false));
    findings
}

fn progress_step(
    here: &StepContext<'_>,
    (plan, attempts): (Plan, u32),
    begins: bool,
    cores: u32,
) -> Result<Vec<Finding>, Error> {
    let attempt = || {
        let measured = of_node::measure(here, plan)?;
        let doubts = measured.doubts();
        Ok((measured, doubts))
    };
    let (measured, doubts) = undisturbed(here, attempts, attempt)?;
    if here.world.rank() != FIRST {
        return Ok(Vec::new());
    }
    let ranks = here.world.size();
    let what = format!("{ranks} ranks");
    let sharing = measured.sharing(ranks, cores);
    let is_quiet = |there: &Machine| there.is_quiet_among(ranks);
    let is_spoilt = machine::is_spoilt(here.directory, doubts, is_quiet);
    if let Some(directory) = here.directory.filter(|_| !is_spoilt) {
        let keep = |machine: &mut Machine| {
            measured.keep(machine, sharing.clone());
            machine::keep_doubts(&mut machine.disturbed, ranks, doubts);
        };
        if begins {
            machine::begin_or_add(directory, keep)?;
        } else {
            machine::add(directory, keep)?;
        }
    }
    here.directory.into_iter().for_each(Passes::remove);
    let flat = measured.flat().map(|(form, operation, point)| {
        let numbers = [f64::from(point.ranks), point.bytes as f64, point.microseconds];
        let words: [Value; 2] = [operation.name().into(), form.name().into()];
        Finding::row(FLAT, words.into_iter().chain(numbers.map(Value::from)))
    });
    let constants = sharing.iter().map(|one| {
        let constants = &one.constants;
        let numbers = [
            f64::from(one.ranks),
            f64::from(one.cores),
            constants.start,
            constants.operation,
            constants.crossing,
            constants.switch,
            constants.copy.at(1 << 20),
            one.error,
        ];
        Finding::row(SHARING, numbers.map(Value::from))
    });
    Ok(flat.chain(constants).chain(note_of(&what, doubts, is_spoilt)).collect())
}
