//! One-level plans among the ranks of several nodes, which have consecutive numbers on each.
//!
//! Two properties decide between such plans. Messages between neighbours mostly stay inside nodes:
//! a chain crosses each border once. And the ranks of a node share its way to the others: where all
//! of them send across at once, the last message has left after as many gaps.

use super::level::Costs;
use crate::query::Query;
use collectives::{Algorithm, Choice, Collective};

/// Returns the time of the messages of a one-level plan, in microseconds; `None` if the plan has no
/// formula that takes placement into account, or ranks are not spread evenly.
pub(super) fn messages(
    inside: &Costs,
    between: &Costs,
    plan: &Choice,
    query: &Query,
) -> Option<f64> {
    let Query { operation, ranks, ranks_per_node: here, bytes, .. } = *query;
    let nodes = query.nodes();
    if here < 2 || nodes < 2 || !ranks.is_multiple_of(here) {
        return None;
    }
    let of_node = bytes.saturating_mul(u64::from(here));
    let within = |bytes| inside.messages(operation, plan, here, bytes);
    let across = |bytes| between.messages(operation, plan, nodes, bytes);
    // The ranks of a node exchange with those of another, all at the same time.
    let shared = |senders: f64| between.shared_by(senders);
    let together = |bytes| shared(f64::from(here)).messages(operation, plan, nodes, bytes);
    use Algorithm as A;
    use Collective as C;
    match (operation, plan.algorithm) {
        (C::Bcast | C::Reduce | C::Scan | C::Exscan, A::Chain) => {
            Some(across(bytes)? + f64::from(nodes) * within(bytes)?)
        }
        (C::Bcast | C::Reduce, A::SegmentedChain) => {
            let segment = plan.segment_bytes.map_or(bytes, |segment| segment.get().min(bytes));
            Some(across(bytes)? + f64::from(nodes) * within(segment)?)
        }
        (_, A::RecursiveDoubling | A::RecursiveHalving | A::Rabenseifner)
            if !(nodes.is_power_of_two() && here.is_power_of_two()) =>
        {
            None
        }
        (C::Barrier | C::Allreduce | C::Scan | C::Exscan, A::RecursiveDoubling) => {
            Some(within(bytes)? + together(bytes)?)
        }
        (C::Allgather, A::RecursiveDoubling) | (C::ReduceScatter, A::RecursiveHalving) => {
            Some(within(bytes)? + together(of_node)?)
        }
        (C::Allreduce | C::Reduce, A::Rabenseifner) => {
            // Near partners come first, with the longest messages.
            Some(within(bytes)? + together(bytes.div_ceil(u64::from(here)))?)
        }
        (C::Barrier | C::Allreduce, A::Dissemination)
        | (C::Allgather | C::Alltoall, A::Bruck)
        | (C::Alltoall, A::Multiphase) => {
            shared(f64::from(here)).messages(operation, plan, ranks, bytes)
        }
        (C::Alltoall, A::Direct | A::Pairwise)
        | (_, A::RotatedDirect)
        | (C::ReduceScatter, A::Pairwise) => {
            // In P − 1 rounds a node sends a message for each pair of a rank here and one elsewhere.
            let crossing = f64::from(here) * f64::from(ranks - here) / f64::from(ranks - 1);
            shared(crossing).messages(operation, plan, ranks, bytes)
        }
        _ => None,
    }
}
