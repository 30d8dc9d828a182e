//! After a broadcast everybody has what the root had.

use crate::evaluator::{Evaluation, Protocol};
use crate::{block, rank_counts, run};
use collectives::bcast::Algorithm;
use goal::graph::Graph;

fn graphs(algorithm: Algorithm, ranks: u32, root: u32, bytes: u64) -> Vec<Graph> {
    (0..ranks).map(|rank| algorithm.graph(rank, ranks, root, bytes).unwrap()).collect()
}

#[test]
fn everybody_gets_the_roots_bytes() {
    for algorithm in Algorithm::ALL {
        for ranks in rank_counts() {
            for root in 0..ranks {
                for bytes in [0, 1, 13] {
                    let graphs = graphs(*algorithm, ranks, root, bytes);
                    let inputs = vec![block(root, 0, bytes); ranks as usize];
                    for (rank, buffers) in run(&graphs, &inputs).iter().enumerate() {
                        assert_eq!(
                            *buffers,
                            [block(root, 0, bytes)],
                            "{algorithm}: rank {rank} of {ranks}, root {root}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn in_a_join_nobody_waits_for_anyone_but_the_root() {
    let graphs = graphs(Algorithm::Join, 5, 3, 8);
    let inputs = vec![block(3, 0, 8); 5];
    let mut evaluation = Evaluation::new(&graphs, &inputs, Protocol::Eager, 1);
    evaluation.run(Some(1));
    assert_eq!([0, 1, 2, 3, 4].map(|rank| evaluation.is_complete(rank)), [true, false, true, true, true]);
}
