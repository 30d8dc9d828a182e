//! The parameters of messages between the nodes of a job, for each engine that the job has.
//!
//! Messages between ranks of one node that belong to a collective between nodes go through the same
//! engine, so these are measured too, where nodes have several ranks. The clocks of nodes differ:
//! every time is between two readings on one node.

use super::contention::{self, Exchange};
use super::experiment::why;
use super::lone_message::Executor;
use super::machine;
use super::pair::{Clock, OverheadsBy, Pair};
use super::part::{CONTENTION, FIGURES, PARAMETERS, note_of, outline, points_of, row_of};
use super::patterns::FIRST;
use super::starts;
use super::survey::{Survey, SurveyPlan, rounds_of};
use crate::harness::timer::{Batches, calls};
use crate::harness::{
    ATTEMPTS, Doubts, Error, Experiment, Finding, JobShape, Nodes, QUICK_ATTEMPTS, Setting, Step,
    StepContext, agreement, leaders_of_ranks, undisturbed,
};
use crate::results::Part;
use collectives::{Algorithm, Collective};
use models::costs::StartCosts;
use models::machine::{Fingerprint, PairClass, Topology};
use models::machine_file::{Engine, Machine};
use tradewind::{Algorithms, CallForm, Communicator};

/// Sizes of a survey between nodes, besides those that are added where curves bend.
const SIZES: [u64; 10] =
    [0, 1, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10, 1 << 20];
/// Sizes of direct exchanges.
const EXCHANGES: [u64; 5] = [8, 512, 4 << 10, 32 << 10, 256 << 10];

/// Extent of a measurement.
#[derive(Clone)]
struct Extent {
    plan: SurveyPlan,
    batches: Batches,
    exchanges: &'static [u64],
    combinations: usize,
    attempts: u32,
}

/// Which ranks exchange messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distance {
    Between,
    Inside,
}

/// The experiment for a job on these nodes, in which every rank makes all steps.
pub(super) fn experiment(setting: &Setting, nodes: &Nodes) -> Experiment {
    let ranks = nodes.size();
    let extent = setting.choose(
        Extent {
            plan: SurveyPlan { sizes: vec![0, 1, 4 << 10, 64 << 10], most_added: 0, rounds: 4 },
            batches: Batches { rounds: 3, microseconds: 1_000.0 },
            exchanges: &EXCHANGES[..2],
            combinations: 5,
            attempts: QUICK_ATTEMPTS,
        },
        Extent {
            plan: SurveyPlan { sizes: SIZES.to_vec(), most_added: 4, rounds: 16 },
            batches: Batches { rounds: 15, microseconds: 5_000.0 },
            exchanges: &EXCHANGES,
            combinations: 51,
            attempts: ATTEMPTS,
        },
    );
    let mut distances = vec![Distance::Between];
    if ranks > nodes.ranks.len() as u32 {
        distances.push(Distance::Inside);
    }
    let mut steps = Vec::new();
    for distance in distances {
        for form in CallForm::ALL.iter().copied() {
            let what = match distance {
                Distance::Between => format!("messages between nodes, {form}"),
                Distance::Inside => format!("messages inside a node, {form}"),
            };
            let extent = extent.clone();
            let shape = JobShape::bound(setting, ranks);
            steps.push(Step::new(what, shape, setting.choose(500, 10_000), move |here| {
                step(here, distance, form, &extent)
            }));
        }
    }
    Experiment::new(part(ranks, nodes.ranks.len()), steps)
}

fn part(ranks: u32, nodes: usize) -> Part {
    let mut part = outline(&Topology::here());
    part.about = format!(
        "What messages of schedules cost between two ranks of a job with {ranks} ranks on {nodes} \
         nodes, for the engines that the job has: direct in blocking calls, agent or kernel in \
         nonblocking ones. A value is the median over the faster quarter of the rounds. All raw \
         values are in machine.json."
    );
    part.tables.retain(|table| [PARAMETERS, CONTENTION].contains(&table.name.as_str()));
    part
}

fn step(
    here: &StepContext<'_>,
    distance: Distance,
    form: CallForm,
    extent: &Extent,
) -> Result<Vec<Finding>, Error> {
    let world = here.world;
    let leaders = leaders(world)?;
    let pair = match distance {
        Distance::Between => split(world, &leaders[..2])?,
        Distance::Inside => {
            let second = (0..world.size()).find(|rank| !leaders.contains(rank));
            let second = second.filter(|second| leaders.get(1).is_none_or(|next| second < next));
            let Some(second) = second else { return Ok(vec![not_on_first_node()]) };
            // With a rank of another node, which has nothing to do.
            split(world, &[FIRST, second, leaders[1]])?
        }
    };
    let group = split(world, &leaders)?;
    let group = group.as_ref().filter(|_| distance == Distance::Between);
    let attempt = || {
        let found = once(here, (pair.as_ref(), group), (distance, form), extent)?;
        let survey = found.pair.as_ref().map(|pair| &pair.survey);
        let doubts = survey.map_or_else(Doubts::default, |survey| survey.doubts);
        Ok((found, doubts))
    };
    let (found, doubts) = undisturbed(here, extent.attempts, attempt)?;
    let fingerprints = fingerprints(world)?;
    let Once { exchanges, own_combine, combine, .. } = found;
    let Some(found) = found.pair.filter(|_| world.rank() == FIRST) else {
        return Ok(Vec::new());
    };
    let engine = found.engine;
    let class = match distance {
        Distance::Between => PairClass::OtherNode,
        Distance::Inside => PairClass::SameSocket,
    };
    let curve = format!("{class}, {engine}");
    let network = &found.survey.parameters;
    let ratio = contention::fit(&exchanges, leaders.len() as u32, network, found.start);
    let is_quiet = |there: &Machine| there.is_quiet_between(engine, class);
    let is_spoilt = machine::is_spoilt(here.directory, doubts, is_quiet);
    if let Some(directory) = here.directory.filter(|_| !is_spoilt) {
        machine::begin_or_add(directory, |machine| {
            if machine.combine == 0.0 {
                machine.combine = combine;
            }
            machine.other_nodes = fingerprints;
            let costs = machine.engine_mut(engine);
            costs.classes.insert(class, network.clone());
            costs.samples.insert(class, found.survey.samples.clone());
            costs.starts.insert(class, found.start);
            costs.combine = own_combine.or(costs.combine);
            costs.contention.extend(ratio.map(|ratio| (class, ratio)));
            machine::keep_doubts(&mut costs.disturbed, class, doubts);
        })?;
    }
    let mut findings = points_of(&FIGURES, &curve, &found.survey);
    let words = [class.name(), engine.name(), ""];
    findings.push(Finding::row(PARAMETERS, row_of(words, &found.survey, found.start)));
    findings.extend(ratio.map(|ratio| {
        Finding::row(CONTENTION, [class.name().into(), engine.name().into(), ratio.into()])
    }));
    findings.extend(note_of(&curve, doubts, is_spoilt));
    Ok(findings)
}

/// Measurements of a form of calls.
struct Once {
    /// On rank 0, where this form measures its engine.
    pair: Option<Found>,
    exchanges: Vec<Exchange>,
    own_combine: Option<f64>,
    combine: f64,
}

/// Measures a pair and a group of ranks once, in which not every rank has to be. All ranks call
/// this.
fn once(
    here: &StepContext<'_>,
    (pair, group): (Option<&Communicator>, Option<&Communicator>),
    (distance, form): (Distance, CallForm),
    extent: &Extent,
) -> Result<Once, Error> {
    let world = here.world;
    let of_pair = |pair| measure(pair, (distance, form), here.service, extent);
    let pair = pair.map(of_pair).transpose()?.flatten();
    // The others sleep meanwhile: a rank that waits in a blocking call polls.
    world.ibarrier()?.wait()?;
    // Rank 0 is in every pair.
    let engine = pair.as_ref().map(|found| found.engine);
    let engine: Option<Engine> = agreement::of_first(world, Some(&engine))?;
    let mut once = Once { pair, exchanges: Vec::new(), own_combine: None, combine: 0.0 };
    let Some(engine) = engine else { return Ok(once) };
    if let Some(group) = group {
        once.exchanges = exchanges(group, form, extent)?;
    }
    once.own_combine = starts::combine_between_nodes(world, (form, engine), extent.batches)?;
    once.combine = starts::combine(&world.split_by_node()?, extent.combinations)?;
    Ok(once)
}

fn not_on_first_node() -> Finding {
    Finding::Note(
        "The first node has one rank: messages inside a node were not measured.".to_owned(),
    )
}

/// Measurements of a pair.
struct Found {
    engine: Engine,
    survey: Survey,
    start: StartCosts,
}

/// Measures a pair; `None` for an engine that another form measures.
fn measure(
    pair: &Communicator,
    (distance, form): (Distance, CallForm),
    service: Option<u32>,
    extent: &Extent,
) -> Result<Option<Found>, Error> {
    let engine = Pair::engine(pair, form)?;
    let is_own = match form {
        CallForm::Blocking => engine == Engine::Direct,
        CallForm::Nonblocking => true,
    };
    if !is_own {
        return Ok(None);
    }
    let clock = match distance {
        Distance::Inside if engine != Engine::Kernel => Clock::Around,
        _ => Clock::Inside,
    };
    let is_shared = distance == Distance::Inside;
    let overheads_by = match (engine, service) {
        (Engine::Direct, _) => OverheadsBy::LoneMessages(Executor::Caller),
        (Engine::Agent, Some(process)) => {
            OverheadsBy::LoneMessages(Executor::Service { process, is_shared })
        }
        // A thread of this process, among others.
        (Engine::Agent, None) => OverheadsBy::None,
        _ => OverheadsBy::Timestamps,
    };
    let mut transport = Pair::new(pair, form, engine, (clock, overheads_by))?;
    let rounds = if pair.rank() == FIRST {
        let rounds = rounds_of(&mut transport, &extent.plan)?;
        transport.end()?;
        rounds
    } else {
        transport.follow()?;
        Vec::new()
    };
    let run = starts::measure(pair, form, extent.batches)?;
    if pair.rank() != FIRST {
        return Ok(None);
    }
    let survey = Survey::of(&rounds).map_err(why)?;
    let start = starts::without_messages(run, &survey.parameters);
    Ok(Some(Found { engine, survey, start }))
}

/// The first rank of each node, ascending.
fn leaders(world: &Communicator) -> Result<Vec<u32>, Error> {
    let mut all = leaders_of_ranks(world)?;
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// A communicator of these ranks; `None` on all others.
fn split(world: &Communicator, ranks: &[u32]) -> Result<Option<Communicator>, Error> {
    let color = ranks.contains(&world.rank()).then_some(0);
    Ok(world.split(color, i64::from(world.rank()))?)
}

/// Times of direct exchanges among all ranks, in batches: the clocks of nodes differ.
fn exchanges(
    group: &Communicator,
    form: CallForm,
    extent: &Extent,
) -> Result<Vec<Exchange>, Error> {
    let direct = Algorithms::default().with(Collective::Alltoall, Algorithm::RotatedDirect)?;
    let group = group.with_algorithms(direct);
    let time = |bytes: &u64| {
        let length = *bytes as usize * group.size() as usize;
        let input = vec![1u8; length];
        let mut output = vec![0u8; length];
        let mut exchange = calls(|| {
            match form {
                CallForm::Blocking => group.alltoall(&input, &mut output)?,
                CallForm::Nonblocking => {
                    group.ialltoall(&input[..], &mut output[..])?.wait().map(drop)?;
                }
            }
            Ok(())
        });
        let times = extent.batches.time(&group, &mut exchange)?;
        Ok((*bytes, models::statistics::Sample::of(times).quantiles.p25))
    };
    extent.exchanges.iter().map(time).collect()
}

/// The machines of the job's nodes that differ from this one, each once.
fn fingerprints(world: &Communicator) -> Result<Vec<Fingerprint>, Error> {
    /// Longer ones are cut off and left out.
    const LENGTH: usize = 1024;
    let here = Topology::here().fingerprint().clone();
    let mut own = serde_json::to_vec(&here).map_err(std::io::Error::from)?;
    own.resize(LENGTH, b' ');
    let mut all = vec![0u8; LENGTH * world.size() as usize];
    world.allgather(&own, &mut all)?;
    let mut others: Vec<Fingerprint> = Vec::new();
    for one in all.chunks(LENGTH).filter_map(|bytes| serde_json::from_slice(bytes).ok()) {
        if one != here && !others.contains(&one) {
            others.push(one);
        }
    }
    Ok(others)
}
