//! Built-in rules for queries without measurements.

use crate::query::Query;
use collectives::{Algorithm, Collective};
use collectives::{Choice, Levels};

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
/// An all-to-all has two levels while all that a rank has for another node is this many bytes at
/// most. Beyond, it is more than a packet on each of its three ways, and what is saved in messages
/// is spent on copying. So it was on 2 and 4 nodes of 2 ranks and on 2 nodes of 4, network
/// namespaces on one Ethernet, with the kernel and the agent engine.
const TWO_LEVEL_ALLTOALL: u64 = 1 << 10;
/// Below this many ranks a broadcast in parts does not pay.
const FEW_RANKS: u32 = 8;

/// A plan for every query: joins inside one node, and between nodes the algorithms and limits of
/// Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH",
/// International Journal of High Performance Computing Applications 19(1), 2005. In two levels
/// wherever that saves messages between nodes, and copies cost less. Never wrong, nor fitted to any
/// machine.
///
/// ```
/// use collectives::Collective;
/// use models::decision::{CallForm, Query, rules};
/// let form = CallForm::Blocking;
/// let query =
///     Query { operation: Collective::Bcast, form, ranks: 64, ranks_per_node: 1, bytes: 1 << 20 };
/// let plan = rules::plan(&query);
/// assert_eq!(plan.to_string(), "scatter-allgather");
/// ```
pub fn plan(query: &Query) -> Choice {
    let nodes = query.nodes();
    if nodes == 1 {
        return Choice::of(Algorithm::Join);
    }
    let algorithm = match query.operation {
        Collective::Alltoall => Algorithm::RotatedDirect,
        _ => between_nodes(&Query { ranks: nodes, ..*query }),
    };
    if saves_messages(query) && query.operation.has_two_levels(algorithm) {
        return Choice { levels: Levels::Two, ..Choice::of(algorithm) };
    }
    Choice::of(between_nodes(query))
}

/// Returns `true` if two levels save messages between nodes that outweigh the extra copies.
fn saves_messages(query: &Query) -> bool {
    let nodes = query.nodes();
    let here = query.ranks_per_node.min(query.ranks);
    match query.operation {
        // One for each other node, where in one level each rank sends as many as there are rounds.
        Collective::Alltoall => {
            let rounds = query.ranks.next_power_of_two().ilog2();
            let for_node = query.bytes.saturating_mul(u64::from(here));
            here > 1 && for_node <= TWO_LEVEL_ALLTOALL && nodes - 1 <= here.saturating_mul(rounds)
        }
        _ => here > 1,
    }
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
