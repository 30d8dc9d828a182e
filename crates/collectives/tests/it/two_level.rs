//! Equality of the results of collectives in one and in two levels.

use crate::evaluator::{Evaluation, Protocol};
use crate::reference::{self, SUM, all_functions, compose, fold};
use crate::{block, roots, run, run_with, tuning};
use collectives::{Algorithm, Collective, CollectiveError, Reduction, Sizes, two_level};
use goal::graph::{Graph, Operation};
use std::num::NonZeroU32;

/// Numbers of ranks and of ranks in a node.
fn shapes() -> impl Iterator<Item = (u32, NonZeroU32)> {
    let of =
        |ranks: u32| [1, 2, 3, 4, 7].map(|per_node| (ranks, NonZeroU32::new(per_node).unwrap()));
    [1, 2, 3, 4, 5, 8, 9, 12, 16, 17].into_iter().flat_map(of)
}

/// The collective's algorithms other than the join.
fn with_two_levels(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
    collective.algorithms().iter().filter(|algorithm| **algorithm != Algorithm::Join)
}

#[test]
fn all_ranks_get_the_roots_bytes() {
    for algorithm in with_two_levels(Collective::Bcast) {
        for (ranks, per_node) in shapes() {
            for root in roots(ranks) {
                let graph = |rank| {
                    two_level::bcast(rank, ranks, per_node, root, 11, *algorithm, tuning(4, 2))
                        .unwrap()
                };
                let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
                let inputs = vec![block(root, 0, 11); ranks as usize];
                for buffers in run(&graphs, &inputs) {
                    assert_eq!(
                        buffers,
                        [block(root, 0, 11)],
                        "{algorithm}: {ranks} ranks, {per_node} a node, root {root}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_root_gets_everything_combined_in_rank_order() {
    for algorithm in with_two_levels(Collective::Reduce) {
        for (ranks, per_node) in shapes() {
            for root in roots(ranks) {
                let how = (*algorithm, tuning(16, 2));
                let graph =
                    |rank| two_level::reduce(rank, ranks, per_node, root, 40, SUM, how).unwrap();
                let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
                let inputs = all_functions(ranks, 5);
                let result = &run_with(compose, &graphs, &inputs)[root as usize][1];
                let expected = fold(compose, SUM, &inputs);
                assert_eq!(
                    *result, expected,
                    "{algorithm}: {ranks} ranks, {per_node} a node, root {root}"
                );
            }
        }
    }
}

#[test]
fn all_ranks_get_the_combination_of_all_blocks() {
    for algorithm in with_two_levels(Collective::Allreduce) {
        for (ranks, per_node) in shapes() {
            let graph =
                |rank| two_level::allreduce(rank, ranks, per_node, 40, SUM, *algorithm).unwrap();
            let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
            let apply = if Collective::Allreduce.keeps_rank_order(*algorithm) {
                compose
            } else {
                reference::apply
            };
            let inputs = all_functions(ranks, 5);
            let expected = fold(apply, SUM, &inputs);
            for buffers in run_with(apply, &graphs, &inputs) {
                assert_eq!(buffers[1], expected, "{algorithm}: {ranks} ranks, {per_node} a node");
            }
        }
    }
}

/// Also where a node has one rank, whose own contribution is that of its node.
#[test]
fn an_allreduce_of_nodes_takes_no_operation_that_is_not_associative() {
    use goal::arithmetic::{Arithmetic, DataType};
    let difference = Reduction::new(Arithmetic::Subtract, DataType::I64);
    for algorithm in with_two_levels(Collective::Allreduce) {
        for (ranks, per_node) in shapes() {
            let refused = |rank: u32| {
                two_level::allreduce(rank, ranks, per_node, 40, difference, *algorithm).is_err()
            };
            assert!((0..ranks).all(refused), "{algorithm}: {ranks} ranks, {per_node} a node");
        }
    }
}

#[test]
fn all_ranks_get_all_blocks() {
    for algorithm in with_two_levels(Collective::Allgather) {
        for (ranks, per_node) in shapes() {
            let sizes: Vec<u64> = (0..u64::from(ranks)).map(|rank| rank * 5 % 4).collect();
            let inputs: Vec<Vec<u8>> =
                (0..).zip(&sizes).map(|(rank, bytes)| block(rank, 0, *bytes)).collect();
            let sizes = Sizes::each(&sizes).unwrap();
            let graph = |rank| two_level::allgather(rank, per_node, &sizes, *algorithm).unwrap();
            let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
            for buffers in run(&graphs, &inputs) {
                assert_eq!(
                    buffers[1],
                    inputs.concat(),
                    "{algorithm}: {ranks} ranks, {per_node} a node"
                );
            }
        }
    }
}

#[test]
fn no_rank_leaves_a_barrier_while_one_is_missing() {
    for algorithm in with_two_levels(Collective::Barrier) {
        for (ranks, per_node) in shapes() {
            let graph = |rank| two_level::barrier(rank, ranks, per_node, *algorithm).unwrap();
            let (graphs, inputs) =
                ((0..ranks).map(graph).collect::<Vec<Graph>>(), vec![Vec::new(); ranks as usize]);
            run(&graphs, &inputs);
            for missing in (0..ranks as usize).filter(|_| ranks > 1) {
                let mut evaluation =
                    Evaluation::new(&graphs, &inputs, Protocol::Eager, reference::apply, 7);
                evaluation.run(Some(missing));
                let out = (0..ranks as usize).find(|rank| evaluation.is_complete(*rank));
                assert_eq!(
                    out, None,
                    "{algorithm}: {ranks} ranks, {per_node} a node, without {missing}"
                );
            }
        }
    }
}

#[test]
fn only_leaders_talk_to_other_nodes() {
    let per_node = NonZeroU32::new(4).unwrap();
    for rank in (0..16).filter(|rank| ![0, 6, 8, 12].contains(rank)) {
        let graph =
            two_level::bcast(rank, 16, per_node, 6, 8, Algorithm::Binomial, tuning(8, 2)).unwrap();
        for entry in graph.vertices() {
            let (Operation::Send { peer, .. } | Operation::Receive { source: Some(peer), .. }) =
                entry.operation
            else {
                continue;
            };
            assert_eq!(peer / 4, rank / 4, "rank {rank} talks to {peer}");
        }
    }
}

#[test]
fn a_join_has_no_levels() {
    let error = two_level::barrier(0, 4, NonZeroU32::MIN, Algorithm::Join).unwrap_err();
    assert_eq!(
        error,
        CollectiveError::HasNoLevels { algorithm: "join", instead: "another algorithm" }
    );
}

/// Sizes of nodes for every small number of ranks: all that make a difference, and one that is
/// larger than the job.
fn every_shape() -> impl Iterator<Item = (u32, NonZeroU32)> {
    let of = |ranks: u32| {
        (1..=ranks + 1).map(move |per_node| (ranks, NonZeroU32::new(per_node).unwrap()))
    };
    (1..=13)
        .flat_map(of)
        .chain([(32, 8), (33, 8), (30, 4)].map(|(ranks, here)| (ranks, here.try_into().unwrap())))
}

/// The algorithms that an all-to-all has in two levels.
const ALLTOALLS: [Algorithm; 3] =
    [Algorithm::Direct, Algorithm::RotatedDirect, Algorithm::Pairwise];

#[test]
fn blocks_are_transposed() {
    for (ranks, per_node) in every_shape() {
        for (algorithm, bytes) in ALLTOALLS.into_iter().zip([5, 1, 3]).chain([(ALLTOALLS[1], 0)]) {
            let graph =
                |rank| two_level::alltoall(rank, ranks, per_node, bytes, algorithm).unwrap();
            let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
            let inputs: Vec<Vec<u8>> = (0..ranks)
                .map(|rank| (0..ranks).flat_map(|to| block(rank, to, bytes)).collect())
                .collect();
            for (rank, buffers) in run(&graphs, &inputs).iter().enumerate() {
                let expected: Vec<u8> =
                    (0..ranks).flat_map(|from| block(from, rank as u32, bytes)).collect();
                assert_eq!(
                    buffers[1], expected,
                    "{algorithm}: rank {rank} of {ranks}, {per_node} a node, {bytes} bytes"
                );
            }
        }
    }
}

/// Whom a rank sends messages to.
fn destinations(graph: &Graph) -> Vec<u32> {
    let peer = |operation: &Operation| match operation {
        Operation::Send { peer, .. } => Some(*peer),
        _ => None,
    };
    graph.vertices().iter().filter_map(|entry| peer(&entry.operation)).collect()
}

#[test]
fn one_message_goes_from_node_to_node_and_no_rank_speaks_with_more_nodes_than_it_must() {
    for (ranks, per_node) in every_shape() {
        let here = per_node.get();
        let nodes = ranks.div_ceil(per_node.get());
        let mut between = vec![0; (nodes * nodes) as usize];
        for rank in 0..ranks {
            let graph = two_level::alltoall(rank, ranks, per_node, 8, ALLTOALLS[1]).unwrap();
            let node = rank / here;
            let size = here.min(ranks - rank / here * here);
            let (inside, outside): (Vec<u32>, Vec<u32>) =
                destinations(&graph).into_iter().partition(|peer| peer / here == node);
            assert!(
                inside.len() as u32 <= 2 * (size - 1),
                "rank {rank} of {ranks}, {here} a node: {inside:?}"
            );
            assert!(
                outside.len() as u32 <= nodes.div_ceil(size),
                "rank {rank} of {ranks}, {here} a node: {outside:?}"
            );
            outside.iter().for_each(|peer| between[(node * nodes + peer / here) as usize] += 1);
        }
        let once = |index: usize| u32::from(index as u32 / nodes != index as u32 % nodes);
        assert!(
            between.iter().enumerate().all(|(index, count)| *count == once(index)),
            "{ranks}, {here} a node"
        );
    }
}

#[test]
fn an_alltoall_that_passes_on_blocks_has_no_levels() {
    for algorithm in
        Collective::Alltoall.algorithms().iter().filter(|algorithm| !ALLTOALLS.contains(algorithm))
    {
        let error = two_level::alltoall(0, 4, NonZeroU32::MIN, 8, *algorithm).unwrap_err();
        assert!(error.to_string().contains("use direct, rotated-direct or pairwise"), "{error}");
    }
}
