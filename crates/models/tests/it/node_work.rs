//! The work of the busiest node against the graphs of all ranks.

use collectives::{Algorithm, Choice, Collective, Levels, Reduction, build};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Operation;
use models::costs::{CostModel, Costs};
use models::decision::{CallForm, Query};
use models::parameters::Parameters;
use proptest::prelude::*;
use std::num::{NonZeroU32, NonZeroU64};

/// Overheads of a byte, in microseconds: of a message to another node, and inside a node.
const BETWEEN: f64 = 2.0;
const INSIDE: f64 = 0.5;

/// Messages that take nothing but overheads, half at each end.
fn costs(each: f64) -> Costs {
    let network = Parameters::linear(0.0, (0.0, each / 2.0), (0.0, each / 2.0), (0.0, 0.0));
    Costs::of_messages(network.expect("valid"))
}

/// Time of the busiest node for all messages of the graphs.
fn of_graphs(query: &Query, plan: &Choice) -> Option<f64> {
    let Query { operation, ranks, ranks_per_node, bytes, .. } = *query;
    let mut nodes = vec![0.0; query.nodes() as usize];
    for rank in 0..ranks {
        let spec = collectives::GraphSpec {
            collective: operation,
            rank,
            ranks,
            ranks_per_node: NonZeroU32::new(ranks_per_node)?,
            root: 0,
            bytes,
            reduction: Reduction::new(Arithmetic::Add, DataType::U8),
        };
        for vertex in build(&spec, plan).ok()?.vertices() {
            let Operation::Send { data, peer, .. } = &vertex.operation else { continue };
            let bytes = data.bytes()? as f64;
            let [from, to] = [rank, *peer].map(|rank| (rank / ranks_per_node) as usize);
            if from == to {
                nodes[from] += INSIDE * bytes;
            } else {
                nodes[from] += BETWEEN / 2.0 * bytes;
                nodes[to] += BETWEEN / 2.0 * bytes;
            }
        }
    }
    nodes.into_iter().reduce(f64::max)
}

/// Plans whose price is only near to the work of their graphs: a rank of these does not receive what
/// it has already, inner ranks of two trees lie on other nodes, phases stay inside nodes, the last
/// ranks of a scan send less. Formulas of reductions are upper bounds, and may be longer.
fn is_near(operation: Collective, algorithm: Algorithm) -> bool {
    use Algorithm::{Multiphase, ScatterAllgather, TwoTree};
    matches!(algorithm, ScatterAllgather | TwoTree | Multiphase)
        || matches!(operation, Collective::Scan | Collective::Exscan)
}

fn work(query: &Query, plan: &Choice) -> Option<f64> {
    let (inside, between) = (costs(INSIDE), costs(BETWEEN));
    let model = CostModel { inside: &inside, between: Some(&between), available: &|_, _, _| true };
    model.price(plan, query)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn work_is_what_the_messages_of_all_graphs_take(
        nodes in 1u32..4, here in 0u32..3, parts in 1u64..9, segment in 1u64..5, degree in 2u32..5,
    ) {
        let (nodes, here) = (1 << nodes, 1 << here);
        let ranks = nodes * here;
        // Parts of a message are equal.
        let bytes = parts * u64::from(ranks) * 8;
        for operation in Collective::ALL.iter().copied() {
            for algorithm in operation.algorithms().iter().copied() {
                for levels in Levels::ALL.iter().copied() {
                    let segment_bytes = NonZeroU64::new(bytes / (1 << segment));
                    let segment_bytes = segment_bytes.filter(|_| algorithm.is_segmented());
                    let degree = NonZeroU32::new(degree).filter(|_| algorithm.has_degree());
                    let plan = Choice { levels, algorithm, segment_bytes, degree };
                    let form = CallForm::Blocking;
                    let query = Query { operation, form, ranks, ranks_per_node: here, bytes };
                    let is_exchange = operation == Collective::Alltoall && levels == Levels::Two;
                    if algorithm == Algorithm::Join || is_exchange || query.nodes() < 2 {
                        continue;
                    }
                    let Some(counted) = of_graphs(&query, &plan) else { continue };
                    let Some(found) = work(&query, &plan) else { continue };
                    let slack = if is_near(operation, algorithm) { 3.0 } else { 1.0 + 1e-9 };
                    let is_bound = operation == Collective::Reduce || found <= counted * slack + 1e-9;
                    prop_assert!(
                        is_bound && counted <= found * slack + 1e-9,
                        "{query}, {plan}: {found}, and {counted} by the graphs"
                    );
                }
            }
        }
    }
}
