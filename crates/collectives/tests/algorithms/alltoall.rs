//! An all-to-all is a transposition of blocks.

use crate::{block, rank_counts, run};
use collectives::alltoall::{Algorithm, bruck};
use goal::graph::{Graph, Operation};

#[test]
fn blocks_are_transposed() {
    for algorithm in Algorithm::ALL {
        for ranks in rank_counts() {
            for bytes in [0, 1, 5, 64] {
                let graphs: Vec<Graph> = (0..ranks).map(|rank| algorithm.graph(rank, ranks, bytes).unwrap()).collect();
                let inputs: Vec<Vec<u8>> =
                    (0..ranks).map(|rank| (0..ranks).flat_map(|to| block(rank, to, bytes)).collect()).collect();
                for (rank, buffers) in run(&graphs, &inputs).iter().enumerate() {
                    let expected: Vec<u8> = (0..ranks).flat_map(|from| block(from, rank as u32, bytes)).collect();
                    assert_eq!(buffers[0], inputs[rank], "the input stays as it is");
                    assert_eq!(buffers[1], expected, "{algorithm}: rank {rank} of {ranks}, {bytes} bytes");
                }
            }
        }
    }
}

#[test]
fn bruck_sends_a_logarithmic_number_of_messages_from_independent_receives() {
    for (ranks, rounds) in [(2, 1), (3, 2), (8, 3), (9, 4), (100, 7)] {
        let graph = bruck(ranks / 2, ranks, 8).unwrap();
        let sends = graph.vertices().iter().filter(|entry| matches!(entry.operation, Operation::Send { .. }));
        assert_eq!(sends.count(), rounds, "{ranks} ranks");
        for edge in graph.edges() {
            let waiting = &graph.vertices()[edge.after.index()].operation;
            assert!(matches!(waiting, Operation::Send { .. }), "only sends wait, not {}", waiting.describe());
        }
    }
}
