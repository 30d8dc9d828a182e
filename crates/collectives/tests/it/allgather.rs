//! After an allgather everybody has everybody's block, in rank order.

use crate::{block, rank_counts, run};
use collectives::{Algorithm, Collective, Sizes, allgather};
use goal::graph::Graph;

fn check(algorithm: Algorithm, sizes: &Sizes) {
    let ranks = sizes.ranks();
    let graphs: Vec<Graph> =
        (0..ranks).map(|rank| allgather::graph(algorithm, rank, sizes).unwrap()).collect();
    let inputs: Vec<Vec<u8>> = (0..ranks).map(|rank| block(rank, 0, sizes.bytes(rank))).collect();
    for (rank, buffers) in run(&graphs, &inputs).iter().enumerate() {
        assert_eq!(buffers[1], inputs.concat(), "{algorithm}: rank {rank} of {ranks}");
    }
}

#[test]
fn all_ranks_get_all_blocks_in_rank_order() {
    for algorithm in Collective::Allgather.algorithms() {
        for ranks in rank_counts() {
            for bytes in [0, 1, 7] {
                check(*algorithm, &Sizes::equal(ranks, bytes).unwrap());
            }
        }
    }
}

#[test]
fn blocks_may_be_of_any_size_except_in_a_join() {
    for algorithm in
        Collective::Allgather.algorithms().iter().filter(|algorithm| **algorithm != Algorithm::Join)
    {
        for ranks in rank_counts() {
            let sizes: Vec<u64> =
                (0..u64::from(ranks)).map(|rank| (rank * 7 + 5) % 11 * (rank % 3)).collect();
            check(*algorithm, &Sizes::each(&sizes).unwrap());
        }
    }
    assert!(allgather::graph(Algorithm::Join, 0, &Sizes::each(&[1, 2]).unwrap()).is_err());
}
