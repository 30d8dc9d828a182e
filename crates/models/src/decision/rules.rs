//! Built-in rules for queries without measurements.

use crate::builtin;
use crate::query::Query;
use collectives::{Algorithm, Choice, Collective};

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

/// A plan for every query: flat collectives inside one node, and between nodes what the models
/// find fastest with the [built-in parameters](builtin).
///
/// ```
/// use collectives::Collective;
/// use models::decision::{CallForm, Query, rules};
/// let form = CallForm::Nonblocking;
/// let query =
///     Query { operation: Collective::Alltoall, form, ranks: 4, ranks_per_node: 2, bytes: 8 };
/// assert_eq!(rules::plan(&query).to_string(), "two-level pairwise");
/// ```
pub fn plan(query: &Query) -> Choice {
    if query.nodes() == 1 {
        return Choice::of(Algorithm::Join);
    }
    match builtin::models().candidates(query).first() {
        Some(best) => best.plan,
        None => classical(query),
    }
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
