//! After a broadcast every rank has the data of the root.

use crate::evaluator::{Evaluation, Protocol};
use crate::{block, reference, run, tuning};
use collectives::{Algorithm, Collective, CollectiveError, Tuning, bcast};
use goal::graph::{Access, Blocks, Graph, Operation, Until, Vertex};

fn graphs(algorithm: Algorithm, ranks: u32, root: u32, bytes: u64, tuning: Tuning) -> Vec<Graph> {
    (0..ranks)
        .map(|rank| bcast::graph(algorithm, rank, ranks, root, bytes, tuning).unwrap())
        .collect()
}

#[test]
fn every_root_and_degree_will_do() {
    for root in 0..9 {
        for algorithm in Collective::Bcast.algorithms() {
            let inputs = vec![block(root, 0, 7); 9];
            assert!(
                run(&graphs(*algorithm, 9, root, 7, tuning(2, 1)), &inputs)
                    .concat()
                    .iter()
                    .all(|got| *got == inputs[0])
            );
        }
        for degree in [1, 2, 5, 8, 100, u32::MAX] {
            let graphs = graphs(Algorithm::Dary, 9, root, 7, tuning(1, degree));
            let inputs = vec![block(root, 0, 7); 9];
            assert!(
                run(&graphs, &inputs).concat().iter().all(|got| *got == inputs[0]),
                "degree {degree}, root {root}"
            );
        }
    }
}

#[test]
fn in_a_join_ranks_wait_for_the_root_only() {
    let graphs = graphs(Algorithm::Join, 5, 3, 8, Tuning::default());
    let inputs = vec![block(3, 0, 8); 5];
    let mut evaluation = Evaluation::new(&graphs, &inputs, Protocol::Eager, reference::apply, 1);
    evaluation.run(Some(1));
    assert_eq!(
        [0, 1, 2, 3, 4].map(|rank| evaluation.is_complete(rank)),
        [true, false, true, true, true]
    );
}

/// Bytes that a rank sends.
fn sent(graph: &Graph) -> u64 {
    let bytes = |entry: &goal::graph::VertexEntry| match &entry.operation {
        Operation::Send { data, .. } => data.bytes().unwrap(),
        _ => 0,
    };
    graph.vertices().iter().map(bytes).sum()
}

#[test]
fn two_trees_use_the_bandwidth_of_all_ranks_and_no_more() {
    for ranks in 2..=40 {
        let segments = 12;
        let bytes = 1200;
        for graph in graphs(Algorithm::TwoTree, ranks, 1, bytes, tuning(100, 1)) {
            let is_root = graph.buffers()[0].access == Access::Input;
            let limit = if is_root { bytes } else { bytes + 2 * bytes / segments };
            assert!(
                sent(&graph) <= limit,
                "rank {} of {ranks} sends {}",
                graph.rank(),
                sent(&graph)
            );
        }
    }
}

#[test]
fn scatter_allgather_sends_about_twice_the_bytes_at_most() {
    for ranks in 2..=33 {
        for graph in graphs(Algorithm::ScatterAllgather, ranks, 0, 33_000, Tuning::default()) {
            assert!(
                sent(&graph) <= 2 * 33_000,
                "rank {} of {ranks} sends {}",
                graph.rank(),
                sent(&graph)
            );
        }
    }
}

#[test]
fn a_message_in_too_many_segments_is_refused_and_told_which_will_do() {
    let error =
        bcast::graph(Algorithm::SegmentedChain, 0, 2, 0, 1 << 32, tuning(1000, 2)).unwrap_err();
    let expected = CollectiveError::TooManySegments {
        segments: 4294968,
        bytes: 1000,
        message: 1 << 32,
        enough: 65536,
    };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("give segments of 65536 bytes or more"), "{error}");
    assert!(bcast::graph(Algorithm::SegmentedChain, 0, 2, 0, 1 << 32, tuning(65536, 2)).is_ok());
}

#[test]
fn with_rendezvous_the_bytes_wait_until_the_receiver_is_ready_and_it_is_ready_when_it_waits() {
    for algorithm in
        [Algorithm::FlatRendezvous, Algorithm::ChainRendezvous, Algorithm::BinomialRendezvous]
    {
        for graph in graphs(algorithm, 6, 0, 8, Tuning::default()) {
            let operation = |vertex: Vertex| &graph.vertices()[vertex.index()].operation;
            let is_empty = |data: &Blocks| data.bytes() == Some(0);
            let waits = |after: Vertex, until: Until, before: &dyn Fn(&Operation) -> bool| {
                let edges = graph.edges().iter();
                edges.clone().any(|edge| {
                    edge.after == after && edge.until == until && before(operation(edge.before))
                })
            };
            for vertex in (0..graph.vertices().len() as u32).map(Vertex) {
                let Operation::Send { data, peer, tag } = operation(vertex) else { continue };
                let from_there = |other: &Operation, empty: bool| matches!(other, Operation::Receive { data, source, .. } if *source == Some(*peer) && is_empty(data) == empty);
                let case = format!("{algorithm}: {}", graph.describe(vertex));
                if !is_empty(data) {
                    assert!(
                        waits(vertex, Until::Complete, &|other| from_there(other, true)),
                        "{case}"
                    );
                } else if *tag == 2 {
                    assert!(
                        waits(vertex, Until::Complete, &|other| from_there(other, true)),
                        "{case}"
                    );
                    assert!(
                        waits(vertex, Until::Started, &|other| from_there(other, false)),
                        "{case}"
                    );
                }
            }
        }
    }
}
