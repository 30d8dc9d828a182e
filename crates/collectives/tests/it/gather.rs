//! After a gather the root has everybody's block, in rank order.

use crate::{block, rank_counts, roots, run, tuning};
use collectives::gather::tree_gather;
use collectives::{Algorithm, Collective, CollectiveError, Sizes, Tuning, gather};
use goal::graph::Graph;

fn check(algorithm: Algorithm, root: u32, sizes: &Sizes) {
    let ranks = sizes.ranks();
    let graph = |rank| gather::graph(algorithm, rank, root, sizes, tuning(4, 2)).unwrap();
    let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
    let inputs: Vec<Vec<u8>> =
        (0..ranks).map(|rank| block(rank, root, sizes.bytes(rank))).collect();
    for (rank, buffers) in run(&graphs, &inputs).iter().enumerate() {
        let expected = if rank == root as usize { inputs.concat() } else { Vec::new() };
        assert_eq!(buffers[1], expected, "{algorithm}: rank {rank} of {ranks}, root {root}");
    }
}

#[test]
fn the_root_gets_all_blocks_in_rank_order() {
    for algorithm in Collective::Gather.algorithms() {
        for ranks in rank_counts() {
            for root in roots(ranks) {
                for bytes in [0, 1, 9] {
                    check(*algorithm, root, &Sizes::equal(ranks, bytes).unwrap());
                }
            }
        }
    }
}

#[test]
fn blocks_may_be_of_any_size_except_in_a_join() {
    let mut sizes: Vec<u64> = Vec::new();
    for ranks in 1..=17 {
        sizes.push(u64::from(ranks * 7 + 5) % 11 * u64::from(ranks % 3));
        let sizes = Sizes::each(&sizes).unwrap();
        for root in roots(ranks) {
            for algorithm in Collective::Gather
                .algorithms()
                .iter()
                .filter(|algorithm| **algorithm != Algorithm::Join)
            {
                check(*algorithm, root, &sizes);
            }
        }
    }
    let error =
        gather::graph(Algorithm::Join, 0, 0, &Sizes::each(&[1, 2]).unwrap(), Tuning::default())
            .unwrap_err();
    assert_eq!(error, CollectiveError::NeedsEqualBlocks { algorithm: "join", instead: "binomial" });
}

#[test]
fn a_tree_gather_is_the_binomial_one() {
    let sizes = Sizes::equal(6, 24).unwrap();
    for rank in 0..6 {
        assert_eq!(
            tree_gather(rank, 6, 2, 24),
            gather::graph(Algorithm::Binomial, rank, 2, &sizes, Tuning::default())
        );
    }
}
