//! After a reduction the root has everybody's contribution combined.

use crate::evaluator::Apply;
use crate::reference::{SHORT_SUM, SUM, all_exact, all_functions, apply, compose, fold};
use crate::{rank_counts, roots, run_with, tuning};
use collectives::{Algorithm, Collective, Reduction, reduce};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Graph;

fn check(algorithm: Algorithm, apply: Apply, root: u32, reduction: Reduction, inputs: &[Vec<u8>]) {
    let ranks = inputs.len() as u32;
    let bytes = inputs[0].len() as u64;
    let graph = |rank| {
        reduce::graph(algorithm, rank, ranks, root, bytes, reduction, tuning(20, 3)).unwrap()
    };
    let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
    let combined = fold(apply, reduction, inputs);
    for (rank, buffers) in (0..).zip(run_with(apply, &graphs, inputs)) {
        let expected = if rank == root { combined.clone() } else { Vec::new() };
        assert_eq!(
            buffers[1], expected,
            "{algorithm}: rank {rank} of {ranks}, root {root}, {bytes} bytes"
        );
    }
}

#[test]
fn the_root_gets_the_sum() {
    for algorithm in Collective::Reduce.algorithms() {
        for ranks in rank_counts() {
            for root in roots(ranks) {
                for elements in [0, 1, 3, 25] {
                    check(
                        *algorithm,
                        apply,
                        root,
                        SHORT_SUM,
                        &all_exact(DataType::I16, ranks, elements),
                    );
                }
            }
        }
    }
}

#[test]
fn contributions_are_combined_in_rank_order() {
    for algorithm in Collective::Reduce.algorithms() {
        assert!(Collective::Reduce.keeps_rank_order(*algorithm));
        for ranks in rank_counts() {
            for root in roots(ranks) {
                check(*algorithm, compose, root, SUM, &all_functions(ranks, 5));
            }
        }
    }
}

#[test]
fn every_root_will_do() {
    for algorithm in Collective::Reduce.algorithms() {
        for root in 0..13 {
            check(*algorithm, compose, root, SUM, &all_functions(13, 4));
        }
    }
}

#[test]
fn what_is_not_associative_is_folded_from_the_left_or_refused() {
    for algorithm in Collective::Reduce.algorithms() {
        for operation in [Arithmetic::Subtract, Arithmetic::Divide] {
            let reduction = Reduction::new(operation, DataType::F64);
            if Collective::Reduce.folds_from_left(*algorithm) {
                check(*algorithm, apply, 3, reduction, &all_exact(DataType::F64, 7, 3));
            } else {
                let error =
                    reduce::graph(*algorithm, 0, 7, 0, 24, reduction, tuning(8, 2)).unwrap_err();
                assert!(error.to_string().contains(algorithm.name()), "{error}");
            }
        }
    }
}
