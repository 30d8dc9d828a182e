//! The parameters of messages between the nodes of a job, for each engine that the job has.
//!
//! Messages between ranks of one node that belong to a collective between nodes go through the same
//! engine, so these are measured too, where nodes have several ranks. The clocks of nodes differ:
//! every time is between two readings on one node.

use super::contention;
use super::experiment::unknown;
use super::found::doubts_of_messages;
use super::lone_message::Executor;
use super::pair::{self, Clock, Extent, OverheadsBy};
use super::patterns::FIRST;
use super::starts;
use super::transport::RoundsPlan;
use crate::experiments::algorithms::compare_in_batches;
use crate::harness::timer::Batches;
use crate::harness::{
    ATTEMPTS, Doubts, Error, Experiment, JobShape, Nodes, QUICK_ATTEMPTS, Setting, Step,
    StepContext, agreement, leaders, undisturbed_rows,
};
use crate::rows::{Row, StepRows};
use models::machine::PairClass;
use models::machine_file::Engine;
use tradewind::{CallForm, Communicator};

/// Sizes of messages between nodes, besides those that are added where curves bend.
const SIZES: [u64; 10] =
    [0, 1, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10, 1 << 20];
/// Sizes of direct exchanges.
const EXCHANGES: [u64; 5] = [8, 512, 4 << 10, 32 << 10, 256 << 10];

/// Class of pairs inside a node, however near they are.
const INSIDE: PairClass = PairClass::SameSocket;
const BETWEEN: PairClass = PairClass::OtherNode;

/// The experiment for a job on these nodes, in which every rank makes all steps.
pub(super) fn experiment(setting: &Setting, nodes: &Nodes) -> Experiment {
    let ranks = nodes.size();
    let extent = setting.choose(
        Extent {
            plan: RoundsPlan { sizes: vec![0, 1, 4 << 10, 64 << 10], most_added: 0, rounds: 4 },
            batches: Batches { rounds: 3, microseconds: 1_000.0 },
            exchanges: &EXCHANGES[..2],
            combinations: 5,
            attempts: QUICK_ATTEMPTS,
        },
        Extent {
            plan: RoundsPlan { sizes: SIZES.to_vec(), most_added: 4, rounds: 16 },
            batches: Batches { rounds: 15, microseconds: 5_000.0 },
            exchanges: &EXCHANGES,
            combinations: 51,
            attempts: ATTEMPTS,
        },
    );
    let has_pairs_inside = ranks > nodes.ranks.len() as u32;
    let mut steps = Vec::new();
    for class in [BETWEEN, INSIDE].into_iter().take(1 + usize::from(has_pairs_inside)) {
        for form in CallForm::ALL.iter().copied() {
            let place = if class == BETWEEN { "between nodes" } else { "inside a node" };
            let what = format!("messages {place}, {form}");
            let extent = extent.clone();
            let shape = JobShape::bound(setting, ranks);
            steps.push(Step::new(what, shape, setting.choose(500, 10_000), move |here| {
                step(here, class, form, &extent)
            }));
        }
    }
    Experiment::new("plogp", setting, steps).noting(unknown())
}

fn step(
    here: &StepContext<'_>,
    class: PairClass,
    form: CallForm,
    extent: &Extent,
) -> Result<StepRows, Error> {
    let world = here.world;
    let leaders = leaders(world)?;
    let pair = if class == BETWEEN {
        split(world, &leaders[..2])?
    } else {
        let second = (0..world.size()).find(|rank| !leaders.contains(rank));
        let second = second.filter(|second| leaders.get(1).is_none_or(|next| second < next));
        let Some(second) = second else { return Ok(not_on_first_node()) };
        // With a rank of another node, which has nothing to do.
        split(world, &[FIRST, second, leaders[1]])?
    };
    let group = split(world, &leaders)?.filter(|_| class == BETWEEN);
    let attempt = || once(here, [pair.as_ref(), group.as_ref()], (class, form), extent);
    // A form without an engine of its own has no rows.
    let doubts = |rows: &[Row]| {
        if rows.is_empty() { Ok(Doubts::default()) } else { doubts_of_messages(rows) }
    };
    Ok(undisturbed_rows(here, extent.attempts, attempt, doubts)?.into())
}

fn not_on_first_node() -> StepRows {
    let note = "The first node has one rank: messages inside a node were not measured.";
    StepRows { notes: vec![note.to_owned()], ..Vec::new().into() }
}

/// Measures a pair and a group of ranks once, in which not every rank has to be. All ranks call
/// this. No rows if another form measures the engine of these calls.
fn once(
    here: &StepContext<'_>,
    [pair, group]: [Option<&Communicator>; 2],
    (class, form): (PairClass, CallForm),
    extent: &Extent,
) -> Result<Vec<Row>, Error> {
    let world = here.world;
    let of_pair = |pair| {
        let of_pair = StepContext { world: pair, ..*here };
        messages(&of_pair, (class, form), extent)
    };
    let found = pair.map(of_pair).transpose()?.flatten();
    // The others sleep meanwhile: a rank that waits in a blocking call polls.
    world.ibarrier()?.wait()?;
    // Rank 0 is in every pair.
    let engine = found.as_ref().map(|(engine, _)| *engine);
    let own = (world.rank() == FIRST).then_some(&engine);
    let engine: Option<Engine> = agreement::of_first(world, own)?;
    let Some(engine) = engine else { return Ok(Vec::new()) };
    let mut rows = found.map_or(Vec::new(), |(_, rows)| rows);
    if let Some(world) = group {
        let of_group = StepContext { world, ..*here };
        let ranks: Vec<u32> = (0..world.size()).collect();
        let milliseconds = extent.batches.milliseconds() as f64;
        let exchanges =
            contention::exchanges(form, extent.exchanges, world.size(), |call, direct| {
                compare_in_batches(&of_group, call, direct, None, milliseconds)
            })?;
        let of_class = |row: Row| Row { pair: Some(class), ..row.among(&ranks) };
        rows.extend(exchanges.into_iter().map(of_class));
    }
    rows.extend(starts::combinations_between_nodes(here, (form, engine), extent.batches)?);
    let node = world.split_by_node()?;
    let of_node = StepContext { world: &node, ..*here };
    let combination = starts::combination(&of_node, extent.combinations)?;
    rows.push(combination.among(&vec![0; node.size() as usize]));
    Ok(rows)
}

/// Measures a pair, which is the world of the step here; `None` for an engine that another form
/// measures.
fn messages(
    here: &StepContext<'_>,
    (class, form): (PairClass, CallForm),
    extent: &Extent,
) -> Result<Option<(Engine, Vec<Row>)>, Error> {
    let engine = pair::engine_of_calls(here.world, form)?;
    let is_own = match form {
        CallForm::Blocking => engine == Engine::Direct,
        CallForm::Nonblocking => engine != Engine::Direct,
    };
    if !is_own {
        return Ok(None);
    }
    let is_shared = class == INSIDE;
    let clock = if is_shared && engine != Engine::Kernel { Clock::Around } else { Clock::Inside };
    let overheads_by = match (engine, here.service) {
        (Engine::Direct, _) => OverheadsBy::LoneMessages(Executor::Caller),
        (Engine::Agent, Some(process)) => {
            OverheadsBy::LoneMessages(Executor::Service { process, is_shared })
        }
        // A thread of this process, among others.
        (Engine::Agent, None) => OverheadsBy::None,
        _ => OverheadsBy::Timestamps,
    };
    let rows = pair::rows(here, (form, engine), (clock, overheads_by), extent)?;
    let nodes = if is_shared { [0, 0] } else { [0, 1] };
    let of_pair = |row: Row| Row { pair: Some(class), ..row.among(&nodes) };
    Ok(Some((engine, rows.into_iter().map(of_pair).collect())))
}

/// A communicator of these ranks; `None` on all others.
fn split(world: &Communicator, ranks: &[u32]) -> Result<Option<Communicator>, Error> {
    let color = ranks.contains(&world.rank()).then_some(0);
    Ok(world.split(color, i64::from(world.rank()))?)
}
