//! Built-in rules for queries without measurements.
//!
//! They are what the models find with built-in parameters. Between nodes the
//! [models](crate::builtin) are asked at run time. On one node the parameters were measured on two
//! cores: with a core for each of two ranks, and with four and eight ranks that share them. These
//! are two [classes of machines](MachineClass). Simulations take longer than a job may need to
//! start, so the rows that the models find for these parameters are built in; a test compares both.

use super::table::{DecisionTable, Row, TableError};
use crate::builtin;
use crate::machine_file::Machine;
use crate::prediction::Models;
use crate::query::{CallForm, Query};
use collectives::{Algorithm, Choice, Collective};
use std::path::Path;
use std::sync::LazyLock;

/// Up to this many bytes a broadcast or a reduction sends whole messages, beyond it parts.
const SHORT_BCAST: u64 = 12 << 10;
const SHORT_REDUCTION: u64 = 2 << 10;
/// Up to this many bytes in all, an allgather has few rounds, beyond it few bytes on the way.
const SHORT_ALLGATHER: u64 = 80 << 10;
const SHORT_REDUCE_SCATTER: u64 = 512 << 10;
/// Up to this many bytes a block, an all-to-all has few rounds; beyond the other one ranks take
/// turns.
const SHORT_ALLTOALL: u64 = 256;
const MEDIUM_ALLTOALL: u64 = 32 << 10;
/// Below this many ranks a broadcast in parts does not pay.
const FEW_RANKS: u32 = 8;

const ON_ONE_NODE: &[u8] = include_bytes!("../builtin/one-node-decisions.json");
/// Number of cores of the machine that [`ON_ONE_NODE`] holds for.
const CORES: u32 = 2;

/// Class of a node by the ranks of a job on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineClass {
    /// Each rank of the job has a core.
    CoreForEachRank,
    /// Ranks share cores.
    SharedCores,
}

impl MachineClass {
    /// The class of a node with so many ranks on so many cores.
    pub const fn of(ranks: u32, cores: u32) -> Self {
        if ranks <= cores { MachineClass::CoreForEachRank } else { MachineClass::SharedCores }
    }
}

/// A plan for every query: the [row](on_one_node) for one node, or a flat collective; between nodes
/// what the models find fastest with the [built-in parameters](builtin).
///
/// ```
/// use collectives::Collective;
/// use models::decision::rules::{MachineClass, plan};
/// use models::decision::{CallForm, Query};
/// let form = CallForm::Nonblocking;
/// let query =
///     Query { operation: Collective::Alltoall, form, ranks: 4, ranks_per_node: 2, bytes: 8 };
/// assert_eq!(plan(&query, MachineClass::SharedCores).to_string(), "two-level rotated-direct");
/// let one_node = Query { ranks_per_node: 4, ..query };
/// assert_eq!(plan(&one_node, MachineClass::SharedCores).to_string(), "join");
/// ```
pub fn plan(query: &Query, class: MachineClass) -> Choice {
    if query.nodes() == 1 {
        let range = on_one_node(query, class).and_then(|row| row.range(query.bytes).ok());
        return range.map_or(Choice::of(Algorithm::Join), |range| range.plan);
    }
    match builtin::models().choose(query) {
        Some(best) => best.plan,
        None => classical(query),
    }
}

/// The row for a query of any size on one node; `None` for more than twice as many ranks as the
/// parameters were measured with, or on several nodes.
pub fn on_one_node(query: &Query, class: MachineClass) -> Option<&'static Row> {
    static TABLE: LazyLock<Option<DecisionTable>> = LazyLock::new(|| {
        // A test reads the file; without it every collective would be flat.
        DecisionTable::from_bytes(Path::new("built-in decisions"), ON_ONE_NODE).ok()
    });
    if query.nodes() > 1 {
        return None;
    }
    let ranks = match class {
        MachineClass::CoreForEachRank if query.ranks > 2 * CORES => return None,
        MachineClass::CoreForEachRank => CORES,
        MachineClass::SharedCores => query.ranks.max(2 * CORES),
    };
    TABLE.as_ref()?.row(&Query { ranks, ranks_per_node: ranks, ..*query }).ok()
}

/// Numbers of ranks with rows on one node.
pub const RANKS: [u32; 3] = [2, 4, 8];

/// The shapes of the rows on one node.
pub fn shapes() -> impl Iterator<Item = Query> {
    let both = |operation: Collective, ranks: u32| {
        let shape = move |form: &CallForm| Query {
            operation,
            form: *form,
            ranks,
            ranks_per_node: ranks,
            bytes: 0,
        };
        CallForm::ALL.iter().map(shape)
    };
    let of_ranks =
        move |ranks: u32| Collective::ALL.iter().flat_map(move |operation| both(*operation, ranks));
    RANKS.into_iter().flat_map(of_ranks)
}

/// The rows on one node that the models find for a machine: those that are built in, if its
/// parameters are.
///
/// # Errors
/// Ranges that cannot be, which is a mistake of this function.
pub fn rows_of(machine: &Machine) -> Result<DecisionTable, TableError> {
    let models = Models::of(machine);
    let sizes: Vec<u64> = (0..=22).map(|power| 1 << power).collect();
    let rows = shapes().filter_map(|shape| Row::build(&models, &shape, &sizes));
    DecisionTable::new(machine.fingerprint.clone(), rows.collect())
}

/// The algorithms and limits of Thakur, Rabenseifner, Gropp: "Optimization of Collective
/// Communication Operations in MPICH", International Journal of High Performance Computing
/// Applications 19(1), 2005, as if every rank were alone on its node: what MPI libraries have.
///
/// ```
/// use collectives::Collective;
/// use models::decision::{CallForm, Query, rules};
/// let form = CallForm::Blocking;
/// let query =
///     Query { operation: Collective::Bcast, form, ranks: 64, ranks_per_node: 1, bytes: 1 << 20 };
/// assert_eq!(rules::classical(&query).to_string(), "scatter-allgather");
/// ```
pub fn classical(query: &Query) -> Choice {
    Choice::of(between_nodes(query))
}

fn between_nodes(query: &Query) -> Algorithm {
    let Query { ranks, bytes, .. } = *query;
    let in_all = bytes.saturating_mul(u64::from(ranks));
    match query.operation {
        Collective::Barrier => Algorithm::Dissemination,
        Collective::Bcast if bytes <= SHORT_BCAST || ranks < FEW_RANKS => Algorithm::Binomial,
        Collective::Bcast => Algorithm::ScatterAllgather,
        Collective::Scatter | Collective::Gather => Algorithm::Binomial,
        Collective::Allgather if in_all > SHORT_ALLGATHER => Algorithm::Ring,
        Collective::Allgather if ranks.is_power_of_two() => Algorithm::RecursiveDoubling,
        Collective::Allgather => Algorithm::Bruck,
        Collective::Reduce if bytes <= SHORT_REDUCTION => Algorithm::Binomial,
        Collective::Reduce => Algorithm::Rabenseifner,
        Collective::Allreduce if bytes <= SHORT_REDUCTION => Algorithm::RecursiveDoubling,
        Collective::Allreduce => Algorithm::Rabenseifner,
        Collective::ReduceScatter if in_all <= SHORT_REDUCE_SCATTER => Algorithm::RecursiveHalving,
        Collective::ReduceScatter => Algorithm::Pairwise,
        Collective::Scan | Collective::Exscan => Algorithm::RecursiveDoubling,
        Collective::Alltoall if bytes <= SHORT_ALLTOALL => Algorithm::Bruck,
        Collective::Alltoall if bytes <= MEDIUM_ALLTOALL => Algorithm::RotatedDirect,
        Collective::Alltoall => Algorithm::Pairwise,
    }
}
