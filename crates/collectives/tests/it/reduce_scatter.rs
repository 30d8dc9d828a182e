//! After a reduce-scatter everybody has its block of what was combined.

use crate::evaluator::Apply;
use crate::reference::{SHORT_SUM, SUM, all_exact, all_functions, apply, compose, fold};
use crate::{rank_counts, run_with};
use collectives::{Algorithm, Collective, Reduction, Sizes, reduce_scatter};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Graph;

fn check(
    algorithm: Algorithm,
    apply: Apply,
    reduction: Reduction,
    sizes: &[u64],
    inputs: &[Vec<u8>],
) {
    let bytes = Sizes::each(sizes).unwrap();
    let graph = |rank| reduce_scatter::graph(algorithm, rank, &bytes, reduction).unwrap();
    let graphs: Vec<Graph> = (0..inputs.len() as u32).map(graph).collect();
    let combined = fold(apply, reduction, inputs);
    let mut start = 0;
    for (rank, buffers) in run_with(apply, &graphs, inputs).iter().enumerate() {
        let end = start + sizes[rank] as usize;
        assert_eq!(
            buffers[1],
            combined[start..end],
            "{algorithm}: rank {rank} of {}, sizes {sizes:?}",
            inputs.len()
        );
        start = end;
    }
}

fn equal(ranks: u32, elements: u64, unit: u64) -> Vec<u64> {
    vec![elements * unit; ranks as usize]
}

/// Some are empty.
fn different(ranks: u32, unit: u64) -> Vec<u64> {
    (0..u64::from(ranks)).map(|rank| (rank * 3 + 1) % 4 * unit).collect()
}

#[test]
fn each_rank_gets_its_block_of_the_sum() {
    for algorithm in Collective::ReduceScatter.algorithms() {
        for ranks in rank_counts() {
            let shapes =
                [equal(ranks, 0, 2), equal(ranks, 1, 2), equal(ranks, 3, 2), different(ranks, 2)];
            for sizes in shapes {
                let elements = sizes.iter().sum::<u64>() / 2;
                check(
                    *algorithm,
                    apply,
                    SHORT_SUM,
                    &sizes,
                    &all_exact(DataType::I16, ranks, elements),
                );
            }
        }
    }
}

#[test]
fn contributions_are_combined_in_rank_order_where_that_is_claimed() {
    for algorithm in Collective::ReduceScatter
        .algorithms()
        .iter()
        .filter(|one| Collective::ReduceScatter.keeps_rank_order(**one))
    {
        for ranks in rank_counts() {
            for sizes in [equal(ranks, 2, 8), different(ranks, 8)] {
                check(
                    *algorithm,
                    compose,
                    SUM,
                    &sizes,
                    &all_functions(ranks, sizes.iter().sum::<u64>() / 8),
                );
            }
        }
    }
}

#[test]
fn what_is_not_associative_is_folded_from_the_left_or_refused() {
    let sizes = equal(5, 2, 8);
    let reduction = Reduction::new(Arithmetic::Subtract, DataType::F64);
    for algorithm in Collective::ReduceScatter.algorithms() {
        if Collective::ReduceScatter.folds_from_left(*algorithm) {
            check(*algorithm, apply, reduction, &sizes, &all_exact(DataType::F64, 5, 10));
        } else {
            assert!(
                reduce_scatter::graph(*algorithm, 0, &Sizes::each(&sizes).unwrap(), reduction)
                    .is_err(),
                "{algorithm}"
            );
        }
    }
}
