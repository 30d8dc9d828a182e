//! No rank gets out of a barrier before all are in it.

use crate::evaluator::{Evaluation, Protocol};
use crate::{rank_counts, reference, run};
use collectives::{Algorithm, Collective, barrier};
use goal::graph::Graph;

fn graphs(algorithm: Algorithm, ranks: u32) -> Vec<Graph> {
    (0..ranks).map(|rank| barrier::graph(algorithm, rank, ranks).unwrap()).collect()
}

#[test]
fn all_ranks_leave_when_all_have_entered() {
    for algorithm in Collective::Barrier.algorithms() {
        for ranks in rank_counts() {
            let graphs = graphs(*algorithm, ranks);
            assert!(
                run(&graphs, &vec![Vec::new(); ranks as usize]).iter().all(Vec::is_empty),
                "a barrier has no buffer"
            );
        }
    }
}

#[test]
fn no_rank_leaves_while_one_is_missing() {
    for algorithm in Collective::Barrier.algorithms() {
        for ranks in rank_counts().filter(|ranks| *ranks > 1) {
            let graphs = graphs(*algorithm, ranks);
            for missing in 0..ranks as usize {
                for protocol in [Protocol::Eager, Protocol::Rendezvous] {
                    let inputs = vec![Vec::new(); ranks as usize];
                    let mut evaluation = Evaluation::new(
                        &graphs,
                        &inputs,
                        protocol,
                        reference::apply,
                        missing as u64,
                    );
                    evaluation.run(Some(missing));
                    for rank in 0..ranks as usize {
                        assert!(
                            !evaluation.is_complete(rank),
                            "{algorithm}: {rank} of {ranks} without {missing}"
                        );
                    }
                    evaluation.run(None);
                    evaluation.finish();
                }
            }
        }
    }
}

#[test]
fn dissemination_takes_the_logarithm_of_the_ranks_in_rounds() {
    for (ranks, rounds) in
        [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1 << 20, 20), (u32::MAX, 32)]
    {
        let graph = barrier::graph(Algorithm::Dissemination, ranks - 1, ranks).unwrap();
        assert_eq!(graph.vertices().len(), 2 * rounds, "{ranks} ranks");
    }
}
