//! After a scatter everybody has its block of the root's bytes.

use crate::{block, rank_counts, roots, run, tuning};
use collectives::{Algorithm, Collective, Sizes, scatter};
use goal::graph::Graph;

fn check(algorithm: Algorithm, root: u32, sizes: &Sizes) {
    let ranks = sizes.ranks();
    let graph = |rank| scatter::graph(algorithm, rank, root, sizes, tuning(4, 2)).unwrap();
    let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
    let blocks: Vec<Vec<u8>> =
        (0..ranks).map(|rank| block(root, rank, sizes.bytes(rank))).collect();
    let inputs: Vec<Vec<u8>> =
        (0..ranks).map(|rank| if rank == root { blocks.concat() } else { Vec::new() }).collect();
    for (rank, buffers) in run(&graphs, &inputs).iter().enumerate() {
        assert_eq!(buffers[1], blocks[rank], "{algorithm}: rank {rank} of {ranks}, root {root}");
    }
}

#[test]
fn each_rank_gets_its_block() {
    for algorithm in Collective::Scatter.algorithms() {
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
fn blocks_may_be_of_any_size() {
    for algorithm in Collective::Scatter.algorithms() {
        for ranks in rank_counts() {
            for root in roots(ranks) {
                let sizes: Vec<u64> =
                    (0..u64::from(ranks)).map(|rank| (rank * 7 + 5) % 11 * (rank % 3)).collect();
                check(*algorithm, root, &Sizes::each(&sizes).unwrap());
            }
        }
    }
}
