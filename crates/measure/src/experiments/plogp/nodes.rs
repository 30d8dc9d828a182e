//! The parameters of messages between the nodes of a job, for each engine that the job has.
//!
//! Messages between ranks of one node that belong to a collective between nodes go through the same
//! engine, so these are measured too, where nodes have several ranks. The clocks of nodes differ:
//! every time is between two readings on one node.

use super::contention;
use super::experiment::unknown;
use super::found::{doubts_of_messages, rows_of};
use super::lone_message::Executor;
use super::pair::{Clock, OverheadsBy, Pair};
use super::patterns::FIRST;
use super::starts;
use super::transport::{RoundsPlan, rounds_of, times_of};
use crate::harness::timer::Batches;
use crate::harness::{
    ATTEMPTS, Doubts, Error, Experiment, JobShape, Nodes, QUICK_ATTEMPTS, Setting, Step,
    StepContext, agreement, leaders_of_ranks, undisturbed_rows,
};
use crate::rows::{Row, StepRows, What};
use models::machine::PairClass;
use models::machine_file::Engine;
use tradewind::{CallForm, Communicator};

/// Sizes of messages between nodes, besides those that are added where curves bend.
const SIZES: [u64; 10] =
    [0, 1, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10, 1 << 20];
/// Sizes of direct exchanges.
const EXCHANGES: [u64; 5] = [8, 512, 4 << 10, 32 << 10, 256 << 10];

/// Extent of a measurement.
#[derive(Clone)]
struct Extent {
    plan: RoundsPlan,
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

impl Distance {
    fn class(self) -> PairClass {
        match self {
            Distance::Between => PairClass::OtherNode,
            Distance::Inside => PairClass::SameSocket,
        }
    }

    /// The node of each of the two ranks.
    fn nodes(self) -> Vec<u32> {
        match self {
            Distance::Between => vec![0, 1],
            Distance::Inside => vec![0, 0],
        }
    }
}

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
            steps.push(Step::of_rows(what, shape, setting.choose(500, 10_000), move |here| {
                step(here, distance, form, &extent)
            }));
        }
    }
    Experiment::of_rows("plogp", setting, steps).noting(unknown())
}

fn step(
    here: &StepContext<'_>,
    distance: Distance,
    form: CallForm,
    extent: &Extent,
) -> Result<StepRows, Error> {
    let world = here.world;
    let leaders = leaders(world)?;
    let pair = match distance {
        Distance::Between => split(world, &leaders[..2])?,
        Distance::Inside => {
            let second = (0..world.size()).find(|rank| !leaders.contains(rank));
            let second = second.filter(|second| leaders.get(1).is_none_or(|next| second < next));
            let Some(second) = second else { return Ok(not_on_first_node()) };
            // With a rank of another node, which has nothing to do.
            split(world, &[FIRST, second, leaders[1]])?
        }
    };
    let group = split(world, &leaders)?.filter(|_| distance == Distance::Between);
    let attempt = || once(here, [pair.as_ref(), group.as_ref()], (distance, form), extent);
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
    (distance, form): (Distance, CallForm),
    extent: &Extent,
) -> Result<Vec<Row>, Error> {
    let world = here.world;
    let of_pair = |pair| {
        let of_pair = StepContext { world: pair, ..*here };
        messages(&of_pair, (distance, form), extent)
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
        let all: Vec<u32> = (0..world.size()).collect();
        let exchanges =
            contention::between_nodes(&of_group, (form, engine), extent.exchanges, extent.batches)?;
        let pair = Some(distance.class());
        rows.extend(exchanges.into_iter().map(|row| Row { pair, ..row.among(&all) }));
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
    (distance, form): (Distance, CallForm),
    extent: &Extent,
) -> Result<Option<(Engine, Vec<Row>)>, Error> {
    let pair = here.world;
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
    let overheads_by = match (engine, here.service) {
        (Engine::Direct, _) => OverheadsBy::LoneMessages(Executor::Caller),
        (Engine::Agent, Some(process)) => {
            OverheadsBy::LoneMessages(Executor::Service { process, is_shared })
        }
        // A thread of this process, among others.
        (Engine::Agent, None) => OverheadsBy::None,
        _ => OverheadsBy::Timestamps,
    };
    let mut transport = Pair::new(pair, form, engine, (clock, overheads_by))?;
    let rounds = times_of(&rounds_of(&mut transport, &extent.plan)?);
    let mut rows = rows_of(&rounds, |quantity, bytes, times| {
        here.row(What::Linked, quantity, times.to_vec()).sized(bytes)
    });
    rows.extend(starts::round_trips(here, form, extent.batches)?);
    let nodes = distance.nodes();
    let class = Some(distance.class());
    let of_pair = |row: Row| Row { pair: class, ..row.by(engine, form, None).among(&nodes) };
    Ok(Some((engine, rows.into_iter().map(of_pair).collect())))
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
