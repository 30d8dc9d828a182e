//! After a scan everybody has the contributions of the ranks before it combined, after an inclusive
//! one its own, too.

use crate::evaluator::Apply;
use crate::reference::{SHORT_SUM, SUM, all_exact, all_functions, apply, compose, fold};
use crate::{UNTOUCHED, rank_counts, run_with};
use collectives::{Algorithm, Collective, CollectiveError, Reduction, exscan, scan};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Graph;

fn check(
    apply: Apply,
    reduction: Reduction,
    inputs: &[Vec<u8>],
    inclusive: bool,
    graph: impl Fn(u32, u32, u64) -> Result<Graph, CollectiveError>,
) {
    let ranks = inputs.len() as u32;
    let bytes = inputs[0].len();
    let graphs: Vec<Graph> =
        (0..ranks).map(|rank| graph(rank, ranks, bytes as u64).unwrap()).collect();
    for (rank, buffers) in run_with(apply, &graphs, inputs).iter().enumerate() {
        let expected = match rank + usize::from(inclusive) {
            0 => vec![UNTOUCHED; bytes],
            count => fold(apply, reduction, &inputs[..count]),
        };
        assert_eq!(
            buffers[1], expected,
            "rank {rank} of {ranks}, {bytes} bytes, inclusive {inclusive}"
        );
    }
}

fn check_all(apply: Apply, reduction: Reduction, inputs: &[Vec<u8>]) {
    for algorithm in Collective::Scan.algorithms() {
        check(apply, reduction, inputs, true, |rank, ranks, bytes| {
            scan::graph(*algorithm, rank, ranks, bytes, reduction)
        });
    }
    for algorithm in Collective::Exscan.algorithms() {
        check(apply, reduction, inputs, false, |rank, ranks, bytes| {
            exscan::graph(*algorithm, rank, ranks, bytes, reduction)
        });
    }
}

#[test]
fn each_rank_gets_the_sum_of_the_ranks_before_it() {
    for ranks in rank_counts() {
        for elements in [0, 1, 7] {
            check_all(apply, SHORT_SUM, &all_exact(DataType::I16, ranks, elements));
        }
    }
}

#[test]
fn contributions_are_combined_in_rank_order() {
    for ranks in rank_counts() {
        check_all(compose, SUM, &all_functions(ranks, 2));
    }
}

#[test]
fn what_is_not_associative_is_folded_from_the_left_or_refused() {
    let reduction = Reduction::new(Arithmetic::Subtract, DataType::I64);
    let inputs = all_exact(DataType::I64, 6, 2);
    check(apply, reduction, &inputs, true, |rank, ranks, bytes| {
        scan::graph(Algorithm::Chain, rank, ranks, bytes, reduction)
    });
    check(apply, reduction, &inputs, false, |rank, ranks, bytes| {
        exscan::graph(Algorithm::Chain, rank, ranks, bytes, reduction)
    });
    assert!(scan::graph(Algorithm::RecursiveDoubling, 0, 6, 16, reduction).is_err());
    assert!(exscan::graph(Algorithm::RecursiveDoubling, 0, 6, 16, reduction).is_err());
}
